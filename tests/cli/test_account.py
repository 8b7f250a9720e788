import argparse
import json

import pytest

import choral.cli as front
from choral.accounting.account import account, several_rows
from choral.accounting.proofs import Exposed, exposed
from choral.cli import account as verb
from choral.core.errors import PlanError
from choral.record import ClaimOfSums

FLAGS = {
    "rounds": 13,
    "local-steps": 10,
    "cohort": 10,
    "devices": 16,
    "rows": 2440,
    "batch": 244,
    "noise": 0.004902,
    "clip": 1.0,
    "delta": 1e-4,
}


def words(changes=(), *more):
    numbers = FLAGS | dict(changes)
    return ["account", *(word for name, value in numbers.items() for word in (f"--{name}", str(value))), *more]


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setitem(front.VERBS, "account", "what a given run costs a device, by every rule")


def test_json_is_the_object_of_the_function(capsys):
    assert front.main(words({"local-steps": 1}, "--sampling", "partition", "--colluders", "2", "--json")) == 0
    printed = json.loads(capsys.readouterr().out)
    numbers = {name.replace("-", "_"): value for name, value in FLAGS.items()}
    given = numbers | {"local_steps": 1, "sampling": "partition", "colluders": 2}
    here, twice = several_rows(exposed(**{name: given[name] for name in given if name != "delta"}), 1e-4)
    assert printed.pop("several") == {"rows": 5, "epsilon": here, "at_two_sites": twice}
    assert printed == account(**given).to_dict()


def test_the_flags_are_the_arguments_of_the_function():
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    flags = {action.dest: action for action in parser._actions if action.dest != "help"}
    assert flags.keys() == {"delta", "together", *Exposed.__annotations__}
    assert {name for name, flag in flags.items() if flag.required} == {"delta", *Exposed.__required_keys__}


def test_the_table_fits_eighty_columns_and_says_proved_first(capsys):
    assert (
        front.main(words((), "--sampling", "partition", "--step-size", "0.5", "--smoothness", "0.5", "--convex")) == 0
    )
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    order = [text.index(title) for title in ("PROVED", "WITH THE SECURE SUM", "PUBLISHED")]
    assert order == sorted(order)
    assert "one record replaced" in text


def test_every_epsilon_names_its_rule_and_its_adversary(capsys):
    assert front.main(words({"local-steps": 1})) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("ε")]
    assert len(lines) == 8
    for line in lines:
        assert "against" in line
        assert any(rule in line for rule in ("S1", "S2", "S3", "S5", "Theorem 1", "DP-SGD"))


@pytest.mark.parametrize("noise", [0.0045, 0.004902, 0.0051, 0.0062, 0.0071])
def test_no_epsilon_is_printed_smaller_than_it_is(noise, capsys):
    assert front.main(words({"noise": noise, "local-steps": 1})) == 0
    printed = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("  ε")]
    reported = account(
        **{name.replace("-", "_"): value for name, value in FLAGS.items()} | {"noise": noise, "local_steps": 1}
    )
    proved, single = reported.proved, reported.dp_sgd
    numbers = {name.replace("-", "_"): value for name, value in FLAGS.items() if name != "delta"}
    several = several_rows(exposed(**numbers | {"noise": noise, "local_steps": 1}), 1e-4)
    rows = [ClaimOfSums(rule="S5", epsilon=epsilon, certificate="", adversary="") for epsilon in several]
    true = [proved.against_everyone, *rows, proved.with_secure_sum, reported.paper, reported.paper_without_secure_sum]
    true += [single.as_printed, single.corrected]
    for shown, loss in zip(printed, true, strict=True):
        assert loss.epsilon <= shown <= 1.001 * loss.epsilon


def test_a_figure_that_is_no_guarantee_says_so_with_the_condition(capsys):
    assert front.main(words()) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "published formula, not a guarantee here: the theorem partitions" in text
    assert "no provable extra protection here: with Poisson sampling" in text


def test_bad_numbers_are_one_line_and_status_2(capsys):
    assert front.main(words({"batch": 2441})) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.strip() == "CH200 batch = 2441. Must be a whole number, at least 1 and at most 2,440."


def test_without_a_secure_sum_the_flag_says_so(capsys):
    assert front.main(words({"local-steps": 1}, "--no-secure-sum", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["proved"]["with_secure_sum"] is None


def test_debug_shows_where_it_came_from():
    with pytest.raises(PlanError):
        front.main(words({"rounds": 0}, "--debug"))
