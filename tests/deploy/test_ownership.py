"""Who can read a home: by owner and mode on Unix, by its place on Windows."""

import pytest

from choral.deploy import ownership
from choral.errors import StorageError


def test_on_windows_a_home_must_lie_in_the_users_profile(tmp_path, monkeypatch):
    monkeypatch.setattr(ownership, "UNIX", False)
    monkeypatch.setenv("HOME", str(tmp_path / "profile"))
    (tmp_path / "profile" / "home").mkdir(parents=True)
    ownership.check_owner(tmp_path / "profile" / "home")
    for outside in (tmp_path, tmp_path / "profile" / ".." / "elsewhere"):
        with pytest.raises(StorageError, match=r"CH801.*outside of this user's profile"):
            ownership.check_owner(outside)


def test_a_folder_that_others_can_open_is_noticed_where_modes_say_so(tmp_path, monkeypatch):
    tmp_path.chmod(0o750)
    assert ownership.is_open_to_others(tmp_path)
    tmp_path.chmod(0o700)
    assert not ownership.is_open_to_others(tmp_path)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(ownership, "UNIX", False)
    assert not ownership.is_open_to_others(tmp_path)
