"""index.html and claims.md: every figure that was measured so far, and what it says of the paper's claims."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from choral.paper.claims import table
from choral.paper.panels import chart_of
from choral.report.charts import STYLE
from choral.report.markup import Markup, element, together
from choral.run.folder import write_whole

SET_UP = (
    "UCI Adult on 16 devices, 10 of them a round, in balance. Lines are means over the repeats, bands one standard "
    "deviation to either side; on logarithmic axes they go from the lowest repeat to the highest."
)
ABOUT_EPSILON = (
    "Every ε is for one record replaced. “As published”, at δ = 1e-4, is the paper's own formula (Theorem 1) against "
    "a server that sees only sums, or, without the secure sum, every update; for several local steps under a secure "
    "sum it is not a guarantee. PROVED against everyone is Rule S5, against the server and all other devices together; "
    "PROVED with the secure sum is Rules S2 and S3, against a server that sees only sums, helped by 2 of the 10 "
    "devices. DP-FedAvg alone, Rule S4, is for one device replaced, against whoever sees the models."
)
_PAGE = """\
body { font: 15px/1.45 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  color: #16181d; background: #fff; }
.charts { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { flex: 1 1 22rem; max-width: 34rem; margin: 0; }
figcaption { font-weight: 600; margin-bottom: .4rem; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; }
tr { border-top: 1px solid #8885; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #16181d; } }
"""


def write_page(out: Path, names: Sequence[str]) -> Path:
    """The page of the figures in a folder, which needs no network, and their claims as a table of Markdown."""
    results = [json.loads((out / f"{name}.json").read_text()) for name in names]
    head = together(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "The paper, figure by figure"),
        Markup(f"<style>{_PAGE}{STYLE}</style>"),
    )
    body = together(
        element("h1", "The paper, figure by figure"), element("p", f"{SET_UP} {ABOUT_EPSILON}"), *map(_section, results)
    )
    page = f"<!doctype html>\n{element('html', element('head', head), element('body', body), lang='en')}\n"
    write_whole(out / "index.html", page.encode())
    claims = [claim for result in results for claim in result["claims"]]
    write_whole(out / "claims.md", f"{table(claims)}\n".encode())
    return out / "index.html"


def _section(result: Mapping[str, Any]) -> Markup:
    charts = element("div", *map(_figure, result["panels"]), class_="charts")
    about = f"{result['repeats']} repeats, seeds {result['seeds']}, choral {result['versions']['choral']}"
    quick = " (quick: fewer repeats and settings)" if result["quick"] else ""
    head = element("tr", *(element("th", word) for word in ("claim", "verdict", "measured")))
    rows = [element("tr", *(element("td", cell) for cell in claim)) for claim in result["claims"]]
    body = (charts, element("table", head, *rows), element("p", about + quick + "."))
    return element("section", element("h2", result["figure"]), *body)


def _figure(panel: Mapping[str, Any]) -> Markup:
    return element("figure", element("figcaption", panel["title"]), chart_of(panel))
