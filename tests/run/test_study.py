"""What is settled before round 0: the code of a model is found without a trace in the process."""

import sys

import pytest

from choral.run.study import maker_beside

CODE = """
def shapes(features, classes):
    import own_helper_of_a_study
    return own_helper_of_a_study.ANSWER, features, classes

def broken(features, classes):
    raise ValueError("no model")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_models_of_a_study.py").write_text(CODE)
    (tmp_path / "own_helper_of_a_study.py").write_text("ANSWER = 42\n")
    (tmp_path / "json.py").write_text("raise AssertionError('it hides a module of Python')\n")
    monkeypatch.delitem(sys.modules, "json")
    yield tmp_path
    for name in ("own_models_of_a_study", "own_helper_of_a_study"):
        sys.modules.pop(name, None)


def test_a_module_beside_the_file_is_found_with_what_it_imports_and_the_path_is_left_as_it_was(folder):
    before = list(sys.path)
    assert maker_beside("own_models_of_a_study:shapes", folder)(features=3, classes=2) == (42, 3, 2)
    assert sys.path == before
    with pytest.raises(ValueError, match="no model"):
        maker_beside("own_models_of_a_study:broken", folder)(features=3, classes=2)
    assert sys.path == before


def test_a_module_beside_the_file_hides_none_that_is_installed(folder):
    assert maker_beside("json:dumps", folder)(obj=[]) == "[]"


def test_a_folder_that_was_on_the_path_before_stays_there(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder.resolve())])
    before = list(sys.path)
    maker_beside("own_models_of_a_study:shapes", folder)(features=3, classes=2)
    assert sys.path == before
