"""bench.sums: what the issue names is measured, and a figure whose table is missing is null and says why."""

import importlib.util
from pathlib import Path

import pandas
import pytest

from bench import sum_curves, sum_settings, sum_tables, sums
from bench.harness import NoFigureError
from bench.sum_tables import SumTable

ASKED_FOR = (
    "adult_additive_auc", "adult_logistic_auc", "km_sup_error", "km_coverage", "hazard_c_index", "bounds_accuracy"
)  # fmt: skip


def lives(rows=300):
    """Patients who all live on: enough to count noises by."""
    frame = pandas.DataFrame({"time": [5.0] * rows, "event": [0] * rows})
    columns = {"time": {"bounds": [0, 10]}}
    settings = {"label": "event", "classes": ["0", "1"], "columns": columns, "devices": 10, "cohort": 10}
    return SumTable(rows=frame, settings=settings, survival={"time": "time", "event": "event", "until": 10, "bins": 4})


def test_every_figure_that_was_asked_for_has_its_name():
    assert set(ASKED_FOR) <= set(sums.figures(1, 1, Path("nowhere")))


def test_a_figure_whose_table_is_missing_is_null_with_the_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    found = sums.measured(1, 1, ["km_sup_error", "km_coverage", "gusto_logistic_auc", "km_sup_error_brca"], tmp_path)
    assert found["km_sup_error"] is None and "CH106" in found["km_sup_error_why"]
    assert found["km_coverage"] is None and "km_coverage null" in capsys.readouterr().err
    assert "gusto.csv.xz" in found["gusto_logistic_auc_why"] and "brca.csv" in found["km_sup_error_brca_why"]


def test_a_package_that_is_missing_is_the_reason(monkeypatch):
    def missing(_code):
        raise NoFigureError("No module named SurvSet; see make bench-setup")

    monkeypatch.setattr(sum_tables, "packaged", missing)
    for table in (sum_tables.support2, sum_tables.dialysis, sum_tables.loans):
        with pytest.raises(NoFigureError, match="make bench-setup"):
            table()


def test_the_kinds_of_limit_count_the_noises_that_the_page_says():
    for kind, noises in (("lying", 4), ("sum", 8)):
        assert sum_settings.terms_of(lives(), kind).price.noises == noises


def test_a_figure_has_a_value_for_each_adversary_or_the_reason():
    def figure(kind):
        if kind == "everyone":
            raise NoFigureError("too much noise")
        return 0.5

    found = sum_settings.by_kind(figure)
    assert found == {"everyone": None, "everyone_why": "too much noise", "lying": 0.5, "sum": 0.5}


def test_coverage_counts_intervals_that_are_not_rough():
    with pytest.raises(NoFigureError, match="rough"):  # nobody dies, so every interval is
        sum_curves.coverage(lives(), 2, "sum")
