"""`choral plan`: the page, the JSON, and that nothing is written."""

import json
import re
from dataclasses import replace

import pytest

from choral import cli
from choral.core.printable import figures_up
from choral.planner import plan_for

WORDS = ["plan", "--epsilon", "1", "--devices", "16", "--rows", "2440", "--features", "104"]


@pytest.fixture(autouse=True)
def listed(monkeypatch, tmp_path):
    monkeypatch.setitem(cli.VERBS, "plan", "propose a plan")
    monkeypatch.chdir(tmp_path)
    yield
    assert not list(tmp_path.iterdir())


def page(capsys, *words):
    assert cli.main([*WORDS, *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [(), ("--sampling", "partition"), ("--against", "server and colluders"), ("--model", "mlp")]
)
def test_the_page_fits_80_columns_without_colour_and_explains_every_number(capsys, words):
    text = page(capsys, *words)
    assert max(map(len, text.splitlines())) <= 80
    assert "\033" not in text
    for part in (
        "PLAN",
        "WHY",
        "ALTERNATIVES",
        "ε AGAINST ROUNDS",
        "ε AGAINST COLLUDERS",
        "NOTE",
        "one record replaced",
    ):
        assert part in text
    once = ("noise_is_added", "row_length") if "noise_is_added = once" in text else ("sampling", "batch")
    names = ("rounds", "cohort", "local_steps", *once, "clip", "step_size", "noise")
    assert all(re.search(rf"^  {name} = ", text, re.MULTILINE) for name in names)


def test_bold_heads_only_on_a_terminal_that_wants_them(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\033[1mWHY" in page(capsys, "--sampling", "partition")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in page(capsys, "--sampling", "partition")


def test_the_json_is_the_proposal_itself(capsys):
    reported = json.loads(page(capsys, "--json", "--local-steps", "5", "--sampling", "partition"))
    plan = plan_for(epsilon=1.0, devices=16, rows=2440, features=104, local_steps=5, sampling="partition")
    assert reported == json.loads(json.dumps(plan.to_dict()))
    assert reported["plan"]["local_steps"] == 5
    assert reported["plan"]["digest"] == plan.plan.digest
    for option in (reported["chosen"], *reported["alternatives"]):
        assert {"rule", "adversary", "epsilon", "certificate", "plan"} <= option.keys()


def test_the_numbers_on_the_page_are_those_of_the_plan(capsys):
    text = page(capsys, "--rounds", "12", "--sampling", "partition")
    plan = plan_for(epsilon=1.0, devices=16, rows=2440, features=104, rounds=12, sampling="partition").plan
    flat = " ".join(text.split())
    assert "12 rounds ·" in flat
    assert f"noise {figures_up(plan.noise, 5)}" in flat
    assert float(figures_up(plan.noise, 5)) >= plan.noise  # whoever types in what is printed adds enough


@pytest.mark.parametrize("epsilon", [0.7, 1.3, 2.9, 3.14159265])
def test_no_epsilon_is_printed_smaller_than_it_is(capsys, epsilon):
    text = page(capsys, "--epsilon", str(epsilon), "--sampling", "partition")
    reported = plan_for(epsilon=epsilon, devices=16, rows=2440, features=104, sampling="partition")
    assert float(re.search(r"PLAN  ε ≤ (\S+)", text)[1]) >= epsilon
    options = (reported.chosen, *reported.alternatives)
    found = re.findall(r"^ +S\d: ε = (\S+) against .*?(?:; (\S+) against everyone)?$", text, re.MULTILINE)
    for option, (own, everyone) in zip(options, found, strict=True):
        assert float(own) >= option.epsilon
        assert not everyone or float(everyone) >= option.epsilon_against_everyone
    drawn = re.findall(r"█ (\S+)", text)
    points = (*reported.epsilon_by_round, *reported.epsilon_by_colluders)
    assert all(float(shown) >= value for shown, (_, value) in zip(drawn, points, strict=True))
    half, twice = re.search(r"Half of it: ε = (\S+); twice: ε = (\S+)\.", " ".join(text.split())).groups()
    account = reported.chosen.loss
    for shown, by in ((half, 0.5), (twice, 2.0)):
        part = replace(reported.chosen.part, noise=reported.plan.noise * by)
        assert float(shown) >= account(part).epsilon(reported.budget.delta)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--noise", "0.0001"], "CH201"), (["--cohort", "17"], "CH200"), (["--epsilon", "nan"], "CH200"),
        (["--against", "x"], "CH101"), (["--colluders", "9"], "CH204"),
    ],
)  # fmt: skip
def test_what_can_not_be_planned_ends_with_status_2_and_one_line(capsys, words, code):
    assert cli.main([*WORDS, "--sampling", "partition", *words]) == 2
    reported = capsys.readouterr()
    assert reported.err.startswith(code)
    assert len(reported.err.splitlines()) == 1


def test_one_colluder_and_one_row_are_in_the_singular(capsys):
    assert cli.main(["plan", "--epsilon", "1", "--devices", "5", "--rows", "1", "--features", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "and 1 colluder;" in text and "5 sites of about 1 row," in text
