"""Panels as plain data, which a results file keeps, and as charts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from choral.report.charts import Axis, Series, line_chart
from choral.report.markup import Markup


def line(
    name: str, curves: Sequence[Mapping[str, Sequence[float]]], measure: str, *, over: str = "round"
) -> dict[str, Any]:
    """The mean of a measure over the repeats and its deviation to either side, at each look.

    >>> line("a", [{"round": [1], "loss": [0.4]}, {"round": [1], "loss": [0.6]}], "loss")["points"]
    [[1, 0.5]]
    """
    values = np.array([one[measure] for one in curves])
    mean = values.mean(axis=0)
    beside = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return {
        "name": name,
        "points": [[x, round(float(y), 6)] for x, y in zip(curves[0][over], mean, strict=True)],
        "spread": [[round(float(y - s), 6), round(float(y + s), 6)] for y, s in zip(mean, beside, strict=True)],
    }


def panel(
    title: str, x: str, y: str, lines: Sequence[dict[str, Any]], *, log_x: bool = False, log_y: bool = False
) -> dict[str, Any]:
    """One chart as plain data."""
    return {"title": title, "x": x, "y": y, "log_x": log_x, "log_y": log_y, "lines": list(lines)}


def chart_of(panel: Mapping[str, Any]) -> Markup:
    """The chart of a panel, its lines with mean ± one deviation; where y is logarithmic, without the spread."""
    ends = "; ".join(f"{one['name']} ends at {one['points'][-1][1]:.4g}" for one in panel["lines"])
    series = [
        Series(
            name=one["name"],
            points=[(x, y) for x, y in one["points"]],
            spread=() if panel["log_y"] else [(low, high) for low, high in one["spread"]],
        )
        for one in panel["lines"]
    ]
    return line_chart(
        series,
        title=panel["title"],
        summary=f"{ends}.",
        x=Axis(label=panel["x"], log=panel["log_x"]),
        y=Axis(label=panel["y"], log=panel["log_y"]),
        height=300,
    )
