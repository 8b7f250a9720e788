"""Panels as plain data, which a results file keeps, and as charts."""

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

import numpy as np

from choral.report.charts import Axis, Series, line_chart
from choral.report.markup import Markup

Curves = Sequence[Mapping[str, Sequence[float]]]  # one for each repeat
LABELS = {"train_loss": "training loss", "squared_gradient_norm": "‖∇f‖²"}


class Line(TypedDict):
    """The mean of a measure at each look, and its spread; an anchor is drawn thin."""

    name: str
    points: list[list[float]]
    spread: list[list[float]]
    anchor: NotRequired[bool]


class Panel(TypedDict):
    """One chart as plain data."""

    title: str
    x: str
    y: str
    log_x: bool
    log_y: bool
    lines: list[Line]
    anchors: dict[str, float]


def panel(
    title: str,
    lines: Mapping[str, Curves],
    measure: str,
    *,
    over: str = "round",
    anchors: Mapping[str, Curves | float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Panel:
    """One chart as plain data: the mean of a measure over the repeats at each look, and its spread.

    The spread is one deviation to either side; on a logarithmic axis it goes from the lowest repeat to the highest.
    Anchors are drawn thin, to compare the lines with: further curves, or a level.

    >>> both = [{"round": [1], "loss": [0.4]}, {"round": [1], "loss": [0.6]}]
    >>> panel("", {"a": both}, "loss", log_y=True)["lines"]
    [{'name': 'a', 'points': [[1, 0.5]], 'spread': [[0.4, 0.6]]}]
    """
    thin = {name: one for name, one in (anchors or {}).items() if isinstance(one, Sequence)}
    levels = {name: one for name, one in (anchors or {}).items() if not isinstance(one, Sequence)}
    shown = [_line(name, curves, measure, over, extremes=log_y) for name, curves in lines.items()]
    shown += [{**_line(name, one, measure, over, extremes=log_y), "anchor": True} for name, one in thin.items()]
    return {
        "title": title,
        "x": over,
        "y": LABELS.get(measure, measure.replace("_", " ")),
        "log_x": log_x,
        "log_y": log_y,
        "lines": shown,
        "anchors": levels,
    }


def _line(name: str, curves: Curves, measure: str, over: str, *, extremes: bool) -> Line:
    values = np.array([one[measure] for one in curves])
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    low, high = (values.min(axis=0), values.max(axis=0)) if extremes else (mean - spread, mean + spread)
    return {
        "name": name,
        "points": [[x, round(float(y), 6)] for x, y in zip(curves[0][over], mean, strict=True)],
        "spread": [[round(float(a), 6), round(float(b), 6)] for a, b in zip(low, high, strict=True)],
    }


def chart_of(panel: Panel) -> Markup:
    """The chart of a panel, each line with its spread."""
    said = [f"{one['name']} ends at {one['points'][-1][1]:.4g}" for one in panel["lines"]]
    said += [f"{name}: {value:.4g}" for name, value in panel["anchors"].items()]
    series = [
        Series(
            name=one["name"],
            points=[(x, y) for x, y in one["points"]],
            spread=[(low, high) for low, high in one["spread"]],
            anchor=one.get("anchor", False),
        )
        for one in panel["lines"]
    ]
    ends = [x for one in panel["lines"] for x, _ in one["points"]]
    series += [
        Series(name=name, points=[(min(ends), value), (max(ends), value)], anchor=True)
        for name, value in panel["anchors"].items()
    ]
    return line_chart(
        series,
        title=panel["title"],
        summary=f"{'; '.join(said)}.",
        x=Axis(label=panel["x"], log=panel["log_x"]),
        y=Axis(label=panel["y"], log=panel["log_y"]),
        height=240 + 16.0 * len(series),
    )
