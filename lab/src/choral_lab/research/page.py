"""A page and a table of every figure in a folder that was measured so far, with what each says of its claims."""

import json
from collections.abc import Sequence
from pathlib import Path

from choral.report.charts import STYLE
from choral.report.markup import Markup, element, together
from choral.run.folder import write_whole
from choral_lab.research.panels import Panel, chart_of
from choral_lab.research.results import ResultsFile

_HEAD = ("claim", "verdict", "measured")
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


def write_page(out: str | Path, names: Sequence[str], *, title: str, about: str) -> Path:
    """index.html, which needs no network, and the claims as a table of Markdown in claims.md."""
    out = Path(out)
    results = [json.loads(path.read_text()) for name in names if (path := out / f"{name}.json").exists()]
    head = together(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        Markup(f"<style>{_PAGE}{STYLE}</style>"),
    )
    body = together(element("h1", title), element("p", about), *map(_section, results))
    page = f"<!doctype html>\n{element('html', element('head', head), element('body', body), lang='en')}\n"
    write_whole(out / "index.html", page.encode())
    claims = [claim for result in results for claim in result["claims"]]
    write_whole(out / "claims.md", f"{table(claims)}\n".encode())
    return out / "index.html"


def table(claims: Sequence[Sequence[str]]) -> str:
    """The claims as a table of Markdown.

    >>> print(table([["a", "holds", "1"]]))
    | claim | verdict | measured |
    |---|---|---|
    | a | holds | 1 |
    """
    rows = [f"| {' | '.join(row)} |" for row in (_HEAD, *claims)]
    return "\n".join([rows[0], "|---|---|---|", *rows[1:]])


def _section(result: ResultsFile) -> Markup:
    charts = element("div", *map(_figure, result["panels"]), class_="charts")
    about = f"{result['repeats']} repeats, seeds {result['seeds']}, choral {result['versions']['choral']}"
    quick = " (quick: fewer repeats and settings)" if result.get("quick") else ""
    head = element("tr", *(element("th", word) for word in _HEAD))
    rows = [element("tr", *(element("td", cell) for cell in claim)) for claim in result["claims"]]
    body = (charts, element("table", head, *rows), element("p", about + quick + "."))
    return element("section", element("h2", result["figure"]), *body)


def _figure(panel: Panel) -> Markup:
    return element("figure", element("figcaption", panel["title"]), chart_of(panel))
