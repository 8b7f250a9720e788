"""Charts: values land where the axes say, and what is drawn is also said."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.report.charts import WIDTH, Axis, Series, alone, bar, line_chart, strip, ticks

SVG = "{http://www.w3.org/2000/svg}"


def chart(*series, x=None, y=None, **other):
    x, y = x or Axis(label="round"), y or Axis(label="accuracy")
    return ElementTree.fromstring(line_chart(series, title="t", summary="s", x=x, y=y, **other))


def test_points_stand_where_the_labels_of_their_values_stand():
    drawn = chart(Series(name="a", points=[(0, 0.0), (10, 0.4), (20, 1.0)]))
    places = [(float(c.get("cx")), float(c.get("cy"))) for c in drawn.iter(SVG + "circle")]
    middle = [t for t in drawn.iter(SVG + "text") if t.get("text-anchor") == "end"]
    height_of = {t.text: float(t.get("y")) - 4 for t in middle}  # a label's baseline is 4 below its tick
    assert [y for _, y in places] == pytest.approx([height_of["0"], height_of["0.4"], height_of["1"]], abs=0.02)
    across_of = {t.text: float(t.get("x")) for t in drawn.iter(SVG + "text") if t.get("text-anchor") == "middle"}
    assert [x for x, _ in places] == pytest.approx([across_of["0"], across_of["10"], across_of["20"]], abs=0.02)


def test_a_logarithmic_axis_gives_every_power_of_ten_the_same_room():
    points = [(10.0**-power, float(power)) for power in (3, 4, 5, 6)]
    drawn = chart(Series(name="a", points=points), x=Axis(label="δ", log=True))
    xs = [float(c.get("cx")) for c in drawn.iter(SVG + "circle")]
    gaps = [a - b for a, b in pairwise(xs)]
    assert gaps == pytest.approx([gaps[0]] * 3, abs=0.02)
    assert gaps[0] > 0


def test_a_spread_is_an_area_from_the_lowest_to_the_highest_values():
    drawn = chart(Series(name="a", points=[(0, 1), (1, 2)], spread=[(0, 2), (1, 3)]))
    area = next(p for p in drawn.iter(SVG + "path") if "spread" in p.get("class"))
    assert re.fullmatch(r"M[\d. ]+L[\d. ]+L[\d. ]+L[\d. ]+Z", area.get("d"))
    upper = float(re.findall(r"[\d.]+", area.get("d"))[1])
    first = float(next(drawn.iter(SVG + "circle")).get("cy"))
    assert upper < first  # SVG's y points down


def test_lines_differ_in_their_dashes_and_not_only_in_colour():
    drawn = chart(*(Series(name=name, points=[(0, n), (1, n)]) for n, name in enumerate("abcde")))
    dashes = {p.get("stroke-dasharray") for p in drawn.iter(SVG + "path") if "line" in p.get("class", "")}
    assert len(dashes) == 5


def test_anchors_are_thin_lines_without_a_colour_of_their_own_and_stand_last_in_the_legend():
    level = [Series(name=name, points=[(0, n), (1, n)], anchor=True) for n, name in enumerate("xyz")]
    drawn = chart(*level, Series(name="a", points=[(0, 5), (1, 6)]))
    anchors = [p for p in drawn.iter(SVG + "path") if p.get("class") == "anchor"]
    assert len(anchors) == 6  # each on the paper and in the legend
    assert len({p.get("stroke-dasharray") for p in anchors}) == 3
    assert [t.text for t in drawn.iter(SVG + "text")][:4] == ["a", "x", "y", "z"]
    assert len(list(drawn.iter(SVG + "circle"))) == 2


def test_labels_of_five_characters_leave_room_for_the_name_of_the_axis():
    drawn = chart(Series(name="a", points=[(0, 0.8441), (1, 0.8449)]))
    ticks_ = [t for t in drawn.iter(SVG + "text") if t.get("text-anchor") == "end"]
    turned = next(t for t in drawn.iter(SVG + "text") if t.get("transform"))
    widest = max(7.5 * len(t.text) for t in ticks_)  # of 12 pixels' text, a digit is at most 7.5 wide
    assert max(len(t.text) for t in ticks_) == 6
    assert float(ticks_[0].get("x")) - widest >= float(turned.get("x")) - 3  # the name's descenders end there


def test_a_logarithmic_axis_of_less_than_two_decades_ticks_at_one_two_and_five():
    assert ticks(0.25, 10, log=True) == (0.5, 1.0, 2.0, 5.0, 10.0)
    assert ticks(3, 4, log=True) == ()


def test_a_chart_says_what_it_shows_and_needs_no_other_file():
    drawn = chart(Series(name="a", points=[(0, 1), (1, 2)]))
    assert drawn.get("role") == "img"
    assert (drawn.findtext(SVG + "title"), drawn.findtext(SVG + "desc")) == ("t", "s")
    assert "href" not in ElementTree.tostring(drawn, encoding="unicode")


def test_a_chart_in_a_file_of_its_own_brings_its_colours():
    file = ElementTree.fromstring(alone(bar(0.3, title="x")))
    assert "--s0" in file.findtext(SVG + "style")


def test_nothing_to_draw_is_said_and_one_point_is_drawn():
    assert "nothing to draw" in line_chart([], title="t", summary="", x=Axis(label="x"), y=Axis(label="y"))
    assert len(list(chart(Series(name="a", points=[(1, 0.5)])).iter(SVG + "circle"))) == 1
    log = chart(Series(name="a", points=[(1e-5, 0.0)]), x=Axis(label="δ", log=True))
    assert len(list(log.iter(SVG + "circle"))) == 1


numbers = st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6)


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30), st.booleans())
def test_every_point_stays_on_the_paper(points, whole):
    drawn = chart(Series(name="a", points=points), x=Axis(label="x", whole=whole))
    for circle in drawn.iter(SVG + "circle"):
        assert 0 <= float(circle.get("cx")) <= WIDTH
        assert 0 <= float(circle.get("cy")) <= 230


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_inside(low, width):
    marks = ticks(low, low + width)
    assert 1 <= len(marks) <= 7
    assert all(low - 1e-6 * width <= mark <= low + width * (1 + 1e-6) for mark in marks)


def test_a_bar_shows_its_share_and_never_more_than_all():
    def filled(share):
        return [float(r.get("width")) for r in ElementTree.fromstring(bar(share, title="")).iter(SVG + "rect")][1]

    assert (filled(0.25), filled(1.7), filled(-1)) == (25.0, 100.0, 0.0)


def test_a_strip_draws_signs_up_and_down():
    up, down = ElementTree.fromstring(strip([2.0, -1.0], title="")).iter(SVG + "rect")
    assert (float(up.get("y")), float(up.get("height"))) == (2.0, 28.0)
    assert (float(down.get("y")), float(down.get("height"))) == (30.0, 14.0)


def test_bands_lie_under_all_lines_and_an_anchor_has_none():
    near = Series(name="a", points=[(0, 1), (1, 2)], spread=[(0, 2), (1, 3)])
    drawn = chart(near, near, Series(name="b", points=[(0, 1), (1, 2)], spread=[(-50, 50), (-50, 50)], anchor=True))
    classes = [path.get("class").split()[0] for path in drawn.iter(SVG + "path")]
    assert [one for one in classes if one in ("spread", "line", "anchor")] == [
        *("line", "line", "anchor"),  # the legend
        *("spread", "spread", "line", "line", "anchor"),
    ]
    assert "50" not in [text.text for text in drawn.iter(SVG + "text")]  # nor does its spread stretch the axis
