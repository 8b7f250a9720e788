"""The approval screen: every ε stands with its rule, δ, adjacency and adversary, and the number to compare is last."""

import re
from types import SimpleNamespace

from choral.cli.approval import outcome, screen

SHOWN = SimpleNamespace(
    study="heart", safety_number="1" * 60, own_number="417093", hybrid=True, device="hill",
    devices=("hill", "lake"), device_numbers=("2" * 60, "3" * 60),
    columns=("age", "pulse"), label="sick", classes=("no", "yes"), model="logistic", code_path="", code_sha256="",
    parameters=8, rows=1234, rounds=3, planned_rounds=3, upload_bytes=80, download_bytes=72, rule="S5",
    adjacency="one record replaced", adversary="everyone", law="gaussian", noise=0.25, noise_on="each step",
    unit="record", epsilon_sum_planned=None, sum_rule="S2", sum_adversary="a server that sees only sums",
    delta=1e-5, epsilon_a_round=0.29, epsilon_planned=1.11, uploads=5, epsilon_uploads=1.5, epsilon_spent_before=0.4,
    terms_before="", epsilon_limit=4.0, epsilon_sum_limit=None, epsilon_sum_spent_before=0.0, smallest_sum=3,
    colluders=1, crowd=2, lying=True, probes=0, opened_turns=0, shape=(), encoder="", asks="",
)  # fmt: skip


def text(**changes):
    return "\n".join(screen(SimpleNamespace(**vars(SHOWN) | changes)))


def test_costs_and_cap_name_rule_delta_adjacency_and_adversary():
    shown = text()
    terms = "δ = 1e-05, one record replaced, rule S5, against everyone"
    assert shown.count(terms) == 2 and "ε = 0.29 per round, ε = 1.11 for the 3 rounds planned here" in shown
    assert "at most 5 uploads (2 more than planned, for attempts that fail), so at most ε = 1.50, whatever" in shown
    assert "1,234 rows of the columns age, pulse" in shown and "the label sick (no or yes)" in shown


def test_a_limit_for_sums_is_shown_with_its_terms_only_where_there_is_one():
    assert "against a server that sees only sums" not in text()
    shown = text(epsilon_sum_limit=2.0, epsilon_sum_spent_before=0.5)
    assert "ε = 2 in all against a server that sees only sums, of which ε = 0.50 is taken" in shown


def test_what_earlier_studies_took_is_shown_with_their_own_terms_and_not_with_those_of_the_new_study():
    assert "earlier studies" not in text()
    shown = text(adjacency="all records of one device replaced", terms_before="one record replaced, rule S5, against x")
    assert "earlier studies: δ = 1e-05, one record replaced, rule S5, against x" in shown


def test_the_cost_with_the_secure_sum_names_the_rule_that_counts_it():
    shown = text(epsilon_sum_planned=0.3)
    assert "(δ = 1e-05, one record replaced, rule S2, against a server that sees only sums)" in shown


def test_only_a_sum_that_withstands_a_lying_server_speaks_of_one():
    assert "if it lies and 1 of them helps it, of 2 honest ones" in text()
    assert "or more; if 1 of them helps it, of 2 honest ones" in text(lying=False)


def test_code_of_somebodys_own_is_shown_with_its_hash_and_a_warning():
    assert "CODE" not in text()
    shown = text(code_path="model.py", code_sha256="9f3c")
    assert "model.py" in shown and "SHA-256 9f3c" in shown and "runs here as you; read it first" in shown


def test_the_number_to_compare_comes_after_all_else_and_nothing_is_recorded_without_a_yes():
    lines = screen(SHOWN)
    number = next(place for place, line in enumerate(lines) if line.startswith("NUMBER"))
    assert all(not line.startswith(("COSTS", "LIMIT", "SENDS")) for line in lines[number:])
    assert outcome(recorded=False)[-1].startswith("NOTHING was recorded or sent. Add --yes")
    assert "--yes" not in outcome(recorded=False, asked=True)[-1]  # who can be asked is asked
    assert outcome(recorded=True)[-1] == "NEXT      choral device run"
    assert outcome(recorded=True, runs=True) == outcome(recorded=True)[:-1]  # it runs now


def test_the_number_is_typed_where_the_owner_is_asked_or_else_into_compare():
    assert "type theirs here;" in screen(SHOWN, asks=True)[-1]
    assert "type theirs into choral device compare …;" in screen(SHOWN)[-1]


def test_probes_and_opened_turns_are_shown_before_they_are_approved():
    assert "projections" not in text()
    shown = text(probes=32, opened_turns=2)
    assert "32 random projections of this device's own noisy update in every round" in shown
    assert "in at most 2 rounds the server may see this site's own noisy update; ε counts that already" in shown


def test_one_thing_is_no_plural_on_the_screen():
    shown = text(
        rows=1, rounds=1, planned_rounds=1, parameters=1, uploads=1, smallest_sum=1, crowd=1, columns=("age",),
        upload_bytes=1, download_bytes=1, colluders=1, probes=1, opened_turns=1,
    )  # fmt: skip
    words = "parameters|rounds|rows|columns|devices|ones|uploads|bytes|projections|persons"
    assert not re.search(rf"\b1 (?:\w+ ){{0,2}}({words})\b", shown), shown
    assert "the column age" in shown and "1 random projection of" in shown
