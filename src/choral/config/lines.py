"""Where a setting stands in a TOML file, for complaints about it."""

import re


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
