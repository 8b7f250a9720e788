"""The charts of the examples in examples/gallery, drawn from what they found when they were last run."""

import importlib
import json
from pathlib import Path

from choral.report.charts import Axis, Series, line_chart
from choral.report.markup import Markup
from docs.drawings.shapes import paragraph, sheet

ROOT = Path(__file__).parents[2]
NAMES = ("bank", "fleet", "images", "survival", "sweep")
FOUND = ROOT / "docs/pictures/examples.json"


def found(name: str) -> dict[str, object]:
    """What an example finds when it is run now."""
    result: dict[str, object] = importlib.import_module(f"examples.gallery.{name}").main()
    return result


def record() -> None:
    """Run every example, and write down what each one found."""
    FOUND.write_text(json.dumps({name: found(name) for name in NAMES}, indent=1) + "\n")


def chart(name: str) -> str:
    """The chart of one example, with what is claimed of it below."""
    one = json.loads(FOUND.read_text())[name]
    ends = [point[0] for points in one["lines"].values() for point in points]
    series = [Series(name=line, points=points) for line, points in one["lines"].items()]
    series += [
        Series(name=f"{line}: {value:.3f}", points=[(min(ends), value), (max(ends), value)], anchor=True)
        for line, value in one["anchors"].items()
    ]
    last = ", ".join(f"{line} ends at {points[-1][1]:.3f}" for line, points in one["lines"].items())
    x = Axis(label=one["x"], log=one.get("log_x", False), whole=one["x"] == "round")
    drawn = line_chart(series, title=one["title"], summary=last, x=x, y=Axis(label=one["y"]), height=250)
    return sheet(
        306,
        one["title"],
        last,
        Markup(drawn.replace("<svg ", '<svg width="420" height="250" ', 1)),
        paragraph(14, 268, one["claim"], columns=66, kind="small"),
    )
