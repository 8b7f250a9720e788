"""The page of a site's personal model."""

from choral.report.site_page import personal_page

TOLD = {
    "device": "hill", "study": "hearts", "proposed": 0.1, "kappa": 0.3, "words": "mostly ours", "because": "it gains",
    "rows": 80, "validation_rows": 40, "repeated_rows": 0, "not_private": "This model is not private.",
    "standings": {name: {"loss": loss, "accuracy": 0.75} for name, loss in (("shared", 0.7), ("alone", 0.6),
                                                                            ("personal", 0.5123))},
}  # fmt: skip


def test_it_shows_three_models_the_kappa_in_words_and_that_it_is_not_private():
    page = personal_page(TOLD)
    assert "mostly ours" in page and "κ = 0.3" in page and "0.5123" in page and "NOT PRIVATE" in page
    assert page.count("<tr>") == 4  # a head and three models
    assert "No ε" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")


def test_without_validation_rows_it_says_so_and_a_site_alone_has_an_infinite_kappa():
    page = personal_page({**TOLD, "standings": {}, "kappa": None, "words": "ours alone"})
    assert "nothing was compared" in page and "κ = infinite" in page and "<table" not in page


def test_rows_that_were_left_out_are_counted():
    assert "Rows that the run was trained on were left out: 12." in personal_page({**TOLD, "repeated_rows": 12})


def test_no_name_becomes_markup():
    page = personal_page({**TOLD, "device": "<b>x</b>", "study": "\u202eevil"})
    assert "<b>x" not in page and "\u202e" not in page
