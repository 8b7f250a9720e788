"""The one way to read what a run left: plain files of one folder, each of the form that is declared here."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from choral.core.errors import PlanError, StorageError
from choral.core.plan import Plan, SecureSum
from choral.record.description import KINDS, About
from choral.record.outcome import (
    AnsweredQuestion,
    Decision,
    Outcome,
    ProbeLine,
    RoundLine,
    ShownAttack,
    Signatures,
    SiteQuestion,
    SumModelLine,
)

FORMAT = 2
READABLE = (1, 2)  # in a run of format 1, signatures cover the plan, the model and the ledgers only
ATTACK, SIGNATURES, STUDY, DEVICES = "attack.json", "signatures.json", "study.toml", "devices"
QUESTIONS, MODELS = "questions.jsonl", "models.jsonl"
PROBES, DECISIONS = "probes.jsonl", "decisions.jsonl"
MOST_BYTES = 2**31  # of one file of a run: a model of 10^8 numbers takes a fifth of it
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as its folder tells it: `about` from run.json, a line per round, and the result once it is there.

    `attack` is what `choral attack --run` showed on public data; it is no part of the run.
    `signatures` says who signed.
    """

    folder: Path
    about: About
    rounds: list[RoundLine]
    result: Outcome | None
    attack: ShownAttack | None = None
    signatures: Signatures | None = None

    @property
    def finished(self) -> Outcome:
        """The result of a run that has ended, or CH802."""
        if self.result is None:
            raise StorageError("CH802", "is not finished.", where=str(self.folder), fix="Finish it: choral resume RUN.")
        return self.result


def inside(folder: Path, name: str) -> Path:
    """The path of a file in the folder, or CH802 where it is anything but a plain file that really lies there.

    A folder may come from anybody: a link leads out of it, a pipe never ends, and a name with ".." is somewhere else. A
    file that is not there is left to whoever opens it.

    >>> inside(Path("run"), "../other/run.json")
    Traceback (most recent call last):
    choral.core.errors.StorageError: CH802 ../other/run.json is no name of a file in this folder. Restore the folder...
    """
    *folders, last = Path(name).parts or ("..",)
    if Path(name).is_absolute() or ".." in (*folders, last):
        raise _strange(name, "is no name of a file in this folder")
    path = folder
    for part in folders:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _strange(str(path), "is not a real folder")
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


def read_json(path: Path) -> dict[str, object]:
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


def read_lines(path: Path) -> Iterator[RoundLine]:
    """The lines of rounds.jsonl; an unfinished last line, as a crash leaves it, is passed over."""
    return _lines(path, RoundLine)


def read_questions(folder: Path) -> Iterator[AnsweredQuestion]:
    """The lines of questions.jsonl, likewise."""
    return _lines(folder / QUESTIONS, AnsweredQuestion)


def read_sum_models(folder: Path) -> Iterator[SumModelLine]:
    """The models on sums of a run, in their order."""
    return _lines(folder / MODELS, SumModelLine)


def read_probes(folder: Path) -> Iterator[ProbeLine]:
    """The lines of probes.jsonl, likewise."""
    return _lines(folder / PROBES, ProbeLine)


def read_decisions(study: Path) -> Iterator[Decision]:
    """The lines of a study's decisions.jsonl, likewise."""
    return _lines(study / DECISIONS, Decision)


def read_site_questions(home: Path) -> Iterator[SiteQuestion]:
    """The lines of a site's own log of questions, likewise."""
    return _lines(home / QUESTIONS, SiteQuestion)


def _lines(path: Path, kind: type[T]) -> Iterator[T]:
    if not path.exists():
        return
    lines = inside(path.parent, path.name).read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise StorageError(
                "CH802", f"line {number} is not JSON.", where=str(path), fix="The folder was changed; run it again."
            ) from None
        yield converted(value, kind, path)


def converted(value: object, kind: type[T], path: Path, fix: str = "Restore it, or start a new run.") -> T:
    """It is what a file of a run holds, as the record that it must be, or CH802 with the field that is wrong."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        what = f"does not have the form that it should: {str(error)[:160]}."
        raise StorageError("CH802", what, where=str(path), fix=fix) from None


def read_run(folder: str | Path) -> RunRecord:
    """The run that a folder holds, finished or not; CH804 where it is something else of choral's."""
    folder = Path(folder)
    _check_is_run(folder)
    about = _about(folder / "run.json")
    rounds = list(read_lines(folder / "rounds.jsonl"))
    return RunRecord(
        folder=folder,
        about=about,
        rounds=rounds,
        result=_optional(folder / "result.json", Outcome),
        attack=_optional(folder / ATTACK, ShownAttack, "Write it again: choral attack --run."),
        signatures=_optional(folder / SIGNATURES, Signatures),
    )


def _check_is_run(folder: Path) -> None:
    """It raises CH804 for a file, a study's folder or a site's home where a run's folder is asked for."""
    if (folder / "run.json").exists():
        return
    if folder.is_file():
        raise StorageError("CH804", "is a file.", where=str(folder), fix=f"Give the run's folder: {folder.parent}.")
    if (folder / "site.json").is_file():
        fix = "Its pages: choral device result and choral device status. A run's folder is at the coordinator."
        raise StorageError("CH804", "is the home of a site, and no run.", where=str(folder), fix=fix)
    runs = sorted(path.parent for path in folder.glob("runs/*/run.json"))
    if runs or (folder / STUDY).is_file() or (folder / "invitation.toml").is_file():
        named = ", ".join(map(str, runs[:3])) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
        fix = f"Give a run of it: {named}." if runs else "It has no run yet: choral server run STUDY."
        raise StorageError("CH804", "is the folder of a study, and no run.", where=str(folder), fix=fix)


def _optional(path: Path, kind: type[T], fix: str = "Restore it, or start a new run.") -> T | None:
    return converted(read_json(path), kind, path, fix) if path.exists() else None


def _about(path: Path) -> About:
    about = read_json(path)
    if about.get("format") not in READABLE:
        raise _unknown(path, f"has format {about.get('format')!r:.32}, this choral reads {READABLE[0]} and {FORMAT}")
    if about.get("kind") not in KINDS:
        raise _unknown(path, f"is of the kind {about.get('kind')!r:.32}, this choral knows {', '.join(KINDS)}")
    with of_right_form(path):  # both refuse what nobody could run, and keys that they do not know
        plan, secure = about.get("plan"), about.get("secure_sum")
        if not isinstance(plan, dict):
            raise TypeError(type(plan))
        about["plan"] = Plan.from_dict(plan)
        about["secure_sum"] = SecureSum.read(secure) if isinstance(secure, dict) else secure
    return converted(about, About, path)


def _unknown(path: Path, what: str) -> StorageError:
    return StorageError("CH802", f"{what}.", where=str(path), fix="Use the choral that wrote it.")


# What a file of another form raises where it is used: a folder may have been changed by anybody.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


@contextmanager
def of_right_form(folder: Path) -> Iterator[None]:
    """CH802 for whatever a file of the run raises that has the right form, but not values that a run writes.

    >>> with of_right_form(Path("run")):
    ...     _ = bytes.fromhex("no number")
    Traceback (most recent call last):
    choral.core.errors.StorageError: CH802 run a file does not have the form that it should (ValueError). Restore it,...
    """
    try:
        yield
    except PlanError as error:  # a plan that nobody could have run: the file is wrong, and not what was asked for
        raise StorageError("CH802", f"has {error}", where=str(folder), fix="Restore it, or start a new run.") from error
    except MALFORMED as error:
        what = f"a file does not have the form that it should ({type(error).__name__})."
        raise StorageError("CH802", what, where=str(folder), fix="Restore it, or start a new run.") from error
