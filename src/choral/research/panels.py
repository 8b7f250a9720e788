"""Panels as plain data, which a results file keeps, and as charts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from choral.report.charts import Axis, Series, line_chart
from choral.report.markup import Markup


def line(
    name: str,
    curves: Sequence[Mapping[str, Sequence[float]]],
    measure: str,
    *,
    over: str = "round",
    extremes: bool = False,
    anchor: bool = False,
) -> dict[str, Any]:
    """The mean of a measure over the repeats at each look, and one deviation to either side or the extremes.

    An anchor is drawn thin, to compare the others with.

    >>> line("a", [{"round": [1], "loss": [0.4]}, {"round": [1], "loss": [0.6]}], "loss", extremes=True)["spread"]
    [[0.4, 0.6]]
    """
    values = np.array([one[measure] for one in curves])
    mean = values.mean(axis=0)
    beside = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    low, high = (values.min(axis=0), values.max(axis=0)) if extremes else (mean - beside, mean + beside)
    return {
        "name": name,
        "points": [[x, round(float(y), 6)] for x, y in zip(curves[0][over], mean, strict=True)],
        "spread": [[round(float(a), 6), round(float(b), 6)] for a, b in zip(low, high, strict=True)],
        **({"anchor": True} if anchor else {}),
    }


def panel(
    title: str,
    x: str,
    y: str,
    lines: Sequence[dict[str, Any]],
    *,
    anchors: Mapping[str, float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> dict[str, Any]:
    """One chart as plain data; anchors are level lines to compare with."""
    return {
        "title": title,
        "x": x,
        "y": y,
        "log_x": log_x,
        "log_y": log_y,
        "lines": list(lines),
        "anchors": dict(anchors or {}),
    }


def chart_of(panel: Mapping[str, Any]) -> Markup:
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
