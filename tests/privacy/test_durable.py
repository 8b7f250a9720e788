"""Files written whole: a failure leaves the old content and nothing beside it, and no right more than asked for."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from choral.core import sealed


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_a_step_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, step):
    path = tmp_path / "vault"
    sealed.replace(path, b"old", mode=0o600)

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="No space left"):
        sealed.replace(path, b"new", mode=0o600)
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["vault"]
    assert path.read_bytes() == b"old"


def test_the_new_file_has_the_mode_that_was_asked_for_whatever_the_old_one_had(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"for everybody")
    path.chmod(0o644)
    sealed.replace(path, b"for the owner", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_short_write_is_gone_on_with(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    sealed.replace(tmp_path / "whole", b"0123456789", mode=0o600)
    assert (tmp_path / "whole").read_bytes() == b"0123456789"


KILLED = """
import os, signal, sys
from pathlib import Path
from choral.core import sealed
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sealed.replace(Path(sys.argv[1]), b"a private key", mode=0o600)
"""


def test_what_a_killed_process_left_of_a_file_is_gone_with_the_next_write(tmp_path):
    path = tmp_path / "node.key"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=here, check=False)
        assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()  # the second has taken the first one's away
    assert left.read_bytes() == b"a private key" and stat.S_IMODE(left.stat().st_mode) == 0o600
    other = tmp_path / f".{path.name}.of-somebody-else"
    other.write_text("no draft")
    sealed.replace(path, b"another key", mode=0o600)
    assert sorted(one.name for one in tmp_path.iterdir()) == [other.name, "node.key"]


def test_what_another_process_is_writing_right_now_is_left_to_it(tmp_path, monkeypatch):
    path, real = tmp_path / "vault", os.replace

    def meanwhile(made, at):
        monkeypatch.setattr(os, "replace", real)
        sealed.replace(path, b"theirs", mode=0o600)  # sweeps, and finds ours in use
        real(made, at)

    monkeypatch.setattr(os, "replace", meanwhile)
    sealed.replace(path, b"ours", mode=0o600)
    assert path.read_bytes() == b"ours" and [one.name for one in tmp_path.iterdir()] == ["vault"]


def test_room_is_on_the_disk_before_the_block_and_nothing_is_left_of_it_without_a_call(tmp_path):
    path = tmp_path / "note"
    sealed.replace(path, b"old", mode=0o600)
    with sealed.room(path, 10_000, mode=0o600):
        (made,) = [other for other in tmp_path.iterdir() if other != path]
        assert made.stat().st_size == 10_000 and made.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="stopped"), sealed.room(path, 10, mode=0o600):
        raise ValueError("stopped")
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"old"


@pytest.mark.parametrize("size", [1, 100])
def test_what_is_put_into_room_replaces_the_old_content_whole(tmp_path, size):
    path = tmp_path / "note"
    with sealed.room(path, size, mode=0o600) as put:
        assert not path.exists()
        put(b"new content")
    assert path.read_bytes() == b"new content" and list(tmp_path.iterdir()) == [path]


def test_a_disk_without_room_is_found_out_before_the_block(tmp_path, monkeypatch):
    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"), sealed.room(tmp_path / "note", 10, mode=0o600):
        raise AssertionError("the block began")
    assert list(tmp_path.iterdir()) == []
