"""Charges and reservations as values: written and read back, grouped, and as a server counts that sees only sums."""

import pytest

from choral.core.entries import Charge, Reservation
from choral.core.errors import PlanError
from choral.core.events import Gaussian, Poisson
from choral.core.exposure import EVERYONE, SUMS

LARGE, SMALL = Gaussian(mu=0.2), Gaussian(mu=0.1)
SAMPLED = Poisson(noise_multiplier=2.0, probability=0.1, steps=3)
CHARGE = Charge(rule="S2", plan="9f3c", round=3, attempt=1, event=LARGE, summed=SMALL)
THREE = Reservation(rule="S2", plan="9f3c", uploads=(LARGE, SAMPLED, LARGE), summed=(SMALL, SAMPLED, SMALL))


@pytest.mark.parametrize("entry", [CHARGE, Charge(rule="S1", plan="a", round=0, event=SAMPLED)])
def test_a_charge_is_read_back_as_it_was_written(entry):
    assert Charge.from_dict({**entry.to_dict(), "at": "now"}) == entry
    assert ("summed" in entry.to_dict()) is (entry.summed is not None)


def test_a_reservation_writes_equal_uploads_once_with_their_number():
    written = THREE.to_dict()
    assert [group["times"] for group in written["uploads"]] == [2, 1]
    again = Reservation.from_dict(written)
    assert sorted(map(repr, again.uploads)) == sorted(map(repr, THREE.uploads))
    assert dict(zip(again.uploads, again.summed, strict=True)) == {LARGE: SMALL, SAMPLED: SAMPLED}


def test_a_server_that_sees_sums_counts_the_smaller_event_where_one_is_proved():
    assert (CHARGE.uploads_against(SUMS), CHARGE.uploads_against(EVERYONE)) == ((SMALL,), (LARGE,))
    alone = Charge(rule="S1", plan="a", round=1, event=LARGE)
    assert alone.uploads_against(SUMS) == (LARGE,)
    assert (THREE.uploads_against(SUMS), THREE.uploads_against(EVERYONE)) == (THREE.summed, THREE.uploads)


def test_a_part_of_a_reservation_keeps_both_events_of_its_uploads():
    assert THREE.first(2).uploads == (LARGE, SAMPLED) and THREE.first(9) == THREE
    assert (THREE.only([2]).uploads, THREE.only([2]).summed) == ((LARGE,), (SMALL,))


@pytest.mark.parametrize(
    "change", [{"rule": ""}, {"plan": "a\nb"}, {"plan": "x" * 201}, {"round": -1}, {"attempt": 0.5}]
)
def test_what_is_no_short_line_or_no_turn_is_refused(change):
    with pytest.raises(PlanError, match="CH200"):
        Charge(**{"rule": "S1", "plan": "a", "round": 1, "event": LARGE} | change)


def test_a_reservation_of_nothing_or_with_too_few_events_is_refused():
    with pytest.raises(PlanError, match="CH200 uploads = 0"):
        Reservation(rule="S1", plan="a", uploads=())
    with pytest.raises(PlanError, match="CH200 2 uploads and 1 events with the secure sum"):
        Reservation(rule="S1", plan="a", uploads=(LARGE, LARGE), summed=(SMALL,))
