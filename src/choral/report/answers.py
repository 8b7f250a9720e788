"""An answer or a model on sums as charts and a table: curves with their bands, effects with theirs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from choral.asking.answer import Answer
from choral.core.errors import ConfigError
from choral.report import charts, parts
from choral.report.markup import Markup, element, together
from choral.run.folder import write_whole

MOST_ROWS = 24  # of an answer's table on a page
MOST_CHARTS = 12  # of a model's columns
Row = Mapping[str, object]
_NUMBERS = ("estimate", "low", "high")


def drawn(name: str, answer: Answer) -> list[Markup]:
    """The charts of an answer, by the name of its question; none where it has no curve.

    >>> rows = [{"time": 10.0, "estimate": 0.9, "low": 0.8, "high": 1.0, "sampling_low": 0.85, "sampling_high": 0.95}]
    >>> len(drawn("km", Answer(rows=rows))), drawn("count", Answer(rows=rows))
    (1, [])
    """
    if name == "km":
        return [_survival(answer.rows)]
    if name == "cdf":
        return [_curve(answer.rows, title="Share of rows at or below a value", y="share")]
    shapes = _grouped([row for row in answer.rows if name == "additive" and "value" in row], "column")
    return [
        _curve(rows, title=f"Effect of {parts.short(label)} on the log-odds", y="log-odds", x=label)
        for label, rows in list(shapes.items())[:MOST_CHARTS]
    ]


def plot(name: str, answer: Answer, path: str | Path) -> Path:
    """The first chart of an answer as an SVG file; of an additive model one file per column, numbered from 2 on."""
    charts_of = drawn(name, answer)
    if not charts_of:
        raise ConfigError(
            "CH104", f'"{name}" has no curve to plot.', fix="Use .frame or .rows; km, cdf and additive have curves."
        )
    path = Path(path)
    for number, chart in enumerate(charts_of, start=1):
        to = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        write_whole(to, charts.alone(chart).encode())
    return path


def shown(name: str, answer: Answer) -> Markup:
    """The charts and the first rows of an answer, as a part of a page."""
    curves = drawn(name, answer)
    rows = [*([] if curves else answer.rows[:MOST_ROWS]), *answer.about]
    cells = [[_about(row), *(f"{row[key]:,.5g}" for key in _NUMBERS)] for row in rows]
    more = 0 if curves else len(answer.rows) - MOST_ROWS
    left = f"{more:,} more rows are" if more > 1 else "One more row is"
    said = [*answer.sentences, *([f"{left} in questions.jsonl."] if more > 0 else [])]
    if answer.test is not None:
        said.insert(0, "Test: " + ", ".join(f"{key} {value:.4g}" for key, value in answer.test.items()) + ".")
    return together(
        *([element("div", *curves, class_="pair")] if curves else []),
        *([parts.table(("of", "estimate", "95 % from", "to"), cells)] if cells else []),
        *([element("p", " ".join(said), class_="quiet")] if said else []),
    )


def _about(row: Row) -> str:
    """What a row is about, in words."""
    named = [value for value in row.values() if isinstance(value, str) and value]
    named += [f"{key} {row[key]:g}" for key in ("time", "value", "level") if key in row]
    return parts.short(", ".join(named) or "rows", 60)


def _survival(rows: Sequence[Row]) -> Markup:
    arms = _grouped(rows, *(key for key in rows[0] if isinstance(rows[0][key], str)))
    series = [
        charts.Series(
            name=label or "all rows",
            points=[(0.0, 1.0), *_points(arm, "time")],
            spread=[(1.0, 1.0), *_ends(arm, "low", "high")],
            inner=[(1.0, 1.0), *_ends(arm, "sampling_low", "sampling_high")],
            marks=False,
        )
        for label, arm in arms.items()
    ]
    ends = "; ".join(f"{one.name} {one.points[-1][1]:.3f} at {one.points[-1][0]:g}" for one in series)
    return charts.line_chart(
        series,
        title="Share of rows without the event",
        summary=f"{ends}. The inner band is the error of sampling, the outer one has the noise as well.",
        x=charts.Axis(label="time"),
        y=charts.Axis(label="without the event", least=0.0),
    )


def _curve(rows: Sequence[Row], *, title: str, y: str, x: str = "value") -> Markup:
    points = _points(rows, "value")
    line = charts.Series(name="estimate, 95 %", points=points, spread=_ends(rows, "low", "high"), marks=False)
    low, high = min(points, key=lambda one: one[1]), max(points, key=lambda one: one[1])
    summary = f"lowest {low[1]:.3g} at {low[0]:g}, highest {high[1]:.3g} at {high[0]:g}"
    across, upward = charts.Axis(label=parts.short(x)), charts.Axis(label=y)
    return charts.line_chart([line], title=title, summary=summary, x=across, y=upward)


def _points(rows: Sequence[Row], key: str) -> list[charts.Point]:
    return _ends(rows, key, "estimate")


def _ends(rows: Sequence[Row], first: str, second: str) -> list[charts.Point]:
    return [(float(row[first]), float(row[second])) for row in rows]  # type: ignore[arg-type]


def _grouped(rows: Sequence[Row], *keys: str) -> dict[str, list[Row]]:
    """The rows by what they say under these keys, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(", ".join(str(row[key]) for key in keys), []).append(row)
    return found
