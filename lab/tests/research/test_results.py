"""A figure is called twice, first to count its measurements; its results lie in a file and its charts beside it."""

import json

from choral_lab.research.panels import panel
from choral_lab.research.results import Found, measure

CURVES = [{"round": [1, 2], "loss": [0.5, 0.25]}]


def test_a_results_file_holds_results_claims_panels_and_how_they_were_made(tmp_path):
    called = []

    def figure(measurements):
        called.append(type(measurements).__name__)
        claims = {"ours is better": ("holds", "0.01")}
        return Found(results={"gap": 0.25}, claims=claims, panels=[panel("t", {"a": CURVES}, "loss")])

    made = measure("fig", figure, tmp_path, repeats=2, quick=True)
    assert called == ["Counting", "Measurements"]
    assert json.loads((tmp_path / "fig.json").read_text()) == json.loads(json.dumps(made))
    assert (made["gap"], made["repeats"], made["seeds"], made["quick"]) == (0.25, 2, [0, 1], True)
    assert made["claims"] == [["ours is better", "holds", "0.01"]]
    assert set(made["versions"]) == {"choral", "jax", "numpy"}
    assert (tmp_path / "fig-1.svg").read_text().startswith("<svg")
