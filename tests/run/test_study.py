"""What is settled before round 0: the code of a model is found without a trace in the process."""

import sys

import pytest

from choral.config import job_of
from choral.run.planning import settle
from choral.run.study import declared_columns, maker_in

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
    assert maker_in("own_models_of_a_study:shapes", folder)(features=3, classes=2) == (42, 3, 2)
    assert sys.path == before
    with pytest.raises(ValueError, match="no model"):
        maker_in("own_models_of_a_study:broken", folder)(features=3, classes=2)
    assert sys.path == before


def test_a_module_beside_the_file_hides_none_that_is_installed(folder):
    assert maker_in("json:dumps", folder)(obj=[]) == "[]"


def test_a_folder_that_was_on_the_path_before_stays_there(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder.resolve())])
    before = list(sys.path)
    maker_in("own_models_of_a_study:shapes", folder)(features=3, classes=2)
    assert sys.path == before


def test_a_column_of_adult_that_is_declared_otherwise_has_the_declared_range():
    ages = {"age": {"bounds": [15, 65]}}
    job = job_of(builtin="adult", epsilon=1.0, columns=ages, seed=0)
    assert (declared_columns(job)["age"].low, declared_columns(job)["age"].high) == (15, 65)
    youngest = {
        low: settle(job_of(builtin="adult", epsilon=1.0, columns=declared, seed=0)).split.train.features[:, 0].min()
        for low, declared in ((0, None), (15, ages))
    }
    # The youngest person of Adult is 17: 17 of [0, 100] is -0.66 and 2 of the 50 years from 15 is -0.92.
    assert youngest == {0: pytest.approx(-0.66), 15: pytest.approx(-0.92)}
