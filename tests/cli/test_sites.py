"""choral server and choral device: words in, text or one JSON object out, and a code where something is refused."""

import json
import os
import shutil
import signal
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from choral.cli import main
from choral.core.errors import StorageError
from choral.deploy import services
from choral.deploy.certificates import new_authority, server_certificate
from choral.deploy.serving import Deployed
from choral.run.folder import RunFolder
from choral.run.runs import Run
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, table


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of three sites, made by the verbs alone."""
    folder = tmp_path_factory.mktemp("verbs")
    (folder / "choral.toml").write_text(JOB)
    quiet = ["--json"]
    assert (
        main(
            [
                "server",
                "init",
                f"{folder}/study",
                "--config",
                f"{folder}/choral.toml",
                "--address",
                "127.0.0.1:9",
                *quiet,
            ]
        )
        == 0
    )
    for name in NAMES:
        words = ["device", "join", f"{folder}/study/invitation.toml", "--name", name, "--home", f"{folder}/{name}"]
        assert main([*words, "--card", f"{folder}/{name}.card", *quiet]) == 0
    assert main(["server", "enrol", f"{folder}/study", *(f"{folder}/{name}.card" for name in NAMES), *quiet]) == 0
    return folder


class Looked(threading.Event):
    """An event that is set after so many looks that waited in vain."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def wait(self, timeout=None):
        if threading.current_thread() is not threading.main_thread():
            return super().wait(timeout)
        self.looks -= 1
        if self.looks < 0:
            self.set()
        return super().wait(timeout)


def said(capsys, *words):
    """Exit status, and the object on stdout."""
    status = main([*map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def approve(study, *more):
    data = table(study / "hill.csv", seed=1)
    return ["device", "approve", study / "study/study.toml", "--data", data, "--home", study / "hill", *more]


def approved(study, capsys):
    """Exit status of an approval without a terminal, after the study was looked at."""
    said(capsys, *(words := approve(study, "--max-epsilon", 4, "--delta", 1e-4)))
    return said(capsys, *words, "--yes")[0]


def test_every_phase_prints_one_object(study, capsys):
    status, reported = said(capsys, *approve(study, "--max-epsilon", 4, "--delta", 1e-4))
    assert (status, reported["approved"], reported["rows"], reported["rule"]) == (0, False, 80, "S5")
    status, reported = said(capsys, *approve(study, "--max-epsilon", 4, "--delta", 1e-4, "--yes"))
    assert (status, reported["approved"]) == (0, True)
    number = reported["safety_number"]
    status, reported = said(capsys, "server", "status", study / "study")
    assert (status, reported["state"], reported["rounds_done"], reported["took_part"]) == (0, "not started", 0, {})
    status, reported = said(capsys, "device", "status", "--home", study / "hill")
    assert (status, reported["running"], reported["ledger"]["charges"]) == (0, False, 0)
    assert reported["policy"]["epsilon"] == 4.0
    status, reported = said(capsys, "device", "ledger", "--home", study / "hill")
    assert (status, reported["device"], reported["limit"]["epsilon"]) == (0, "hill", 4.0)
    status, reported = said(capsys, "server", "enrol", study / "study", *(study / f"{name}.card" for name in NAMES))
    assert status == 0
    assert len(reported["safety_number"].split()) == 12
    assert reported["safety_number"] != number  # another run


def test_what_people_see_names_rule_adjacency_and_adversary_with_every_epsilon(study, capsys):
    assert main(list(map(str, approve(study, "--max-epsilon", 4, "--delta", 1e-4)))) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "δ = 0.0001, one record replaced, rule S5, against the server and all other devices together" in text
    assert "NOTHING was recorded" in text


def test_the_number_to_compare_comes_last_right_above_the_question(study, capsys):
    words = approve(study, "--max-epsilon", 4, "--delta", 1e-4)
    shown = said(capsys, *words)[1]
    number = shown["own_number"]
    assert main(list(map(str, words))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith(f"NUMBER    {number[:3]} {number[3:]}: read it to all other sites")
    assert lines[-1].startswith("NOTHING was recorded")
    status, reported = said(capsys, "device", "compare", "--home", study / "hill")
    assert status == 0 and (reported["number"], reported["checks"], reported["missing"]) == (
        number,
        {},
        ["harbour", "lake"],
    )
    assert reported["study_number"] == shown["safety_number"]
    typed = said(capsys, "device", "compare", "lake=007 007", "--home", study / "hill")[1]
    assert typed["missing"] == ["harbour"] and len(typed["checks"]["lake"]) == 6
    assert main(["device", "compare", "lake=007007", "--home", str(study / "hill")]) == 0
    check, out = typed["checks"]["lake"], capsys.readouterr().out
    assert f"CHECK     {check[:3]} {check[3:]} with lake: both must see the same" in out and "MISSING   harbour" in out


def test_the_screen_lists_every_device_and_the_columns_and_label_that_are_read(study, capsys):
    words = approve(study, "--max-epsilon", 4, "--delta", 1e-4)
    reported = said(capsys, *words)[1]
    assert reported["devices"] == list(NAMES) and reported["hybrid"]
    assert len(set(reported["device_numbers"])) == 3
    assert main(list(map(str, words))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "DEVICES   3, and nobody else:" in lines
    assert {"  harbour", "  hill (this site)", "  lake"} <= set(lines)
    assert "KEYS      X25519 with ML-KEM-768, erased after every turn" in lines
    text = " ".join(" ".join(lines).split())
    assert "READS 80 rows of the columns age, pulse, smokes and the label sick (no or yes)" in text


@pytest.mark.parametrize(
    ("colluders", "reported"),
    [
        (0, "if it lies and nobody helps it, of 3 honest ones"),
        (1, "if it lies and 1 of them helps it, of 2 honest ones"),
    ],
)
def test_the_screen_always_says_how_many_devices_may_help_the_server(tmp_path, capsys, colluders, reported):
    made = Consortium(tmp_path, job=JOB.replace("cohort = 3", f"cohort = 3\ncolluders = {colluders}"))
    words = ["device", "approve", made.study / "study.toml", "--home", made.homes["hill"].path]
    words += ["--data", made.tables["hill"], "--max-epsilon", 4, "--delta", 1e-4]
    assert main(list(map(str, words))) == 0
    assert reported in " ".join(capsys.readouterr().out.split())
    status, said_ = said(capsys, *words, "--colluders", 1)
    assert (status, said_.get("error", {}).get("code")) == ((0, None) if colluders else (1, "CH603"))


def test_a_weaker_study_ends_with_status_1_and_its_code(study, capsys):
    status, reported = said(capsys, *approve(study, "--max-epsilon", 0.5))
    assert (status, reported["error"]["code"]) == (1, "CH603")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["server"], "CH101"),
        (["server", "start"], "CH101"),
        (["device", "join"], "CH101"),
        (["server", "init", "study", "--config", "choral.toml", "--address", "nowhere"], "CH102"),
        (["server", "init", "study", "--config", "choral.toml", "--address", "host:99999"], "CH102"),
        (["server", "init", "study", "--config", "none.toml", "--address", "host:9092"], "CH105"),
        (["server", "init", "study", "--config", "choral.toml", "--address", "host:1", "--key", "x"], "CH103"),
        (["server", "status", "nowhere"], "CH105"),
        (["device", "join", "none.toml", "--name", "hill"], "CH105"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_ends_with_status_2_and_a_code(tmp_path, monkeypatch, capsys, words, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "choral.toml").write_text(JOB)
    assert main([*words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"]["code"] == code
    assert not (tmp_path / "study").exists()


def test_a_seed_is_refused_before_anything_is_made(tmp_path, capsys):
    (tmp_path / "choral.toml").write_text(JOB.replace("[run]", "[run]\nseed = 42"))
    words = ["server", "init", tmp_path / "study", "--config", tmp_path / "choral.toml", "--address", "host:9092"]
    status, reported = said(capsys, *words)
    assert (status, reported["error"]["code"]) == (2, "CH203")
    assert reported["error"]["where"].endswith(f"choral.toml:{JOB.splitlines().index('[run]') + 2}")
    assert not (tmp_path / "study").exists()


def test_a_home_that_nobody_has_joined_says_so(tmp_path, capsys):
    status, reported = said(capsys, "device", "status", "--home", tmp_path)
    assert (status, reported["error"]["code"]) == (1, "CH802")


def test_a_device_without_an_approval_does_not_run(study, capsys):
    status = main(["device", "run", "--home", str(study / "lake"), "--agent-only", "--json"])
    assert status == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "CH603"  # one object and no other


def test_a_device_that_answers_says_so_once(study, capsys, monkeypatch):
    """Stopped at its third look, a second apart, or before its first."""
    assert approved(study, capsys) == 0
    handlers = {}
    monkeypatch.setattr("signal.signal", lambda number, handler: handlers.update({number: handler}))
    monkeypatch.setattr("choral.deploy.agent.LOOK", 0.1)
    for looks in (3, 0):
        monkeypatch.setattr("choral.cli.device.threading", SimpleNamespace(Event=lambda looks=looks: Looked(looks)))
        assert main(["device", "run", "--home", str(study / "hill"), "--agent-only", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == "hill"
    assert set(handlers) == {signal.SIGTERM, signal.SIGINT}


@pytest.mark.parametrize("name", [b"h\xfcgel", b"", b"a" * 65, b"line\nbreak"])
def test_a_name_that_no_roster_takes_is_refused_before_anything_is_made(study, tmp_path, capsys, name):
    """The bytes of a terminal that does not write UTF-8 reach Python as surrogates."""
    words = ["device", "join", study / "study/invitation.toml", "--home", tmp_path / "home"]
    status, reported = said(capsys, *words, "--name", os.fsdecode(name))
    assert (status, reported["error"]["code"]) == (1, "CH600")
    assert not (tmp_path / "home").exists()


def test_a_card_that_cannot_be_written_is_reported_with_the_way_out(study, tmp_path, capsys):
    words = ["device", "join", study / "study/invitation.toml", "--name", "hill", "--home", tmp_path / "home"]
    status, reported = said(capsys, *words, "--card", tmp_path / "nowhere" / "hill.card")
    assert (status, reported["error"]["code"]) == (1, "CH801")
    status, reported = said(capsys, *words, "--again", "--card", tmp_path / "hill.card")
    assert (status, reported["card"]) == (0, str(tmp_path / "hill.card"))


def test_a_device_whose_ledger_is_gone_says_so(study, tmp_path, capsys):
    assert approved(study, capsys) == 0
    home = shutil.copytree(study / "hill", tmp_path / "hill")
    (home / "ledger").unlink()
    assert main(["device", "status", "--home", str(home)]) == 0
    assert "LEDGER    is missing" in capsys.readouterr().out


def test_units_for_systemd_start_the_same_verb(study, capsys):
    assert main(["device", "run", "--home", str(study / "hill"), "--systemd"]) == 0
    assert f"device run --home {study / 'hill'}" in capsys.readouterr().out
    assert main(["server", "run", str(study / "study"), "--listen", "0.0.0.0:9", "--systemd", "--as-root"]) == 0
    unit = capsys.readouterr().out
    assert f"server run {study / 'study'} --listen 0.0.0.0:9 --as-root\n" in unit
    assert "NoNewPrivileges=yes" in unit


def test_a_service_is_installed_and_the_way_to_start_it_is_shown(study, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    words = ["device", "run", "--home", str(study / "hill"), "--install-service", "--user"]
    path = tmp_path / "systemd/user/choral-device-hill.service"
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"WROTE     {path}",
        "NEXT      systemctl --user daemon-reload",
        "          systemctl --user enable --now choral-device-hill.service",
        "ALSO      loginctl enable-linger, or it ends when you log out",
    ]
    assert main([*words[:-2], "--systemd", "--user"]) == 0
    assert capsys.readouterr().out == path.read_text()
    status, reported = said(capsys, *words)
    assert (status, reported["unit"], len(reported["next"])) == (0, str(path), 2)
    status, reported = said(capsys, *words, "--agent-only")  # another service of the same name
    assert (status, reported["error"]["code"]) == (1, "CH800")
    table(study / "public.csv", seed=9)
    words = ["server", "run", study / "study", "--test", study / "public.csv", "--install-service", "--user"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status, reported = said(capsys, *words)
    assert status == 0
    text = (tmp_path / "systemd/user/choral-server-study.service").read_text()
    assert f"server run {study / 'study'} --test {study / 'public.csv'}\n" in text


def test_a_server_is_not_run_as_root_or_made_a_service_of_roots_unless_that_is_said(study, capsys, monkeypatch):
    def begin(*_):
        raise StorageError("CH800", "it would begin now.")

    def code(*words):
        return said(capsys, "server", "run", study / "study", *words)[1]["error"]["code"]

    monkeypatch.setattr(services, "run_folder", begin)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert code() == code("--systemd", "--user") == "CH907"
    for more in ((), ("--test", study / "hill.csv"), ("--systemd", "--user")):  # nobody need be another user for that
        reported = said(capsys, "server", "run", study / "no-study", *more)[1]["error"]
        assert (reported["code"], reported["where"]) == ("CH105", str(study / "no-study" / "study.toml"))
    assert code("--as-root") == "CH800"
    assert main(["server", "run", str(study / "study"), "--systemd", "--user", "--as-root"]) == 0
    assert "--as-root\n" in capsys.readouterr().out
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert code() == "CH800"


@pytest.mark.parametrize(
    ("flags", "code"), [(["--user"], "CH104"), (["--systemd", "--install-service"], "CH101")]
)  # fmt: skip
def test_flags_of_a_service_that_do_not_go_together_are_refused(study, capsys, flags, code):
    status, reported = said(capsys, "device", "run", "--home", study / "hill", *flags)
    assert (status, reported["error"]["code"]) == (2, code)


def test_a_sealed_home_takes_its_passphrase_from_a_file(study, tmp_path, capsys):
    (tmp_path / "secret").write_text("correct horse\n")
    (tmp_path / "secret").chmod(0o600)
    words = ["device", "join", study / "study/invitation.toml", "--name", "sealed", "--home", tmp_path / "home"]
    assert said(capsys, *words, "--card", tmp_path / "card", "--passphrase-file", tmp_path / "secret")[0] == 0
    status, reported = said(capsys, "device", "ledger", "--home", tmp_path / "home")
    assert (status, reported["error"]["code"]) == (1, "CH803")
    assert "correct horse" not in (tmp_path / "card").read_text()


def test_a_certificate_of_ones_own_is_taken_with_its_key_and_its_issuer(study, tmp_path, capsys):
    authority = new_authority("an organisation")
    server = server_certificate(authority, "fl.example.org")
    for name, text in (("a.pem", authority.certificate), ("s.pem", server.certificate), ("s.key", server.key)):
        (tmp_path / name).write_text(text)
    words = [
        "server",
        "init",
        tmp_path / "study",
        "--config",
        study / "choral.toml",
        "--address",
        "fl.example.org:9092",
    ]
    words += ["--certificate", tmp_path / "s.pem", "--key", tmp_path / "s.key", "--authority", tmp_path / "a.pem"]
    assert said(capsys, *words)[0] == 0
    assert (tmp_path / "study" / "server.key").read_text() == server.key
    assert stat.S_IMODE((tmp_path / "study" / "server.key").stat().st_mode) == 0o600
    assert authority.certificate in (tmp_path / "study" / "invitation.toml").read_text()


def test_stop_leaves_word_for_a_run_that_has_begun(study, capsys):
    assert said(capsys, "server", "stop", study / "study")[1]["error"]["code"] == "CH802"
    folder = Path(said(capsys, "server", "status", study / "study")[1]["folder"])
    place = Deployed(study / "study", transport=Sockets({}))  # nothing is sent: only run.json is written
    Run(place, place.study, folder=RunFolder(folder)).begin()
    assert said(capsys, "server", "stop", study / "study") == (0, {"stopping": True})
    assert said(capsys, "server", "status", study / "study")[1]["stopping"]
