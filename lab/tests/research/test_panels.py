"""Means and spreads of a panel, by hand, and its chart."""

import math

import pytest

from choral_lab.research.panels import chart_of, panel

BOTH = [{"round": [1, 2], "loss": [0.4, 0.2]}, {"round": [1, 2], "loss": [0.8, 0.2]}]


def test_a_line_is_the_mean_of_the_repeats_with_one_deviation_to_either_side():
    (line,) = panel("title", {"ours": BOTH}, "loss")["lines"]
    assert line["points"] == [[1, pytest.approx(0.6)], [2, pytest.approx(0.2)]]
    # The deviation of 0.4 and 0.8, divided by one less than there are repeats, is 0.2·√2.
    deviation = 0.2 * math.sqrt(2)
    assert line["spread"][0] == pytest.approx([0.6 - deviation, 0.6 + deviation], abs=1e-6)
    assert line["spread"][1] == [pytest.approx(0.2), pytest.approx(0.2)]


def test_on_a_logarithmic_axis_the_spread_goes_from_the_lowest_to_the_highest():
    (line,) = panel("title", {"ours": BOTH}, "loss", log_y=True)["lines"]
    assert line["spread"] == [[0.4, 0.8], [0.2, 0.2]]


def test_anchors_are_curves_drawn_thin_or_levels():
    made = panel("title", {"ours": BOTH}, "loss", anchors={"theirs": BOTH, "chance": 0.5})
    assert [(line["name"], line.get("anchor", False)) for line in made["lines"]] == [("ours", False), ("theirs", True)]
    assert made["anchors"] == {"chance": 0.5}
    chart = chart_of(made)
    assert "ours" in chart and "chance" in chart and "<script" not in chart
