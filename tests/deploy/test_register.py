"""Two homes over one table are two budgets for the same people: noticed, and refused unless somebody means it."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from choral.cli import main
from choral.core.errors import TableError
from choral.deploy.approving import Holder, Register
from tests.run.consortium import Consortium

STATE = "XDG_STATE_HOME"


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("homes"))


@pytest.fixture
def consortium(ready, tmp_path):
    return ready.copy(tmp_path)


def approve(consortium, name, data, capsys, *more, home=None):
    """Exit status, and what the verb says of an approval."""
    words = ["device", "approve", consortium.study / "study.toml", "--home", home or consortium.homes[name].path]
    words = list(map(str, [*words, "--data", data, "--max-epsilon", 4, "--delta", 1e-4, "--json", *more]))
    if main(words) == 0:  # looked at, as it is before anybody compares it
        capsys.readouterr()
        status = main([*words, "--yes"])
        return status, json.loads(capsys.readouterr().out)
    return 2, json.loads(capsys.readouterr().out)


def test_a_second_home_over_the_same_table_is_refused_and_named(consortium, capsys):
    data = consortium.tables["hill"]
    assert approve(consortium, "hill", data, capsys)[0] == 0
    status, reported = approve(consortium, "lake", data, capsys)
    assert (status, reported["error"]["code"]) == (2, "CH314")
    other = consortium.homes["hill"].path.resolve()
    assert f"approved in another home, {other}, which has its own ledger" in reported["error"]["what"]
    assert not reported["error"]["where"]  # what stands there is read as the place of the fault
    assert "--second-home" in reported["error"]["fix"]
    assert not (consortium.homes["lake"].path / "approval.json").exists()


def test_neither_another_order_of_rows_nor_another_name_of_the_file_hides_the_table(consortium, tmp_path, capsys):
    header, *rows = consortium.tables["hill"].read_text().splitlines()
    (tmp_path / "copy.csv").write_text("\n".join([header, *reversed(rows)]) + "\n")
    assert approve(consortium, "hill", consortium.tables["hill"], capsys)[0] == 0
    assert approve(consortium, "lake", tmp_path / "copy.csv", capsys)[1]["error"]["code"] == "CH314"


def test_who_means_it_can_have_two_homes_over_one_table(consortium, capsys):
    data = consortium.tables["hill"]
    assert approve(consortium, "hill", data, capsys)[0] == 0
    assert approve(consortium, "lake", data, capsys, "--second-home")[0] == 0
    # From then on each of the two is the other's second home.
    assert approve(consortium, "hill", data, capsys)[1]["error"]["code"] == "CH314"


def test_the_same_home_approves_its_table_again_also_after_a_move(consortium, tmp_path, capsys):
    data = consortium.tables["hill"]
    assert approve(consortium, "hill", data, capsys)[0] == 0
    assert approve(consortium, "hill", data, capsys)[0] == 0
    moved = Path(shutil.move(consortium.homes["hill"].path, tmp_path / "moved"))
    assert approve(consortium, "hill", data, capsys, home=moved)[0] == 0


def test_other_tables_are_nobodys_business(consortium, capsys):
    for name in consortium.homes:
        assert approve(consortium, name, consortium.tables[name], capsys)[0] == 0


def test_the_register_holds_digests_and_paths_and_is_for_its_user_only(consortium, capsys):
    assert approve(consortium, "hill", consortium.tables["hill"], capsys)[0] == 0
    path = Register().path
    text = path.read_text()
    assert "CANARY" not in text and len(next(iter(json.loads(text)))) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_register_that_cannot_be_read_allows_nothing():
    register = Register()
    register.path.parent.mkdir(parents=True)
    register.path.write_text('{"ab": 3}')
    with pytest.raises(TableError, match="CH314"):
        register.check("ab", Holder(identity="cd", home="home"))


def test_the_screen_says_that_one_row_is_protected(consortium, capsys):
    words = ["device", "approve", consortium.study / "study.toml", "--home", consortium.homes["hill"].path]
    words += ["--data", consortium.tables["hill"], "--max-epsilon", 4, "--delta", 1e-4]
    assert main(list(map(str, words))) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "PROTECTS one row" in text and "A person with several rows here" in text
