"""Files that outlive a crash: sealed line by line, replaced as a whole, and held by one process at a time.

A sealed file's line is `SEAL BODY`: the body is one JSON object in ASCII, and SEAL the SHA-256 of `PREVIOUS-SEAL BODY`
in hex; the first line follows 64 zeros. docs/ledger.md says what this detects and how to re-check it with sha256sum.
Other files are written under another name, synced, then named. This module knows bytes and JSON only, no privacy.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from choral.core.errors import LedgerError, StorageError

Body = dict[str, Any]
START = b"0" * 64
BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would else change line ends
ON_FOLDERS = find_spec("fcntl") is not None  # Windows can lock files only
SYSTEM: Any = import_module("fcntl" if ON_FOLDERS else "msvcrt")
_FAR = 1 << 30  # the byte that is locked on Windows: beyond any of our files, since nobody else can read a locked byte


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """How long a chain was and how it ended: kept elsewhere, it shows later that the chain was cut or replaced."""

    entries: int
    seal: str


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A verified chain: its bodies and seals, the bytes they fill, and how many an interrupted write left over."""

    bodies: tuple[Body, ...]
    seals: tuple[str, ...]
    size: int
    torn: int
    ended: bool  # False: the last line is complete except for its line end

    @property
    def receipt(self) -> Receipt:
        """The receipt of the last line."""
        return Receipt(entries=len(self.seals), seal=self.seals[-1])


def seal(previous: bytes, body: bytes) -> bytes:
    """The seal of a line's body after the line that bears the previous seal.

    >>> seal(START, b"{}")[:16]
    b'3533f36f59879ac3'
    """
    return hashlib.sha256(previous + b" " + body).hexdigest().encode()


def line(previous: bytes, body: Body) -> bytes:
    """A body as the line that follows the previous seal."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return seal(previous, text) + b" " + text + b"\n"


def parse(data: bytes, where: str) -> Lines:
    """The chain in these bytes, every seal checked; a LedgerError CH400 names the first line that does not verify."""
    *complete, tail = data.split(b"\n")
    bodies: list[Body] = []
    seals: list[str] = []
    ended = not (complete and _sealed(complete[-1][:64], tail))
    for number, text in enumerate(complete if ended else [*complete, tail], start=1):
        if not _sealed(seals[-1].encode() if seals else START, text):
            raise _damaged(where, number, "its seal does not fit")
        bodies.append(_object(where, number, text[65:]))
        seals.append(text[:64].decode())
    if not seals:
        # Chains come into being in one step, so even an interrupted creation leaves no empty file.
        raise _damaged(where, 1, "there is no complete line")
    if ended and not _cut_short(tail):
        raise _damaged(where, len(seals) + 1, "it is no line that an interrupted write leaves")
    torn = len(tail) if ended else 0
    return Lines(bodies=tuple(bodies), seals=tuple(seals), size=len(data) - torn, torn=torn, ended=ended)


def _sealed(previous: bytes, text: bytes) -> bool:
    return text[:65] == seal(previous, text[65:]) + b" "


def _object(where: str, number: int, text: bytes) -> Body:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _damaged(where, number, "it is sealed, but no JSON object")
    return body


def _cut_short(tail: bytes) -> bool:
    """Whether these last bytes, without a line end, can be the beginning of a line that was being written.

    Anything else is damage: above all a whole line whose line end was changed. After a loss of power a file system may
    show zeros where the rest of the line should be.
    """
    text = tail.rstrip(b"\0")
    mark, space, body = text[:64], text[64:65], text[65:]
    if not all(byte in b"0123456789abcdef" for byte in mark) or space not in (b"", b" "):
        return False
    if not body:
        return True
    if not (body.startswith(b"{") and body.isascii()):
        return False
    try:
        json.JSONDecoder().raw_decode(body.decode())
    except ValueError:
        return True
    except RecursionError:  # deeper than any line that was ever written
        return False
    return False  # the object is complete, but its seal does not fit or something follows it


def _damaged(where: str, number: int, what: str) -> LedgerError:
    return LedgerError(
        "CH400", f"line {number} of the ledger is damaged: {what}.", where=where,
        why="What was spent can't be known, so nothing more may be.", fix="Restore it as the last receipt knows it.",
    )  # fmt: skip


def read(path: Path, receipt: Receipt | None = None) -> Lines:
    """The verified chain of a file, which must hold everything up to the receipt (CH402)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if receipt is not None:
            raise _older(path, 0, receipt) from None
        raise StorageError("CH802", "there is no ledger here.", where=str(path), fix="Check the path.") from None
    except OSError as error:
        raise StorageError(
            "CH802",
            f"the ledger can't be read: {error.strerror}.",
            where=str(path),
            fix="Check the file and its rights.",
        ) from None
    lines = parse(data, str(path))
    if receipt is not None:
        before = lines.seals[receipt.entries - 1 : receipt.entries] if receipt.entries > 0 else ()
        if before != (receipt.seal,):
            raise _older(path, len(lines.seals), receipt)
    return lines


def _older(path: Path, entries: int, receipt: Receipt) -> LedgerError:
    return LedgerError(
        "CH402", f"the ledger ({entries} lines) does not continue the last receipt (line {receipt.entries}).",
        where=str(path), why="Refused: an old or other ledger would let budget be spent twice.",
        fix="Put back the ledger that the receipt belongs to.",
    )  # fmt: skip


class Chain:
    """The one writer of a chain's file: an append has reached the disk when it returns."""

    def __init__(self, path: Path, descriptor: int, lines: Lines) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._size = lines.size
        self.receipt = lines.receipt  # of the last line

    @classmethod
    def open(cls, path: Path, *, first: Body | None = None, receipt: Receipt | None = None) -> tuple[Self, Lines]:
        """The chain of a file, locked, and what it holds; made with `first` as its first line if there is none.

        Bytes of an interrupted write are cut off, and `torn` counts them; nobody got a receipt for them.
        """
        if first is not None and receipt is None and not path.exists():
            _create(path, line(START, first))
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | BINARY)
        except FileNotFoundError:
            read(path, receipt)  # raises, with or without a receipt, what a missing file means
            raise
        except OSError as error:
            raise StorageError(
                "CH801", f"the ledger can't be opened: {error.strerror}.", where=str(path),
                fix="Check the file and its rights.",
            ) from None  # fmt: skip
        try:
            if not taken(descriptor):
                raise LedgerError(
                    "CH404", "the ledger is in use by another process.", where=str(path),
                    why="Two writers could each spend the last of the budget.", fix="Wait for it to end, or stop it.",
                )  # fmt: skip
            lines = read(path, receipt)
            chain = cls(path, descriptor, lines)
            chain._recover(lines)
        except BaseException:
            os.close(descriptor)
            raise
        return chain, lines

    def _recover(self, lines: Lines) -> None:
        if not lines.ended:
            self._store(b"\n")
        elif lines.torn:
            os.ftruncate(self._open_descriptor(), lines.size)
            os.fsync(self._open_descriptor())

    def append(self, body: Body) -> Receipt:
        """The receipt of a new last line, which is on the disk by then; on any error the chain closes itself."""
        text = line(self.receipt.seal.encode(), body)
        self._store(text)
        self.receipt = Receipt(entries=self.receipt.entries + 1, seal=text[:64].decode())
        return self.receipt

    def _store(self, data: bytes) -> None:
        descriptor = self._open_descriptor()
        try:
            there, named = os.fstat(descriptor), os.stat(self.path)
            if there.st_size != self._size or (there.st_dev, there.st_ino) != (named.st_dev, named.st_ino):
                raise LedgerError(
                    "CH400", "the ledger was changed or replaced while in use.", where=str(self.path),
                    why="Nothing was written.", fix="Find out who did; then open it again.",
                )  # fmt: skip
            write(descriptor, data)
            self._size += len(data)
        except OSError as error:
            # After a failed fsync nobody knows what the disk holds: only reading it again can tell.
            self.close()
            raise StorageError(
                "CH801", f"the ledger can't be written: {error.strerror}.", where=str(self.path),
                why="The charge may count, but nothing may be sent.", fix="Repair the disk, then open it again.",
            ) from None  # fmt: skip
        except BaseException:
            self.close()
            raise

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise LedgerError("CH404", "the ledger is closed.", where=str(self.path), fix="Open it again.")
        return self._descriptor

    def close(self) -> None:
        """Give the file, and with it the lock, back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _create(path: Path, first: bytes) -> None:
    """Make the file with its first line in one step: a crash leaves either no ledger or a whole one."""
    try:
        made = draft(path, first, mode=0o600)
        try:
            os.link(made, path)  # unlike a rename, never replaces a ledger that another process has just made
        except FileExistsError:
            pass
        finally:
            os.unlink(made)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            "CH801", f"the ledger can't be made: {error.strerror}.", where=str(path), fix="Check the folder."
        ) from None


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
    if not ON_FOLDERS:
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            if taken(folder):
                _sweep(path)
        with contextlib.suppress(OSError):  # this file system has no locks
            SYSTEM.flock(folder, SYSTEM.LOCK_SH)
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
    if not ON_FOLDERS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
