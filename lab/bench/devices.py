"""Whole devices protected (rule S4) compared with a trusted server: `python -m bench.devices [--quick] [--json]`.

Every device of Adult is in every round, and a tenth of them drops out. `choral` adds a share of the noise on each
device and opens the sum in the codec's integers, with Gaussian noise or in whole numbers. `trusted` clips the same
updates, adds them up exactly and adds one Gaussian of the same deviation at the server, as DP-FedAvg does (McMahan et
al. 2018). The noise of a full sum is MULTIPLIER times the clip in both; where devices drop out, both have the noise of
those that are left. `adaptive` has a clip that follows the median length of the updates, from one that is FAR times too
small or too large, next to the fixed one that was chosen well. Accuracy on held-out rows, in percent, over seeds.
"""

import argparse
import json
import statistics
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.accounting.proofs import exposed, with_secure_sum
from choral.engine.compiled import CompiledEngine
from choral.learning.evaluate import evaluate
from choral.learning.recipe import Recipe
from choral.run.planning import server_step_of, settle
from choral.run.study import Study
from choral.server_step import mean

DELTA = 1e-5
MULTIPLIER = 5.0  # of a full sum's noise, in units of the clip
DROPPED = 0.1
CLIP = {"logistic": 0.5, "mlp": 0.5}
FAR, ADAPTIVE = 30.0, {"rounds": 100, "clip_quantile": 0.5}
SIZES = (100, 1000)
SEEDS = 3  # of a quick run, of one model; five of both in full


def study_of(devices: int, model: str, seed: int, law: str, *, far: float = 1.0, **settings: Any) -> Study:  # noqa: ANN401 - of a job
    """Adult over so many devices, all of them in each round, with their shares of the noise.

    The clip is so many times `far` from the well-chosen one.
    """
    clip = far * CLIP[model]
    return settle(
        config.job_of(
            builtin="adult", devices=devices, cohort=devices, local_steps=5, batch=20, step_size=0.5,
            unit="device", clip=clip, noise=clip * MULTIPLIER / devices**0.5, delta=DELTA, law=law, seed=seed,
            model=model, hidden=[16] if model == "mlp" else None, secure_sum="sparse" if devices > 200 else "complete",
            **{"rounds": 20} | settings,
        )
    )  # fmt: skip


def accuracy(study: Study, *, trusted: bool) -> float:
    """The accuracy of one training, in percent."""
    plan, rng = study.plan, np.random.default_rng([study.seed, 0xD09])
    # A separate recipe for the trusted server: clipped updates without any noise.
    recipe = replace(Recipe.of(plan), update_noise=0.0, strict=False) if trusted else None
    given: dict[str, Any] = {"model": study.trained, "records": study.split.train, "codec": study.codec}
    engine = CompiledEngine(**given, plan=plan, seed=study.seed, recipe=recipe)
    parameters, everybody, server = study.trained.start(0), np.arange(plan.devices), server_step_of(study)
    state = server.init(parameters)
    for number in range(1, plan.rounds + 1):
        included = np.random.default_rng([study.seed, number]).random(plan.devices) >= DROPPED
        if trusted:
            total = engine.updates(parameters, number, everybody)[included].astype(np.float64).sum(axis=0)
            noise = plan.noise * np.sqrt(included.sum()) * rng.normal(size=len(total))
            parameters = (parameters + (total + noise) / included.sum()).astype(np.float32)
        else:
            opened = engine.train(parameters, number, everybody, included)
            move, state = server.update(mean(opened.total, opened.count, study.codec.grid), state)
            parameters = parameters + move
    found: NDArray[np.float32] = parameters[: study.model.size]
    return 100 * (evaluate(study.model, found, study.split.test).accuracy or 0.0)


def proved(study: Study) -> float:
    """ε of a whole device at DELTA against a server that sees sums, nobody colluding and a tenth missing."""
    plan = study.plan
    numbers = {name: getattr(plan, name) for name in ("rounds", "local_steps", "cohort", "devices", "rows", "batch",
                                                       "noise", "clip", "unit", "law", "clip_quantile")}  # fmt: skip
    loss = with_secure_sum(exposed(**numbers, dropouts=round(DROPPED * plan.devices)))
    assert not isinstance(loss, str)
    return loss.epsilon(DELTA)


def compared(devices: int, model: str, seeds: int) -> dict[str, Any]:
    """The mean accuracy of every contender over the seeds, and how far choral's are behind the trusted server's."""
    found: dict[str, list[float]] = {"trusted": [], "choral": [], "whole_numbers": []}
    for seed in range(seeds):
        study = study_of(devices, model, seed, "gaussian")
        found["trusted"].append(accuracy(study, trusted=True))
        found["choral"].append(accuracy(study, trusted=False))
        found["whole_numbers"].append(accuracy(study_of(devices, model, seed, "discrete_gaussian"), trusted=False))
    means = {name: statistics.fmean(values) for name, values in found.items()}
    gaps = {f"{name}_behind": means["trusted"] - means[name] for name in ("choral", "whole_numbers")}
    adaptive = adapted(devices, model, seeds)
    return means | gaps | {"epsilon": proved(study), "delta": DELTA, "rule": "S4", "adaptive": adaptive}


def adapted(devices: int, model: str, seeds: int) -> dict[str, float]:
    """The mean accuracy over the seeds with a clip that begins far away, and with a fixed one that was chosen well."""
    starts: dict[str, dict[str, Any]] = {
        "fixed": {"rounds": ADAPTIVE["rounds"]},
        "too_small": {"far": 1 / FAR, **ADAPTIVE},
        "too_large": {"far": FAR, **ADAPTIVE},
    }
    found: dict[str, float] = {}
    for name, how in starts.items():
        studies = [study_of(devices, model, seed, "gaussian", **how) for seed in range(seeds)]
        found[name] = statistics.fmean(accuracy(study, trusted=False) for study in studies)
    behind = found["fixed"] - min(found["too_small"], found["too_large"])
    return found | {"behind": behind, "epsilon": proved(studies[-1])}


def main() -> int:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one model, three seeds")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    models, seeds = (("logistic",), SEEDS) if args.quick else (tuple(CLIP), SEEDS + 2)
    found = {f"{model}_{size}": compared(size, model, seeds) for model in models for size in SIZES}
    if args.json:
        print(json.dumps(found))
        return 0
    for name, one in found.items():
        print(
            f"{name:<14} trusted {one['trusted']:.2f} %, choral {one['choral']:.2f} %, in whole numbers "
            f"{one['whole_numbers']:.2f} %; ε = {one['epsilon']:.2f} (rule S4, δ = {DELTA:g}, all records of one "
            "device replaced, against a server that sees only sums)"
        )
        adaptive = one["adaptive"]
        print(
            f"{'adaptive':<14} from a clip {FAR:g} times too small {adaptive['too_small']:.2f} %, too large "
            f"{adaptive['too_large']:.2f} %, fixed and chosen well {adaptive['fixed']:.2f} %, in "
            f"{ADAPTIVE['rounds']} rounds; ε = {adaptive['epsilon']:.2f} (the same rule, δ, neighbours and adversary)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
