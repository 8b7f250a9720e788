"""The run folder: what a run writes as it goes, and how it is read back; docs/run-folder.md has the format."""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from choral.errors import PlanError, StorageError
from choral.privacy import durable
from choral.server_step import State

FORMAT = 2
READABLE = (1, 2)  # in a run of format 1, signatures cover the plan, the model and the ledgers only
KINDS = ("simulation", "rehearsal", "deployment")
ATTACK, SIGNATURES, STUDY, DEVICES = "attack.json", "signatures.json", "study.toml", "devices"
MOST_BYTES = 2**31  # of one file of a run: a model of 10^8 numbers takes a fifth of it
# What a run may be judged by, the best figure first, with its name for people; a loss says little by itself.
MERITS = {"accuracy": "accuracy", "r2": "R²", "loss": "loss"}
MOST_LEDGERS = 256  # files of one run; a simulation of more devices counts rounds only, as its rounds.jsonl shows


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as its folder tells it: `about` from run.json, one object a round, and the result once it is there.

    `attack` is what `choral attack --run` showed on public data; it is no part of the run.
    `signatures` says who signed.
    """

    folder: Path
    about: dict[str, Any]
    rounds: list[dict[str, Any]]
    result: dict[str, Any] | None
    attack: dict[str, Any] | None = None
    signatures: dict[str, Any] | None = None


def write_whole(path: Path, content: bytes, *, mode: int = 0o666, fix: str = "Free some space or use --out.") -> None:
    """The file with this content, durably and at once: a crash leaves the old file or the new one, never a part."""
    try:
        durable.replace(path, content, mode=mode)
    except OSError as error:
        raise StorageError("CH801", f"can't be written: {error.strerror}.", where=str(path), fix=fix) from None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """The value as readable JSON, durably and at once."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


def inside(folder: Path, name: str) -> Path:
    """The path of a file in the folder, or CH802 where it is anything but a plain file that really lies there.

    A folder may come from anybody: a link leads out of it, a pipe never ends, and a name with ".." is somewhere else. A
    file that is not there is left to whoever opens it.

    >>> inside(Path("run"), "../other/run.json")
    Traceback (most recent call last):
    choral.errors.StorageError: CH802 ../other/run.json is no name of a file in this folder. Restore the folder from...
    """
    *folders, last = Path(name).parts or ("..",)
    if Path(name).is_absolute() or ".." in (*folders, last):
        raise _strange(name, "is no name of a file in this folder")
    path = folder
    for part in folders:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _strange(str(path), "is no folder of its own")
    path = path / last
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    if not stat.S_ISREG(found.st_mode):
        raise _strange(str(path), "is no plain file")
    if found.st_size > MOST_BYTES:
        raise _strange(str(path), f"has {found.st_size:,} bytes, at most {MOST_BYTES:,} are read")
    return path


def _strange(where: str, what: str) -> StorageError:
    return StorageError("CH802", f"{what}.", where=where, fix="Restore the folder from where it was made.")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run, or CH802."""
    try:
        value = json.loads(inside(path.parent, path.name).read_bytes())
    except FileNotFoundError:
        raise StorageError("CH802", "is not there.", where=str(path), fix="Is this a run folder?") from None
    except (OSError, ValueError, RecursionError):
        raise StorageError("CH802", "can't be read as JSON.", where=str(path), fix="Run it again.") from None
    if not isinstance(value, dict):
        raise StorageError("CH802", "is not a JSON object.", where=str(path), fix="Run it again.")
    return value


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file; an unfinished last line, as a crash leaves it, is passed over."""
    if not path.exists():
        return
    lines = inside(path.parent, path.name).read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            raise StorageError(
                "CH802", f"line {number} is not JSON.", where=str(path), fix="The folder was changed; run it again."
            ) from None


def read_run(folder: str | Path) -> RunRecord:
    """The run that a folder holds, finished or not."""
    folder = Path(folder)
    about = read_json(folder / "run.json")
    if about.get("format") not in READABLE:
        raise _unknown(folder, f"has format {about.get('format')!r:.32}, this choral reads {READABLE[0]} and {FORMAT}")
    if about.get("kind") not in KINDS:
        raise _unknown(folder, f"is of the kind {about.get('kind')!r:.32}, this choral knows {', '.join(KINDS)}")
    result, attack, signatures = (
        read_json(path) if path.exists() else None
        for path in (folder / "result.json", folder / ATTACK, folder / SIGNATURES)
    )
    rounds = list(read_lines(folder / "rounds.jsonl"))
    return RunRecord(folder=folder, about=about, rounds=rounds, result=result, attack=attack, signatures=signatures)


def _unknown(folder: Path, what: str) -> StorageError:
    return StorageError("CH802", f"{what}.", where=str(folder / "run.json"), fix="Use the choral that wrote it.")


# What a file of another form raises where it is used: a folder may have been changed by anybody.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


@contextmanager
def of_right_form(folder: Path) -> Iterator[None]:
    """CH802 for whatever a file of the run raises that is JSON, but not what a run writes.

    >>> with of_right_form(Path("run")):
    ...     _ = {}["kind"]
    Traceback (most recent call last):
    choral.errors.StorageError: CH802 run a file does not have the form that it should (KeyError). Restore it, or run...
    """
    try:
        yield
    except PlanError as error:  # a plan that nobody could have run: the file is wrong, and not what was asked for
        raise StorageError("CH802", f"has {error}", where=str(folder), fix="Restore it, or run anew.") from error
    except MALFORMED as error:
        what = f"a file does not have the form that it should ({type(error).__name__})."
        raise StorageError("CH802", what, where=str(folder), fix="Restore it, or run anew.") from error


def folder_name(name: str) -> str:
    """A run's name as a part of its folder's: letters, digits, points and hyphens, so that it leads nowhere else.

    >>> folder_name("../../etc/my run"), folder_name("adult-demo")
    ('etc-my-run', 'adult-demo')
    """
    return re.sub(r"[^\w.-]+", "-", name.replace("..", "")).strip("-.")[:48] or "run"


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
        import fcntl  # only servers between organisations need it, and they do not run on Windows

        with (self.path / "lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StorageError(
                    "CH800",
                    "is in use by another process.",
                    where=str(self.path),
                    fix="Wait for it to end, or stop it.",
                ) from None
            yield

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write what is run."""
        write_json(self.path / "run.json", {"format": FORMAT, **about})

    def add_round(self, line: Mapping[str, Any], parameters: NDArray[np.float32] | None, state: State) -> None:
        """Add a finished round: its line first, then the checkpoint, if any, which says that the round is over.

        `state` is what the server's step remembers.
        """
        text = json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n"
        path = self.path / "rounds.jsonl"
        try:
            with path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                "CH801", f"can't be written: {error.strerror}.", where=str(path), fix="Free some space, then resume."
            ) from None
        if parameters is not None:
            about = {"round": str(line["round"])}
            write_whole(self.path / "checkpoint.safetensors", _tensors(parameters, about, state))

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
        """What the server's step remembered at the checkpoint; before the first, what is given."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return initial
        _, *found = _read_tensors(path, *map(_in_checkpoint, initial))
        if any(
            one.shape != old.shape or one.dtype != old.dtype for one, old in zip(found, initial.values(), strict=True)
        ):
            raise _damaged(path)
        return dict(zip(initial, found, strict=True))

    def forget_after(self, last: int) -> list[dict[str, Any]]:
        """The lines of rounds that are over; a line that a crash left without its checkpoint is taken out."""
        path = self.path / "rounds.jsonl"
        lines = [line for line in read_lines(path) if line["round"] <= last]
        kept = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_whole(path, kept.encode())
        return lines

    def write_model(self, parameters: NDArray[np.float32], card: Mapping[str, Any]) -> bytes:
        """The bytes of the model's file, which devices sign; written with its description beside it."""
        content = _tensors(parameters, {"format": "choral flat vector"})
        write_whole(self.path / "model.safetensors", content)
        write_json(self.path / "model.json", card)
        return content

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result, which names every other file by its hash; the keys that could sign it again are removed."""
        write_json(self.path / "result.json", {**result, "files": hashes(self.path)})
        shutil.rmtree(self.path / DEVICES, ignore_errors=True)


def versions() -> dict[str, str]:
    """The versions of what numbers depend on."""
    return {name: version(name) for name in ("numpy", "jax", "cryptography", "dp-accounting")}


HASHED = ("run.json", "rounds.jsonl", "model.safetensors", "model.json", STUDY, SIGNATURES)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the files that a result vouches for, ledgers included."""
    names = [*HASHED, *(f"ledgers/{path.name}" for path in sorted((folder / "ledgers").glob("*.ledger")))]
    paths = {name: inside(folder, name) for name in names}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items() if path.exists()}


def _in_checkpoint(name: str) -> str:
    return f"server/{name}"


def _tensors(parameters: NDArray[np.float32], metadata: dict[str, str], state: State | None = None) -> bytes:
    from safetensors.numpy import save

    named = {"parameters": parameters, **{_in_checkpoint(name): value for name, value in (state or {}).items()}}
    return bytes(save({name: np.ascontiguousarray(value) for name, value in named.items()}, metadata=metadata))


def _read_tensors(path: Path, *names: str) -> tuple[Any, ...]:
    """What is noted in a safetensors file of a run, and the arrays of these names."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(inside(path.parent, path.name), framework="numpy") as file:
            return file.metadata() or {}, *(file.get_tensor(name) for name in names)
    except (SafetensorError, OSError):
        raise _damaged(path) from None


def read_parameters(path: Path) -> tuple[NDArray[np.float32], dict[str, str]]:
    """The flat vector in a safetensors file of a run, and what is noted beside it."""
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


def charged_rounds(lines: Iterable[Mapping[str, Any]], devices: int) -> NDArray[np.int64]:
    """How often each device was charged, as the lines of rounds.jsonl tell: included, or in an attempt that failed.

    >>> charged_rounds([{"included": [0, 2], "wasted": [2]}], 3).tolist()
    [1, 0, 2]
    """
    charged = [device for line in lines for device in (*line["included"], *line.get("wasted", ()))]
    return np.bincount(np.array(charged, dtype=np.int64), minlength=devices)


def merit(test: Mapping[str, float]) -> tuple[str, float]:
    """The figure that a run is judged by, of those that were measured: its name for people, and its value.

    >>> merit({"loss": 0.3, "accuracy": 0.84}), merit({"r2": 0.5, "loss": 0.1, "rmse": 3.0})
    (('accuracy', 0.84), ('R²', 0.5))
    """
    key = next((name for name in MERITS if name in test), "loss")
    return MERITS[key], test[key]
