"""Units of privacy: a new one is one value, and plans, proofs, training and reports take what they need from it."""

from dataclasses import replace

import pytest

from choral.accounting.proofs import against_everyone
from choral.accounting.words import words_of
from choral.core.errors import PlanError
from choral.core.exposure import exposure_of
from choral.core.plan import Plan, SecureSum
from choral.core.plan.units import DEVICE, PERSON, RECORD, UNITS, unit_of
from choral.learning.models import logistic
from choral.learning.persons import model_of_units

NUMBERS = {"devices": 4, "cohort": 4, "rounds": 3, "rows": 9, "batch": 3, "step_size": 0.5, "clip": 1.0, "noise": 1.0}


@pytest.fixture
def households(monkeypatch):
    """A unit that choral does not have, added as its one value."""
    made = replace(PERSON, name="household", adjacency="one household replaced (at most {rows_per_person} rows)")
    monkeypatch.setitem(UNITS, "household", made)
    return Plan(**NUMBERS, unit="household", rows_per_person=2)


def test_a_new_unit_has_its_proofs_its_training_and_its_digest_from_its_one_value(households):
    part = exposure_of(households, SecureSum.for_cohort(4), rows=9, rounds=3)
    persons = replace(part, unit="person")
    assert against_everyone(part).adjacency == "one household replaced (at most 2 rows)"
    assert against_everyone(part).event == against_everyone(persons).event
    assert "per household" in words_of(households).described(households)
    assert model_of_units(logistic(3, 2), households).shape == (2, 5)  # of a row: 3 features, its label, if it is used
    assert households.to_dict()["unit"] == "household"
    assert Plan.from_dict(households.to_dict()) == households


def test_exactly_the_record_is_one_row():
    assert [unit.one_row for unit in (RECORD, PERSON, DEVICE)] == [True, False, False]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"rows_per_person": 2}, r'CH204 rows_per_person = 2 with unit = "record"\. .*or use unit = "person"\.'),
        ({"clip_quantile": 0.5}, r'CH204 clip_quantile = 0.5 with unit = "record"\. .*rule S4.* use unit = "device"\.'),
        ({"unit": "person", "rows_per_person": 2, "clip_quantile": 0.5}, r'CH204 clip_quantile = 0.5 with unit = "per'),
        ({"unit": "device", "rows_per_person": 2}, r'CH204 rows_per_person = 2 with unit = "device"\.'),
        ({"unit": "person"}, "CH200 rows_per_person = 0"),
    ],
)
def test_a_number_of_another_unit_is_refused_and_a_missing_one_too(numbers, said):
    with pytest.raises(PlanError, match=said):
        Plan(**NUMBERS, **numbers)


def test_a_unit_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(PlanError, match='Must be "record" or "person" or "device"'):
        unit_of("house")
