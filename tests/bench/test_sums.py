"""bench.sums: without the package that ships the patients, their figures are null and say why."""

import importlib.util

from bench import sums


def test_a_figure_whose_patients_are_not_installed_is_null_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    found = sums.measured(1, 1, ["km_sup_error", "km_coverage"])
    assert found["km_sup_error"] is None and "CH106" in found["km_sup_error_why"]
    assert found["km_coverage"] is None and "km_coverage null" in capsys.readouterr().err


def test_the_kinds_of_limit_count_the_noises_that_the_page_says():
    for kind, noises in (("lying", 4), ("sum", 8)):
        terms = sums.AskTerms.of(sums.flchain_job(kind, 1, 0), run="bench", devices=10)
        assert terms.price.noises == noises
