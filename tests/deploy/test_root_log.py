"""Roots that sites were shown: signed, checked by the roster's root, and compared turn by turn."""

import json

import msgspec
import pytest

from choral.cli import main
from choral.core.errors import StorageError, TrustError
from choral.core.messages import Turn
from choral.core.vault import Vault
from choral.deploy.ownership import keep_json
from choral.deploy.root_log import RootLog, read_root_log
from tests.protocol.world import FIRST, World

ENROLLED, CALLED = 12, range(10)


@pytest.fixture(scope="module")
def world():
    made = World(devices=ENROLLED, trees=True)
    for turn in (FIRST, Turn(1, 0)):
        made.finish(made.round(turn, CALLED))
    return made


def log_of(world, number, **memory):
    known = msgspec.structs.replace(Vault.open(world.stores[number]).memory, **memory)
    return RootLog.of(world.terms, known)


def split(world, number):
    """What a device has whose second turn was another cohort's."""
    (first, root), (second, _) = Vault.open(world.stores[number]).memory.roots
    return log_of(world, number, roots=((first, root), (second, bytes(32))))


def test_sites_of_one_view_agree_and_a_split_view_is_named_by_its_turn(world):
    one, other = log_of(world, 2), log_of(world, 5)
    other.check(one)
    assert other.differs_from(one) == () and len(one.roots) == 2
    away = log_of(world, 11)  # it never took part, so there is nothing to differ in
    away.check(one)
    assert away.roots == () and away.differs_from(one) == ()
    lied_to = split(world, 5)
    lied_to.check(one)
    assert lied_to.differs_from(one) == (Turn(1, 0),)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"roots": ((0, 0, "00" * 32),)}, "CH606"),
        ({"signature": "00" * 64}, "CH606"),
        ({"number": 6}, "CH615"),
        ({"path": ""}, "CH615"),
        ({"identity": "11" * 32}, "CH615"),
        ({"identity": "no hex"}, "CH600"),
        ({"roster": "00" * 32}, "CH601"),
        ({"enrolled": 13}, "CH601"),
        ({"terms": "00" * 32}, "CH603"),
    ],
    ids=str,
)
def test_a_file_that_its_device_did_not_sign_or_of_another_study_is_refused(world, change, code):
    with pytest.raises(TrustError) as refusal:
        msgspec.structs.replace(log_of(world, 5), **change).check(log_of(world, 2))
    assert refusal.value.code == code


def test_a_file_is_read_as_it_was_written_and_another_form_is_refused(world, tmp_path):
    keep_json(tmp_path / "roots.json", log_of(world, 2))
    assert read_root_log(tmp_path / "roots.json") == log_of(world, 2)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(StorageError, match="CH802"):
        read_root_log(tmp_path / "bad.json")


def test_the_verb_writes_the_signed_roots_and_says_in_which_round_others_differ(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("choral.deploy.root_log.root_log_of", lambda *_: log_of(world, 2))
    for name, log in (("same", log_of(world, 5)), ("split", split(world, 6))):
        keep_json(tmp_path / name, log)
    home, same, differs = str(tmp_path), str(tmp_path / "same"), str(tmp_path / "split")
    assert main(["device", "roots", "--home", home, "--compare", same]) == 0
    shown = capsys.readouterr().out
    assert "AGREES    device-0005: 2 turns" in shown and log_of(world, 2).safety_number[:20] in shown
    assert read_root_log(tmp_path / "roots.json") == log_of(world, 2)
    assert main(["device", "roots", "--home", home, "--compare", same, differs]) == 1
    assert "DIFFERS   device-0006: 1 of 2 turns, the first is round 1" in capsys.readouterr().out
    assert main(["device", "roots", "--home", home, "--compare", differs, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["differs"] == {"device-0006": [[1, 0]]}
