"""choral.toml as a Job: one table per room, unknown keys are errors, every complaint names its line and the way out."""

import glob
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from choral.config.settings import (
    RENAMED,
    AskSettings,
    DataSettings,
    FederationSettings,
    LocalSettings,
    ModelSettings,
    PrivacySettings,
    RunSettings,
    settings_of,
)
from choral.config.together import (
    OF_SUMS,
    ON_SUMS,
    OPEN,
    check_together,
    did_you_mean,
    given_in,
    questions_for,
    shown,
)
from choral.config.toml import SettingsSource, plain, to_toml
from choral.core.errors import ConfigError
from choral.core.plan import RETIRED, RETIRED_LAW, Sampling, removed, usual_sampling
from choral.learning.models import KINDS, Maker
from choral.server_step import DEFAULT, ServerStep, step_of

T = TypeVar("T", bound=msgspec.Struct)
_OF_TABLES = (".csv", ".gz", ".xz", ".parquet", ".pq", ".xlsx", ".xls", ".tsv")
BUILT_IN = tuple(KINDS)  # models that are named; any other is somebody's own code


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that a choral.toml says, checked; `where` finds the line of a setting for later complaints."""

    privacy: PrivacySettings
    federation: FederationSettings
    local: LocalSettings
    data: DataSettings
    model: ModelSettings
    run: RunSettings
    ask: AskSettings
    source: str = "choral.toml"
    text: str = field(default="", repr=False)
    origin: SettingsSource = field(default=SettingsSource(), repr=False)
    maker: Maker | None = field(default=None, repr=False, compare=False)  # of a model that was given from Python

    def where(self, table: str, key: str = "") -> str:
        """`choral.toml:7` for a key that stands on line 7."""
        return self.origin.where(table, key)

    @property
    def model_kind(self) -> str:
        """The kind of model that is trained: the one that is named, else the plainest for the label."""
        number = self.data.label_bounds is not None
        return (None if self.on_sums or self.leaves_kind_open else self.model.kind) or next(
            name for name, kind in KINDS.items() if (kind.numbers if number else kind.classes)
        )

    @property
    def model_kind_said(self) -> str:
        """The kind of model that the job asks for, trained or made from sums."""
        return self.model.kind if self.on_sums and self.model.kind else self.model_kind

    @property
    def leaves_kind_open(self) -> bool:
        """Whether the planner is to choose the kind: kind = "auto".

        >>> parse('privacy.epsilon = 2.0').leaves_kind_open
        False
        """
        return self.model.kind == OPEN

    @property
    def describes_training(self) -> bool:
        """Whether a setting is given that only a model that is trained has."""
        model, federation = self.model, self.federation
        of_training = (model.hidden, model.slope, model.row_length, federation.server, self.privacy.noise_is_added)
        return bool(given_in(self.local)) or federation.robust or any(one is not None for one in of_training)

    def with_kind(self, kind: str | None) -> "Job":
        """The same job with this kind of model, or with the one that is trained where nothing is said.

        >>> job_of(epsilon=2.0, kind="auto", bins=6).with_kind(None).model.kind is None
        True
        """
        content = read_toml(self.text, source=self.source)
        unused = () if kind in ON_SUMS else OF_SUMS
        kept = {name: value for name, value in content.get("model", {}).items() if name not in ("kind", *unused)}
        content["model"] = kept if kind is None else {**kept, "kind": kind}
        return replace(_job(content, self.origin, text=to_toml(content)), run=self.run)

    @property
    def on_sums(self) -> bool:
        """Whether its model is made from sums, which are questions, and nothing is trained.

        >>> parse('privacy.epsilon = 2.0').on_sums
        False
        """
        return self.model.kind in ON_SUMS

    def sampling(self, *, once: bool) -> Sampling:
        """How batches are drawn: as is said, else as is usual for the noise."""
        return self.local.sampling or ("partition" if once else usual_sampling(self.privacy.law))

    @property
    def server_step(self) -> ServerStep:
        """What the server does with each mean, with the numbers that are given.

        >>> job_of(epsilon=2.0, server="momentum", server_momentum=0.5).server_step
        Momentum(step_size=1.0, momentum=0.5)
        """
        own, where = self.federation, self.where("federation", "server")
        numbers = [name for name in settings_of(FederationSettings) if name.startswith("server_")]
        given = {name.removeprefix("server_"): getattr(own, name) for name in numbers}
        return step_of(own.server or DEFAULT, given, where=where)

    def seeded(self, seed: int) -> "Job":
        """The same job with this seed, which a run keeps with the job's text.

        >>> parse("privacy.epsilon = 2.0").seeded(7).run.seed
        7
        """
        _table(RunSettings, "run", {"seed": seed}, SettingsSource(source="--seed"))  # refused here if it is none
        return replace(self, run=msgspec.structs.replace(self.run, seed=seed))

    @property
    def folder(self) -> Path:
        """Paths in the file are relative to this folder."""
        return Path(self.source).parent

    def pattern(self, path: str) -> str:
        """A path or glob of the file as seen from here; the folder's own name is no pattern, whatever it holds.

        >>> parse("privacy.epsilon = 2.0", source="trial [2]/choral.toml").pattern("sites/*.csv")
        'trial [[]2]/sites/*.csv'
        """
        return str(Path(glob.escape(str(self.folder))) / path)


_TABLES: dict[str, type[msgspec.Struct]] = {
    one.name: one.type for one in fields(Job) if isinstance(one.type, type) and issubclass(one.type, msgspec.Struct)
}


def read(path: str | Path, **settings: Any) -> Job:  # noqa: ANN401 - every setting has its own type, and each is checked
    """The Job that a file describes; a setting given by name replaces the file's, and None leaves it as it is."""
    if Path(path).suffix.lower() in _OF_TABLES:
        raise ConfigError(
            "CH105",
            "is a table, and a choral.toml is needed here.",
            where=str(path),
            fix=f"Write one for it: choral init {path} --label COLUMN",
        )
    text = read_text(path, fix="Give the path of a choral.toml.").removeprefix("\ufeff")  # a mark of some editors
    source, given, maker = str(path), *_placed(settings)
    if not given:
        return parse(text, source=source)
    content = read_toml(text, source=source)
    for table, values in given.items():
        old = content.get(table, {})
        content[table] = {**old, **values} if isinstance(old, dict) and table != "ask" else values
    origin = SettingsSource(
        source=source, text=text, given=frozenset((table, key) for table, values in given.items() for key in values)
    )
    return replace(_job(content, origin, text=to_toml(content)), maker=maker)


def read_text(path: str | Path, *, fix: str = "Check the path.") -> str:
    """The text of a file that somebody wrote or sent, or CH105."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError("CH105", "is not there.", where=str(path), fix=fix) from None
    except UnicodeDecodeError:
        raise ConfigError("CH105", "is not UTF-8 text.", where=str(path), fix="Save it as UTF-8.") from None
    except OSError as error:
        raise ConfigError("CH105", f"can't be read: {error.strerror}.", where=str(path), fix=fix) from None


def parse(text: str, *, source: str = "choral.toml", recorded: bool = False) -> Job:
    """The Job that a text describes; a `recorded` one may say what was removed since it ran, and that is left out.

    >>> parse("privacy.epsilon = 2.0").privacy.epsilon
    2.0
    """
    content = read_toml(text, source=source)
    if recorded:
        content = {
            table: {key: value for key, value in values.items() if not _was_removed(table, key, value)}
            if isinstance(values, dict)
            else values  # refused below
            for table, values in content.items()
        }
    return _job(content, SettingsSource(source=source, text=text), text=text)


def _was_removed(table: str, key: str, value: object) -> bool:
    """Whether choral 0.2 had this setting, and no later version has it."""
    sums = table == "federation" and ((key, value) == ("secure_sum", "paper") or key == "packed")
    return sums or (table == "local" and key in RETIRED) or (table, key, value) == ("privacy", "law", RETIRED_LAW)


def read_toml(text: str, *, source: str, fix: str = "See https://toml.io.") -> dict[str, Any]:
    r"""The tables of a TOML text, or CH100 with the line that is none.

    >>> read_toml("[plan]\nrows = 9", source="study.toml")
    {'plan': {'rows': 9}}
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers too long and lists too deep for Python
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        place = f"{source}:{found.group(1)}" if found else f"{source}:{text.count(chr(10)) + 1}"
        what = re.sub(r"\s*\(at .*\)$", "", str(error))
        raise ConfigError("CH100", f"is not valid TOML: {what}.", where=place, fix=fix) from None


def job_of(**settings: Any) -> Job:  # noqa: ANN401 - every setting has its own type, and each is checked
    """The Job of settings given by name, each put into the table that knows it; None means not given.

    `ask` is a whole table, since some of its settings have the names of others.

    >>> job_of(epsilon=2.0, local_steps=5).local.steps
    5
    """
    content, maker = _placed(settings)
    text = to_toml(content)
    return replace(_job(content, SettingsSource(source="settings", text=text), text=text), maker=maker)


def _placed(settings: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], Maker | None]:
    """Settings given by name, each in the table that knows it, and what makes a model that is no name; no None."""
    content: dict[str, dict[str, Any]] = {}
    maker: Maker | None = None
    if settings.get("ask") is not None:
        content["ask"] = plain(dict(settings["ask"]))
    for key, given in settings.items():
        if key == "ask":
            continue
        name, value = RENAMED.get(key, key), plain(given)
        if name == "kind" and value is not None and not isinstance(value, str):
            from choral.learning.torch_door import named_maker

            value, maker = named_maker(value)
        owner = "local" if key in RETIRED else _table_with(name)  # which refuses it
        if owner is None:
            known = dict.fromkeys(one for kind in _TABLES.values() for one in settings_of(kind))
            raise ConfigError("CH101", f'unknown setting "{key}".', fix=did_you_mean(key, known))
        if value is not None:
            content.setdefault(owner, {})[name] = value
    return content, maker


def _job(content: Mapping[str, Any], origin: SettingsSource, *, text: str) -> Job:
    for name, value in content.items():
        if name not in _TABLES or not isinstance(value, dict):
            raise ConfigError(
                "CH101",
                f'unknown table "[{name}]".' if isinstance(value, dict) else f'key "{name}" is outside any table.',
                where=origin.where(name),
                fix=did_you_mean(name, _TABLES, _owner(name)),
            )
    tables: dict[str, Any] = {name: _table(kind, name, content.get(name, {}), origin) for name, kind in _TABLES.items()}
    job = Job(**tables, source=origin.source, text=text, origin=origin)
    check_together(job)
    return replace(job, ask=questions_for(job)) if job.on_sums and not job.ask.allowed else job


def _table(kind: type[T], name: str, values: Mapping[str, Any], origin: SettingsSource) -> T:
    """A table of checked settings, which keep the numbers as they are given: digests are of these."""
    known = settings_of(kind)
    for key, value in values.items():
        place = origin.where(name, key)
        if _was_removed(name, key, value):
            raise removed(f"{name}.{key}", value, place, ConfigError)
        if key not in known:
            fix = did_you_mean(key, known, _owner(key))
            raise ConfigError("CH101", f'unknown key "{key}" in [{name}].', where=place, fix=fix)
        if not known[key].fits(value):
            suggestion = f" Suggested: {known[key].example}" if known[key].example else ""
            fix = f"Must be {known[key]}.{suggestion}"
            raise ConfigError("CH102", f"{name}.{key} = {shown(value)}.", where=place, fix=fix)
    return kind(**values)


def _table_with(key: str) -> str | None:
    return next((name for name, kind in _TABLES.items() if key in settings_of(kind)), None)


def _owner(key: str) -> str:
    """The table that does have this key, for keys that stand in the wrong one."""
    owner = _table_with(key)
    return f"It belongs in [{owner}]." if owner else ""
