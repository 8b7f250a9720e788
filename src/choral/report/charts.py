"""Charts as SVG text: lines with a spread, bars and strips. Colours are classes, so that a page's theme decides them.

Nothing is shown by colour alone: lines differ in dashes and marks too, and every chart carries its content as words.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from choral.report.markup import Markup, element, together

Point = tuple[float, float]
WIDTH = 420.0
_LEFT, _RIGHT, _LEGEND, _BOTTOM = 60.0, 14.0, 16.0, 36.0
_DASHES = (None, "7 4", "2 4", "10 3 2 3", "14 4")
_ANCHOR_DASHES = (None, "6 3", "1.5 3")

# Okabe and Ito's colours, which colour-blind readers can distinguish; darkened or lightened for either paper.
ON_WHITE = "--s0: #0072b2; --s1: #b34a00; --s2: #00785a; --s3: #8f4a78; --s4: #6b5900;"
_ON_BLACK = "--s0: #56b4e9; --s1: #e69f00; --s2: #2fc79a; --s3: #dd9cc3; --s4: #f0e442;"
STYLE = f"""\
.chart {{ font: 12px system-ui, sans-serif; fill: currentColor; {ON_WHITE} }}
@media (prefers-color-scheme: dark) {{ .chart {{ {_ON_BLACK} }} }}
@media print {{ .chart {{ {ON_WHITE} }} }}
.chart .axis {{ stroke: currentColor; opacity: .55; }}
.chart .grid {{ stroke: currentColor; opacity: .15; }}
.chart .line {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}
.chart .anchor {{ fill: none; stroke: currentColor; stroke-width: 1; opacity: .8; }}
.chart .spread {{ opacity: .13; stroke: none; }}
.chart .rest {{ opacity: .14; }}
""" + "".join(f".chart .s{n} {{ stroke: var(--s{n}); }}\n.chart .f{n} {{ fill: var(--s{n}); }}\n" for n in range(5))
# A separate file can't take ink and paper from a page around it.
_PAPER = """\
.chart { --paper: #fdfdfb; color: #1b1f24; background: var(--paper); }
@media (prefers-color-scheme: dark) { .chart { --paper: #14171a; color: #e7e9eb; } }
@media print { .chart { color: #1b1f24; background: none; } }
"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line: its name for the legend, its points, and the lowest and highest value at each of them, if known.

    An anchor is a thin line in the ink of the text, to compare the others with.
    """

    name: str
    points: Sequence[Point]
    spread: Sequence[Point] = ()
    inner: Sequence[Point] = ()  # a second band within the first
    marks: bool = True
    anchor: bool = False


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What an axis shows; a logarithmic one ticks at powers of ten or at 1, 2, 5, `least` keeps a value in sight.

    An axis covers `span` at least: what moves by less is noise, and must not look like a slope.
    """

    label: str
    log: bool = False
    least: float | None = None
    whole: bool = False
    span: float = 0.0


@dataclass(frozen=True)
class _Scale:
    """Values of one axis to places on the paper."""

    axis: Axis
    low: float
    high: float
    start: float
    stop: float
    ticks: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        marks = ticks(self.low, self.high, log=self.axis.log, whole=self.axis.whole)
        object.__setattr__(self, "ticks", marks)

    def at(self, value: float) -> float:
        low, high, value = (math.log(v) if self.axis.log else v for v in (self.low, self.high, value))
        return round(self.start + (self.stop - self.start) * (value - low) / (high - low), 2)


def ticks(low: float, high: float, *, log: bool = False, whole: bool = False) -> tuple[float, ...]:
    """About five round values from low to high.

    >>> ticks(0, 20), ticks(0.781, 0.852)
    ((0.0, 5.0, 10.0, 15.0, 20.0), (0.8, 0.82, 0.84))
    >>> ticks(1e-8, 1e-3, log=True)
    (1e-08, 1e-07, 1e-06, 1e-05, 0.0001, 0.001)
    >>> ticks(0.25, 10, log=True)
    (0.5, 1.0, 2.0, 5.0, 10.0)
    """
    if log:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        if high < 100 * low:  # powers of ten would be too few
            near = [float(f"{digit}e{power}") for power in range(first - 1, last + 1) for digit in (1, 2, 5)]
            return tuple(value for value in near if low * (1 - 1e-9) <= value <= high * (1 + 1e-9))
        return tuple(float(f"1e{power}") for power in range(first, last + 1, 1 + (last - first) // 6))
    step = 10.0 ** math.floor(math.log10((high - low) / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    step = max(step, 1.0) if whole else step
    first = math.ceil(low / step - 1e-9)
    return tuple(round(step * n, 12) for n in range(first, math.floor(high / step + 1e-9) + 1))


def _range(axis: Axis, values: Sequence[float]) -> Point:
    seen = [*values, *([] if axis.least is None else [axis.least])]
    low, high = min(seen), max(seen)
    if (missing := axis.span - (high - low)) > 0:
        low, high = low - missing / 2, high + missing / 2
    if axis.log:
        return (low, high) if low < high else (low / 10, high * 10)
    if low == high:
        low, high = (low, high + 1) if axis.whole else (low - 0.5 * abs(low or 1), high + 0.5 * abs(high or 1))
    margin = 0.0 if axis.whole else 0.06 * (high - low)
    return (low if low == axis.least else low - margin), high + margin


def _label(value: float, axis: Axis) -> str:
    return f"{value:.0e}".replace("e-0", "e-") if axis.log and not 0.01 <= value < 1000 else f"{value:g}"


def _frame(x: _Scale, y: _Scale) -> Markup:
    pieces = [element("path", d=f"M{x.start:g} {y.stop:g}V{y.start:g}H{x.stop:g}", class_="axis", fill="none")]
    for value in y.ticks:
        at = y.at(value)
        pieces.append(element("path", d=f"M{x.start:g} {at:g}H{x.stop:g}", class_="grid"))
        pieces.append(element("text", _label(value, y.axis), x=x.start - 6, y=at + 4, text_anchor="end"))
    for value in x.ticks:
        at = x.at(value)
        pieces.append(element("path", d=f"M{at:g} {y.start:g}v4", class_="axis"))
        pieces.append(element("text", _label(value, x.axis), x=at, y=y.start + 16, text_anchor="middle"))
    middle, left = (x.start + x.stop) / 2, (y.start + y.stop) / 2
    pieces.append(element("text", x.axis.label, x=middle, y=y.start + 32, text_anchor="middle"))
    turned = f"rotate(-90 11 {left:g})"
    pieces.append(element("text", y.axis.label, x=11, y=left, text_anchor="middle", transform=turned))
    return together(*pieces)


def _stroke(series: Series, style: int) -> dict[str, str | None]:
    """How a line is drawn, on the paper and in the legend."""
    if series.anchor:
        return {"class_": "anchor", "stroke_dasharray": _ANCHOR_DASHES[style]}
    return {"class_": f"line s{style}", "stroke_dasharray": _DASHES[style]}


def _band(series: Series, style: int, x: _Scale, y: _Scale) -> Markup:
    """The spread of a line; an anchor's would darken those that it is there to compare with."""
    bands = [] if series.anchor else [band for band in (series.spread, series.inner) if band]
    drawn = []
    for band in bands:
        upper = [(x.at(a), y.at(high)) for (a, _), (_, high) in zip(series.points, band, strict=True)]
        lower = [(x.at(a), y.at(low)) for (a, _), (low, _) in zip(series.points, band, strict=True)]
        drawn.append(element("path", d=_path(upper + lower[::-1]) + "Z", class_=f"spread f{style}"))
    return together(*drawn)


def _line(series: Series, style: int, x: _Scale, y: _Scale) -> Markup:
    places = [(x.at(a), y.at(b)) for a, b in series.points]
    pieces = [element("path", d=_path(places), **_stroke(series, style))]
    if series.marks and not series.anchor and len(places) <= 40:
        pieces += [element("circle", cx=a, cy=b, r=2.6, class_=f"f{style}") for a, b in places]
    return together(*pieces)


def _path(places: Sequence[Point]) -> str:
    return "M" + "L".join(f"{a:g} {b:g}" for a, b in places)


def line_chart(series: Sequence[Series], *, title: str, summary: str, x: Axis, y: Axis, height: float = 230) -> Markup:
    """Up to five lines and three anchors over two axes, a legend above; `summary` says in words what they show.

    >>> chart = line_chart([Series(name="a", points=[(1, 0.5), (2, 0.75)])], title="t", summary="rises",
    ...                    x=Axis(label="round"), y=Axis(label="accuracy"))
    >>> chart.count("<circle"), "<title>t</title><desc>rises</desc>" in chart
    (2, True)
    """
    some = [line for line in series if line.points]
    styled = list(enumerate([line for line in some if not line.anchor][: len(_DASHES)]))
    styled += enumerate([line for line in some if line.anchor][: len(_ANCHOR_DASHES)])
    drawn = [line for _, line in styled]
    points = [point for line in drawn for point in line.points]
    edges = [edge for line in drawn if not line.anchor for pair in line.spread for edge in pair]
    if not points:
        return element("p", f"{title}: nothing to draw yet.")
    top = _LEGEND * len(drawn) + 6
    across = _Scale(x, *_range(x, [a for a, _ in points]), _LEFT, WIDTH - _RIGHT)
    upward = _Scale(y, *_range(y, [b for _, b in points] + edges), height - _BOTTOM, top)
    legend = []
    for row, (style, line) in enumerate(styled):
        at = 8 + _LEGEND * row
        legend.append(element("path", d=f"M{_LEFT:g} {at:g}h28", **_stroke(line, style)))
        legend.append(element("text", line.name, x=_LEFT + 36, y=at + 4))
    # Bands first: a line that lies within another's band stays as it is.
    lines = [draw(line, style, across, upward) for draw in (_band, _line) for style, line in styled]
    return _svg(WIDTH, height, title, summary, together(*legend, _frame(across, upward), *lines))


def bar(share: float, *, title: str, style: int = 0) -> Markup:
    """One bar, filled to `share` of its length.

    >>> 'width="50" height="10" class="f0"' in bar(0.5, title="half")
    True
    """
    filled = 100 * min(max(share, 0.0), 1.0)
    inside = together(
        element("rect", width=100, height=10, class_="rest"),
        element("rect", width=round(filled, 1), height=10, class_=f"f{style}"),
    )
    return _svg(100, 10, title, "", inside, stretch=True)


def dots(certain: int, possible: int, *, title: str) -> Markup:
    """A hundred dots in rows of ten: those that chance fills, those that may also be filled, and the rest.

    >>> dots(50, 89, title="guesses").count("h0")
    100
    """
    places = [f"M{12 + 24 * (number % 10)} {12 + 24 * (number // 10)}h0" for number in range(100)]
    # What chance fills is round, what may also be filled is square: colour alone says nothing.
    kinds = ((0, certain, "s0", "round"), (certain, possible, "s1", "square"), (possible, 100, "rest", "round"))
    marks = [
        element(
            "path",
            d="".join(places[start:stop]),
            class_=kind,
            stroke="currentColor",
            stroke_width=17,
            stroke_linecap=cap,
        )
        for start, stop, kind, cap in kinds
    ]
    return _svg(240, 240, title, "", together(*marks))


def strip(values: Sequence[float], *, title: str, style: int = 0) -> Markup:
    """Signed bars side by side, the tallest as high as the strip: for looking at, not for reading off.

    >>> strip([1, -1, 0.5], title="three numbers").count("<rect")
    3
    """
    tallest = max((abs(value) for value in values), default=0.0) or 1.0
    wide = 240 / max(len(values), 1)
    bars = []
    for place, value in enumerate(values):
        tall = 28 * abs(value) / tallest
        top = 30 - tall if value > 0 else 30
        bars.append(
            element(
                "rect",
                x=round(place * wide + 1, 2),
                y=round(top, 2),
                width=round(wide - 2, 2),
                height=round(tall, 2),
                class_=f"f{style}",
            )
        )
    middle = element("path", d="M0 30H240", class_="axis")
    return _svg(240, 60, title, "", together(*bars, middle))


def alone(chart: Markup) -> str:
    """The chart as the content of a separate file, with its colours and its paper inside.

    >>> alone(bar(0.5, title="half")).count("<style>")
    1
    """
    head, _, body = chart.partition(">")
    return f"{head}><style>{STYLE}{_PAPER}</style>{body}\n"


def _svg(width: float, height: float, title: str, summary: str, inside: Markup, *, stretch: bool = False) -> Markup:
    return element(
        "svg",
        element("title", title),
        element("desc", summary) if summary else Markup(),
        inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        class_="chart",
        role="img",
        preserveAspectRatio="none" if stretch else "xMinYMid",
    )
