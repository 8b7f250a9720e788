"""Comparing a study by phone: the same check for the same study only, whatever a coordinator has searched for."""

import json
from dataclasses import dataclass
from math import exp, factorial
from types import SimpleNamespace

import pytest

from choral.core.errors import StorageError, TrustError
from choral.core.keys import digest, safety_number
from choral.deploy.approving import (
    DIGITS,
    NUMBERS,
    check_of,
    drawn_for,
    keep_typed,
    last_drawn,
    require_compared,
)

NAMES = ("harbour", "hill", "lake")


@dataclass(frozen=True)
class Study:
    """As much of an agreement as is compared."""

    digest: bytes
    roster: tuple[SimpleNamespace, ...] = tuple(SimpleNamespace(id=name) for name in NAMES)


ONE, OTHER = Study(b"s" * 32), Study(b"t" * 32)


@pytest.fixture
def homes(tmp_path):
    made = {name: tmp_path / name for name in NAMES}
    for home in made.values():
        home.mkdir()
    return made


def checks(drawn):
    """What everybody sees who types everybody's numbers."""
    reported = [f"{one.device}={one.number}" for one in drawn]
    return {
        one.device: one.with_typed(text for text in reported if not text.startswith(one.device)).checks for one in drawn
    }


def test_each_two_sites_with_the_same_study_see_the_same_check(homes):
    seen = checks([drawn_for(home, name, ONE) for name, home in homes.items()])
    assert all(seen[one][other] == seen[other][one] for one in NAMES for other in NAMES if one != other)
    assert all(len(check) == DIGITS for of_one in seen.values() for check in of_one.values())


def test_a_site_with_another_study_sees_other_checks(homes):
    drawn = [drawn_for(homes[name], name, OTHER if name == "lake" else ONE) for name in NAMES]
    seen = checks(drawn)
    assert seen["harbour"]["hill"] == seen["hill"]["harbour"]
    # Two checks that agree by chance, both of them, come once in 10^12.
    assert any(seen[name]["lake"] != seen["lake"][name] for name in ("harbour", "hill"))


def test_a_number_is_drawn_after_its_study_was_read_and_belongs_to_no_other(homes, monkeypatch):
    drawn, home = iter((417093, 7, 582044)), homes["hill"]
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    first = drawn_for(home, "hill", ONE)
    assert first == drawn_for(home, "hill", ONE) == last_drawn(home)
    assert (first.number, first.others) == ("417093", ("harbour", "lake"))
    assert drawn_for(home, "hill", OTHER).number == "000007"
    assert drawn_for(home, "hill", ONE).number == "582044"  # nobody may go back to a study once its number is known
    assert last_drawn(home).study_number == safety_number(ONE.digest)


def test_what_is_no_number_is_refused_and_digits_may_be_typed_as_they_are_read(homes):
    drawn = drawn_for(homes["hill"], "hill", ONE)
    typed = [drawn.with_typed([f"lake={number}"]) for number in ("417 093", "417-093", "417093")]
    assert typed[0] == typed[1] == typed[2] and typed[0].missing == ["harbour"]
    for wrong in ("lake=41709", "lake=4170933", "lake=41709x", "lake=", "lake", "417093", "hill=417093", "lake=٤١٧٠٩٣"):
        with pytest.raises(TrustError, match="CH614"):
            drawn.with_typed([wrong])
    with pytest.raises(StorageError, match="CH802"):
        last_drawn(homes["lake"])
    assert check_of(b"s", ("a", "1"), ("b", "2")) != check_of(b"s", ("a", "2"), ("b", "1"))


def test_a_coordinator_who_grinds_both_files_is_found_except_in_25_of_a_million_cases():
    """The arithmetic of docs/deployment.md: however good a pair of studies, its checks agree for few numbers only.

    For one pair of studies the second site's 10^6 possible numbers give equal checks in about Poisson(1) cases. The
    best of 2^80 pairs has no more than 25 of them.
    """
    tail = sum(exp(-1) / factorial(hits) for hits in range(26, 60))
    assert tail < 2**-89 and tail * 2**80 < 0.002


def small_check(study, *numbers, size=100):
    """A check of two digits, by choral's own hash."""
    return int.from_bytes(digest("compare", study, *(f"{number:02}".encode() for number in numbers)), "big") % size


def test_the_best_of_many_pairs_agrees_for_as_few_numbers_as_the_arithmetic_says():
    kept = [small_check(b"kept", 41, number) for number in range(100)]
    best = max(
        sum(small_check(b"%d" % candidate, 41, number) == kept[number] for number in range(100))
        for candidate in range(300)
    )
    assert 4 <= best <= 7  # P[Poisson(1) >= 8] is 1e-5: grinding gains a small factor, and no collision


def test_one_check_over_the_numbers_of_all_would_fall_to_the_last_one_who_speaks():
    """Why checks are of two sites: a third one that helps the coordinator tries its numbers until the two agree."""
    deceived = sum(
        any(small_check(b"a%d" % case, 41, 7, last) == small_check(b"b%d" % case, 41, 7, last) for last in range(100))
        for case in range(200)
    )
    assert 100 < deceived < 150  # 1 - 1/e of 200 is 126


def test_what_was_typed_is_kept_until_another_study_is_read_or_the_owner_says_no(homes):
    drawn = drawn_for(homes["hill"], "hill", ONE).with_typed(["lake=417093"])
    keep_typed(homes["hill"], drawn)
    assert last_drawn(homes["hill"]) == drawn_for(homes["hill"], "hill", ONE) == drawn
    assert drawn.forgotten.missing == ["harbour", "lake"] and drawn.forgotten.number == drawn.number
    assert drawn_for(homes["hill"], "hill", OTHER).typed == {}


def test_a_home_whose_number_was_drawn_by_an_earlier_version_is_read(homes):
    """compare.json of 0.2.0 has no numbers of others."""
    drawn = drawn_for(homes["hill"], "hill", ONE)
    text = json.loads((homes["hill"] / NUMBERS).read_text())
    assert text == {"study": ONE.digest.hex(), "device": "hill", "others": ["harbour", "lake"], "number": drawn.number}


def test_only_the_study_that_was_read_last_counts_as_compared(homes):
    with pytest.raises(TrustError, match="CH614"):
        require_compared(homes["hill"], ONE)
    drawn_for(homes["hill"], "hill", ONE)
    require_compared(homes["hill"], ONE)
    with pytest.raises(TrustError, match="CH614"):
        require_compared(homes["hill"], OTHER)
