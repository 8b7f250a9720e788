"""Files that a crash leaves as they were or as they should be: written under another name, synced, then named."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from choral.core import locks

BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would else change line ends


def write(descriptor: int, data: bytes) -> None:
    """Write all of the data, which is on the disk when this returns."""
    while data:
        data = data[os.write(descriptor, data) :]
    os.fsync(descriptor)


def draft(path: Path, content: bytes, *, mode: int) -> Path:
    """A new file next to the path with this content, on the disk by then; one that fails is taken away again.

    Its mode is there from the start, so that there is no moment at which others could read it.
    """
    made = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
    with _or_gone(made):
        try:
            write(descriptor, content)
        finally:
            os.close(descriptor)
    return made


def replace(path: Path, content: bytes, *, mode: int) -> None:
    """Make the path the name of a file with this content: at every moment it names the old one or the new one, whole.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "note")
    >>> replace(path, b"kept", mode=0o600)
    >>> path.read_bytes(), len(list(path.parent.iterdir()))
    (b'kept', 1)
    """
    with _writing(path):
        made = draft(path, content, mode=mode)
        with _or_gone(made):
            os.replace(made, path)
        sync_folder(path.parent)


@contextlib.contextmanager
def room(path: Path, size: int, *, mode: int) -> Iterator[Callable[[bytes], None]]:
    """A function that replaces the path's content, for up to `size` bytes of which there is room on the disk already.

    So a full disk is found out before whatever must not happen unless it can be written down. Without a call nothing
    is left of it.
    """
    with _writing(path):
        made = draft(path, os.urandom(size), mode=mode)  # random: no file system packs such bytes

        def put(content: bytes) -> None:
            descriptor = os.open(made, os.O_WRONLY | BINARY)
            try:
                write(descriptor, content)
                os.ftruncate(descriptor, len(content))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(made, path)
            sync_folder(path.parent)

        try:
            yield put
        finally:
            with contextlib.suppress(OSError):  # it bears the path's name by now
                os.unlink(made)


@contextlib.contextmanager
def _or_gone(made: Path) -> Iterator[None]:
    """Take the file away if what is done with it fails: a full disk is not to be filled with drafts."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(made)
        raise


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Write while others write in this folder; who is alone there first removes what killed processes have left.

    Where folders can't be locked, such a draft stays until somebody deletes it.
    """
    if not locks.ON_FOLDERS:
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            if locks.taken(folder):
                _sweep(path)
        with contextlib.suppress(OSError):  # this file system has no locks
            locks.share(folder)
        yield
    finally:
        os.close(folder)


def _sweep(path: Path) -> None:
    """Take away the drafts of this file; nobody is writing one."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}")
    for left in filter(name.fullmatch, os.listdir(path.parent)):  # names alone: a folder may hold thousands of cards
        path.with_name(left).unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a new file's own sync does not. Windows has no such call."""
    if not locks.ON_FOLDERS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
