"""`choral ledger`: the page, the JSON, the change of a limit and the exit statuses."""

import json
import re

import pytest

from choral import cli
from choral.core.events import Gaussian, Poisson
from choral.core.ledger import Charge, Ledger
from choral.core.plan import Budget


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.setitem(cli.VERBS, "ledger", "what a device has spent")
    path = tmp_path / "site-a.ledger"
    with Ledger.open(path, limit=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        for number in range(3):
            event = Poisson(noise_multiplier=3.0, probability=0.1, steps=10)
            ledger.charge(Charge(rule="S5", plan="9f3c" * 16, round=number, event=event))
        ledger.charge(
            Charge(rule="S2", plan="ab" * 32, round=0, event=Gaussian(mu=0.05), adversary="the server and 2 colluders")
        )
    return path


def test_the_page_names_rule_adjacency_and_adversary_and_fits_80_columns(book, capsys):
    assert cli.main(["ledger", str(book)]) == 0
    page = capsys.readouterr().out
    spent = Ledger.read(book).balance.epsilon
    reported = float(re.search(r"ε = ([\d.]+) of 2 \(δ = 1e-05\)", page)[1])
    assert spent <= reported < spent + 1e-4, "never less than it is"
    for part in (
        "site-a",
        "4 charges",
        "one record replaced",
        "S5, S2",
        "all other devices",
        "2 colluders",
        "where each",
        "PROVED",
    ):
        assert part in page
    lines = page.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert lines[-1].startswith("RECEIPT  5:")


def test_the_json_has_the_whole_statement(book, capsys):
    assert cli.main(["ledger", str(book), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["charges"] == len(reported["entries"]) == 4
    assert reported["spent"]["adjacency"] == "one record replaced"
    assert reported["spent"]["epsilon"] == Ledger.read(book).balance.epsilon


def test_only_the_last_entries_are_listed_unless_all_are_asked_for(book, capsys):
    cli.main(["ledger", str(book), "--last", "1"])
    page = capsys.readouterr().out
    assert page.count(" plan ") == 1
    assert "--last 0 shows 3 more" in page
    cli.main(["ledger", str(book), "--last", "0"])
    assert capsys.readouterr().out.count(" plan ") == 4


def test_the_owner_changes_the_limit_and_delta_stays(book, capsys):
    assert cli.main(["ledger", str(book), "--limit", "3"]) == 0
    assert "limit set to ε = 3, δ = 1e-05" in capsys.readouterr().out
    assert Ledger.read(book).limit == Budget(epsilon=3.0, delta=1e-5)
    assert cli.main(["ledger", str(book), "--limit", "3", "--delta", "1e-6"]) == 0
    assert Ledger.read(book).limit.delta == 1e-6


def test_a_receipt_shows_a_ledger_that_was_put_back(book, capsys):
    receipt = Ledger.read(book).receipt
    book.write_bytes(b"".join(book.read_bytes().splitlines(keepends=True)[:-1]))
    assert cli.main(["ledger", str(book), "--receipt", f"{receipt.entries}:{receipt.seal}"]) == 1
    assert "CH402" in capsys.readouterr().err


def test_an_interrupted_write_and_its_recovery_are_reported(book, capsys):
    whole = book.read_bytes()
    book.write_bytes(whole + whole[:30])
    cli.main(["ledger", str(book)])
    assert "30 bytes of an interrupted write" in capsys.readouterr().out
    Ledger.open(book).close()
    cli.main(["ledger", str(book)])
    assert "an interrupted write of 30 bytes was cut off" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["--receipt", "7"], 2, "CH102"), (["--delta", "1e-5"], 2, "CH103"),
        (["--limit", "3", "--delta", "0"], 2, "CH200"), (["--limit", "-1"], 2, "CH200"),
        (["--limit", "x"], 2, "CH101"),
    ],
)  # fmt: skip
def test_bad_flags_are_refused_and_change_nothing(book, capsys, words, status, code):
    before = book.read_bytes()
    assert cli.main(["ledger", str(book), *words]) == status
    assert code in capsys.readouterr().err
    assert book.read_bytes() == before


def test_a_damaged_or_missing_file_ends_with_status_1(book, capsys):
    assert cli.main(["ledger", str(book) + "x"]) == 1
    assert "CH802" in capsys.readouterr().err
    book.write_bytes(book.read_bytes().replace(b'"round":1', b'"round":9'))
    assert cli.main(["ledger", str(book), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "CH400"
