"""Where a setting stands in a TOML file, for complaints about it."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SettingsSource:
    r"""Where the settings of a job come from: a text with its name, and those that were given by name in Python.

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
