"""Answers as charts and tables: curves with both bands, effects by column, and what has no curve in rows."""

import pytest

from choral.asking.answer import Answer
from choral.core.errors import ConfigError
from choral.report.questions import MOST_ROWS, drawn, plot, shown


def survival(*arms):
    return Answer(
        rows=[
            {
                **({"arm": arm} if arm else {}), "time": time, "estimate": alive, "low": alive - 0.1,
                "high": alive + 0.05, "sampling_low": alive - 0.02, "sampling_high": alive + 0.02,
            }
            for arm in arms
            for time, alive in ((10.0, 0.9), (20.0, 0.7))
        ],
        test={"statistic": 4.2, "p": 0.04},
    )  # fmt: skip


def test_a_survival_curve_has_a_line_and_two_bands_for_each_arm():
    (chart,) = drawn("km", survival("old", "new"))
    assert chart.count('class="spread') == 4 and chart.count('class="line') == 4  # two in the legend
    assert "old 0.700 at 20; new 0.700 at 20" in chart
    assert "all rows" in drawn("km", survival(""))[0]
    assert "statistic 4.2, p 0.04" in shown("km", survival("old", "new"))


def test_an_additive_model_has_a_chart_for_each_number(tmp_path):
    effects = [
        {"column": name, "cell": f"[{at}, {at + 1})", "value": at + 0.5, "estimate": 0.1 * at, "low": -1.0, "high": 1.0}
        for name in ("age", "cost")
        for at in range(3)
    ]
    effects.append({"column": "smoker", "cell": "yes", "estimate": 0.3, "low": 0.1, "high": 0.5})
    assert len(drawn("additive", Answer(rows=effects))) == 2
    assert plot("additive", Answer(rows=effects), tmp_path / "shape.svg").exists()
    assert "Effect of cost" in (tmp_path / "shape-2.svg").read_text()


def test_what_has_no_curve_is_a_table_that_says_how_many_rows_it_leaves_out():
    rows = [{"smoker": f"level {number}", "estimate": 1.0, "low": 0.0, "high": 2.0} for number in range(MOST_ROWS + 3)]
    page = shown("table", Answer(rows=rows, sentences=("About these rows.",)))
    assert "level 3" in page and "<svg" not in page and "About these rows. 3 more rows" in page
    with pytest.raises(ConfigError, match="CH104"):
        plot("table", Answer(rows=rows), "nowhere.svg")
