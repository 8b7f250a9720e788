"""Momentum, FedProx and schedules: where they are allowed, the digest they leave alone, and how far they carry."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from choral.accounting.calibrate import calibrated
from choral.core.codec import Codec
from choral.core.errors import PlanError
from choral.core.plan import Plan, SecureSum
from choral.core.plan.budget import Budget
from choral.core.plan.local_optimiser import SCHEDULES, scales

PLAN = Plan(devices=8, cohort=8, rounds=5, rows=100, batch=20, local_steps=10, step_size=0.5, clip=1.0, noise=0.1)


def test_a_plan_without_them_has_the_digest_that_it_always_had():
    # As release 0.1.0 computed it, whose codec had another range.
    PLAN = replace(globals()["PLAN"], codec=1)
    assert PLAN.digest == "3f4cc0e7dd420264b2d6e37c682f534eb2bfccb8d3caefd9d60d5de4fd315d30"
    assert replace(PLAN, momentum=0.0, proximal=0.0, schedule="constant").digest == PLAN.digest
    changed = [{"momentum": 0.9}, {"proximal": 0.1}, {"schedule": "cosine"}]
    assert len({PLAN.digest, *(replace(PLAN, **one).digest for one in changed)}) == 4
    assert Plan.from_dict(replace(PLAN, momentum=0.9).to_dict()).momentum == 0.9


@pytest.mark.parametrize("optimiser", [{"momentum": 0.9}, {"proximal": 0.1}, {"schedule": "linear"}], ids=str)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"noise_is_added": "once", "row_length": 2.0, "sampling": "partition", "batch": 100}, "rule S7"),
        ({"law": "skellam", "local_steps": 1, "sampling": "partition"}, "rule S6"),
        ({"probes": 16}, "robust = true"),
        ({"local_steps": 1}, "one local step"),
    ],
    ids=str,
)
def test_they_are_refused_where_a_rule_forbids_them_by_its_name(optimiser, changes, named):
    with pytest.raises(PlanError, match=f"CH204 .*with {named}"):
        replace(PLAN, **changes, **optimiser)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"momentum": 1.0}, "momentum"),
        ({"proximal": -0.1}, "proximal"),
        ({"proximal": 2.5}, "proximal of at most 2"),
        ({"schedule": "steps"}, "schedule"),
        ({"momentum": 0.5, "proximal": 0.1, "schedule": "linear"}, "together"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(changes, what):
    with pytest.raises(PlanError, match=what):
        replace(PLAN, **changes)


@pytest.mark.parametrize("changes", [{"sampling": "poisson"}, {"sampling": "partition"}], ids=str)
def test_a_budget_asks_for_the_same_noise_with_and_without_them(changes):
    plain, budget = replace(PLAN, **changes), Budget(epsilon=1.0, delta=1e-5)
    optimised = replace(plain, momentum=0.9, schedule="cosine")
    assert calibrated(optimised, budget).noise == calibrated(plain, budget).noise > 0


def furthest(plan, steps):
    """The largest coordinate that the plan's steps can reach from clipped gradients of ±G and ±z deviations of noise.

    The response to one noisy gradient is found by simulation; the worst sum has each with the sign of its response.
    """
    responses = []
    for hit in range(steps):
        place = velocity = 0.0
        for step, scale in enumerate(scales(plan.schedule, steps)):
            slope = float(step == hit) + plan.proximal * place
            velocity = plan.momentum * velocity + slope
            place -= plan.step_size * scale * (velocity if plan.momentum else slope)
        responses.append(abs(place))
    return np.array(responses)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.3, "proximal": 2.0},
        {"momentum": 0.95, "proximal": 0.05},
        {"momentum": 0.9, "schedule": "linear"},
        {"proximal": 2.0, "schedule": "cosine"},
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [2, 10, 60])
def test_no_update_leaves_the_range_that_the_codec_counts_on(changes, steps):
    plan = replace(PLAN, local_steps=steps, **changes)
    reach = furthest(plan, steps)
    assert reach.max() <= plan.step_size * plan.stretch * (1 + 1e-12)
    codec = Codec.for_plan(plan, SecureSum.for_cohort(8), 100)
    tail = np.sqrt(2 * np.log(2 * 100 * 8 * 5 / codec.failure))
    needed = reach.sum() * plan.clip * plan.widest_batch / plan.batch + tail * plan.noise * np.sqrt(
        np.square(reach).sum()
    )
    assert needed <= (codec.largest - 1) * codec.grid


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_begin_with_the_step_size_and_never_exceed_it(schedule):
    found = scales(schedule, 7)
    assert found[0] == 1.0 and len(found) == 7
    assert all(0 < later <= earlier for earlier, later in pairwise(found))
