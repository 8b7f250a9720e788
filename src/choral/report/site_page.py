"""result.html of a site: what was proved of the run, what its ledger says, and the lines on which its owner signs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from choral.accounting.words import up
from choral.record import SiteEnd
from choral.report import words
from choral.report.markup import Markup, element, table
from choral.report.pages import (
    carried_data,
    form_of,
    impossible,
    never_written,
    strange_figures,
    strange_terms,
    words_of,
    writer_of,
)
from choral.report.report_page import document, guesses, headline, to_sign, uncovered
from choral.report.signed import Note
from choral.report.words import WRITER

FORMAT = 2  # of the data that the page carries
# What pages of format 1 carried; those of versions up to 0.2 are compared by it.
_FIRST = (
    "device", "study", "study_digest", "safety_number", "run", "approved", "table", "paid", "record", "model", "ledger",
    "limit", "reserved", "spent", "with_secure_sum",
)  # fmt: skip
_LONGEST = 60  # characters of a text that is shown where a page differs


def site_page(end: SiteEnd) -> str:
    """One HTML document without scripts or network, which carries its figures as data, too."""
    title = f"{end.study}: result of {end.device}"
    return document(title, element("main", *_sections(end, title), data_claims=_data(end)))


def differences(page: str, end: SiteEnd) -> list[str]:
    """Where a page is not the one that the site's home gives now: figures by name, else the first text that differs.

    A page of this version must be the same in every character. One of an earlier version has other words, if that
    version knew such studies at all: its figures are compared, and a note says so.
    """
    shown = carried_data(page)
    claimed = shown[0] if len(shown) == 1 and isinstance(shown[0], dict) else {}
    expected, again = json.loads(_data(end)), site_page(end)
    writer = writer_of(page)
    earlier = writer != WRITER
    if earlier and (why := impossible(writer, form=end.pages)):
        return [f"its version: choral {writer} {why}"]
    if form_of(writer) == 1:
        expected = {"format": 1, **{name: expected[name] for name in _FIRST if name in expected}}
    wrong = sorted(name for name in expected.keys() | claimed.keys() if claimed.get(name) != expected.get(name))
    if wrong or page == again:
        return wrong
    if not earlier:
        return [_first_difference(words_of(page), words_of(again))]
    if figures := strange_figures(page, again):
        return [f"an ε of {figures[0]}"]
    if terms := strange_terms(page, again):
        return [f"the term {terms[0][:_LONGEST]!r}"]
    if odd := never_written(page, again):
        return [f"{odd}, as no version of choral writes it"]
    return [Note(f"choral {writer} wrote the page: its figures agree, and its words were not compared")]


def _first_difference(there: Sequence[str], again: Sequence[str]) -> str:
    for one, other in zip([*there, ""], [*again, ""], strict=False):
        if one != other:
            here, shown = (text.replace("\xa0", " ")[:_LONGEST] for text in (other, one))
            return f"the text {shown!r}, where the home gives {here!r}"
    return "what stands between its texts"


def _data(end: SiteEnd) -> str:
    return json.dumps({"format": FORMAT, **end.to_dict()}, allow_nan=False, separators=(",", ":"))


def _sections(end: SiteEnd, title: str) -> list[Markup]:
    return [
        element("p", f"choral {WRITER} · approved {words.when(end.approved)}", class_="quiet"),
        element("h1", title),
        *_claim(end),
        element("h2", "Which figure is which"),
        table(("ε", "of what", "when it holds"), _figures(end)),
        element("p", _ledger_terms(end), class_="quiet"),
        element("h2", "Decision"),
        to_sign(
            element(
                "p",
                "The site's officer signs, and confirms: \u201cI have read this page and what it does not cover, "
                "and choral device result --check ended with 0.\u201d",
            )
        ),
        element("h2", "What it does not cover"),
        uncovered(end.plan, None if end.privacy.none else end.privacy),
        element("h2", "Who took part, and with what"),
        table(("what", "at this site"), _parts(end)),
        element("h2", "What this site has"),
        table(("what", "file in the home", "digest"), _belongings(end)),
        element("h2", "What remains to be done"),
        element("ul", *(element("li", item) for item in _left(end))),
        element("h2", "Check it again"),
        element(
            "p",
            element("code", "choral device result --check result.html"),
            " computes this page again from the home, compares every word of it, and ends with 0 if all agree, else "
            "with 1.",
        ),
    ]


def _claim(end: SiteEnd) -> list[Markup]:
    """The ε of the run, its terms, what it means in plain words, and the picture; or that nothing is protected."""
    if (nothing := end.privacy.none) is not None:
        return [element("p", f"{nothing[0].upper()}{nothing[1:]}.", class_="banner", role="note")]
    claims = words.claims_of(end.privacy)
    first = words.leading_of(claims, end.against)
    sentences = (
        words.promised(end.plan, first, claims[0], predictable=False),
        words.in_guesses(end.plan, first, predictable=False),
        "This is the proved ε of the run, for the record of any site. The coordinator's report has the same figure; "
        "it is smaller there if the run ended early, and larger if attempts failed at other sites.",
    )
    return [
        element(
            "div",
            element("div", headline("PROVED, OF THIS RUN", first), *(element("p", sentence) for sentence in sentences)),
            guesses(end.plan, first, predictable=False),
            class_="statement",
        )
    ]


def _figures(end: SiteEnd) -> list[Sequence[str]]:
    """Each ε that is about this site, with what it is the figure of; only the first is that of the run."""
    rows: list[Sequence[str]] = []
    if end.privacy.none is None:
        first = words.leading_of(words.claims_of(end.privacy), end.against)
        rows.append((first.figure, "this run, by the public numbers of its plan", "always: the plan was fixed before"))
    rows += [
        (
            f"ε ≤ {up(end.reserved)}",
            f"this site's ledger: all that its studies have reserved, of the limit ε = {end.limit.epsilon:g}",
            "always, for this site's own rows; it has room for attempts that fail",
        ),
        (
            f"ε ≤ {up(end.spent.epsilon)}",
            "this site's ledger: the uploads that were made so far",
            "if nobody chose by looking at results when to stop",
        ),
    ]
    if (sums := end.with_secure_sum) is not None:
        limit = "" if sums.limit is None else f", of the limit ε = {sums.limit:g}"
        rows.append(
            (
                f"ε ≤ {up(sums.reserved)}",
                f"this site's ledger: all that its studies have reserved{limit}",
                f"against {sums.spent.adversary}, as far as the secure sum holds",
            )
        )
    return rows


def _ledger_terms(end: SiteEnd) -> str:
    return (
        f"Of the ledger: δ = {words.small(end.limit.delta)}, {end.spent.adjacency}, "
        f"rules {', '.join(end.spent.rules) or 'none yet'}, against {' and '.join(end.spent.adversaries)}. "
        f"It paid for {words.count(end.paid, 'upload')} of this study."
    )


def _parts(end: SiteEnd) -> Sequence[Sequence[str]]:
    least = "" if end.rows_known else "at least "
    return (
        ("parties", f"{', '.join(end.parties)}; the server at {end.server}"),
        ("table", f"{end.table}, with {least}{words.count(end.rows, end.plan.protects.counted)} that were trained on"),
        ("columns that were read", f"{', '.join(end.columns) or 'arrays'}; predicted: {end.label}"),
        ("study", end.safety_number),
    )


def _belongings(end: SiteEnd) -> Sequence[Sequence[str]]:
    return (
        ("the final model", f"models/{end.run}.safetensors", f"{end.model[:16]}…"),
        ("the receipt of its signature", f"receipts/{end.run}.json", f"{end.record[:16]}…"),
        ("its ledger, which goes on counting", "ledger", f"{end.ledger[:16]}…"),
    )


def _left(end: SiteEnd) -> Sequence[str]:
    return (
        f"Keep the ledger's receipt in another place: {end.ledger}. It shows if the ledger is ever cut or put back.",
        f"Compare the study's number with what choral verify prints for the coordinator's run: {end.safety_number}.",
        "A model near the shared one, fitted to this site's rows, is made by choral device personal; it stays here.",
    )


_MODELS = {
    "shared": "the shared model, which every site has",
    "alone": "a model of this site's rows alone",
    "personal": "this site's personal model",
}
_FIGURES = {"loss": "mean loss per row", "accuracy": "right answers", "rmse": "root mean squared error"}


def personal_page(made: Mapping[str, Any]) -> str:
    """One HTML document without scripts or network, from what `choral device personal --json` says."""
    return document(f"Personal model of {made['device']}", element("main", *_personal_sections(made)))


def _personal_sections(made: Mapping[str, Any]) -> list[Markup]:
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
