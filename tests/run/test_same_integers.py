"""simulate and rehearse are the same run: same plan, same seed, the same model to the last bit, with drop-outs too."""

import numpy as np
import pytest

from choral.run import Run
from tests.run.small import rows, study


def random_plan(case):
    rng = np.random.default_rng([case, 77])
    devices = int(rng.integers(4, 9))
    return {
        "devices": devices,
        "cohort": int(rng.integers(3, devices + 1)),
        "rounds": int(rng.integers(2, 4)),
        "local_steps": int(rng.integers(1, 4)),
        "batch": int(rng.integers(2, 12)),
        "step_size": float(rng.choice([0.1, 0.7, 2.0])),
        "clip": float(rng.choice([0.3, 1.0, 4.0])),
        "epsilon": float(rng.choice([2.0, 30.0])),
        "sampling": str(rng.choice(["poisson", "partition"])),
        "passes": str(rng.choice(["continue", "reshuffle"])),
        "participation": str(rng.choice(["uniform", "balanced"])),
        "seed": case,
        "drop": float(rng.choice([0.0, 0.15])),
    }


def outcome(kind, settings, data):
    settings = dict(settings)
    run = Run(
        kind, study(data, **{key: value for key, value in settings.items() if key != "drop"}), drop=settings["drop"]
    )
    lines = [(line["round"], line["cohort"], line["included"]) for line in run.rounds()]
    return run.parameters, lines, run.conclude().privacy


@pytest.mark.parametrize("case", range(20))
def test_simulate_equals_rehearse_to_the_integer(case):
    settings, data = random_plan(case), rows(400, 3, seed=case)
    fast, fast_lines, fast_privacy = outcome("simulation", settings, data)
    real, real_lines, real_privacy = outcome("rehearsal", settings, data)
    assert np.array_equal(fast, real)
    assert fast_lines == real_lines
    assert fast_privacy == real_privacy


def test_some_of_the_random_plans_do_lose_devices():
    dropped = 0
    for case in range(20):
        settings = random_plan(case)
        if settings["drop"]:
            run = Run("simulation", study(rows(400, 3, seed=case), **{k: v for k, v in settings.items() if k != "drop"}),
                      drop=settings["drop"])  # fmt: skip
            dropped += sum(len(line["cohort"]) - len(line["included"]) for line in run.rounds())
            if dropped:
                break
    assert dropped > 0
