"""TOML as text: where a setting stands in it, and plain values written as it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class SettingsSource:
    r"""The origin of the settings of a job: a text with its name, and the settings that were given by name in Python.

    >>> origin = SettingsSource(source="choral.toml", text="[run]\nseed = 3", given=frozenset({("privacy", "epsilon")}))
    >>> origin.where("run", "seed"), origin.where("privacy", "epsilon")
    ('choral.toml:2', 'epsilon= with choral.toml')
    """

    source: str = "choral.toml"
    text: str = ""
    given: frozenset[tuple[str, str]] = frozenset()

    def where(self, table: str, key: str = "") -> str:
        """The file and the line of a setting, or that it was given by name."""
        if (table, key) in self.given:
            return f"{key}= with {self.source}"
        return line_of(self.source, self.text, table, key)


def line_of(source: str, text: str, table: str, key: str) -> str:
    r"""file:line of a key (or of its table's header, or the file alone): TOML readers forget the lines.

    >>> line_of("choral.toml", "[run]\nseed = 3", "run", "seed")
    'choral.toml:2'
    """
    key_here = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*(=|\.)""")
    dotted = re.compile(rf"""\s*["']?{re.escape(table)}["']?\s*(\.\s*["']?{re.escape(key)}["']?\s*)?[=.]""")
    header = re.compile(r"""\s*\[+\s*([^\]]+?)\s*\]""")
    found, current = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if match := header.match(line):
            current = re.sub(r"[\"'\s]", "", match.group(1))
            if current == f"{table}.{key}" or (current == table and (not key or not found)):
                found = number
            if current == f"{table}.{key}" or (current == table and not key):
                break
        elif (key and current == table and key_here.match(line)) or (not current and dotted.match(line)):
            found = number
            break
    return f"{source}:{found}" if found else source


def to_toml(content: Mapping[str, Any], within: str = "") -> str:
    r"""Plain values as TOML: values first, then tables, then lists of tables; None is left out.

    `within` is the name of the table that the content belongs to.

    >>> print(to_toml({"name": "a", "plan": {"rows": 9}, "devices": [{"id": "x", "bounds": [0, 1]}]}))
    name = "a"
    <BLANKLINE>
    [plan]
    rows = 9
    <BLANKLINE>
    [[devices]]
    id = "x"
    bounds = [0, 1]
    <BLANKLINE>
    """
    values, tables = [], []
    for key, value in content.items():
        name = f"{within}.{_key(key)}" if within else _key(key)
        if isinstance(value, dict):
            tables.append(f"[{name}]\n{to_toml(value, name)}")
        elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            tables += [f"[[{name}]]\n{to_toml(one, name)}" for one in value]
        elif value is not None:
            values.append(f"{_key(key)} = {_value(value)}\n")
    return "\n".join((["".join(values)] if values or within else []) + tables)


def plain(value: Any) -> Any:  # noqa: ANN401 - of any type
    """A setting as a file would have it: NumPy's numbers and arrays as Python's own, and tuples as lists.

    >>> import numpy as np
    >>> plain({"rounds": np.int64(3), "hidden": (np.int32(8), 4)})
    {'rounds': 3, 'hidden': [8, 4]}
    """
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist()) if isinstance(value.tolist(), list) else value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def toml_of(value: object) -> str:
    """A value as TOML on one line, None left out of tables; what JSON and TOML write alike is left to JSON.

    >>> toml_of({"bounds": (0, 1.0), "missing": None})
    '{bounds = [0, 1.0]}'
    """
    if isinstance(value, Mapping):
        written = (f"{_key(key)} = {toml_of(inner)}" for key, inner in value.items() if inner is not None)
        return "{" + ", ".join(written) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, float):
        return repr(float(value))  # NumPy's own floats are floats, too, and write their type with their value
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")


def _key(key: object) -> str:
    """A key, between quotation marks where TOML asks for them."""
    return str(key) if re.fullmatch(r"[A-Za-z0-9_-]+", str(key)) else toml_of(str(key))


def _value(value: object) -> str:
    """One value as TOML; a text of several lines stays readable where its characters allow it."""
    if isinstance(value, str) and "\n" in value and "'''" not in value and value.replace("\n", "").isprintable():
        return f"'''\n{value}'''"
    return toml_of(value)
