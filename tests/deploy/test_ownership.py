"""Who can read a home: by owner and mode on Unix, by its place on Windows."""

import os
import stat
from types import SimpleNamespace

import pytest

from choral.cli import main
from choral.core.errors import StorageError
from choral.deploy import ownership
from choral.deploy.home import Home
from tests.run.consortium import Consortium


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


@pytest.fixture
def consortium(tmp_path):
    return Consortium(tmp_path)


def test_a_home_in_which_others_may_write_is_refused_before_anything_is_put_there(consortium, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    for mode in (0o777, 0o1777):  # in a folder with the sticky bit others may still put files next to the home's
        shared.chmod(mode)
        with pytest.raises(StorageError, match=r"CH618 .*shared can be changed by other users"):
            Home.join(shared, consortium.invitation, "new")
        assert list(shared.iterdir()) == [] and stat.S_IMODE(shared.stat().st_mode) == mode


def test_a_home_below_a_folder_in_which_others_may_rename_is_refused_unless_it_has_the_sticky_bit(consortium, tmp_path):
    """Whoever may rename a folder can put another home, with another ledger, in its place."""
    parent = tmp_path / "srv"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(StorageError, match=r"CH618 .*srv can be changed"):
        Home.join(parent / "deep" / "home", consortium.invitation, "new")
    assert list(parent.iterdir()) == []
    parent.chmod(0o1777)
    home = Home.join(parent / "deep" / "home", consortium.invitation, "new")
    home.vault()
    parent.chmod(0o777)  # a home that was made before is not opened either
    with pytest.raises(StorageError, match="CH618"):
        home.vault()


def test_a_link_to_a_home_must_lie_where_only_its_owner_can_exchange_it(consortium, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link").symlink_to(consortium.homes["hill"].path)
    Home(tmp_path / "open" / "link").vault()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StorageError, match=r"CH618 .*open can be changed"):
        Home(tmp_path / "open" / "link").vault()


def test_a_group_of_one_user_is_that_user(tmp_path, monkeypatch):
    """With a umask of 002, as many systems have it, folders are writable for the user's own group."""
    tmp_path.chmod(0o770)
    if os.geteuid() == 0:  # whose own group is that of root, which is never another user's
        os.chown(tmp_path, -1, 4321)
    grp, pwd = pytest.importorskip("grp"), pytest.importorskip("pwd")
    group = SimpleNamespace(gr_name="alice", gr_mem=[])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="alice", pw_gid=tmp_path.stat().st_gid))
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    ownership.check_ways(tmp_path)
    for members, name in ((["bob"], "alice"), ([], "staff")):
        group.gr_mem, group.gr_name = members, name
        with pytest.raises(StorageError, match="CH618"):
            ownership.check_ways(tmp_path)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_passphrase_that_others_can_read_or_change_is_refused(consortium, tmp_path, capsys, mode):
    secret = tmp_path / "secret"
    secret.write_text("correct horse\n")
    words = ["device", "join", str(consortium.study / "invitation.toml"), "--name", "new"]
    words += ["--home", str(tmp_path / "home"), "--card", str(tmp_path / "card"), "--passphrase-file", str(secret)]
    secret.chmod(mode)
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "CH618" in said and "chmod 600" in said and "correct" not in said
    assert not (tmp_path / "home").exists()
    secret.chmod(0o600)
    assert main(words) == 0
