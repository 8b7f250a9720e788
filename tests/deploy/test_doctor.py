"""What `choral device doctor` finds: a site that is ready, and every fault with who can repair it."""

import os
import shutil

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from choral.backends.flower import reach
from choral.cli import main
from choral.core.errors import StorageError
from choral.deploy import doctor
from choral.deploy.doctor import examine
from choral.deploy.home import Home
from tests.run.consortium import Consortium


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("doctor"))
    made.approve("hill")
    return made


@pytest.fixture
def site(study, tmp_path):
    return study.copy(tmp_path).homes["hill"]


def found(home):
    return {finding.check: finding for finding in examine(home)}


def test_before_the_server_is_up_nothing_is_wrong_and_the_text_for_the_it_department_is_there(site, capsys):
    seen = found(site)
    assert list(seen) == ["keys", "disk", "address", "proxy", "server", "study", "table", "ledger"]
    assert {check: one.state for check, one in seen.items() if one.state != "ok"} == {"server": "later"}
    assert "the server is not up yet. Nothing is wrong at this site." in seen["server"].what
    assert "For the IT department: this machine opens TCP connections to 127.0.0.1:9092" in seen["server"].fix
    assert main(["device", "doctor", "--home", str(site.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "READY, except for what can't be checked yet: server"


@pytest.mark.parametrize("error", [TimeoutError("timed out"), OSError(113, "No route to host")])
def test_a_server_that_can_not_be_reached_at_all_is_an_obstacle(site, monkeypatch, capsys, error):
    def unreachable(*_, **__):
        raise error

    monkeypatch.setattr(reach.http.client.HTTPSConnection, "connect", unreachable)
    seen = found(site)["server"]
    assert seen.state == "wrong" and "CH904 nobody answers" in seen.what and "For the IT department" in seen.fix
    assert main(["device", "doctor", "--home", str(site.path)]) == 1
    assert "NOT READY" in capsys.readouterr().out


def test_a_proxy_that_refuses_is_an_obstacle_and_not_a_server_that_is_not_up(site, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody listens there
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert found(site)["server"].state == "wrong"


def test_a_site_that_has_only_joined_hears_what_comes_next(study):
    seen = found(study.homes["lake"])
    assert {seen[check].state for check in ("study", "table", "ledger")} == {"later"}
    assert "choral device approve" in seen["study"].fix


def test_another_table_than_the_approved_one_is_found(site, study, tmp_path):
    table = study.tables["hill"]
    shutil.copy(table, tmp_path / "kept.csv")
    lines = table.read_text().splitlines()
    try:
        table.write_text("\n".join([lines[0], lines[2], lines[1], *lines[3:]]) + "\n")
        assert "CH313" in found(site)["table"].what
    finally:
        shutil.copy(tmp_path / "kept.csv", table)


def test_a_home_that_others_can_open_is_found(site):
    os.chmod(site.path, 0o755)
    seen = found(site)["keys"]
    assert (seen.state, seen.fix) == ("wrong", f"chmod 700 {site.path}")


def test_a_disk_without_room_is_found(site, monkeypatch):
    monkeypatch.setattr(doctor, "LEAST_FREE", 2**62)
    assert found(site)["disk"].state == "wrong"


def test_a_name_that_nobody_knows_is_found(site, monkeypatch):
    def unknown(*_):
        raise OSError

    monkeypatch.setattr(doctor.socket, "getaddrinfo", unknown)
    assert "DNS" in found(site)["address"].fix


def test_a_proxy_is_named_with_what_it_must_do(site, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    seen = found(site)
    assert seen["proxy"].state == "look"
    assert "CONNECT to 127.0.0.1:9092" in seen["proxy"].fix


def test_nothing_is_charged_or_changed_by_looking(site):
    before = {path: path.read_bytes() for path in site.path.rglob("*") if path.is_file() and path.name != "lock"}
    found(site)
    assert {path: path.read_bytes() for path in before} == before


def test_a_folder_that_is_no_home_is_refused(tmp_path):
    with pytest.raises(StorageError, match="CH802"):
        next(examine(Home(tmp_path)))
