"""Plan: every number refused by name, whatever it is, and a plan read back from plain values."""

import hashlib
import json
from dataclasses import replace

import pytest

from choral.core.errors import PlanError
from choral.core.plan import Plan, require_number, require_whole

NUMBERS = {
    "devices": 16, "cohort": 10, "rounds": 20, "rows": 2440, "batch": 244, "step_size": 0.5, "clip": 1.0, "noise": 0.02,
}  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [400, 5000])
def test_a_whole_number_that_no_float_holds_is_refused_by_name(sign, power):
    """A float ends at 1.8e308, and Python writes no int of more than 4,300 digits out."""
    with pytest.raises(PlanError, match=r"^CH200 noise = -?10\^\d+ or more\. Must be a finite number above 0\.$"):
        require_number("noise", sign * 10**power)


def test_the_largest_whole_number_that_a_float_holds_is_taken():
    assert require_number("clip", int(1.7976931348623157e308)) == 1.7976931348623157e308


@pytest.mark.parametrize("bits", [63, 20_000])
def test_a_whole_number_beyond_63_bits_is_refused_with_its_bound(bits):
    with pytest.raises(PlanError, match=r"^CH200 rounds = 10\^\d+ or more\. .* at least 1 and below 2\^63\.$"):
        require_whole("rounds", 2**bits)
    assert require_whole("rounds", 2**63 - 1) == 2**63 - 1


@pytest.mark.parametrize("name", NUMBERS)
def test_no_number_of_a_plan_is_so_large_that_it_ends_in_anything_but_a_plan_error(name):
    with pytest.raises(PlanError, match="CH200"):
        Plan(**{**NUMBERS, name: 10**5000})


@pytest.mark.parametrize("name", NUMBERS)
def test_plain_values_that_lack_a_number_are_refused_with_its_name(name):
    values = {other: value for other, value in NUMBERS.items() if other != name}
    with pytest.raises(PlanError, match=f'CH103 a plan has no "{name}"'):
        Plan.from_dict(values)


def test_plain_values_may_leave_out_what_has_a_usual_value():
    assert Plan.from_dict(NUMBERS) == Plan(**NUMBERS, codec=1)  # all that does not say it is from before


def test_the_unit_is_a_record_and_changes_no_digest():
    given = {"devices": 4, "cohort": 2, "rounds": 3, "rows": 9, "batch": 3, "step_size": 0.5, "clip": 1.0, "noise": 1.0}
    plan = Plan(**given, codec=1)
    assert plan.unit == "record"
    assert "unit" not in plan.to_dict()
    assert Plan.from_dict({**plan.to_dict(), "unit": "record"}).digest == plan.digest
    # From before plans had a unit: SHA-256 of the fields that they had, by hand.
    fields = {**given, "local_steps": 1, "sampling": "poisson", "passes": "continue"}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert plan.digest == hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(PlanError, match=r'CH200 unit = \'house\'. Must be "record"'):
        Plan(**given, unit="house")


def test_probes_and_opened_turns_are_in_the_digest_only_where_there_are_any():
    plan = Plan(devices=16, cohort=10, rounds=20, rows=244, batch=24, step_size=0.5, clip=1.0, noise=0.02)
    assert not {"probes", "opened_turns"} & plan.to_dict().keys()
    probed = replace(plan, probes=32, opened_turns=2)
    assert Plan.from_dict(probed.to_dict()) == probed
    assert len({plan.digest, probed.digest, replace(probed, opened_turns=1).digest}) == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [({"noise": 0.0}, "CH204"), ({"probes": 7}, "CH200"), ({"probes": 257}, "CH200"), ({"probes": 0}, "CH200")],
)
def test_probes_of_updates_without_noise_too_few_and_too_many_and_opened_turns_without_them_are_refused(change, code):
    probed = Plan(
        devices=16, cohort=10, rounds=20, rows=244, batch=24, step_size=0.5, clip=1.0, noise=0.02, probes=32,
        opened_turns=2,
    )  # fmt: skip
    with pytest.raises(PlanError, match=code):
        replace(probed, **change)
