"""choral explain has the story of every code, in the words that the pages have."""

import json

import pytest

from choral.cli import main
from choral.core.errors import CODES


def test_a_code_is_explained_with_its_line_an_example_its_cause_and_the_way_out(capsys):
    assert main(["explain", "ch401"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"CH401: {CODES['CH401']}\n") and "Nothing was sent" in said and "--limit" in said
    assert max(map(len, said.splitlines())) < 80 and "](" not in said


def test_without_a_code_all_are_listed(capsys):
    assert main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_cause_and_a_way_out_for_machines(code, capsys):
    assert main(["explain", code, "--json"]) == 0
    story = json.loads(capsys.readouterr().out)
    assert story["code"] == code and story["cause"] and story["way_out"]


def test_a_code_that_nobody_knows_is_refused(capsys):
    assert main(["explain", "CH999"]) == 2
    assert "choral explain lists all codes" in capsys.readouterr().err
