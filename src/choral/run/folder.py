"""The run folder: what a run writes as it goes, and how it is read back; docs/run-folder.md has the format."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from choral.errors import StorageError
from choral.privacy import durable

FORMAT = 1
ATTACK = "attack.json"
# What a run may be judged by, the best figure first, with its name for people; a loss says little by itself.
MERITS = {"accuracy": "accuracy", "r2": "R²", "loss": "loss"}
MOST_LEDGERS = 256  # files of one run; a simulation of more devices counts rounds only, as its rounds.jsonl shows


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as its folder tells it: `about` from run.json, one object a round, and the result once it is there.

    `attack` is what `choral attack --run` showed on public data; it is no part of the run.
    """

    folder: Path
    about: dict[str, Any]
    rounds: list[dict[str, Any]]
    result: dict[str, Any] | None
    attack: dict[str, Any] | None = None


def write_whole(path: Path, content: bytes, *, mode: int = 0o666, fix: str = "Free some space or use --out.") -> None:
    """The file with this content, durably and at once: a crash leaves the old file or the new one, never a part."""
    try:
        durable.replace(path, content, mode=mode)
    except OSError as error:
        raise StorageError("CH801", f"can't be written: {error.strerror}.", where=str(path), fix=fix) from None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """The value as readable JSON, durably and at once."""
    write_whole(path, (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run, or CH802."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StorageError("CH802", "is not there.", where=str(path), fix="Is this a run folder?") from None
    except (OSError, ValueError):
        raise StorageError("CH802", "can't be read as JSON.", where=str(path), fix="Run it again.") from None
    if not isinstance(value, dict):
        raise StorageError("CH802", "is not a JSON object.", where=str(path), fix="Run it again.")
    return value


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file; an unfinished last line, as a crash leaves it, is passed over."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            yield json.loads(line)
        except ValueError:
            raise StorageError(
                "CH802", f"line {number} is not JSON.", where=str(path), fix="The folder was changed; run it again."
            ) from None


def read_run(folder: str | Path) -> RunRecord:
    """The run that a folder holds, finished or not."""
    folder = Path(folder)
    about = read_json(folder / "run.json")
    if about.get("format") != FORMAT:
        raise StorageError(
            "CH802",
            f"has format {about.get('format')}, this choral reads {FORMAT}.",
            where=str(folder / "run.json"),
            fix="Use the choral that wrote it.",
        )
    result, attack = (read_json(path) if path.exists() else None for path in (folder / "result.json", folder / ATTACK))
    rounds = list(read_lines(folder / "rounds.jsonl"))
    return RunRecord(folder=folder, about=about, rounds=rounds, result=result, attack=attack)


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
    except MALFORMED as error:
        what = f"a file does not have the form that it should ({type(error).__name__})."
        raise StorageError("CH802", what, where=str(folder), fix="Restore it, or run anew.") from error


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

    def add_round(self, line: Mapping[str, Any], parameters: NDArray[np.float32] | None) -> None:
        """Add a finished round: its line first, then the checkpoint, if any, which says that the round is over."""
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
            write_whole(self.path / "checkpoint.safetensors", _tensors(parameters, {"round": str(line["round"])}))

    def checkpoint(self) -> tuple[int, NDArray[np.float32] | None]:
        """The last round that is over and the parameters after it; (0, None) before the first."""
        path = self.path / "checkpoint.safetensors"
        if not path.exists():
            return 0, None
        parameters, about = read_parameters(path)
        if not about.get("round", "").isdecimal():
            raise _damaged(path)
        return int(about["round"]), parameters

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
        """Write the result, which names every other file by its hash."""
        write_json(self.path / "result.json", {**result, "files": hashes(self.path)})


def versions() -> dict[str, str]:
    """The versions of what numbers depend on."""
    return {name: version(name) for name in ("numpy", "jax", "cryptography", "dp-accounting")}


HASHED = ("run.json", "rounds.jsonl", "model.safetensors", "model.json", "signatures.json")


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the files that a result vouches for, ledgers included."""
    paths = [folder / name for name in HASHED] + sorted((folder / "ledgers").glob("*.ledger"))
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.exists()
    }


def _tensors(parameters: NDArray[np.float32], metadata: dict[str, str]) -> bytes:
    from safetensors.numpy import save

    return bytes(save({"parameters": np.ascontiguousarray(parameters)}, metadata=metadata))


def read_parameters(path: Path) -> tuple[NDArray[np.float32], dict[str, str]]:
    """The flat vector in a safetensors file of a run, and what is noted beside it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return file.get_tensor("parameters"), file.metadata() or {}
    except (SafetensorError, OSError):
        raise _damaged(path) from None


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
