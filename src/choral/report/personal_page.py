"""The page of a site's personal model: three models side by side on its own rows; it stays in the site's home."""

from collections.abc import Mapping
from typing import Any

from choral.report import words
from choral.report.markup import Markup, element
from choral.report.parts import table
from choral.report.report_page import document

_MODELS = {
    "shared": "the shared model, which every site has",
    "alone": "a model of this site's rows alone",
    "personal": "this site's personal model",
}
_FIGURES = {"loss": "mean loss per row", "accuracy": "right answers", "rmse": "root mean squared error"}


def personal_page(made: Mapping[str, Any]) -> str:
    """One HTML document without scripts or network, from what `choral device personal --json` says."""
    return document(f"Personal model of {made['device']}", element("main", *_sections(made)))


def _sections(made: Mapping[str, Any]) -> list[Markup]:
    kappa = "infinite" if made["kappa"] is None else f"{made['kappa']:g}"
    return [
        element("p", element("strong", "NOT PRIVATE"), f" {made['not_private']}", class_="banner", role="note"),
        element("h1", f"Personal model of {made['device']}"),
        element(
            "p",
            f"Study: {made['study']}. Made from the shared model and {words.count(made['rows'], 'row')} of this site.",
        ),
        element("h2", "Whose model it is"),
        element(
            "p",
            element("b", made["words"]),
            f" (κ = {kappa}, proposed {made['proposed']:g}): {made['because']}.",
        ),
        element("h2", "On this site's own validation rows"),
        *_standings(made),
        element("h2", "What it costs"),
        element("p", "No ε: nothing of it leaves this site, and the ledger has no line about it."),
    ]


def _standings(made: Mapping[str, Any]) -> list[Markup]:
    found = made["standings"]
    if not found:
        return [element("p", "No validation rows were given, so nothing was compared.", class_="quiet")]
    figures = list(found["shared"])
    rows = [[_MODELS[name], *(f"{found[name][figure]:.4f}" for figure in figures)] for name in _MODELS]
    left_out = f" Rows that the run was trained on were left out: {made['repeated_rows']:,}." * bool(
        made["repeated_rows"]
    )
    note = (
        f"{words.count(made['validation_rows'], 'row')}.{left_out} For this comparison the models were fitted without "
        "them; κ was chosen on them, so the last line may flatter. "
        "The personal model itself was then fitted on all rows."
    )
    return [table(["model", *(_FIGURES[figure] for figure in figures)], rows), element("p", note, class_="quiet")]
