"""Questions in English, for the log of a site; whatever the parameters hold, the sentence is printable."""

from collections.abc import Callable, Mapping

from choral.core.printable import escaped


def sentence(name: str, parameters: Mapping[str, object], *, first: bool = False) -> str:
    """One sentence that says what is asked, and about which rows; `first` for a question of the first version.

    >>> sentence("table", {"columns": ["smoker"], "by": ["sex"], "where": [{"column": "age", "at_least": 60}]})
    'How many rows have each level of "smoker" by "sex", where "age" is at least 60?'
    """
    asked = (_FIRST if first else _ASKED).get(name)
    if asked is None:
        return escaped(f'Something that this catalogue does not know: "{name}"?')
    return escaped(asked(parameters) + _by(parameters) + _where(parameters) + "?")


def named(value: object) -> str:
    """One name or several, each in quotes.

    >>> named(["a", "b", "c"])
    '"a", "b" and "c"'
    """
    names = [f'"{one}"' for one in (value if isinstance(value, list | tuple) else [value])]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"


def _by(parameters: Mapping[str, object]) -> str:
    by = parameters.get("by")
    return f" by {named(by)}" if by else ""


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


def _levels(given: Mapping[str, object]) -> str:
    levels = given.get("levels")
    return f" at {', '.join(map(str, levels))}" if isinstance(levels, list | tuple) else ""


def _target(given: Mapping[str, object]) -> str:
    return f", for a regression of {named(given['target'])} on the others" if given.get("target") else ""


def _model(given: Mapping[str, object]) -> str:
    return f"a model of {named(given.get('target'))} by {named(given.get('columns'))}"


def _round(given: Mapping[str, object]) -> str:
    return f"In which direction does {_model(given)} get better"


def _cells(given: Mapping[str, object]) -> str:
    return f"How many rows are in each cell of {_model(given)}"


def _hazard(said: Callable[[Mapping[str, object]], str]) -> Callable[[Mapping[str, object]], str]:
    return lambda given: said({**given, "target": given.get("event")})


_ASKED: dict[str, Callable[[Mapping[str, object]], str]] = {
    "logistic": lambda given: f"What is {_model(given)}",
    "linear": lambda given: f"What is {_model(given)}",
    "additive": lambda given: f"What is {_model(given)}, with cells for numbers",
    "hazard": _hazard(lambda given: f"What is {_model(given)} and time"),
    "percentiles": lambda given: f"What are the quantiles of {named(given.get('column'))}, whose range is asked first",
    "percentiles_bounds": lambda given: (
        f"Between which powers of two do the numbers of {named(given.get('column'))} lie"
    ),
    "percentiles_cells": lambda given: (
        f"What are the quantiles of {named(given.get('column'))} between {given.get('low')} and {given.get('high')}"
    ),
    "logistic_cells": _cells,
    "logistic_round": _round,
    "linear_cells": _cells,
    "linear_round": _round,
    "additive_cells": _cells,
    "additive_round": _round,
    "hazard_table": _hazard(lambda given: f"How many rows leave or have their event when, for {_model(given)}"),
    "hazard_moments": _hazard(lambda given: f"What are the means and products of columns, for {_model(given)}"),
    "hazard_round": _hazard(_round),
    "count": lambda _: "How many rows are there",
    "table": lambda given: f"How many rows have each level of {named(given.get('columns'))}",
    "tables": lambda given: f"How many rows have each level of {named(given.get('columns'))}, one by one",
    "mean": lambda given: f"What are the mean and the variance of {named(given.get('column'))}",
    "bounds": lambda given: f"Between which powers of two do the numbers of {named(given.get('columns'))} lie",
    "km": lambda given: (
        f"How many rows are without {named(given.get('event'))} at each time of {named(given.get('time'))}"
    ),
    "cdf": lambda given: f"Which share of rows lies at or below each value of {named(given.get('column'))}",
    "quantiles": lambda given: f"What are the quantiles of {named(given.get('column'))}" + _levels(given),
    "moments": lambda given: f"What are the means and products of {named(given.get('columns'))}" + _target(given),
}
_FIRST = {
    **_ASKED,
    "cdf": lambda given: f"Which share of rows lies below each value of {named(given.get('column'))}",
}
