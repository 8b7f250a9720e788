"""Rule S4 by hand: μ = 2S√C/(σ_u√r_eff), for all records of a device, whatever its local steps are."""

from dataclasses import replace

import pytest

from choral.accounting.proofs import exposed, of_clipped_updates
from choral.core.errors import PlanError
from choral.core.exposure import EVERYONE
from choral.core.mechanisms import CLIPPED_UPDATE, whole_updates
from choral.core.plan.units import DEVICE

NUMBERS = {
    "rounds": 9, "local_steps": 5, "cohort": 6, "devices": 12, "rows": 100, "batch": 10, "noise": 4.0, "clip": 1.0
}  # fmt: skip


def test_mu_grows_with_the_root_of_the_rounds_and_falls_with_the_root_of_the_honest_noises():
    part = exposed(**NUMBERS)
    assert whole_updates(part, 9, 1).mu == 2 * 1.0 / 4.0 * 3  # √9
    assert whole_updates(part, 9, 4).mu == 0.75  # and by √4 less


def test_every_round_costs_the_same_and_the_whole_run_is_their_sum_of_squares():
    part = exposed(**NUMBERS)
    events = [CLIPPED_UPDATE.event(part, range(number, number + 1)) for number in range(9)]
    assert {event.mu for event in events} == {0.5}
    assert CLIPPED_UPDATE.event(part, range(9)).mu == sum(event.mu**2 for event in events) ** 0.5 == 1.5


def test_it_is_about_devices_and_counts_the_noise_of_those_that_neither_collude_nor_drop_out():
    part = exposed(**NUMBERS, colluders=1, dropouts=1)
    alone, summed = of_clipped_updates(replace(part, secure_sum=False)), of_clipped_updates(part)
    assert (alone.rule, alone.adversary, alone.adjacency) == ("S4", EVERYONE, DEVICE.adjacency)
    assert summed.event.mu == pytest.approx(1.5 / 2)  # 6 − 1 − 1 = 4 honest noises
    assert "4 honest devices" in summed.certificate


def test_whole_number_noise_is_refused_since_the_rule_is_about_gaussians():
    part = exposed(**{**NUMBERS, "local_steps": 1}, law="skellam", sampling="partition")
    with pytest.raises(PlanError, match=r'CH204 law = "skellam" with updates clipped as a whole'):
        of_clipped_updates(part)
    assert of_clipped_updates(exposed(**NUMBERS)).rule == "S4"
    assert not CLIPPED_UPDATE.describes(part, "every step")
