"""Verbs with phases: one is needed, and the common flags work before and after its name."""

import argparse

import pytest

from choral.cli.phases import phases


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(prog="choral server")
    made.add_argument("--json", action="store_true")
    made.add_argument("--debug", action="store_true")
    add = phases(made)
    add("run", lambda _: 3, "serve a study").add_argument("folder")
    add("stop", lambda _: 4, "end it")
    return made


def test_a_phase_does_its_own_and_has_its_own_words(parser):
    given = parser.parse_args(["run", "study"])
    assert (given.phase(given), given.folder, given.json) == (3, "study", False)
    assert parser.parse_args(["stop"]).phase(None) == 4


@pytest.mark.parametrize("words", [["--json", "stop"], ["stop", "--json"], ["--json", "stop", "--json"]])
def test_a_common_flag_counts_before_and_after_the_phase(parser, words):
    given = parser.parse_args(words)
    assert given.json and not given.debug


def test_without_a_phase_or_with_an_unknown_one_the_parser_refuses(parser, capsys):
    for words in ([], ["start"]):
        with pytest.raises(SystemExit):
            parser.parse_args(words)
    assert "PHASE" in capsys.readouterr().err
    assert "serve a study" in parser.format_help()
