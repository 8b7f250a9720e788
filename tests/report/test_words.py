"""What may be said of a run: rounded up, in the fixed order, never without its terms."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from choral.accounting.words import up
from choral.record import Statement, read_run
from choral.report import registry, words
from choral.report.words import by_colluders, honest_devices
from tests.report.runs import make_run


@pytest.fixture
def run(tmp_path):
    return lambda **other: read_run(make_run(tmp_path / "run", **other))


@settings(deadline=None)
@given(st.floats(0, 1e6), st.integers(0, 6))
def test_a_privacy_loss_is_never_rounded_down(epsilon, digits):
    shown = float(words.up(epsilon, digits))
    assert shown >= epsilon * (1 - 1e-12) - 1e-9
    assert shown - epsilon <= 10**-digits * (1 + 1e-6)


@settings(deadline=None)
@given(st.floats(0, 8), st.floats(0, 0.2))
def test_the_best_guess_is_the_optimum_of_all_tests_that_the_definition_allows(epsilon, delta):
    # Origin: the definition, TPR ≤ e^ε FPR + δ and the same for the complements; SciPy finds the best test.
    e = 2.718281828459045**epsilon
    best = linprog([-0.5, 0.5], A_ub=[[1, -e], [e, -1]], b_ub=[delta, e - 1 + delta], bounds=[(0, 1), (0, 1)])
    assert words.guess(epsilon, delta) == pytest.approx(0.5 - best.fun, abs=1e-7)


def test_the_three_claims_stand_in_their_order_with_all_their_terms(run):
    everyone, summed, published = words.claims(run())
    assert everyone.title == "Against everyone"
    assert everyone.guarantee
    assert everyone.adversary == "the server and all other devices together"
    assert "2 colluders" in summed.adversary
    assert summed.standing.startswith("proved; certificate: the loss is convex")
    assert published.standing == (
        "published formula, not a guarantee here: 10 local steps, and no condition of its validity is met"
    )
    assert not published.guarantee
    assert published.figure.startswith("ε\xa0=\xa0")
    for claim in (everyone, summed, published):
        assert claim.terms.startswith("δ = 1e-5, one record replaced, against ")
        assert ", rule " in claim.terms


@pytest.mark.parametrize("other", [{"certificate": None}, {"secure": False}])
def test_without_a_certificate_there_is_no_second_figure(run, other):
    _, summed, _ = words.claims(run(**other))
    assert (summed.figure, summed.standing) == ("none", "no provable extra protection here")


def test_a_published_figure_that_holds_is_called_valid(run):
    record = run()
    published = msgspec.structs.replace(record.result.privacy.published, valid=True, because="one local step")
    privacy = msgspec.structs.replace(record.result.privacy, published=published)
    record = replace(record, result=msgspec.structs.replace(record.result, privacy=privacy))
    assert words.claims(record)[2].standing == "valid here: one local step"
    assert words.claims(record)[2].figure.startswith("ε\xa0≤\xa0")


def test_an_unfinished_run_claims_nothing(run):
    record = run(finished=False, done=7)
    assert words.claims(record) == ()
    assert "No ε may be quoted" in words.statement(record)[1]
    assert dict(registry.nist_answers(record))["How much? (ε, δ)"] == "Open until the run has ended."


def test_a_run_whose_noise_can_be_computed_again_is_a_simulation_whatever_it_calls_itself(run):
    # A simulation without a seed of the user's draws one and writes it into run.json: its noise is known as well.
    for kind, seeded in (("simulation", True), ("rehearsal", True), ("simulation", False)):
        record = run(kind=kind, seeded=seeded)
        name, meaning = words.label(record)
        assert name == "SIMULATION"
        assert "not this run" in meaning
        reported = " ".join(words.statement(record))
        assert reported.startswith("Simulation: ")
        assert "would be protected, if its noise were unpredictable" in reported
        assert "is protected" not in reported


def test_the_statement_says_whose_record_against_whom_and_how_much(run):
    reported = " ".join(words.statement(run())).replace("\xa0", " ")
    assert "Each record is protected against the server and all other devices" in reported
    assert "(ε, δ) = (2.00, 1e-5) for one record replaced (rule S5" in reported
    assert "at most 88.1 % of the time" in reported  # e²/(1 + e²), by hand


def test_every_colluder_takes_one_honest_device_away_from_what_the_plan_guarantees(run):
    record = run()
    secure = record.about.secure_sum
    # By hand for r = 10, u_min = 8, s = 7, a lying server: g_min = 7 + 8 - 10 - c + 1 = 6 - c.
    assert (secure.cohort, secure.smallest_sum, secure.threshold, secure.colluders) == (10, 8, 7, 2)
    assert [honest_devices(secure, c) for c in (0, 2, 5, 6, 9)] == [6, 4, 1, 0, 0]
    rows = [(c, epsilon, text.replace("\xa0", " ")) for c, epsilon, text in by_colluders(record)]
    assert [c for c, _, _ in rows] == list(range(10))
    assert "at least 4 honest devices: ε ≤ 1.32 (δ = 1e-5, one record replaced, rule S3" in rows[2][2]
    assert "no longer hides a single device from a lying server" in rows[5][2]
    assert "no provable extra protection. ε ≤ 2.00 holds" in rows[8][2]


def test_before_the_end_the_colluders_are_reported_with_the_planned_epsilon_and_what_is_spent_so_far(run):
    record = run(finished=False, done=3)
    rows = by_colluders(record)
    assert len(rows) == record.about.plan.cohort
    # Made-up figures of tests/report/runs.py: 2.00 against everyone after all rounds, 0.66 of it with 2 colluders.
    assert rows[2][2].replace("\xa0", " ") == (
        "With 2 colluders every sum that a lying server can open holds at least 4 honest devices: the plan ends at "
        "ε ≤ 1.32 (δ = 1e-5, one record replaced, rule S3: in exact arithmetic: steps that do not expand, last "
        "noise summed over the honest devices)."
    )
    assert "no provable extra protection. The plan ends at ε ≤ 2.00 (δ = 1e-5" in rows[9][2].replace("\xa0", " ")
    spent = max(record.rounds[-1].spent)
    reported = words.spent_so_far(record).replace("\xa0", " ")
    assert reported.startswith(f" Spent so far: ε ≤ {up(spent)} against the server and all other devices")
    assert "δ = 1e-5, one record replaced, rule S5" in reported
    assert words.spent_so_far(run()) == ""


def test_a_run_without_noise_has_no_planned_epsilon_and_says_none(run):
    record = run(finished=False, done=3)
    record = replace(record, about=msgspec.structs.replace(record.about, planned=None))
    assert by_colluders(record)[2] == (
        2, None, "With 2 colluders every sum that a lying server can open holds at least 4 honest devices.",
    )  # fmt: skip


def test_without_a_secure_sum_the_server_sees_each_update(run):
    can, cannot = words.server_sees(run(secure=False).about.secure_sum)
    assert "each device's noisy update by itself" in can
    assert not any("single device" in item for item in cannot)


def test_without_noise_nothing_is_claimed_and_that_is_said(run):
    record = run()
    nothing = Statement(delta=1e-5, adjacency="one record replaced", none="no noise was added")
    record = replace(record, result=msgspec.structs.replace(record.result, privacy=nothing))
    assert words.claims(record) == ()
    assert words.statement(record)[1].startswith("No noise was added. Whoever sees what left the devices")
    assert dict(registry.nist_answers(record))["How much? (ε, δ)"] == "no noise was added"


def test_the_reason_why_there_is_no_certificate_is_reported(run):
    record = run(certificate=None)
    privacy = msgspec.structs.replace(record.result.privacy, no_certificate="several local steps")
    record = replace(record, result=msgspec.structs.replace(record.result, privacy=privacy))
    assert words.claims(record)[1].standing == "no provable extra protection here: several local steps"
