"""What the same devices reach without privacy, and each by itself: two lines that a private run is judged by."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from choral.backends.vectorised import Vectorised
from choral.federation import balanced_cohorts
from choral.learning.evaluate import evaluate
from choral.learning.local import Recipe
from choral.learning.persons import rows_of
from choral.learning.records import Records
from choral.privacy.exposure import rounds_each
from choral.record import Baselines
from choral.run.study import Study
from choral.run.watch import Watch, unwatched

STEP_SIZE = 1.0  # at most: without a clip, larger steps make a softmax on features within ±1 swing
_SHARE = 0.5  # of 1/L, for least squares: a network's layers bend what a row's length bounds for a linear model


def baselines(study: Study, watch: Watch = unwatched) -> Baselines:
    """The figure of merit on the test rows without noise, and the mean of every device trained alone without noise.

    Without noise, the plan's own clip and step size are tried and neither clip nor a large step size; the better one on
    the validation rows counts.
    """
    plan, start = study.plan, study.model.start(0)
    free = Recipe(steps=plan.local_steps, batch=plan.batch, step_size=_calm_step(study))
    recipes = {"NO NOISE, NO CLIP": free, "NO NOISE": replace(Recipe.of(plan), noise=0.0, update_noise=0.0)}
    models = [_together(study, recipe, watch, label) for label, recipe in recipes.items()]
    best = max(models, key=lambda parameters: _merit(study, parameters, study.split.validation))
    steps = plan.local_steps * rounds_each(plan)
    alone = Vectorised(
        model=study.trained,
        records=study.split.train,
        plan=replace(plan, local_steps=steps, rounds=1, law="gaussian"),  # by a recipe without any noise
        codec=study.codec,
        seed=study.seed,
        recipe=replace(free, steps=steps),
    )
    own: list[float] = []
    firsts = range(0, plan.devices, alone.lanes)  # not all at once: as many models as devices may not fit
    for first in watch(firsts, total=len(firsts), label="EACH ALONE"):
        some = np.arange(first, min(first + alone.lanes, plan.devices))
        own += [_merit(study, start + update, study.split.test) for update in alone.updates(start, 1, some)]
    return Baselines(without_privacy=_merit(study, best, study.split.test), alone=float(np.mean(own)))


def _together(study: Study, recipe: Recipe, watch: Watch, label: str) -> NDArray[np.float32]:
    """The parameters after the plan's rounds by this recipe, the mean of updates taken without a codec."""
    plan, parameters = study.plan, study.model.start(0)
    engine = Vectorised(
        model=study.trained, records=study.split.train, plan=plan, codec=study.codec, seed=study.seed, recipe=recipe
    )
    drawn = enumerate(balanced_cohorts(plan, seed=study.seed), start=1)
    for number, cohort in watch(drawn, total=plan.rounds, label=label):
        parameters = parameters + engine.updates(parameters, number, cohort).mean(axis=0)
    return parameters


def _calm_step(study: Study) -> float:
    """The plan's step size, or what does not swing without a clip; of a squared loss the rows' lengths decide that."""
    most = STEP_SIZE
    if study.data.target is not None:
        train = study.split.train if study.trained is study.model else rows_of(study.split.train)
        rows = train.features.reshape(len(train.labels), -1)
        most = _SHARE / (1 + float(np.einsum("ij,ij->i", rows, rows).max()))
    return min(study.plan.step_size, most)


def _merit(study: Study, parameters: NDArray[np.float32], rows: Records) -> float:
    found = evaluate(study.model, parameters, rows)
    return (found.accuracy if study.data.target is None else found.r2) or 0.0
