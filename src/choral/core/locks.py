"""Locks of the operating system on open files: one holder at a time, and none once its process has ended.

The only place that knows how a system does it: `fcntl` on Linux and macOS, `msvcrt` on Windows. Libraries for this lock
a file next to the one that is meant; the ledger's lock is on the ledger itself.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

ON_FOLDERS = find_spec("fcntl") is not None  # Windows can lock files only
SYSTEM: Any = import_module("fcntl" if ON_FOLDERS else "msvcrt")
_FAR = 1 << 30  # the byte that is locked on Windows: beyond any of our files, since nobody else can read a locked byte


def taken(descriptor: int) -> bool:
    """Whether this process now holds the lock of an open file alone, until it is closed; False if another has it.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as one:
    ...     taken(one.fileno())
    True
    """
    try:
        if ON_FOLDERS:
            SYSTEM.flock(descriptor, SYSTEM.LOCK_EX | SYSTEM.LOCK_NB)
        else:
            os.lseek(descriptor, _FAR, os.SEEK_SET)
            SYSTEM.locking(descriptor, SYSTEM.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def share(descriptor: int) -> None:
    """Hold the lock of an open folder with others that share it, as soon as nobody has it alone; not on Windows."""
    SYSTEM.flock(descriptor, SYSTEM.LOCK_SH)
