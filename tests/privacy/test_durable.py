"""Files written whole: a failure leaves the old content and nothing beside it, and no right more than asked for."""

import os
import stat

import pytest

from choral.privacy import durable


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_a_step_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, step):
    path = tmp_path / "vault"
    durable.replace(path, b"old", mode=0o600)

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="No space left"):
        durable.replace(path, b"new", mode=0o600)
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["vault"]
    assert path.read_bytes() == b"old"


def test_the_new_file_has_the_mode_that_was_asked_for_whatever_the_old_one_had(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"for everybody")
    path.chmod(0o644)
    durable.replace(path, b"for the owner", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_short_write_is_gone_on_with(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    durable.replace(tmp_path / "whole", b"0123456789", mode=0o600)
    assert (tmp_path / "whole").read_bytes() == b"0123456789"
