"""A question as data: a name of the catalogue and parameters, in one form of bytes, and in one English sentence."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from choral.core.errors import ConfigError, TrustError
from choral.core.printable import escaped

MOST_BYTES = 4096  # of the canonical form, which travels in the header of a turn
FIRST, VERSION = 1, 2  # of what the names mean: φ of each. The first is that of choral 0.2.0 and earlier
_LARGEST = 2**53  # whole numbers up to here are exact in every reader of JSON
_NAME = re.compile(r"[a-z][a-z_]{0,31}")


def _bad(what: str) -> ConfigError:
    return ConfigError("CH102", what, fix="A question is a name of the catalogue and its parameters, as JSON.")


@dataclass(frozen=True, kw_only=True)
class Question:
    """A name of the catalogue and its parameters, which are JSON values: no code and no expressions.

    `version` says which φ the name stands for, so that no two sites add up different things. Answers of the first
    version, which its canonical form does not name, are still read; nobody asks such a question.

    >>> Question(name="count", parameters={"where": [{"column": "age", "at_least": 60.0}]}).canonical()
    b'{"name":"count","parameters":{"where":[{"at_least":60,"column":"age"}]},"version":2}'
    """

    name: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    version: int = VERSION

    def canonical(self) -> bytes:
        """The one form that is hashed, sent and compared: sorted keys, no spaces, whole numbers without a point."""
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)):
            raise _bad("a question's name must be 1 to 32 lower-case letters.")
        if not isinstance(self.parameters, Mapping):
            raise _bad("a question's parameters must be a table of names and values.")
        try:
            plain = {"name": self.name, "parameters": _plain(self.parameters)}
            plain |= {} if self.version == FIRST else {"version": self.version}
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            data = text.encode()
        except (RecursionError, UnicodeEncodeError):
            raise _bad("a question's parameters are nested too deeply, or are no text.") from None
        if len(data) > MOST_BYTES:
            raise _bad(f"a question takes {len(data):,} bytes, and at most {MOST_BYTES:,} are allowed.")
        return data

    @classmethod
    def read(cls, data: bytes) -> "Question":
        """The question in these bytes, which must be its canonical form.

        >>> Question.read(b'{"name":"count","parameters":{},"version":2}').name
        'count'
        """
        if len(data) > MOST_BYTES:
            raise _bad(f"a question takes {len(data):,} bytes, and at most {MOST_BYTES:,} are allowed.")
        try:
            parsed = json.loads(data.decode())
        except (ValueError, RecursionError):
            raise _bad("a question is not JSON.") from None
        if not (isinstance(parsed, dict) and set(parsed) | {"version"} == {"name", "parameters", "version"}):
            raise _bad("a question has other keys than name, parameters and version.")
        version = parsed.get("version", FIRST)
        if type(version) is not int or not FIRST <= version <= VERSION:
            raise TrustError(
                "CH333",
                f"a question is of a version that this catalogue does not know; it has {FIRST} to {VERSION}.",
                fix="Install the version of choral that the server has.",
            )
        question = cls(name=parsed["name"], parameters=parsed["parameters"], version=version)
        if question.canonical() != data:  # so that two readers never take one question for two, nor two for one
            raise _bad("a question is not in its canonical form.")
        return question

    def words(self) -> str:
        """The question in one English sentence, as a site's log shows it.

        >>> Question(name="mean", parameters={"column": "age"}).words()
        'What are the mean and the variance of "age"?'
        """
        plain = json.loads(self.canonical())  # only what may be sent is put into words, with numbers in one form
        return sentence(self.name, plain["parameters"], first=self.version == FIRST)

    def with_parameters(self, parameters: Mapping[str, object], *, name: str | None = None) -> "Question":
        """A question of the same version with these parameters, and under another name where one is given."""
        return replace(self, name=name or self.name, parameters=parameters)

    def require_current(self) -> None:
        """Nothing, or CH333 for a question of an earlier version, which is read and not asked."""
        if self.version != VERSION:
            raise TrustError(
                "CH333",
                f"the question is of version {self.version}, and this site answers those of version {VERSION}: the "
                "sums of the two are not the same.",
                fix="Ask with this version of choral; what another one has begun is finished with that one.",
            )


def _plain(value: object) -> object:
    """The value with lists, dicts and numbers in one form each, or CH102 for what JSON can't say."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        if not (math.isfinite(value) and abs(value) <= _LARGEST):
            raise _bad(f"a number of a question's parameters is not between −2^53 and 2^53 ({_LARGEST:,}).")
        return int(value) if value == int(value) else float(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    raise _bad(f"a question's parameters hold a {type(value).__name__}, which JSON can't say.")


def sentence(name: str, parameters: Mapping[str, object], *, first: bool = False) -> str:
    """One sentence that says what is asked, and about which rows; `first` for a question of the first version.

    >>> sentence("table", {"columns": ["smoker"], "by": ["sex"], "where": [{"column": "age", "at_least": 60}]})
    'How many rows have each level of "smoker" by "sex", where "age" is at least 60?'
    """
    asked = _CDF_OF_THE_FIRST if first and name == "cdf" else _ASKED.get(name)
    if asked is None:
        return escaped(f'Something that this catalogue does not know: "{name}"?')
    pieces: dict[str, object] = {
        key: named(parameters.get(key)) for key in ("column", "columns", "target", "event", "time")
    }
    pieces |= {key: parameters.get(key) for key in ("low", "high")}
    by, target, levels = parameters.get("by"), parameters.get("target"), parameters.get("levels")
    pieces["regressed"] = f", for a regression of {named(target)} on the others" if target else ""
    pieces["at"] = f" at {', '.join(map(str, levels))}" if isinstance(levels, list | tuple) else ""
    strata = f" by {named(by)}" if by else ""
    return escaped(asked.format_map(pieces) + strata + _where(parameters) + "?")


def named(value: object) -> str:
    """One name or several, each in quotes.

    >>> named(["a", "b", "c"])
    '"a", "b" and "c"'
    """
    names = [f'"{one}"' for one in (value if isinstance(value, list | tuple) else [value])]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"


def _where(parameters: Mapping[str, object]) -> str:
    where = parameters.get("where")
    if not (isinstance(where, list | tuple) and where):
        return ""
    return ", where " + " and ".join(_condition(one) for one in where)


def _condition(one: object) -> str:
    if not isinstance(one, Mapping):
        return f"({one})"
    said = {"levels": "is {}", "at_least": "is at least {}", "below": "is below {}"}
    parts = [
        said.get(key, key + " {}").format(named(value) if key == "levels" else value)
        for key, value in sorted(one.items())
        if key != "column"
    ]
    return f"{named(one.get('column'))} {' and '.join(parts)}"


_MODEL, _HAZARD = "a model of {target} by {columns}", "a model of {event} by {columns}"
_CELLS, _BETTER = "How many rows are in each cell of ", "In which direction does "
_BOUNDS = "Between which powers of two do the numbers of {} lie"
_ASKED = {
    "logistic": f"What is {_MODEL}",
    "linear": f"What is {_MODEL}",
    "additive": f"What is {_MODEL}, with cells for numbers",
    "hazard": f"What is {_HAZARD} and time",
    "percentiles": "What are the quantiles of {column}, whose range is asked first",
    "percentiles_bounds": _BOUNDS.format("{column}"),
    "percentiles_cells": "What are the quantiles of {column} between {low} and {high}",
    **{f"{name}_cells": _CELLS + _MODEL for name in ("logistic", "linear", "additive")},
    **{f"{name}_round": f"{_BETTER}{_MODEL} get better" for name in ("logistic", "linear", "additive")},
    "hazard_table": f"How many rows leave or have their event when, for {_HAZARD}",
    "hazard_moments": f"What are the means and products of columns, for {_HAZARD}",
    "hazard_round": f"{_BETTER}{_HAZARD} get better",
    "count": "How many rows are there",
    "table": "How many rows have each level of {columns}",
    "tables": "How many rows have each level of {columns}, one by one",
    "mean": "What are the mean and the variance of {column}",
    "bounds": _BOUNDS.format("{columns}"),
    "km": "How many rows are without {event} at each time of {time}",
    "cdf": "Which share of rows lies at or below each value of {column}",
    "quantiles": "What are the quantiles of {column}{at}",
    "moments": "What are the means and products of {columns}{regressed}",
}
_CDF_OF_THE_FIRST = "Which share of rows lies below each value of {column}"
