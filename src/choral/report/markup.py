"""Markup that can't be injected into: every piece of text is escaped unless this module itself made it.

Characters that are not seen, or that turn the direction of writing, are written out: a page must not mislead either.
"""

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


def _plain(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"
