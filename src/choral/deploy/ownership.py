"""Who can read what is kept for one user only: by owner and mode on Unix, by the place of a folder on Windows."""

import os
from pathlib import Path

from choral.errors import StorageError

UNIX = hasattr(os, "geteuid")  # Windows has access lists in place of owners and modes; choral sets and reads none
_OTHERS = 0o077


def check_owner(folder: Path) -> None:
    """Nothing, or CH801 for a folder of another user, who could read and replace whatever is put there.

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


def is_open_to_others(folder: Path) -> bool:
    """Whether the mode of a folder lets other users in; on Windows its place answers for that.

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
