"""Every digest, ε, rule, adversary, certificate, event and noise is what it was before mechanisms became values."""

import json

import pytest

from tests.privacy import golden

KEPT = json.loads(golden.FILE.read_text())


def test_the_accounts_of_a_spread_of_plans_are_those_that_were_written_down():
    now = [{"given": one, "account": golden.answer(golden.account, **one)} for one in golden.accounts()]
    assert json.loads(json.dumps(now)) == KEPT["accounts"]


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
def test_the_least_noise_and_the_most_rounds_stay_to_the_last_bit(number):
    kept = KEPT["calibrations"][number]
    plan = golden.Plan(**list(golden.plans())[number])
    assert plan.digest == kept["plan"]
    now = golden.calibrations(plan)
    assert now == {rule: kept[rule] for rule in now}
