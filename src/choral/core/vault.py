"""All that a device remembers: keys, what it has pinned, its last turn and receipt. Round secrets never come here."""

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from choral.core import sealed
from choral.core.errors import ConfigError, StorageError, TrustError
from choral.core.keys import Chains
from choral.core.messages import Digest, Turn

# Since 2 it counts the charged attempts of a round, since 3 it knows its last question, since 4 it counts opened turns,
# since 5 it has chains of keys, since 6 it keeps the roots of cohorts, since 7 the counter of the server's frames.
VERSION = 7
MAGIC = b"chrv"
_HEADER = struct.Struct("<4sHB16s12s")  # magic, version, sealed, salt of the passphrase, nonce of the seal
_CHECK_BYTES = hashlib.sha256().digest_size
MOST_ROOTS = 4096  # of cohorts, kept to be compared with those of other devices
GROWTH = 2**16  # bytes by which a memory may grow in a turn, beyond the keys with its peers: a root, a receipt
_ALL_OPENED = 2**31 - 1  # what is counted where the count may have been lost
# OWASP's second choice for scrypt: 32 MiB of memory, about a third of a second.
SCRYPT = {"length": 32, "n": 2**15, "r": 8, "p": 3}


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that outlives a device's process; its repr shows no secret.

    `pairs` are the secrets agreed with peers under the pinned roster; `receipt` is the ledger's length and last seal.
    `attempts` is how many attempts of the last turn's round were charged: at least one, where nobody has counted.
    `asked` is the last turn that answered a question: questions and rounds are counted apart. `opened` is of how many
    turns under these terms it has shown its pair keys. `chains` and `asking` are the keys of rounds and of questions to
    come, where they are agreed in the run: those of past turns do not follow from them. `roots` are the cohorts that it
    was shown by their roots under these terms, for comparing with what others were shown. `heard` is the
    counter of the last frame of its server that it has accepted.

    >>> Memory(id="site-a", secret=b"secret")
    Memory('site-a', turn=None, pinned=False, pairs=0)
    """

    id: str
    secret: bytes
    pairs: dict[str, bytes] = {}
    roster: Digest | None = None
    terms: Digest | None = None
    turn: Turn | None = None
    attempts: int = 1
    receipt: tuple[int, str] | None = None
    asked: Turn | None = None
    opened: int = 0
    chains: Chains | None = None
    asking: Chains | None = None
    roots: tuple[tuple[Turn, Digest], ...] = ()
    heard: int = 0

    def __repr__(self) -> str:
        pinned = self.terms is not None
        return f"Memory({self.id!r}, turn={self.turn}, pinned={pinned}, pairs={len(self.pairs)})"


class Store(Protocol):
    """The place where a vault's bytes lie; `write` returns only when they would survive a crash.

    `room` makes sure of space for so many bytes, and gives the `write` that uses it.
    """

    def exists(self) -> bool: ...  # noqa: D102
    def read(self) -> bytes: ...  # noqa: D102
    def write(self, data: bytes) -> None: ...  # noqa: D102
    def room(self, size: int) -> AbstractContextManager[Callable[[bytes], None]]: ...  # noqa: D102


@dataclass(frozen=True)
class FileStore:
    """One file, replaced as a whole or not at all; for the owner's eyes only."""

    path: Path

    def exists(self) -> bool:
        """Tell whether the file is there."""
        return self.path.exists()

    def read(self) -> bytes:
        """The file's bytes, or CH803."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise _closed(self.path.name, error.strerror or "it can't be read", "Check the path.") from None

    def write(self, data: bytes) -> None:
        """Replace the file: a new one is on the disk before the old name points at it."""
        with self._or_refused():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            sealed.replace(self.path, data, mode=0o600)

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[Callable[[bytes], None]]:
        """Give what writes up to so many bytes, for which there is room on the disk by now."""
        with self._or_refused(), sealed.room(self.path, size, mode=0o600) as put:
            yield put

    @contextlib.contextmanager
    def _or_refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                "CH801",
                f"the vault {self.path.name} can't be written: {error.strerror}.",
                why="A device that can't remember a turn must not take part in it.",
                fix="Free some space or fix the permissions; the device takes part in the next turn.",
            ) from None


def _closed(where: str, what: str, fix: str) -> StorageError:
    return StorageError("CH803", f"the vault can't be opened: {what}.", where=where, fix=fix)


class Vault:
    """A device's memory on a store, each change durable before the call returns.

    >>> import tempfile
    >>> vault = Vault.create(FileStore(Path(tempfile.mkdtemp(), "vault")), Memory(id="site-a", secret=b"s"))
    >>> vault.change(turn=Turn(3, 0))
    >>> Vault.open(vault.store).memory.turn
    Turn(round=3, attempt=0)
    """

    def __init__(self, store: Store, memory: Memory, salt: bytes, key: bytes | None) -> None:
        self.store, self.memory = store, memory
        self._salt, self._key = salt, key

    def __repr__(self) -> str:
        return f"Vault({self.memory!r}, sealed={self.sealed})"

    @property
    def sealed(self) -> bool:
        """Tell whether a passphrase protects it."""
        return self._key is not None

    @classmethod
    def create(cls, store: Store, memory: Memory, passphrase: str | None = None) -> Self:
        """A new vault on the store, sealed if there is a passphrase; never in place of one that is there."""
        if store.exists():
            raise StorageError(
                "CH801",
                "there is a vault already.",
                why="With it a device would lose its keys and its memory of what it took part in.",
                fix="Open it, or choose another place.",
            )
        if passphrase is not None and not passphrase.strip():
            raise ConfigError(
                "CH102",
                "the passphrase is empty.",
                why="A vault that is sealed with nothing can be opened by everybody.",
                fix="Put a passphrase into the file; or leave --passphrase-file out, and nothing is sealed.",
            )
        salt = os.urandom(16)
        vault = cls(store, memory, salt, _key(passphrase, salt))
        store.write(vault._sealed_bytes())
        return vault

    @classmethod
    def open(cls, store: Store, passphrase: str | None = None) -> Self:
        """The vault that lies on the store, or CH803 if it is damaged, newer, or the passphrase is another."""
        data = store.read()
        where = store.path.name if isinstance(store, FileStore) else ""
        if len(data) < _HEADER.size + _CHECK_BYTES // 2 or data[:4] != MAGIC:
            raise _closed(where, "this is not a vault, or it is damaged", "Restore it from a backup, or enrol again.")
        _, version, sealed, salt, nonce = _HEADER.unpack_from(data)
        if not 1 <= version <= VERSION:
            raise _closed(where, f"it has version {version}, this is {VERSION}", "Install the choral that wrote it.")
        if sealed and passphrase is None:
            raise _closed(where, "it is sealed", "Give its passphrase.")
        header, body = data[: _HEADER.size], data[_HEADER.size :]
        key = _key(passphrase, salt) if sealed else None
        try:
            memory = msgspec.msgpack.decode(_open(key, nonce, header, body), type=Memory)
        except (InvalidTag, msgspec.DecodeError):
            what = "wrong passphrase, or damaged" if sealed else "it is damaged"
            raise _closed(where, what, "Try the passphrase again, or restore a backup; else enrol again.") from None
        return cls(store, memory, salt, key)

    def change(self, **changes: Any) -> None:  # noqa: ANN401  the fields of Memory, checked as they are replaced
        """Replace fields of the memory, durably."""
        self.put(msgspec.structs.replace(self.memory, **changes))

    @contextlib.contextmanager
    def room(self, expected: Memory | None = None) -> Iterator[Callable[[Memory], None]]:
        """A `put` for whose bytes there is room by now: a full disk is refused (CH801) before anything is charged.

        `expected` is a memory that is about as long as the one that will be put, where it is longer than this one.
        """
        with self.store.room(len(self._sealed_bytes(expected)) + GROWTH) as write:
            yield lambda memory: self.put(memory, write)

    def put(self, memory: Memory, write: Callable[[bytes], None] | None = None) -> None:
        """Replace the memory, durably; if that fails the old one stays."""
        before, self.memory = self.memory, memory
        try:
            (write or self.store.write)(self._sealed_bytes())
        except BaseException:
            self.memory = before
            raise

    def opened_after(self, entries: int) -> int:
        """Tell how many turns count as opened after a charge that is the ledger's entry of this number.

        Where the ledger has charges that this vault does not know, an old copy was put back. It may have forgotten
        opened turns, so as many as there can be count as opened.
        """
        known = self.memory.receipt
        behind = entries > (0 if known is None else known[0]) + 1
        return _ALL_OPENED if behind else self.memory.opened

    def pin(self, *, roster: bytes, terms: bytes) -> None:
        """Pin the first roster and terms, and refuse all others from then on (CH601, CH603)."""
        if self.memory.terms is None:
            self.approve(roster=roster, terms=terms)
        elif self.memory.roster != roster:
            raise TrustError(
                "CH601",
                "the roster is not the one that was approved: a key has changed, or a device came or went.",
                fix="Compare the safety numbers by phone, then enrol again.",
            )
        elif self.memory.terms != terms:
            raise TrustError(
                "CH603", "the plan is not the one that was approved on this device.", fix="Approve the new plan here."
            )

    def approve(self, *, roster: bytes, terms: bytes) -> None:
        """Pin what a person has approved in place of what was pinned; other terms begin with their own first turn."""
        known = self.memory
        pairs = known.pairs if roster == known.roster else {}  # they were agreed under the old roster
        if terms != known.terms:  # nothing of what was approved before needs its keys any more
            known = Memory(id=known.id, secret=known.secret, attempts=known.attempts, receipt=known.receipt)
        self.put(msgspec.structs.replace(known, roster=roster, terms=terms, pairs=pairs))

    def renew(self, secret: bytes) -> None:
        """Put other private keys in place of all keys and of what was pinned under them; the ledger's receipt stays.

        No turn of an old roster fits the new keys, so its turns need not be remembered.
        """
        self.put(Memory(id=self.memory.id, secret=secret, receipt=self.memory.receipt))

    def _sealed_bytes(self, memory: Memory | None = None) -> bytes:
        nonce = os.urandom(12)
        header = _HEADER.pack(MAGIC, VERSION, self.sealed, self._salt, nonce)
        body = msgspec.msgpack.encode(memory or self.memory)
        return header + _close(self._key, nonce, header, body)


def _key(passphrase: str | None, salt: bytes) -> bytes | None:
    return None if passphrase is None else Scrypt(salt=salt, **SCRYPT).derive(passphrase.encode())


def _close(key: bytes | None, nonce: bytes, header: bytes, body: bytes) -> bytes:
    if key is None:
        return hashlib.sha256(header + body).digest() + body
    return AESGCM(key).encrypt(nonce, body, header)


def _open(key: bytes | None, nonce: bytes, header: bytes, body: bytes) -> bytes:
    if key is not None:
        return AESGCM(key).decrypt(nonce, body, header)
    check, body = body[:_CHECK_BYTES], body[_CHECK_BYTES:]
    if hashlib.sha256(header + body).digest() != check:
        raise InvalidTag
    return body
