"""A ledger with two limits: against everyone, and against a server that sees only sums; each refuses by itself."""

import json

import pytest

from choral.accounting.ledger_statement import statement_of
from choral.core import exposure
from choral.core.balance import Balance
from choral.core.entries import Charge, Reservation
from choral.core.errors import LedgerError
from choral.core.events import Gaussian, Poisson, epsilon_of
from choral.core.ledger import Ledger
from choral.core.plan import Budget

DELTA = 1e-5
WIDE = Budget(epsilon=4.0, delta=DELTA)
EVERYONE, SUMS = Gaussian(mu=0.4), Gaussian(mu=0.1)


def charge(number: int, *, plan: str = "study", event=EVERYONE, summed=SUMS) -> Charge:
    return Charge(rule="S2", plan=plan, round=number, event=event, summed=summed)


def test_each_balance_composes_its_own_events():
    both = Balance(device="a", limit=WIDE)
    both.reserve(Reservation(rule="S2", plan="study", uploads=(EVERYONE,) * 3, summed=(SUMS,) * 3))
    for number in range(3):
        both.take(charge(number))
    assert both.epsilon == epsilon_of([EVERYONE] * 3, DELTA)
    assert both.against(exposure.SUMS).spent() == epsilon_of([SUMS] * 3, DELTA)


def test_an_upload_without_a_certificate_counts_in_full_with_the_secure_sum_too():
    both = Balance(device="a", limit=WIDE)
    both.take(charge(0))
    both.take(charge(1, event=Poisson(noise_multiplier=2.0, probability=0.1, steps=9), summed=None))
    sampled = Poisson(noise_multiplier=2.0, probability=0.1, steps=9)
    assert both.charges[1].uploads_against(exposure.SUMS)[0] == sampled
    assert both.against(exposure.SUMS).spent() >= epsilon_of([SUMS, sampled], DELTA)


@pytest.mark.parametrize(("limit", "sum_epsilon", "against"), [
    (WIDE, 0.6, "CH408.*against a server that sees only sums"),
    (Budget(epsilon=2.0, delta=DELTA), 4.0, "CH401.*against the server and all other devices together"),
])  # fmt: skip
def test_either_limit_refuses_and_says_against_whom(limit, sum_epsilon, against):
    both = Balance(device="a", limit=limit, sum_epsilon=sum_epsilon)
    taken = 0
    with pytest.raises(LedgerError, match=against):
        for taken in range(20):
            both.take(charge(taken))
    assert 0 < taken < 20
    assert len(both.charges) == taken  # a refusal leaves both as they were


def test_a_reservation_is_refused_by_either_limit_and_as_much_as_both_pay_for_is_affordable():
    both = Balance(device="a", limit=WIDE, sum_epsilon=0.6)
    many = Reservation(rule="S2", plan="study", uploads=(EVERYONE,) * 9, summed=(SUMS,) * 9)
    fits = both.affordable(many)
    assert epsilon_of([SUMS] * fits, DELTA) <= 0.6 < epsilon_of([SUMS] * (fits + 1), DELTA)
    with pytest.raises(LedgerError, match="CH401"):
        both.reserve(many)
    both.reserve(many.first(fits))
    assert both.reserved == epsilon_of([EVERYONE] * fits, DELTA)
    assert both.against(exposure.SUMS).reserved == epsilon_of([SUMS] * fits, DELTA)


def test_a_balance_of_sums_that_is_asked_for_late_is_the_one_that_was_kept_from_the_start():
    early, late = Balance(device="a", limit=WIDE, sum_epsilon=3.0), Balance(device="a", limit=WIDE)
    for both in (early, late):
        both.reserve(Reservation(rule="S2", plan="one", uploads=(EVERYONE,) * 2, summed=(SUMS,) * 2))
        both.take(charge(0, plan="one"))
        both.reserve(Reservation(rule="S2", plan="two", uploads=(EVERYONE,) * 3, summed=(SUMS,) * 3))
        both.release("two")
        both.take(charge(0, plan="three"))
    assert late.against(exposure.SUMS).reserved == early.against(exposure.SUMS).reserved
    assert late.against(exposure.SUMS).spent() == early.against(exposure.SUMS).spent()


def test_the_file_keeps_both_figures_and_both_limits(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, limit=WIDE, sum_epsilon=0.6) as ledger:
        ledger.reserve(Reservation(rule="S2", plan="study", uploads=(EVERYONE,) * 2, summed=(SUMS,) * 2))
        ledger.charge(charge(0))
    header, reserved, charged = (json.loads(line[65:]) for line in path.read_bytes().splitlines())
    assert (header["version"], header["epsilon_sum"]) == (3, 0.6)
    assert reserved["uploads"][0]["summed"] == charged["summed"] == {"kind": "gaussian", "mu": 0.1, "delta": 0.0}
    again = Ledger.read(path)
    assert again.sum_epsilon == 0.6
    sums = statement_of(again).with_secure_sum
    assert sums.spent.epsilon == epsilon_of([SUMS], DELTA) and sums.reserved == epsilon_of([SUMS] * 2, DELTA)
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="CH409"):
        ledger.charge(charge(1, summed=Gaussian(mu=0.05)))  # the sum's event is not the one that was reserved


def test_a_ledger_without_a_limit_for_sums_has_the_format_of_before(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, limit=WIDE) as ledger:
        ledger.charge(charge(0, summed=None))
        ledger.set_limit(Budget(epsilon=3.0, delta=DELTA))
    lines = [json.loads(line[65:]) for line in path.read_bytes().splitlines()]
    assert lines[0]["version"] == 2 and "epsilon_sum" not in lines[0]
    assert "summed" not in lines[1] and lines[2]["kind"] == "limit"


def test_a_limit_for_sums_that_comes_later_is_an_entry_that_older_versions_refuse(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, limit=WIDE) as ledger:
        ledger.charge(charge(0))
        ledger.set_limit(WIDE, 0.3)
        with pytest.raises(LedgerError, match="CH408"):
            ledger.charge(charge(1))
        ledger.set_limit(WIDE, None)
        ledger.charge(charge(1))
    kinds = [json.loads(line[65:]).get("kind") for line in path.read_bytes().splitlines()]
    assert kinds == [
        None,
        "charge",
        "limits",
        "limits",
        "charge",
    ]  # CH403 for version 2
    assert Ledger.read(path).sum_epsilon is None


def test_a_ledger_is_not_opened_with_other_limits_than_it_has(tmp_path):
    Ledger.open(tmp_path / "a.ledger", limit=WIDE, sum_epsilon=0.6).close()
    with pytest.raises(LedgerError, match=r"CH406.*ε = 0\.6 with the secure sum"):
        Ledger.open(tmp_path / "a.ledger", limit=WIDE)
