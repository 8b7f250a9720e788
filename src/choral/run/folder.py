"""The run folder: what a run writes, who signs its end, and who follows it; docs/run-folder.md has the format."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.core import sealed
from choral.core.errors import StorageError
from choral.core.keys import Bundle, Identity, Roster, digest
from choral.core.ledger import Ledger
from choral.core.signed import Closing, SignedEnd, sign_end
from choral.core.terms import MODEL_TYPE
from choral.core.vault import FileStore, Memory, Store, Vault
from choral.record import (
    DEVICES,
    MODELS,
    PROBES,
    QUESTIONS,
    SIGNATURES,
    STUDY,
    About,
    ModelCard,
    Outcome,
    ProbeLine,
    Record,
    RoundLine,
    Signatures,
    Signer,
    inside,
    read_lines,
    read_probes,
    traits,
)
from choral.record.description import KindName
from choral.server_step import State

if TYPE_CHECKING:
    from choral.record import Outcome, RoundLine
    from choral.run.study import Study

MOST_LEDGERS = 256  # files of one run; a simulation of more devices counts rounds only, as its rounds.jsonl shows


def write_whole(path: Path, content: bytes, *, mode: int = 0o666, fix: str = "Free some space or use --out.") -> None:
    """The file with this content, durably and at once: a crash leaves the old file or the new one, never a part."""
    try:
        sealed.replace(path, content, mode=mode)
    except OSError as error:
        raise StorageError("CH801", f"can't be written: {error.strerror}.", where=str(path), fix=fix) from None


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """The value as readable JSON, durably and at once."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


def folder_name(name: str) -> str:
    """A run's name as a part of its folder's: letters, digits, points and hyphens, so that it leads nowhere else.

    >>> folder_name("../../etc/my run"), folder_name("adult-demo")
    ('etc-my-run', 'adult-demo')
    """
    return re.sub(r"[^\w.-]+", "-", name.replace("..", "")).strip("-.")[:48] or "run"


def new_folder(name: str) -> Path:
    """It is where a run of this name goes if nobody says: its own folder under runs, named by the time."""
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{folder_name(name)}"


class RunFolder:
    """The writer of a run folder: each call leaves the folder whole, whatever happens next."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new folder; one that holds anything is refused, so that no run is written over."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StorageError(
                "CH800", "exists already.", where=str(path), fix="Choose another --out, or go on with choral resume."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                "CH801", f"can't be made: {error.strerror}.", where=str(path), fix="Choose another --out."
            ) from None
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The folder for one process alone: two servers on one run could try one turn twice."""
        with (self.path / "lock").open("ab") as file:
            if not sealed.taken(file.fileno()):
                raise StorageError(
                    "CH800",
                    "is in use by another process.",
                    where=str(self.path),
                    fix="Wait for it to end, or stop it.",
                )
            yield

    def begin(self, about: About) -> None:
        """Write what is run."""
        write_json(self.path / "run.json", about.to_dict())

    def add_round(self, line: RoundLine, parameters: NDArray[np.float32] | None, state: State) -> None:
        """Add a finished round: its line first, then the checkpoint, if any, which says that the round is over.

        `state` is what the server's step remembers.
        """
        append_line(self.path / "rounds.jsonl", line, fix="Free some space, then resume.")
        if parameters is not None:
            about = {"round": str(line.round)}
            write_whole(self.path / "checkpoint.safetensors", tensors(parameters, about, state))

    def add_probes(self, line: ProbeLine) -> None:
        """Add what devices answered in a round, before the round itself."""
        append_line(self.path / PROBES, line, fix="Free some space, then resume.")

    def checkpoint(self) -> tuple[int, NDArray[np.float32] | None]:
        """The last round that is over and the parameters after it; (0, None) before the first."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return 0, None
        parameters, about = read_parameters(path)
        if not about.get("round", "").isdecimal():
            raise _damaged(path)
        return int(about["round"]), parameters

    def server_state(self, initial: State) -> State:
        """It is what the server's step remembered at the checkpoint; before the first, what is given."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return initial
        _, *found = _read_tensors(path, *map(_in_checkpoint, initial))
        if any(
            one.shape != old.shape or one.dtype != old.dtype for one, old in zip(found, initial.values(), strict=True)
        ):
            raise _damaged(path)
        return dict(zip(initial, found, strict=True))

    def forget_after(self, last: int) -> list[RoundLine]:
        """The lines of rounds that are over; a line that a crash left without its checkpoint is taken out."""
        path = self.path / "rounds.jsonl"
        lines = [line for line in read_lines(path) if line.round <= last]
        write_whole(path, "".join(map(_line, lines)).encode())
        if (self.path / PROBES).exists():
            answered = [line for line in read_probes(self.path) if line.round <= last]
            write_whole(self.path / PROBES, "".join(map(_line, answered)).encode())
        return lines

    def write_model(self, parameters: NDArray[np.float32], card: ModelCard) -> bytes:
        """The bytes of the model's file, which devices sign; written with its description next to it."""
        content = tensors(parameters, {"format": "choral flat vector"})
        write_whole(self.path / "model.safetensors", content)
        write_json(self.path / "model.json", card.to_dict())
        return content

    def finish(self, result: Outcome) -> None:
        """Write the result, which names every other file by its hash; the keys that could sign it again are removed."""
        whole = msgspec.structs.replace(result, files=hashes(self.path))
        write_json(self.path / "result.json", whole.to_dict())
        shutil.rmtree(self.path / DEVICES, ignore_errors=True)


def append_line(path: Path, line: Record, *, fix: str) -> None:
    """Add a line to a file of JSON lines, durably; one that a crash left unfinished is taken out first."""
    try:
        with path.open("ab+") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
            file.write(_line(line).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError("CH801", f"can't be written: {error.strerror}.", where=str(path), fix=fix) from None


def _line(line: Record) -> str:
    return json.dumps(line.to_dict(), allow_nan=False, ensure_ascii=False) + "\n"


def now() -> str:
    """The time, as records write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions of what numbers depend on."""
    return {name: version(name) for name in ("numpy", "scipy", "jax", "cryptography")}


HASHED = ("run.json", "rounds.jsonl", "model.safetensors", "model.json", STUDY, SIGNATURES, QUESTIONS, MODELS, PROBES)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the files that a result vouches for, ledgers included."""
    names = [*HASHED, *(f"ledgers/{path.name}" for path in sorted((folder / "ledgers").glob("*.ledger")))]
    paths = {name: inside(folder, name) for name in names}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.exists()}


def _in_checkpoint(name: str) -> str:
    return f"server/{name}"


def tensors(parameters: NDArray[np.float32], metadata: dict[str, str], state: State | None = None) -> bytes:
    """The bytes of a safetensors file with these parameters, a note about them, and what a server's step remembers."""
    from safetensors.numpy import save

    named = {"parameters": parameters, **{_in_checkpoint(name): value for name, value in (state or {}).items()}}
    return bytes(save({name: np.ascontiguousarray(value) for name, value in named.items()}, metadata=metadata))


def _read_tensors(path: Path, *names: str) -> tuple[Any, ...]:
    """It is what is noted in a safetensors file of a run, and the arrays of these names."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(inside(path.parent, path.name), framework="numpy") as file:
            return file.metadata() or {}, *(file.get_tensor(name) for name in names)
    except (SafetensorError, OSError):
        raise _damaged(path) from None


def read_parameters(path: Path) -> tuple[NDArray[np.float32], dict[str, str]]:
    """The flat vector in a safetensors file of a run, and what is noted with it."""
    about, parameters = _read_tensors(path, "parameters")
    return parameters, about


def _damaged(path: Path) -> StorageError:
    return StorageError("CH802", "is damaged.", where=str(path), fix="Run it again into a new folder.")


def ledger_file(number: int) -> str:
    """The name of a device's ledger in the run folder: by number, since names may hold anything.

    >>> ledger_file(0)
    'device-0001.ledger'
    """
    return f"device-{number + 1:04}.ledger"


VERSION = 2  # of what is signed: the whole record. Before, signatures covered the plan, the model and the ledger.
OLD_LABEL = "run"


@dataclass
class MemoryStore:
    """Bytes that outlive a device's object but not the process: for rehearsals and tests."""

    data: bytes = field(default=b"", repr=False)

    def exists(self) -> bool:
        """Tell whether anything was written."""
        return bool(self.data)

    def read(self) -> bytes:
        """The bytes last written."""
        return self.data

    def write(self, data: bytes) -> None:
        """Replace the bytes."""
        self.data = data

    @contextmanager
    def room(self, size: int) -> Iterator[Callable[[bytes], None]]:  # noqa: ARG002 - memory has room
        """The same."""
        yield self.write


def vault_of(name: str, number: int, folder: Path | None) -> Vault:
    """The device's vault, opened if it is there, else made with fresh keys."""
    if folder is None:
        return Vault.create(MemoryStore(), _fresh(name))
    store: Store = FileStore(inside(folder.parent, f"{folder.name}/device-{number + 1:04}/vault"))
    return Vault.open(store) if store.exists() else Vault.create(store, _fresh(name))


def _fresh(name: str) -> Memory:
    return Memory(id=name, secret=Identity.fresh(name).to_bytes())


def signs(kind: KindName, *, seeded: bool, ledgers: bool) -> bool:
    """It says whether devices sign a run: a deployment, or a rehearsal with ledgers whose noise nobody can predict.

    Keys are never made from a seed, so a signature is one thing that a seeded run could not repeat; and a run with
    predictable noise, or without any, protects nobody.

    >>> signs("rehearsal", seeded=False, ledgers=True), signs("rehearsal", seeded=True, ledgers=True)
    (True, False)
    """
    how = traits(kind)
    return how.deployed or (how.signs and ledgers and not seeded)


def record_digest(result: Mapping[str, object], files: Mapping[str, str]) -> bytes:
    """SHA-256 over the result and the hash of every file that it names: of all of a run but the signatures themselves.

    >>> record_digest({"test": 1}, {"run.json": "9f"}) == record_digest({"test": 1}, {"run.json": "9f", "x": "77"})
    False
    """
    rest = {name: value for name, value in result.items() if name != "files"}
    named = {name: value for name, value in files.items() if name != SIGNATURES}
    return digest("record", *(json.dumps(part, sort_keys=True).encode() for part in (rest, named)))


def parameter_bytes(parameters: NDArray[np.float32]) -> bytes:
    """The parameters as a device is handed them, and as it signs them."""
    return np.ascontiguousarray(parameters, MODEL_TYPE).tobytes()


def entry_of(
    bundle: Bundle, *, signed: Closing | None = None, signature: bytes = b"", salt: bytes = b"", why: str = ""
) -> Signer:
    """A device's entry: its public keys, what it signed or why it has not, and the salt where its ledger is public."""
    return Signer(
        device=bundle.id,
        identity=bundle.identity.hex(),
        agreement=bundle.agreement.hex(),
        bundle_signature=bundle.signature.hex(),
        offers=bundle.offers,
        paid=None if signed is None else signed.paid,
        receipt=None if signed is None else signed.receipt.hex(),
        salt=salt.hex() or None,
        signature=signature.hex() or None,
        why=why,
    )


def bundle_of(entry: Signer) -> Bundle:
    """The public keys in an entry, not verified yet."""
    return Bundle(
        id=entry.device,
        identity=bytes.fromhex(entry.identity),
        agreement=bytes.fromhex(entry.agreement),
        signature=bytes.fromhex(entry.bundle_signature),
        offers=entry.offers,
    )


def sign_off(folder: Path, names: Sequence[str], *, run: str, result: Outcome, parameters: NDArray[np.float32]) -> None:
    """Write signatures.json of a run in one process: each device signs with its vault's keys, for its own ledger."""
    record = record_digest(result.to_dict(), hashes(folder))
    identities = [
        Identity(name, vault_of(name, number, folder / DEVICES).memory.secret) for number, name in enumerate(names)
    ]
    roster = Roster.of(identity.bundle for identity in identities).digest
    entries = []
    for number, identity in enumerate(identities):
        ledger = Ledger.read(inside(folder, f"ledgers/{ledger_file(number)}"))
        end = sign_end(
            identity,
            run=run,
            roster=roster,
            record=record,
            model=parameter_bytes(parameters),
            paid=ledger.balance.charges_of(run),
            entries=ledger.receipt.entries,
            seal=ledger.receipt.seal,
        )
        entries.append(entry_of(identity.bundle, signed=end.closing, signature=end.signature, salt=end.salt))
    write_signatures(folder, entries)


def write_signatures(folder: Path, entries: Sequence[Signer]) -> None:
    """Write signatures.json with every device's entry."""
    write_json(folder / SIGNATURES, Signatures(version=VERSION, devices=tuple(entries)).to_dict())


def receipt_text(bundle: Bundle, end: SignedEnd, *, early: str = "") -> str:
    """It is what a site keeps about its signature, and may give to whoever runs `choral verify --receipts`.

    `early` is why the run ended before its last round, in the server's words.
    """
    closing = end.closing
    kept = {
        "version": VERSION,
        **entry_of(bundle, signed=closing, signature=end.signature, salt=end.salt).to_dict(),
        "run": closing.run,
        "roster": closing.roster.hex(),
        "record": closing.record.hex(),
        "model": closing.model.hex(),
        "ledger": f"{end.entries}:{end.seal}",
        **({"early": early} if early else {}),
    }
    return json.dumps(kept, indent=1) + "\n"


T = TypeVar("T")


class Watch(Protocol):
    """Somebody follows a long loop by it: its items as they come, with their number and a word for them."""

    def __call__(self, items: Iterable[T], *, total: int, label: str) -> Iterable[T]:
        """The items."""


class Log(Protocol):
    """A run writes such a log in addition to its folder; `choral.output.logs` has those that exist."""

    kind: str

    def begin(self, folder: Path, study: "Study", lines: Sequence["RoundLine"]) -> None:
        """Open the log and note what is run."""

    def round(self, line: "RoundLine") -> None:
        """Note a round's line of rounds.jsonl."""

    def end(self, result: "Outcome") -> None:
        """Note the result and close the log."""

    def stop(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the log of a run that is interrupted."""


def unwatched(items: Iterable[T], *, total: int, label: str) -> Iterable[T]:  # noqa: ARG001 - nobody looks
    """The items, and nothing else.

    >>> list(unwatched([1, 2], total=2, label="rounds"))
    [1, 2]
    """
    return items


def unheard() -> None:
    """It does nothing: it is called after a step that nobody waits for.

    >>> unheard()
    """
