"""The page of all figures that were measured so far: claims as a table, text escaped, no network."""

import json

from choral_lab.research.page import table, write_page
from choral_lab.research.panels import panel

CURVES = [{"round": [1, 2], "loss": [0.5, 0.25]}]


def result(name, verdict):
    return {
        "figure": name, "claims": [["<b>ours</b> is better", verdict, "0.01"]],
        "panels": [panel("t", {"a": CURVES}, "loss")],
        "repeats": 2, "seeds": [0, 1], "versions": {"choral": "0.2.0"}, "quick": True,
    }  # fmt: skip


def test_a_page_shows_what_was_measured_and_passes_over_what_was_not(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(result("one", "holds")))
    path = write_page(tmp_path, ["one", "two"], title="Figures", about="of a paper")
    page = path.read_text()
    assert path.name == "index.html" and page.count("<svg") == 1
    assert "&lt;b&gt;ours&lt;/b&gt; is better" in page and "<b>ours" not in page
    assert "2 repeats, seeds [0, 1], choral 0.2.0 (quick" in page
    assert "<script" not in page and "http-equiv" not in page and "src=" not in page
    assert (tmp_path / "claims.md").read_text().splitlines()[2:] == ["| <b>ours</b> is better | holds | 0.01 |"]


def test_a_table_without_claims_is_its_head():
    assert table([]) == "| claim | verdict | measured |\n|---|---|---|"
