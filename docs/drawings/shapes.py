"""Boxes, arrows and lines of text as SVG, for the pictures of the documentation.

A picture is 420 units wide, so that its text is readable on a phone of 400 pixels. It has its own paper, light or dark
as the reader's system is, so that it is readable on any page.
"""

import math
import textwrap

from choral.report import charts
from choral.report.markup import Markup, element, together

WIDTH = int(charts.WIDTH)
LINE = 16  # from one line of text to the next
STYLE = """
.chart { --tint: #f1f4f6; }
@media (prefers-color-scheme: dark) { .chart { --tint: #1d2226; } }
.chart .box { fill: var(--paper); stroke: currentColor; stroke-opacity: .45; }
.chart .tint { fill: var(--tint); stroke: currentColor; stroke-opacity: .45; }
.chart .paper { fill: var(--paper); }
.chart .fence { fill: none; stroke: currentColor; stroke-opacity: .6; stroke-dasharray: 5 4; }
.chart .arrow { fill: none; stroke-width: 1.5; }
.chart .ink { stroke: currentColor; }
.chart .quiet { opacity: .72; }
.chart .bold { font-weight: 650; }
.chart .small { font-size: 11px; }
.chart .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 11px; }
"""


def words(x: float, y: float, *lines: str, anchor: str = "start", kind: str = "") -> Markup:
    """Lines of text, one below the other; `kind` has classes of the style, such as "bold" or "quiet small".

    >>> words(10, 20, "a", "b").count("<text")
    2
    """
    look = {"text_anchor": None if anchor == "start" else anchor, "class_": kind or None}
    return together(*(element("text", line, x=x, y=y + LINE * row, **look) for row, line in enumerate(lines)))


def paragraph(x: float, y: float, text: str, *, columns: int, kind: str = "") -> Markup:
    """A text that is broken into lines of at most so many characters."""
    return words(x, y, *textwrap.wrap(text, columns, break_long_words=False), kind=kind)


def box(x: float, y: float, width: float, height: float, title: str, *lines: str, kind: str = "box") -> Markup:
    """A box with a bold title and lines of text below it, in its middle.

    >>> "<rect" in box(0, 0, 100, 40, "server")
    True
    """
    middle, first = x + width / 2, y + (height - LINE * len(lines)) / 2 + 4
    return together(
        element("rect", x=x, y=y, width=width, height=height, rx=6, class_=kind),
        words(middle, first, title, anchor="middle", kind="bold"),
        words(middle, first + LINE, *lines, anchor="middle", kind="small"),
    )


def arrow(x1: float, y1: float, x2: float, y2: float, *, style: int | None = None, dashed: bool = False) -> Markup:
    """A straight arrow from the first point to the second, in the ink of the text or in a colour of the charts."""
    turn, size = math.atan2(y2 - y1, x2 - x1), 8
    ends = [(x2 - size * math.cos(turn + side), y2 - size * math.sin(turn + side)) for side in (-0.45, 0.45)]
    head = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in [ends[0], (x2, y2), ends[1]])
    colour, dashes = "arrow ink" if style is None else f"arrow s{style}", "4 3" if dashed else None
    line = element("path", d=f"M{x1:g} {y1:g}L{x2:g} {y2:g}", class_=colour, stroke_dasharray=dashes)
    return together(line, element("path", d=head, class_=colour))


def bars(x: float, y: float, width: float, height: float, values: list[float], *, style: int) -> Markup:
    """Signed bars around a middle line, the longest as long as half the height."""
    tallest, step, middle = max(map(abs, values)) or 1.0, width / len(values), y + height / 2
    rects = []
    for place, value in enumerate(values):
        tall = abs(value) / tallest * height / 2
        top = middle - tall if value > 0 else middle
        rects.append(element("rect", x=round(x + place * step, 1), y=round(top, 1), width=round(step - 2, 1),
                             height=round(tall, 1), class_=f"f{style}"))  # fmt: skip
    return together(element("path", d=f"M{x:g} {middle:g}h{width:g}", class_="axis"), *rects)


def sheet(height: float, title: str, summary: str, *pieces: Markup) -> str:
    """The picture as the content of a file; `summary` says in words what it shows."""
    svg = element(
        "svg",
        element("title", title),
        element("desc", summary),
        *pieces,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        class_="chart",
        role="img",
    )
    return charts.alone(svg).replace("</style>", f"{STYLE}</style>", 1)
