"""The one seam to the system's locks: one holder at a time, by whatever way the system has."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from choral.core import sealed

ROOT = Path(__file__).parents[2]
TRY = "import sys; from choral.core import sealed; file = open(sys.argv[1]); print(sealed.taken(file.fileno()))"


def tried_by_another_process(path):
    here = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", TRY, str(path)], env=here, capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_a_lock_is_held_by_one_process_and_given_back_when_its_file_is_closed(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("rb+") as file:
        assert sealed.taken(file.fileno())
        assert not tried_by_another_process(path)
    assert tried_by_another_process(path)


@pytest.fixture
def windows(monkeypatch):
    """The way of Windows, with Linux's own locks of single bytes in the place of its call."""
    asked = []

    def locking(descriptor, mode, count):
        asked.append((mode, os.lseek(descriptor, 0, os.SEEK_CUR), count))
        os.lockf(descriptor, os.F_TLOCK, count)

    monkeypatch.setattr(sealed, "ON_FOLDERS", False)
    monkeypatch.setattr(sealed, "SYSTEM", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
    return asked


HOLD = """
import os, sys
file = open(sys.argv[1], "rb+")
os.lseek(file.fileno(), 1 << 30, os.SEEK_SET)
os.lockf(file.fileno(), os.F_TLOCK, 1)
print("held", flush=True)
sys.stdin.read()
"""


def test_on_windows_one_byte_beyond_the_file_is_locked_and_another_holder_is_noticed(windows, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    words = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other, path.open("rb+") as file:
        assert other.stdout.readline() == b"held\n"
        assert not sealed.taken(file.fileno())
        other.communicate()
        assert sealed.taken(file.fileno())
    assert windows == [(2, 1 << 30, 1)] * 2
    assert path.read_bytes() == b"x"
