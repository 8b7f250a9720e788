"""Rules S1 and S2 by hand: a round costs the uses of a record that it adds, and never more than the whole run."""

import math

import pytest

from choral.core.exposure import Exposure
from choral.core.mechanisms.partition import PARTITION, composed
from choral.core.rules import EVERYONE

# E = 100/20 = 5 batches in a pass, z = σγ/G = 0.1·20/1 = 2.
NUMBERS = {
    "rounds": 4, "local_steps": 2, "cohort": 4, "devices": 8, "rows": 100, "batch": 20, "noise": 0.1, "clip": 1.0,
    "sampling": "partition",
}  # fmt: skip


def test_mu_of_n_uses_is_2_root_n_over_z():
    part = Exposure.of(**NUMBERS)
    assert composed(part, 9).mu == 2 / 2 * 3
    assert composed(part, 9, honest_noises=4).mu == 1.5


@pytest.mark.parametrize(
    ("passes", "uses"),
    [
        ("continue", [1, 0, 1, 0]),  # 2, 4, 6, 8 steps of passes of 5 begin pass 1, 1, 2, 2
        ("reshuffle", [1, 1, 1, 1]),  # each round begins a pass
    ],
)
def test_a_round_is_charged_for_the_uses_that_it_adds(passes, uses):
    part = Exposure.of(**NUMBERS, passes=passes)
    events = [PARTITION.event(part, number, 1e-9) for number in range(4)]
    assert [event.mu for event in events] == [float(number) for number in uses]
    assert {event.delta for event in events} == {1e-9}
    whole = PARTITION.against_everyone(part)
    assert (whole.rule, whole.adversary, part.most_uses) == ("S1", EVERYONE, sum(uses))
    assert whole.event.mu == pytest.approx(math.sqrt(sum(uses)))


def test_one_step_per_round_counts_the_noise_of_the_honest_devices_and_several_need_a_bound():
    one = Exposure.of(**{**NUMBERS, "local_steps": 1}, colluders=1, dropouts=1)
    summed = PARTITION.with_secure_sum(one)
    assert (summed.rule, one.honest_noises) == ("S2", 2)
    assert summed.event.mu == pytest.approx(PARTITION.against_everyone(one).event.mu / math.sqrt(2))
    why = PARTITION.with_secure_sum(Exposure.of(**NUMBERS))
    assert why.startswith("step_size and smoothness are not given")
