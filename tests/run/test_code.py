"""A model that is somebody's code runs at a site only from the file that its owner named, as it was approved."""

import hashlib
import json
import sys

import pytest

from choral.cli import main
from choral.core.errors import TrustError
from choral.deploy import approving, home
from choral.deploy.agent import Agent
from choral.deploy.home import Policy
from tests.run.consortium import JOB, Consortium

WARD = """
import jax, jax.numpy as jnp, choral
{first}
def build(features, classes):
    def predict(weights, rows):
        return rows @ weights
    def loss(weights, row, label):
        return -jax.nn.log_softmax(row @ weights)[label]
    start = lambda seed: jnp.zeros((features, classes))
    return choral.model(start, loss, predict, features=features, classes=classes, name="logistic")
"""
KIND = "ward:build"


class Wards(Consortium):
    """A consortium whose coordinator has put a model of its own beside its choral.toml."""

    def enrol(self):
        (self.study / "ward.py").write_text(WARD.format(first=""))
        return super().enrol()


@pytest.fixture(autouse=True)
def _python_as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("ward", "wards")]:
        del sys.modules[name]


@pytest.fixture
def consortium(tmp_path, monkeypatch):
    made = Wards(tmp_path, job=JOB + f'[model]\nkind = "{KIND}"\n')
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(made.study)])
    sys.modules.pop("ward")
    return made


def approve(consortium, *models, record=False):
    policy = Policy(epsilon=4.0, delta=1e-4, models=list(models))
    return approving.approve(
        consortium.homes["hill"], consortium.study / "study.toml", policy, consortium.tables["hill"], record=record
    )


def spy(path, mark):
    """Code that leaves a mark where it runs."""
    path.write_text(WARD.format(first=f"open({str(mark)!r}, 'w').close()"))
    return path


@pytest.mark.parametrize("on_the_path", [False, True])
def test_code_in_the_current_folder_never_runs_because_its_name_is_trusted(
    consortium, tmp_path, monkeypatch, on_the_path
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    spy(tmp_path / "here" / "ward.py", tmp_path / "it-ran")
    if on_the_path:
        monkeypatch.syspath_prepend("")
    with pytest.raises(TrustError, match=r"CH603 .*no installed module.*--trust-model ward:build=FILE"):
        approve(consortium, KIND)
    assert not (tmp_path / "it-ran").exists()


def test_a_file_that_the_site_names_runs_and_its_path_and_hash_are_shown(consortium, tmp_path, capsys):
    own = spy(tmp_path / "checked.py", tmp_path / "it-ran")
    reported = approve(consortium, f"{KIND}={own}")
    assert (tmp_path / "it-ran").exists()
    assert (reported.code_path, reported.code_sha256) == (str(own), hashlib.sha256(own.read_bytes()).hexdigest())
    words = ["device", "approve", consortium.study / "study.toml", "--home", consortium.homes["hill"].path]
    words += ["--data", consortium.tables["hill"], "--max-epsilon", 4, "--delta", 1e-4]
    assert main([*map(str, words), "--trust-model", f"{KIND}={own}"]) == 0
    text = capsys.readouterr().out
    assert reported.code_sha256 in text and str(own) in "".join(text.split())
    assert "STUDY     hearts: ward:build with" in text  # and not the name that the code gives itself


def test_code_that_has_changed_since_the_approval_does_not_run(consortium, tmp_path):
    own = tmp_path / "checked.py"
    own.write_text(WARD.format(first=""))
    approve(consortium, f"{KIND}={own}", record=True)
    with Agent(consortium.homes["hill"]) as agent:
        assert agent.study.settled.model.size == 8
    spy(own, tmp_path / "it-ran")
    with pytest.raises(TrustError, match=r"CH603 .*checked\.py.*has changed"):
        Agent(consortium.homes["hill"])
    assert not (tmp_path / "it-ran").exists()


def test_an_approval_from_before_code_was_pinned_has_to_be_given_again(consortium, tmp_path):
    own = spy(tmp_path / "checked.py", tmp_path / "it-ran")
    approve(consortium, f"{KIND}={own}", record=True)
    (tmp_path / "it-ran").unlink()
    path = consortium.homes["hill"].path / "approval.json"
    reported = json.loads(path.read_text())
    assert set(reported["code"]) == {"name", "path", "sha256"}
    path.write_text(json.dumps(reported | {"code": None}))
    with pytest.raises(TrustError, match=r"CH603 .*approve"):
        Agent(consortium.homes["hill"])
    assert not (tmp_path / "it-ran").exists()


def test_an_installed_module_is_found_without_running_any_of_its_package(tmp_path, monkeypatch):
    package = tmp_path / "packages" / "wards"
    package.mkdir(parents=True)
    spy(package / "__init__.py", tmp_path / "it-ran")
    (package / "north.py").write_text(WARD.format(first="from .shapes import NOTHING"))
    (package / "shapes.py").write_text("NOTHING = None\n")
    monkeypatch.setattr(home, "_installed_at", lambda: [str(tmp_path / "packages")])
    found = home.Code.located("wards.north:build", None)
    assert found.path == str(package / "north.py")
    assert not (tmp_path / "it-ran").exists()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))  # as an installed package is
    assert found.maker()(features=4, classes=2).size == 8
    assert (tmp_path / "it-ran").exists()  # by the relative import, which is not pinned


@pytest.mark.parametrize("name", ["os:getcwd", "json:loads", "nothing.here:build"])
def test_what_is_not_installed_as_a_package_needs_its_file(name):
    with pytest.raises(TrustError, match=r"CH603 .*no installed module"):
        home.Code.located(name, None)


def test_a_file_that_is_not_there_or_has_no_such_function_is_reported_without_a_traceback(consortium, tmp_path, capsys):
    words = ["device", "approve", consortium.study / "study.toml", "--home", consortium.homes["hill"].path]
    words += ["--data", consortium.tables["hill"], "--max-epsilon", 4, "--delta", 1e-4, "--trust-model"]
    assert main([*map(str, words), f"{KIND}={tmp_path / 'none.py'}"]) == 2
    assert capsys.readouterr().err.startswith("CH105 ")
    (tmp_path / "empty.py").write_text("")
    assert main([*map(str, words), f"{KIND}={tmp_path / 'empty.py'}"]) == 2
    assert capsys.readouterr().err.startswith("CH102 ")


def test_a_file_does_not_take_the_place_of_a_module_that_is_loaded(tmp_path):
    loaded = sys.modules["json"]
    (tmp_path / "json.py").write_text("def build(**_): return 7\n")
    assert home.Code.located("json:build", tmp_path / "json.py").maker()() == 7
    assert sys.modules["json"] is loaded


def test_processes_that_choral_starts_take_no_code_from_the_folder_they_start_in():
    from choral.cli.phases import service_command as command

    assert command("device", "run")[1:4] == ("-P", "-m", "choral")
