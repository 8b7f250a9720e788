"""systemd units: what a service may touch, where the unit is put, and what is never overwritten."""

import configparser
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from choral.core.errors import ConfigError, StorageError
from choral.deploy import systemd as units
from choral.deploy.systemd import Service

HELD_BY_ANY_MANAGER = {
    "NoNewPrivileges": "yes",
    "RestrictSUIDSGID": "yes",
    "RestrictNamespaces": "yes",
    "UMask": "0077",
    "LimitCORE": "0",
}
HELD_BY_THE_SYSTEMS = {
    "ProtectSystem": "strict",
    "ProtectHome": "read-only",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
}


def service(folder, **changes):
    settings = {
        "name": "choral-device-hill",
        "description": "choral device hill",
        "command": (sys.executable, "-m", "choral", "device", "run"),
        "folder": folder,
        "only_peer": "192.0.2.7",
    }
    return Service(**settings | changes)


def parsed(text):
    read = configparser.ConfigParser(interpolation=None)
    read.optionxform = str
    read.read_string(text)
    return {name: dict(read[name]) for name in read.sections()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the system's units go in this test."""
    monkeypatch.setattr(units, "SYSTEM_UNITS", tmp_path / "system")
    return tmp_path / "system"


def test_the_systems_unit_runs_as_the_folders_owner_and_may_write_nowhere_else(tmp_path):
    reported = parsed(service(tmp_path).unit())
    assert reported["Service"]["User"] == pwd.getpwuid(os.stat(tmp_path).st_uid).pw_name
    assert reported["Service"]["ReadWritePaths"] == str(tmp_path)
    assert reported["Service"]["Environment"] == f"CHORAL_CACHE={tmp_path}/cache"  # nothing else is written by choral
    assert reported["Service"].items() >= (HELD_BY_ANY_MANAGER | HELD_BY_THE_SYSTEMS).items()
    assert "time-sync.target" in reported["Unit"]["After"] and reported["Install"]["WantedBy"] == "multi-user.target"


def test_a_users_unit_has_only_what_a_users_manager_can_hold(tmp_path):
    reported = parsed(service(tmp_path).unit(user=True))
    assert reported["Service"].items() >= HELD_BY_ANY_MANAGER.items()
    # A user's manager can't drop capabilities, and a unit that asks for it does not start (status 218).
    assert not {*HELD_BY_THE_SYSTEMS, "ProtectKernelModules", "ProtectKernelLogs", "User"} & reported["Service"].keys()
    assert reported["Install"]["WantedBy"] == "default.target"


@pytest.mark.parametrize(("peer", "allowed"), [("192.0.2.7", "192.0.2.7"), ("2001:db8::7", "2001:db8::7")])
def test_a_site_may_talk_to_its_server_alone_where_the_server_is_known_by_number(tmp_path, peer, allowed):
    reported = parsed(service(tmp_path, only_peer=peer).unit())["Service"]
    assert (reported["IPAddressDeny"], reported["IPAddressAllow"]) == ("any", f"localhost {allowed}")


@pytest.mark.parametrize("peer", ["fl.example.org", None])
def test_a_server_known_by_name_or_none_at_all_closes_no_addresses(tmp_path, peer):
    assert "IPAddressDeny" not in parsed(service(tmp_path, only_peer=peer).unit())["Service"]


@pytest.mark.parametrize(("port", "capability"), [(443, "CAP_NET_BIND_SERVICE"), (9092, ""), (None, "")])
def test_only_a_port_below_1024_needs_a_capability(tmp_path, port, capability):
    reported = parsed(service(tmp_path, port=port).unit())["Service"]
    assert reported["CapabilityBoundingSet"] == reported["AmbientCapabilities"] == capability


def test_what_systemd_would_expand_or_split_is_written_so_that_it_does_not(tmp_path):
    folder = tmp_path / "100% $HOME; sites"
    folder.mkdir()
    command = ("/usr/bin/python3", "--home", str(folder))
    reported = parsed(service(folder, command=command, description="50% done").unit())
    written = f"{tmp_path}/100%% $HOME; sites"
    assert reported["Service"]["ExecStart"] == f'/usr/bin/python3 --home "{written.replace("$", "$$")}"'
    assert reported["Service"]["ReadWritePaths"] == f'"{written}"'
    assert reported["Unit"]["Description"] == "50%% done"


@pytest.mark.parametrize("text", ["a\nExecStartPre=/bin/evil", 'a"b', "a\\b"])
def test_a_line_cannot_be_smuggled_into_a_unit(tmp_path, text):
    for change in ({"description": text}, {"command": ("/bin/true", text)}):
        with pytest.raises(ConfigError, match=r"CH102.*systemd unit"):
            service(tmp_path, **change).unit()


@pytest.mark.parametrize("user", [False, True])
def test_a_unit_is_put_where_systemd_looks_and_a_second_time_changes_nothing(tmp_path, place, monkeypatch, user):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = service(tmp_path)
    path = made.install(user=user)
    assert path == (tmp_path / "config/systemd/user" if user else place) / "choral-device-hill.service"
    assert path.read_text() == made.unit(user=user)
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0  # nobody else can change what is started
    before = path.stat().st_ino
    assert made.install(user=user) == path
    assert path.stat().st_ino == before and os.listdir(path.parent) == [path.name]


def test_a_unit_that_says_something_else_is_left_alone(tmp_path, place):
    place.mkdir()
    path = place / "choral-device-hill.service"
    path.write_text("[Service]\nExecStart=/bin/somebody elses\n")
    with pytest.raises(StorageError, match=r"CH800 .*choral-device-hill\.service is there already and says something"):
        service(tmp_path).install()
    assert "somebody elses" in path.read_text()


def test_a_folder_that_cannot_be_written_to_says_what_to_do(tmp_path, place):
    place.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match=r"CH801 .*can't be written: .*as root, or with --user"):
        service(tmp_path).install()


@pytest.mark.long  # needs systemd, which not every machine for the usual tests has; what a unit says is parsed above
@pytest.mark.parametrize("user", [False, True])
def test_systemd_itself_finds_nothing_wrong_with_a_unit(tmp_path, user):
    folder = tmp_path / "100% of $HOME"
    folder.mkdir()
    made = service(folder, command=(sys.executable, "-m", "choral", "device", "run", "--home", str(folder)), port=443)
    path = tmp_path / made.file
    path.write_text(made.unit(user=user))
    words = ["systemd-analyze", "verify", "--man=no", *["--user"] * user, str(path)]
    here = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=here, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if path.name in line]) == (0, [])
    path.write_text(path.read_text().replace("ProtectSystem=strict", "ProtectSystem=perhaps").replace("=yes", "=maybe"))
    broken = subprocess.run(words, capture_output=True, text=True, env=here, timeout=60)
    assert path.name in broken.stderr  # it would have said so


def test_the_owner_of_a_folder_that_has_no_name_is_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert parsed(service(tmp_path).unit())["Service"]["User"] == str(Path(tmp_path).stat().st_uid)
