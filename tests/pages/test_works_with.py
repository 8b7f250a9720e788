"""The table of what works with which model and rule is what the code does."""

import pytest

pytest.importorskip("torch", reason="the extra choral[torch] is not installed, and one column is about it")

from docs.hooks import works_where, works_with


def test_the_page_shows_what_the_engines_take_and_refuse():
    assert works_with.shown("works with") == works_with.table(), "run python -m docs.hooks.works_with"


def test_the_page_shows_what_rows_simulations_and_sites_read():
    pytest.importorskip("PIL", reason="the extra choral[images] is not installed")
    assert works_with.shown("works where") == works_where.table(), "run python -m docs.hooks.works_with"
