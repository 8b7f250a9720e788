"""Every digest, ε, rule, adversary, certificate, event and noise is what it was before mechanisms became values.

Everything is compared to the last bit, except for accounts and noises of Poisson batches. These come from
convolutions, which dp-accounting leaves to OpenBLAS: its kernels for different processors add in different orders, and
the results differ by about 1e-12 (OPENBLAS_CORETYPE=SKYLAKEX and HASWELL show it on one machine). So they may differ by
what `choral verify` allows.
"""

import json

import pytest

from choral.report.verify import EXACT, differences
from tests.privacy import golden

KEPT = json.loads(golden.FILE.read_text())


def test_the_accounts_of_a_spread_of_plans_are_those_that_were_written_down():
    now = [{"given": one, "account": golden.answer(golden.account, **one)} for one in golden.accounts()]
    compare(KEPT["accounts"], now, lambda one: one["given"].get("sampling") == "poisson")


def compare(kept, now, by_coins):
    """Compare what was kept with what is worked out now, one by one; what is drawn by coins to nine digits."""
    for one, other in zip(kept, json.loads(json.dumps(now)), strict=True):
        assert differences(one, other) == []
        assert by_coins(one) or one == other


def test_a_number_that_differs_by_more_than_another_processor_explains_is_found():
    assert EXACT <= 1e-9
    for change, found in ((1e-12, 0), (1e-8, 1)):
        assert len(differences({"epsilon": 1.5}, {"epsilon": 1.5 * (1 + change)})) == found


def without_sums(value):
    """What was kept before every charge also had its event with the secure sum."""
    if isinstance(value, dict):
        return {name: without_sums(one) for name, one in value.items() if name != "summed"}
    return [without_sums(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", range(len(KEPT["charges"])))
def test_a_plan_keeps_its_digest_its_charges_and_the_rounds_that_limits_allow(number):
    kept = KEPT["charges"][number]
    plan = golden.Plan.from_dict(kept["given"])
    now = {"given": plan.to_dict(), **golden.charges(plan)}
    assert without_sums(json.loads(json.dumps(now))) == kept
    assert list(now["given"]) == list(kept["given"])  # run.json lists them in this order


@pytest.mark.parametrize("number", range(len(KEPT["calibrations"])))
def test_the_least_noise_and_the_most_rounds_stay(number):
    kept = KEPT["calibrations"][number]
    plan = golden.Plan.from_dict(list(golden.plans())[number])
    assert plan.digest == kept["plan"]
    now = golden.calibrations(plan)
    compare([{rule: kept[rule] for rule in now}], [now], lambda _: not plan.partitioned)
