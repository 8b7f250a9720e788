"""One device's part of a plan: uses, steps, honest noises and stretches, by hand."""

import itertools

import pytest

from choral.accounting.proofs import exposed, lipschitz, rounds_each
from choral.core.errors import PlanError
from choral.core.exposure import exposure_of
from choral.core.plan import Plan, SecureSum

NUMBERS = {
    "rounds": 6, "local_steps": 3, "cohort": 5, "devices": 10, "rows": 100, "batch": 20, "noise": 0.5, "clip": 2.0
}  # fmt: skip


@pytest.mark.parametrize(
    ("passes", "uses"),
    [
        ("continue", [0, 1, 2, 2, 3, 3, 4]),  # ⌈3k/5⌉: 100 rows are 5 batches of 20
        ("reshuffle", [0, 1, 2, 3, 4, 5, 6]),  # each round begins a pass of which it uses three batches
    ],
)
def test_the_most_used_record_of_a_partition_is_counted_round_by_round(passes, uses):
    part = exposed(**NUMBERS, sampling="partition", passes=passes)
    assert [part.uses(range(rounds)) for rounds in range(7)] == uses
    assert [part.uses(range(one, one + 1)) for one in range(6)] == [b - a for a, b in itertools.pairwise(uses)]


def test_steps_multiplier_and_sampling_follow_from_the_numbers():
    part = exposed(**NUMBERS)
    assert (part.noise_multiplier, part.sampled) == (0.5 * 20 / 2.0, True)
    assert not exposed(**{**NUMBERS, "batch": 100}).sampled


def test_the_noises_of_those_who_collude_or_drop_out_do_not_count_and_without_a_secure_sum_only_ones_own():
    assert exposed(**NUMBERS, colluders=1, dropouts=2).honest_noises == 2
    assert exposed(**NUMBERS, secure_sum=False).honest_noises == 1
    with pytest.raises(PlanError, match="CH204 3 colluders and 2 drop-outs leave none of 5 in the cohort"):
        exposed(**NUMBERS, colluders=3, dropouts=2)


def test_a_step_stretches_by_1_plus_step_size_times_smoothness_unless_the_loss_is_convex():
    known = {**NUMBERS, "step_size": 0.5, "smoothness": 2.0}
    assert lipschitz(exposed(**known)) == 2.0
    assert lipschitz(exposed(**known, convex=True)) == 1.0
    assert lipschitz(exposed(**{**known, "step_size": 2.0}, convex=True)) == 5.0  # 2·2 is beyond 2
    assert lipschitz(exposed(**NUMBERS)) is None


def test_a_device_takes_its_turns_rounded_up_and_its_own_rows_count():
    plan = Plan(devices=14, cohort=10, rounds=10, rows=100, batch=20, step_size=0.5, clip=1.0, noise=1.0)
    assert rounds_each(plan) == 8  # 100/14
    secure = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2)
    part = exposure_of(plan, secure, rows=300, rounds=8)
    assert (part.rows, part.rounds, part.colluders) == (300, 8, 2)
    # t + s − r − c + 1 = 7 + 8 − 10 − 2 + 1 (docs/secure-sum.md; tests/attacks/test_lying_server.py reaches the bound)
    assert part.honest_noises == secure.honest_noises("lying") == 4
