"""result.html of a site: what its data lost, what it has for it, and the lines on which its owner signs."""

import json
from collections.abc import Sequence

from choral import __version__
from choral.privacy.display import up
from choral.record import SiteEnd
from choral.report import words
from choral.report.markup import Markup, element, together
from choral.report.pages import carried_data
from choral.report.parts import table
from choral.report.report_page import content_policy, static

FORMAT = 1  # of the data that the page carries


def site_page(end: SiteEnd) -> str:
    """One HTML document without scripts or network, which carries its figures as data, too."""
    style = "\n".join(static(name) for name in ("theme.css", "report.css"))
    head = together(
        element("meta", charset="utf-8"),
        content_policy(style),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"choral {__version__}"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{end.study}: result of {end.device}"),
        Markup(f"<style>{style}</style>"),
    )
    body = element("main", *_sections(end), data_claims=_data(end))
    return f"<!doctype html>\n{element('html', element('head', head), element('body', body), lang='en')}\n"


def differences(page: str, end: SiteEnd) -> list[str]:
    """The figures of a page that the site's home no longer gives, by name; a page without data has all of them."""
    shown = carried_data(page)
    claimed = shown[0] if len(shown) == 1 and isinstance(shown[0], dict) else {}
    expected = json.loads(_data(end))
    return sorted(name for name in expected.keys() | claimed.keys() if claimed.get(name) != expected.get(name))


def _data(end: SiteEnd) -> str:
    return json.dumps({"format": FORMAT, **end.to_dict()}, allow_nan=False, separators=(",", ":"))


def _sections(end: SiteEnd) -> list[Markup]:
    terms = (
        f"δ = {words.small(end.limit.delta)}, {end.spent.adjacency}, rules {', '.join(end.spent.rules) or 'none yet'}, "
        f"against {' and '.join(end.spent.adversaries)}"
    )
    return [
        element("p", f"choral {__version__} · approved {words.when(end.approved)}", class_="quiet"),
        element("h1", f"{end.study}: result of {end.device}"),
        element(
            "p",
            element("span", "PROVED, OF ALL STUDIES OF THIS LEDGER"),
            element("b", f"ε ≤ {up(end.reserved)}"),
            f"{terms}; the limit is ε = {end.limit.epsilon:g}",
            class_="headline",
        ),
        element(
            "p",
            f"This site took part with {end.table}. Its ledger paid for {words.count(end.paid, 'upload')} of this "
            f"study. The charges so far come to ε = {up(end.spent.epsilon)}. The proved figure also covers uploads "
            "that were reserved and never made. It therefore holds no matter who decided when to stop, or why.",
        ),
        *_sums(end),
        element("h2", "What this site has"),
        table(("what", "file in the home", "digest"), _belongings(end)),
        element("h2", "What remains to be done"),
        element("ul", *(element("li", item) for item in _left(end))),
        element("h2", "Decision"),
        element("p", *(element("span", choice, class_="choice") for choice in ("accepted", "not accepted"))),
        element(
            "div",
            *(
                element("div", element("span", name), class_="line")
                for name in ("name and role", "place and date", "signature")
            ),
            class_="signature",
        ),
        element("h2", "Check it again"),
        element(
            "p",
            element("code", "choral device result --check result.html"),
            " computes every figure of this page again from the home, and ends with 0 if all agree, else with 1.",
        ),
    ]


def _sums(end: SiteEnd) -> list[Markup]:
    sums = end.with_secure_sum
    if sums is None:
        return []
    limit = "" if sums.limit is None else f" Its limit is ε = {sums.limit:g}."
    return [
        element(
            "p",
            f"Against {sums.spent.adversary} the proved figure is ε ≤ {up(sums.reserved)}, as far as the secure sum "
            f"holds (δ = {words.small(sums.spent.delta)}, {sums.spent.adjacency}, "
            f"rules {', '.join(end.spent.rules) or 'none yet'}).{limit}",
        )
    ]


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
