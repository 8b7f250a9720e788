"""Rule S5: every step samples with q = γ/n and z = σγ/G, and a device that samples nothing is charged as by S1."""

from choral.accounting.proofs import against_everyone, exposed, with_secure_sum
from choral.core.events import Poisson
from choral.core.exposure import EVERYONE
from choral.core.mechanisms import PARTITION, POISSON, sampled

# q = 20/100 = 0.2, z = 0.1·20/1 = 2.
NUMBERS = {
    "rounds": 4, "local_steps": 2, "cohort": 4, "devices": 8, "rows": 100, "batch": 20, "noise": 0.1, "clip": 1.0
}  # fmt: skip


def test_a_round_costs_its_local_steps_and_a_run_all_of_them():
    part = exposed(**NUMBERS)
    assert POISSON.event(part, range(3, 4)) == Poisson(noise_multiplier=2.0, probability=0.2, steps=2)
    whole = against_everyone(part)
    assert (whole.rule, whole.adversary) == ("S5", EVERYONE)
    assert whole.event == Poisson(noise_multiplier=2.0, probability=0.2, steps=8)


def test_the_noise_of_four_honest_devices_doubles_z():
    assert sampled(exposed(**NUMBERS), 1, noises=4).noise_multiplier == 4.0


def test_the_secure_sums_noise_counts_for_one_step_per_round_only():
    one = exposed(**{**NUMBERS, "local_steps": 1})
    assert with_secure_sum(one).event == Poisson(noise_multiplier=4.0, probability=0.2, steps=4)
    assert with_secure_sum(exposed(**NUMBERS)).startswith("with Poisson sampling and several local steps")


def test_a_device_whose_batch_is_all_its_rows_is_charged_as_by_a_partition():
    assert POISSON.of_device(exposed(**NUMBERS)) is POISSON
    assert POISSON.of_device(exposed(**{**NUMBERS, "rows": 20})) is PARTITION
