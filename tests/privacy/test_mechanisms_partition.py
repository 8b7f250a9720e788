"""Rules S1 and S2 by hand: a round costs the uses of a record that it adds, and never more than the whole run."""

import math

import pytest

from choral.accounting.proofs import against_everyone, exposed, with_secure_sum
from choral.core.exposure import EVERYONE
from choral.core.mechanisms import PARTITION, composed

# E = 100/20 = 5 batches in a pass, z = σγ/G = 0.1·20/1 = 2.
NUMBERS = {
    "rounds": 4, "local_steps": 2, "cohort": 4, "devices": 8, "rows": 100, "batch": 20, "noise": 0.1, "clip": 1.0,
    "sampling": "partition",
}  # fmt: skip


def test_mu_of_n_uses_is_2_root_n_over_z():
    part = exposed(**NUMBERS)
    assert composed(part, 9).mu == 2 / 2 * 3
    assert composed(part, 9, noises=4).mu == 1.5


@pytest.mark.parametrize(
    ("passes", "uses"),
    [
        ("continue", [1, 0, 1, 0]),  # 2, 4, 6, 8 steps of passes of 5 begin pass 1, 1, 2, 2
        ("reshuffle", [1, 1, 1, 1]),  # each round begins a pass
    ],
)
def test_a_round_is_charged_for_the_uses_that_it_adds(passes, uses):
    part = exposed(**NUMBERS, passes=passes)
    events = [PARTITION.event(part, range(number, number + 1)) for number in range(4)]
    assert [event.mu for event in events] == [float(number) for number in uses]
    assert {event.delta for event in events} == {0.0}
    whole = against_everyone(part)
    assert (whole.rule, whole.adversary, part.uses(range(part.rounds))) == ("S1", EVERYONE, sum(uses))
    assert whole.event.mu == pytest.approx(math.sqrt(sum(uses)))


def test_one_step_per_round_counts_the_noise_of_the_honest_devices_and_several_need_a_bound():
    one = exposed(**{**NUMBERS, "local_steps": 1}, colluders=1, dropouts=1)
    summed = with_secure_sum(one)
    assert (summed.rule, one.honest_noises) == ("S2", 2)
    assert summed.event.mu == pytest.approx(against_everyone(one).event.mu / math.sqrt(2))
    why = with_secure_sum(exposed(**NUMBERS))
    assert why.startswith("step_size and smoothness are not given")
