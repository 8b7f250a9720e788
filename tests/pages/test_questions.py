"""Each question of docs/questions.md is answered in a section that is there and no longer than the page says."""

import re
from pathlib import Path

import pytest

from docs.hooks import check

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| (.+\?.*) \| .+ \| \[[^\]]+\]\(([\w-]+\.md)(?:#([\w-]+))?\) \| ([\d,]+) \|$", re.M)
ASKED = ROW.findall((DOCS / "questions.md").read_text())


def slug(heading):
    """The anchor of a heading, as the site makes it."""
    plain = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def section(page, anchor):
    """The text of a page, or of one section of it, without code and pictures."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", check.FENCE.sub("", (DOCS / page).read_text()))
    if not anchor:
        return text
    parts = re.split(r"^#{2,3} (.+)$", text, flags=re.M)
    return dict(zip(map(slug, parts[1::2]), parts[2::2], strict=True))[anchor]


def words(text):
    return len(re.findall(r"[\w’'-]*\w[\w’'-]*", re.sub(r"\]\([^)]*\)", "]", text)))


def test_an_officer_asks_six_questions_and_a_newcomer_ten():
    assert len(ASKED) == 16


@pytest.mark.parametrize(("question", "page", "anchor", "most"), ASKED, ids=[row[0] for row in ASKED])
def test_the_answer_stands_where_the_page_says_and_is_that_short(question, page, anchor, most):
    found = words(section(page, anchor))
    assert 20 < found <= int(most.replace(",", "")), question


def test_the_readme_links_to_every_page_that_has_an_answer():
    readme = (DOCS.parent / "README.md").read_text()
    assert [page for _, page, _, _ in ASKED if f"](docs/{page})" not in readme] == []
