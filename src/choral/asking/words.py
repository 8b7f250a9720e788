"""Questions in English, for the log of a site; whatever the parameters hold, the sentence is printable."""

from collections.abc import Callable, Mapping

from choral.printable import escaped


def sentence(name: str, parameters: Mapping[str, object]) -> str:
    """One sentence that says what is asked, and about which rows.

    >>> sentence("table", {"columns": ["smoker"], "by": ["sex"], "where": [{"column": "age", "at_least": 60}]})
    'How many rows have each level of "smoker" by "sex", where "age" is at least 60?'
    """
    asked = _ASKED.get(name)
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


_ASKED: dict[str, Callable[[Mapping[str, object]], str]] = {
    "count": lambda _: "How many rows are there",
    "table": lambda given: f"How many rows have each level of {named(given.get('columns'))}",
    "mean": lambda given: f"What are the mean and the variance of {named(given.get('column'))}",
}
