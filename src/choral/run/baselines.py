"""What the same devices reach without privacy, and each by itself: two lines that a private run is judged by."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from choral.backends.vectorised import Vectorised
from choral.federation import draw_cohort
from choral.learning.evaluate import evaluate
from choral.learning.local import Recipe
from choral.run.costs import rounds_each
from choral.run.study import Study

STEP_SIZE = 1.0


def baselines(study: Study) -> dict[str, float]:
    """Test accuracy of the same training with neither clip nor noise, and the mean of every device trained alone."""
    plan, start = study.plan, study.model.start(0)
    size = min(plan.step_size, STEP_SIZE)
    together = Recipe(steps=plan.local_steps, batch=plan.batch, step_size=size)
    engine = Vectorised(
        model=study.model, records=study.split.train, plan=plan, codec=study.codec, seed=study.seed, recipe=together
    )
    parameters = start
    everybody, counts = np.arange(plan.devices), np.zeros(plan.devices, dtype=np.int64)
    for number in range(1, plan.rounds + 1):
        rng = np.random.Generator(np.random.Philox(key=[study.seed, number << 8]))
        cohort = np.array(draw_cohort(everybody, counts, plan.cohort, rng, "balanced"))
        counts[cohort] += 1
        parameters = parameters + engine.updates(parameters, number, cohort).mean(axis=0)
    steps = plan.local_steps * rounds_each(plan)
    alone = Vectorised(
        model=study.model,
        records=study.split.train,
        plan=replace(plan, local_steps=steps, rounds=1),
        codec=study.codec,
        seed=study.seed,
        recipe=replace(together, steps=steps),
    )
    own = [_accuracy(study, start + update) for update in alone.updates(start, 1, everybody)]
    return {"without_privacy": _accuracy(study, parameters), "alone": float(np.mean(own))}


def _accuracy(study: Study, parameters: NDArray[np.float32]) -> float:
    return evaluate(study.model, parameters, study.split.test).accuracy or 0.0
