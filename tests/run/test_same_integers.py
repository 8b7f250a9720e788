"""simulate and rehearse are the same run: same plan, same seed, the same model to the last bit, with drop-outs too."""

import numpy as np
import pytest

from choral.backends.wire import drops_out
from choral.core.messages import Turn
from choral.run.runs import Run
from tests.cases import cases
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


def run_of(kind, case):
    settings = random_plan(case)
    drop = settings.pop("drop")
    return Run(kind, study(rows(400, 3, seed=case), **settings), drop=drop)


def outcome(kind, case):
    run = run_of(kind, case)
    lines = [(line.round, line.cohort, line.included) for line in run.rounds()]
    return run.parameters, lines, run.conclude().privacy


@pytest.mark.parametrize("case", cases(20, quick=4))
def test_simulate_equals_rehearse_to_the_integer(case):
    fast, fast_lines, fast_privacy = outcome("simulation", case)
    real, real_lines, real_privacy = outcome("rehearsal", case)
    assert np.array_equal(fast, real)
    assert fast_lines == real_lines
    assert fast_privacy == real_privacy


def test_some_of_the_random_plans_do_lose_devices():
    lossy = [case for case in range(20) if random_plan(case)["drop"]]
    lost = sum(
        drops_out(case, 0.15, Turn(number, 0), device)
        for case in lossy
        for number in range(1, 1 + random_plan(case)["rounds"])
        for device in range(random_plan(case)["devices"])
    )
    assert lost >= 10
