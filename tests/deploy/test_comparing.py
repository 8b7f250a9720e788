"""Comparing a study by phone: the same check for the same study only, whatever a coordinator has searched for."""

from math import exp, factorial

import pytest

from choral.deploy.comparing import DIGITS, check_of, compare, number_for, spaced
from choral.errors import StorageError, TrustError
from choral.secagg.keys import digest

STUDY, OTHER = b"s" * 32, b"t" * 32


@pytest.fixture
def homes(tmp_path):
    made = [tmp_path / name for name in ("harbour", "hill", "lake")]
    for home in made:
        home.mkdir()
    return made


def test_sites_with_the_same_study_see_the_same_check_in_whatever_order_they_type(homes):
    numbers = [number_for(home, STUDY) for home in homes]
    seen = {compare(home, [numbers[at - 1], numbers[at - 2]])[1] for at, home in enumerate(homes)}
    assert len(seen) == 1 and len(seen.pop()) == DIGITS


def test_a_site_with_another_study_sees_another_check(homes):
    numbers = [number_for(home, study) for home, study in zip(homes, (STUDY, STUDY, OTHER), strict=True)]
    checks = [check_of(study, numbers) for study in (STUDY, OTHER)]
    assert checks[0] != checks[1]  # with chance 1 - 10^-6 over the numbers that were just drawn
    assert compare(homes[2], numbers[:2])[1] == checks[1]


def test_a_number_is_drawn_after_its_study_was_read_and_belongs_to_no_other(homes, monkeypatch):
    drawn = iter((417093, 7, 582044))
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    assert number_for(homes[0], STUDY) == number_for(homes[0], STUDY) == compare(homes[0])[0] == "417093"
    assert number_for(homes[0], OTHER) == "000007"
    assert number_for(homes[0], STUDY) == "582044"  # nobody may go back to a study once its number is known


def test_what_is_no_number_is_refused_and_digits_may_be_typed_as_they_are_read(homes):
    number_for(homes[0], STUDY)
    assert compare(homes[0], ["417 093"]) == compare(homes[0], ["417-093"]) == compare(homes[0], ["417093"])
    for typed in ("41709", "4170933", "41709x", "", "٤١٧٠٩٣"):
        with pytest.raises(TrustError, match="CH614"):
            compare(homes[0], [typed])
    with pytest.raises(StorageError, match="CH802"):
        compare(homes[1])
    assert spaced("417093") == "417 093"


def test_a_coordinator_who_grinds_both_files_is_found_but_for_25_in_a_million():
    """The arithmetic of docs/deployment.md: however good a pair of studies, its checks agree for few numbers only.

    For one pair of studies the last site's 10^6 possible numbers give equal checks in about Poisson(1) cases. The best
    of 2^80 pairs has no more than 25 of them.
    """
    tail = sum(exp(-1) / factorial(hits) for hits in range(26, 60))
    assert tail * 2**80 < 0.01
    # A whole number without anything drawn at the site falls to a collision: 2^80 tries find one of 160 bits.
    assert 2 * 80 / 3.3219 > 48


@pytest.mark.parametrize("tries", [300])
def test_the_best_of_many_pairs_agrees_for_as_few_numbers_as_the_arithmetic_says(tries):
    """The same grinding in small: numbers and checks of two digits, with choral's own hash."""
    size = 100

    def small_check(study, number):
        return int.from_bytes(digest("compare", study, b"41", f"{number:02}".encode()), "big") % size

    kept = [small_check(b"kept", number) for number in range(size)]
    best = max(
        sum(small_check(b"%d" % candidate, number) == kept[number] for number in range(size))
        for candidate in range(tries)
    )
    expected_tail = sum(exp(-1) / factorial(hits) for hits in range(best, 30))
    assert (
        3 <= best <= 9 and expected_tail * tries < 50
    )  # 1 is the mean; grinding gains a small factor, not a collision
