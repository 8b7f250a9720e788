"""Plain values as TOML, for the files that choral sends to people."""

from collections.abc import Mapping
from typing import Any

from choral.config import toml_of


def to_toml(content: Mapping[str, Any], within: str = "") -> str:
    r"""Plain values as TOML: values first, then tables, then lists of tables; None is left out.

    `within` is the name of the table that the content belongs to.

    >>> print(to_toml({"name": "a", "plan": {"rows": 9}, "devices": [{"id": "x"}]}))
    name = "a"
    <BLANKLINE>
    [plan]
    rows = 9
    <BLANKLINE>
    [[devices]]
    id = "x"
    <BLANKLINE>
    """
    flat = {key: value for key, value in content.items() if not isinstance(value, dict | list) and value is not None}
    parts = ["".join(f"{key} = {_value(value)}\n" for key, value in flat.items())]
    for key, value in content.items():
        name = f"{within}.{key}" if within else key
        tables = [(f"[{name}]", value)] if isinstance(value, dict) else []
        if isinstance(value, list):
            tables = [(f"[[{name}]]", one) for one in value]
        parts += [f"{head}\n{to_toml(inner, name)}" for head, inner in tables]
    return "\n".join(parts)


def _value(value: object) -> str:
    """One value as TOML; a text of several lines stays readable where its characters allow it."""
    if isinstance(value, str) and "\n" in value and "'''" not in value and value.replace("\n", "").isprintable():
        return f"'''\n{value}'''"
    return toml_of(value)
