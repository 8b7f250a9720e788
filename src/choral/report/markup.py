"""Markup that can't be injected into: every piece of text is escaped unless this module itself made it.

Characters that are not seen, or that turn the direction of writing, are written out: a page must not mislead either.
"""

from collections.abc import Iterable, Sequence
from html import escape

from choral.core.printable import escaped

_EMPTY = {"meta", "link", "br", "hr"}


class Markup(str):
    """Text that is markup already; anything else is escaped where it enters a page."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str | float | bool | None) -> Markup:
    """One element; `class_` is class, `_` in an attribute's name is `-`, and None or False leaves it out.

    >>> element("p", "a < b, ", element("b", "bold"), class_="note", aria_label='"quoted"')
    '<p class="note" aria-label="&quot;quoted&quot;">a &lt; b, <b>bold</b></p>'
    """
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(escaped(_plain(value)))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _EMPTY:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{together(*children)}</{tag}>")


def together(*children: str) -> Markup:
    """The children one after the other, escaped where they are plain text.

    >>> together("x > y", element("br"))
    'x &gt; y<br>'
    """
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(escaped(child), quote=False) for child in children)
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table whose first cell in each row is that row's heading.

    >>> "<td>20</td>" in table(("what", "times"), [("model", "20")])
    True
    """
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


def short(text: str, most: int = 28) -> str:
    """The text, cut with an ellipsis where it is longer.

    >>> short("a very long name of a device", 12)
    'a very long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
