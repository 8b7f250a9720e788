"""The run folder: what a run writes as it goes, and how it is read back; docs/run-folder.md has the format."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choral.errors import StorageError

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as its folder tells it: `about` from run.json, one object a round, and the result once it is there."""

    folder: Path
    about: dict[str, Any]
    rounds: list[dict[str, Any]]
    result: dict[str, Any] | None


def write_whole(path: Path, content: bytes) -> None:
    """The file with this content, durably and at once: a crash leaves the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            "CH801", f"can't be written: {error.strerror}.", where=str(path), fix="Free some space or use --out."
        ) from None


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
    result = read_json(folder / "result.json") if (folder / "result.json").exists() else None
    return RunRecord(folder=folder, about=about, rounds=list(read_lines(folder / "rounds.jsonl")), result=result)
