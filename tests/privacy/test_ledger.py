"""The ledger: what it refuses, what it survives, and that what it says was spent is what was charged."""

import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.accounting.ledger_statement import adversaries_of, rules_of, statement_of
from choral.core import sealed
from choral.core.errors import LedgerError, PlanError, StorageError
from choral.core.events import Gaussian, Poisson, Zcdp, epsilon_of
from choral.core.exposure import EVERYONE
from choral.core.ledger import Balance, Charge, Ledger, Receipt, Reservation
from choral.core.plan import Budget
from choral.core.sealed import parse

TWO = Budget(epsilon=2.0, delta=1e-5)
HERE = Path(__file__).parent


def charge(number, event=None, *, rule="S1", plan="plan", attempt=0):
    return Charge(rule=rule, plan=plan, round=number, attempt=attempt, event=event or Gaussian(mu=0.1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device-02.ledger"


def test_a_charge_is_in_the_file_when_it_returns_and_names_everything(path):
    with Ledger.open(path, limit=TWO) as book:
        receipt = book.charge(
            charge(3, Poisson(noise_multiplier=2.0, probability=0.1, steps=10, delta=1e-9), rule="S5")
        )
        lines = parse(path.read_bytes(), "x")
        assert lines.receipt == receipt == book.receipt
        body = dict(lines.bodies[-1])
        assert body.pop("at").endswith("+00:00")
        assert body == {
            "kind": "charge", "rule": "S5", "plan": "plan", "round": 3, "attempt": 0,
            "adversary": "the server and all other devices together",
            "event": {"kind": "poisson", "noise_multiplier": 2.0, "probability": 0.1, "steps": 10, "delta": 1e-9},
        }  # fmt: skip
        assert book.device == "device-02"


def test_the_charge_that_would_pass_the_limit_is_refused_and_leaves_every_byte(path):
    # Gaussian DP: at δ = 1e-5 μ = 0.49 is ε = 1.95 and √2·0.49 is 2.86 (exact): one charge fits into 2, two do not.
    with Ledger.open(path, limit=TWO) as book:
        book.charge(charge(1, Gaussian(mu=0.49)))
        before, receipt = path.read_bytes(), book.receipt
        with pytest.raises(LedgerError) as refused:
            book.charge(charge(2, Gaussian(mu=0.49)))
        assert refused.value.code == "CH401"
        for part in (
            "device device-02 refuses round 2",
            "of 2;",
            "Nothing was sent",
            "S1",
            "one record replaced",
            "against",
        ):
            assert part in str(refused.value)
        assert (path.read_bytes(), book.receipt) == (before, receipt)
        assert len(book.balance.charges) == 1
        book.charge(charge(2, Gaussian(mu=0.01)))  # a smaller one still fits, in the same round


def test_a_budget_is_spent_over_several_runs_and_openings(path):
    spent = []
    for run in range(3):
        with Ledger.open(path, limit=TWO) as book:
            for number in range(4):
                book.charge(charge(number, plan=f"run {run}"))
            spent.append(book.balance.epsilon)
    # Twelve Gaussians of μ = 0.1 are one of μ = 0.1·√12; a sixteenth of δ is kept for what later studies may leak.
    assert spent[-1] == pytest.approx(epsilon_of([Gaussian(mu=0.1 * math.sqrt(12))], 1e-5 * 15 / 16), rel=1e-12)
    assert spent == sorted(spent)


def test_limits_differ_between_devices(tmp_path):
    for epsilon, fits in ((0.5, 1), (1.0, 5), (4.0, 20)):
        with Ledger.open(tmp_path / f"{epsilon}", limit=Budget(epsilon=epsilon, delta=1e-5)) as book:
            for number in range(fits):
                book.charge(charge(number))
            while book.balance.against(EVERYONE).with_study("", (Gaussian(mu=0.1),))[0] <= epsilon:
                book.charge(charge(len(book.balance.charges)))
            with pytest.raises(LedgerError, match="CH401"):
                book.charge(charge(10_000))


def test_the_same_round_and_attempt_is_not_charged_twice_not_even_later(path):
    with Ledger.open(path, limit=TWO) as book:
        book.charge(charge(1))
    with Ledger.open(path, limit=TWO) as book:
        before = path.read_bytes()
        with pytest.raises(LedgerError, match="CH405"):
            book.charge(charge(1))
        assert path.read_bytes() == before
        book.charge(charge(1, attempt=1))
        book.charge(charge(1, plan="another"))


def test_raising_and_lowering_the_limit_is_an_entry(path):
    with Ledger.open(path, limit=TWO) as book:
        book.charge(charge(1, Gaussian(mu=0.5)))
        book.set_limit(Budget(epsilon=1.0, delta=1e-5))
        with pytest.raises(LedgerError, match="CH401"):
            book.charge(charge(2, Gaussian(mu=0.001)))
        book.set_limit(Budget(epsilon=3.0, delta=1e-5))
        book.charge(charge(2, Gaussian(mu=0.5)))
    assert [entry["kind"] for entry in Ledger.read(path).entries] == ["charge", "limit", "limit", "charge"]
    with pytest.raises(LedgerError, match="CH406"):
        Ledger.open(path, limit=TWO)  # a caller that is not the owner can't bring the old limit back
    Ledger.open(path, limit=Budget(epsilon=3.0, delta=1e-5)).close()


EVENTS = st.one_of(
    st.builds(Gaussian, mu=st.floats(0.001, 0.5), delta=st.sampled_from([0.0, 1e-8])),
    st.builds(Zcdp, rho=st.floats(1e-6, 0.05), delta=st.sampled_from([0.0, 1e-8])),
    st.builds(
        Poisson, noise_multiplier=st.sampled_from([1.5, 3.0]), probability=st.sampled_from([0.01, 0.1]),
        steps=st.sampled_from([1, 10]),
    ),
)  # fmt: skip


@given(st.lists(EVENTS, min_size=1, max_size=5))
@settings(max_examples=15, deadline=None)
def test_events_that_are_chosen_one_after_the_other_never_pass_the_limit_in_any_order(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("ledger") / "mixed"
    taken = []
    with Ledger.open(path, limit=TWO) as book:
        for number, event in enumerate(found):
            fits = book.balance.against(EVERYONE).with_study("", (event,))[0] <= TWO.epsilon
            try:
                book.charge(charge(number, event))
                taken.append(event)
            except LedgerError as error:
                assert error.code == "CH401"
                assert not fits
            else:
                assert fits
        reported = book.balance.reserved
    again = Ledger.read(path)
    assert [entry.event for entry in again.balance.charges] == taken
    if not any(isinstance(event, Zcdp) for event in taken):  # with them, composing beforehand is not the sharper bound
        assert epsilon_of(taken, TWO.delta) <= again.balance.epsilon * (1 + 1e-3) + 1e-9
    assert again.balance.epsilon == again.balance.reserved == reported <= TWO.epsilon
    # Each charge alone costs no more than all of them: a sanity check that does not use the composition under test.
    assert all(epsilon_of([event], TWO.delta) <= again.balance.epsilon * (1 + 1e-3) + 1e-9 for event in taken)


def test_an_events_own_delta_counts_and_all_of_it_leaves_nothing(path):
    with Ledger.open(path, limit=TWO) as book:
        book.charge(charge(1, Gaussian(mu=0.1, delta=6e-6)))
        with pytest.raises(LedgerError, match="CH401"):
            book.charge(charge(2, Gaussian(mu=0.0, delta=6e-6)))


def test_rounds_that_were_planned_together_are_all_charged_one_by_one(path):
    # A plan's noise is found for all its rounds at once; the ledger adds them one at a time and must come out equal.
    step = Poisson(noise_multiplier=2.5, probability=0.1, steps=10)
    whole = epsilon_of([Poisson(noise_multiplier=2.5, probability=0.1, steps=130)], 1e-5)
    with Ledger.open(path, limit=Budget(epsilon=whole, delta=1e-5)) as book:
        book.reserve(Reservation(rule="S5", plan="plan", uploads=(step,) * 13))
        for number in range(13):
            book.charge(charge(number, step))
        assert book.balance.epsilon == whole
        with pytest.raises(LedgerError, match="CH409"):
            book.charge(charge(13, step))
        with pytest.raises(LedgerError, match="CH401"):
            book.charge(charge(13, step, plan="another"))


def example(path, entries=12):
    kinds = (Gaussian(mu=0.1), Zcdp(rho=0.001), Poisson(noise_multiplier=3.0, probability=0.05, steps=10))
    with Ledger.open(path, limit=TWO) as book:
        for number in range(entries):
            book.charge(charge(number, kinds[number % 3], rule=("S1", "S4", "S5")[number % 3], plan="a" * 64))
    return path.read_bytes()


def corrupted_and_not_noticed(data, times, seed):
    dice = random.Random(seed)
    for _ in range(times):
        at = dice.randrange(len(data))
        bad = bytearray(data)
        bad[at] ^= dice.randrange(1, 256)
        try:
            parse(bytes(bad), "x")
        except LedgerError as error:
            if error.code == "CH400":
                continue
        yield at


def test_ten_thousand_changes_of_one_byte_are_all_damage(path):
    assert list(corrupted_and_not_noticed(example(path), 10_000, seed=1)) == []


def test_a_damaged_ledger_can_be_neither_read_nor_charged(path):
    data = bytearray(example(path, entries=3))
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for attempt in (Ledger.read, Ledger.open):
        with pytest.raises(LedgerError, match="CH400"):
            attempt(path)
    assert path.read_bytes() == data


def killed(tmp_path, times, seed):
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src")}
    command = [sys.executable, HERE / "killed_debits.py", tmp_path, str(times), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kills", [100, pytest.param(500, marks=pytest.mark.long)])
def test_kills_at_any_step_of_a_debit_never_count_too_little(kills, tmp_path):
    reported = killed(tmp_path, kills, seed=1)
    assert reported["kills"] >= kills
    assert (reported["missing"], reported["extra"]) == (0, 0), (
        reported
    )  # never too little; too much by the one on its way at most
    assert reported["charged"] >= reported["sent"] > 0
    assert reported["torn"] > 0  # some kills did hit the middle of a write


def test_four_processes_at_once_make_one_ledger_and_lose_no_charge(path):
    script = (
        "import sys; from choral.core.errors import LedgerError; from choral.core.plan import Budget\n"
        "from choral.core.events import Gaussian; from choral.core.ledger import Charge, Ledger\n"
        "done = 0\n"
        "while done < 5:\n"
        "    try:\n"
        f"        with Ledger.open({str(path)!r}, limit=Budget(epsilon=2.0, delta=1e-5)) as book:\n"
        "            book.charge(Charge(rule='S1', plan=sys.argv[1], round=done, event=Gaussian(mu=0.01)))\n"
        "            done += 1\n"
        "    except LedgerError as error:\n"
        "        assert error.code == 'CH404', error\n"
    )
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src")}
    racers = [subprocess.Popen([sys.executable, "-c", script, f"p{k}"], env=environment) for k in range(4)]
    assert [racer.wait() for racer in racers] == [0] * 4
    assert len(Ledger.read(path).balance.charges) == 20


def test_an_interrupted_charge_is_reported_and_its_attempt_can_be_charged(path):
    with Ledger.open(path, limit=TWO) as book:
        book.charge(charge(1))
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole + last[: len(last) // 2])
    assert Ledger.read(path).torn == len(last) // 2
    with Ledger.open(path, limit=TWO) as book:
        assert book.entries[-1]["kind"] == "recovered"
        assert book.entries[-1]["bytes"] == len(last) // 2
        book.charge(charge(2))
    assert Ledger.read(path).torn == 0


def test_an_old_copy_is_refused_by_the_last_receipt(path):
    with Ledger.open(path, limit=TWO) as book:
        first = book.charge(charge(1))
        old = path.read_bytes()
        last = book.charge(charge(2))
    path.write_bytes(old)
    assert Ledger.read(path, receipt=first).balance.charges[-1].round == 1
    with pytest.raises(LedgerError, match="CH402"):
        Ledger.open(path, limit=TWO, receipt=last)
    path.unlink()
    with pytest.raises(LedgerError, match="CH402"):
        Ledger.open(path, limit=TWO, receipt=last)


def forged(path, *bodies):
    lines, previous = [], sealed.START
    for body in bodies:
        lines.append(sealed.line(previous, body))
        previous = lines[-1][:64]
    path.write_bytes(b"".join(lines))
    return path


HEADER = {"choral": "ledger", "version": 1, "device": "a", "epsilon": 2.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("bodies", "code"),
    [
        ([HEADER | {"version": 4}], "CH403"),
        ([HEADER | {"version": 4, "epsilon": None}], "CH403"),
        ([HEADER | {"version": 3}], "CH400"),
        ([HEADER | {"version": 3, "epsilon_sum": -1.0}], "CH400"),
        ([HEADER, {"kind": "limits", "epsilon": 1.0, "delta": 1e-5, "epsilon_sum": "1"}], "CH403"),
        ([HEADER, {"kind": "rule", "version": 3}], "CH403"),
        ([HEADER, {"kind": "reserve", "rule": "S1", "plan": "p", "uploads": []}], "CH403"),
        ([HEADER, charge(1).to_dict() | {"kind": "charge", "event": {"kind": "gaussian", "mu": 1e300}}], "CH403"),
        ([HEADER, charge(1).to_dict() | {"kind": "charge", "event": {"kind": "zcdp", "rho": 1e300}}], "CH403"),
        ([HEADER, {"kind": "refund"}], "CH403"),
        ([HEADER, {"no": "kind"}], "CH403"),
        ([HEADER, {"kind": "charge"}], "CH403"),
        ([HEADER, charge(1).to_dict() | {"kind": "charge", "event": {"kind": "laplace", "b": 1}}], "CH403"),
        (
            [HEADER, charge(1).to_dict() | {"kind": "charge", "event": {"kind": "gaussian", "mu": 1.0, "q": 0.1}}],
            "CH403",
        ),
        ([HEADER, charge(1).to_dict() | {"kind": "charge", "event": 7}], "CH403"),
        ([HEADER, {"kind": "limit", "epsilon": -1.0, "delta": 1e-5}], "CH403"),
        ([{"some": "file"}], "CH400"),
        ([HEADER | {"choral": "model"}], "CH400"),
        ([HEADER | {"version": "1"}], "CH400"),
        ([HEADER | {"delta": 2.0}], "CH400"),
    ],
)
def test_what_this_version_does_not_know_is_refused(path, bodies, code):
    with pytest.raises(LedgerError, match=code):
        Ledger.read(forged(path, *bodies))


def test_fields_of_a_later_version_are_kept_and_ignored(path):
    body = charge(1).to_dict() | {"kind": "charge", "note": "from a later version", "at": "2030-01-01T00:00:00+00:00"}
    forged(path, HEADER | {"site": "north"}, body)
    with Ledger.open(path) as book:
        book.charge(charge(2))
        assert book.entries[0]["note"] == "from a later version"
    assert b"from a later version" in path.read_bytes()
    assert len(Ledger.read(path).balance.charges) == 2


def test_a_ledger_for_reading_takes_no_charge_and_no_lock(path):
    example(path, entries=1)
    with Ledger.open(path), Ledger.read(path) as book:
        with pytest.raises(LedgerError, match="CH404"):
            book.charge(charge(99))
        with pytest.raises(LedgerError, match="CH404"):
            Ledger.open(path)


def test_there_is_no_ledger_without_a_limit(path):
    with pytest.raises(StorageError, match="CH802"):
        Ledger.open(path)
    with pytest.raises(PlanError, match="epsilon"):
        Ledger.open(path, limit=Budget(epsilon=math.nan, delta=1e-5))
    assert not path.exists()


@pytest.mark.parametrize(
    "change", [{"round": -1}, {"attempt": 0.5}, {"rule": ""}, {"plan": "two\nlines"}, {"adversary": "x" * 201}]
)
def test_a_charge_of_the_wrong_form_is_refused(change):
    values = {"rule": "S1", "plan": "p", "round": 1, "event": Gaussian(mu=0.1)} | change
    with pytest.raises(PlanError, match="CH200"):
        Charge(**values)


def test_a_refusal_and_a_write_that_fails_leave_the_balance_as_it_was(path, monkeypatch):
    with Ledger.open(path, limit=TWO) as book:
        book.charge(charge(1))
        before = book.balance.epsilon

        def broken(_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(sealed.os, "fsync", broken)
        with pytest.raises(StorageError, match="CH801"):
            book.charge(charge(2))
        assert book.balance.epsilon == before
    monkeypatch.undo()
    assert len(Ledger.read(path).balance.charges) == 2  # the line reached the file: too much, never too little


def test_a_balance_in_memory_refuses_like_the_file():
    balance = Balance(device="07", limit=TWO)
    balance.take(charge(1, Gaussian(mu=0.5)))
    for bad, code in ((charge(1), "CH405"), (charge(2, Gaussian(mu=0.5)), "CH401")):
        with pytest.raises(LedgerError, match=code):
            balance.take(bad)
    assert (len(balance.charges), rules_of(balance), adversaries_of(balance)) == (1, ("S1",), (EVERYONE,))


def test_five_thousand_entries_are_read_and_charged_without_loading_a_library(path):
    # Loads nothing that is slow to import: a device opens its ledger often. 5,000 lines are made in one go.
    bodies = [charge(number, Gaussian(mu=0.001)).to_dict() | {"kind": "charge"} for number in range(5_000)]
    forged(path, HEADER, *bodies)
    script = (
        "import sys; from choral.core.ledger import *; from choral.core.events import Gaussian\n"
        f"book = Ledger.open({str(path)!r})\n"
        "book.charge(Charge(rule='S1', plan='p', round=1, event=Gaussian(mu=0.001)))\n"
        "print(len(book.balance.charges), [n for n in ('numpy', 'scipy', 'jax', 'dp_accounting') if n in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "5001 []"


def test_a_receipt_is_two_plain_values_that_can_be_kept_anywhere(path):
    with Ledger.open(path, limit=TWO) as book:
        kept = json.dumps(vars(book.charge(charge(1))))
    assert Ledger.read(path, receipt=Receipt(**json.loads(kept))).receipt.entries == 2


def test_a_statement_has_attributes_and_prints_its_keys_in_their_order(path):
    with Ledger.open(path, limit=TWO) as ledger:
        ledger.charge(charge(1))
        statement = statement_of(ledger)
    assert statement.limit.to_dict() == {"epsilon": TWO.epsilon, "delta": TWO.delta}
    assert statement.spent.rules == ("S1",) and statement.charges == 1
    assert statement.spent.epsilon == ledger.balance.epsilon
    # What `choral ledger --json` prints keeps its keys in their order.
    assert list(statement.to_dict()) == [
        "device", "limit", "by_version_1", "composed_by", "reserved", "spent", "charges", "torn_bytes", "receipt",
        "entries",
    ]  # fmt: skip
