"""Files for one user only: who can read them, by owner and mode on Unix, by the place of a folder on Windows."""

import os
import stat
from pathlib import Path

import msgspec

from choral.core.errors import StorageError
from choral.run.folder import write_whole

UNIX = hasattr(os, "geteuid")  # Windows has access lists in place of owners and modes; choral sets and reads none
_OTHERS = 0o077
_WRITE, _READ_OR_WRITE = 0o022, 0o066


def check_owner(folder: Path) -> None:
    """It raises CH801 for a folder of another user, who could read and replace whatever is put there.

    On Windows the folder must lie in the user's profile, which others can't open unless somebody has allowed it.
    """
    if not UNIX:
        return _check_in_profile(folder)
    if (owner := folder.stat().st_uid) != os.geteuid():
        raise StorageError(
            "CH801",
            f"belongs to another user (number {owner}); this is number {os.geteuid()}.",
            where=str(folder),
            fix="Choose another folder, or become its owner first.",
        )
    return None


def check_ways(folder: Path) -> None:
    """It raises CH618 where other users may write into a folder, or put another one in its place.

    Each folder on the way counts, with links and without: whoever may rename one of them exchanges all below it. The
    sticky bit keeps others from that, and not from putting files in.
    """
    written, real = folder.absolute(), folder.resolve()
    for place in dict.fromkeys((written, *written.parents, real, *real.parents)) if UNIX else ():
        if not place.exists():
            continue
        found = place.stat()
        if _others_may(found, _WRITE) and (place in (written, real) or not found.st_mode & stat.S_ISVTX):
            raise StorageError(
                "CH618",
                "can be changed by other users of this machine.",
                where=str(place),
                why="They could put another home, ledger or study in its place.",
                fix=f"Choose a folder that only you can write to, or: chmod go-w {place}",
            )


def check_secret(file: Path) -> None:
    """It raises CH618 for a file with a secret that other users may read or change."""
    if not UNIX or not file.is_file():  # a pipe is nobody else's; what is not there is refused where it is read
        return
    if _others_may(file.stat(), _READ_OR_WRITE):
        raise StorageError(
            "CH618",
            "can be read or changed by other users of this machine, and holds a passphrase.",
            where=str(file),
            fix=f"chmod 600 {file}",
        )


def _others_may(found: os.stat_result, rights: int) -> bool:
    """It says whether a mode gives others one of these rights; a group of this user alone is no other."""
    mode = found.st_mode & rights
    return bool(mode & 0o007) or (bool(mode & 0o070) and not _is_of_one_user(found.st_gid))


def _is_of_one_user(group: int) -> bool:
    """It says whether a group has this user alone, as many systems make one for each user, or is that of root."""
    import grp
    import pwd

    if group == 0:
        return True
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:  # nobody knows who is in it
        return False
    return user.pw_gid == group and found.gr_name == user.pw_name and not set(found.gr_mem) - {user.pw_name}


def is_open_to_others(folder: Path) -> bool:
    """It says whether the mode of a folder lets other users in; on Windows its place answers for that.

    >>> import tempfile
    >>> is_open_to_others(Path(tempfile.mkdtemp()))
    False
    """
    return UNIX and bool(folder.stat().st_mode & _OTHERS)


def _check_in_profile(folder: Path) -> None:
    profile = Path.home().resolve()
    if not folder.resolve().is_relative_to(profile):
        raise StorageError(
            "CH801",
            "is outside of this user's profile, where other users may read it.",
            where=str(folder),
            fix=f"Choose a folder in {profile}.",
        )


def private(folder: Path) -> Path:
    """The folder, made if need be, for its owner's eyes only; one of another user is refused (CH801)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_owner(folder)
        os.chmod(folder, 0o700)
    except OSError as error:
        fix = "Choose another folder, or fix its permissions."
        raise StorageError("CH801", f"can't be made: {error.strerror}.", where=str(folder), fix=fix) from None
    return folder


def keep(path: Path, content: str | bytes) -> None:
    """The file with this content, for its owner's eyes only; a crash leaves the old file or the new one."""
    private(path.parent)
    write_whole(path, content if isinstance(content, bytes) else content.encode(), mode=0o600)


def keep_json(path: Path, value: msgspec.Struct) -> None:
    """The file with this value as JSON, written so that its owner can read it."""
    keep(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n")
