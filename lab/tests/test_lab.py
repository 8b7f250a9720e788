"""The lab belongs to the choral of its checkout, and its verbs are those that choral looks for."""

import tomllib
from importlib import import_module
from pathlib import Path

import choral
import choral_lab
from choral.cli import LAB_VERBS, VERBS, VERBS_OF_OTHERS

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def test_the_lab_has_the_version_of_choral_and_asks_for_no_other():
    assert choral_lab.__version__ == choral.__version__
    assert PROJECT["dependencies"] == [f"choral=={choral.__version__}"]


def test_every_verb_that_choral_leaves_to_the_lab_is_an_entry_point_with_flags_and_work():
    declared = PROJECT["entry-points"][VERBS_OF_OTHERS]
    assert tuple(declared) == LAB_VERBS and set(declared) <= set(VERBS)
    for place in declared.values():
        module = import_module(place)
        assert module.__doc__ and callable(module.configure) and callable(module.run)
