"""Pictures of the documentation are those that the code draws, can be read by everybody, and stand where promised."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from choral import __version__
from docs.drawings import examples, screens
from docs.drawings.__main__ import PICTURES, drawn

ROOT = Path(__file__).parents[2]
DRAWN = drawn()
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)|<img\b[^>]*>")


def test_every_committed_drawing_is_what_the_code_draws():
    stale = [path.name for path, text in DRAWN.items() if not path.is_file() or path.read_text() != text]
    assert stale == [], "run: make pictures"


def test_no_drawing_is_left_that_no_code_draws():
    lying = {path for folder in (PICTURES, ROOT / "lab/paper") for path in folder.glob("*.svg")}
    assert lying == set(DRAWN)


@pytest.mark.parametrize("path", sorted(DRAWN), ids=lambda path: path.stem)
def test_a_drawing_says_in_words_what_it_shows_and_has_two_colour_schemes(path):
    tree = ElementTree.fromstring(DRAWN[path])
    assert tree.findtext("{*}title") and tree.findtext("{*}desc")
    assert "prefers-color-scheme: dark" in DRAWN[path]
    assert tree.get("viewBox").split()[2] == "420"  # text of 11 units is readable at 400 pixels


def test_the_run_in_the_pictures_is_one_of_this_version_of_choral():
    # A page shows the version at its top; the start page once showed 0.1.0 long after 0.2.0 was out.
    assert json.loads((PICTURES / "run/run.json").read_text())["choral"] == __version__


def test_the_screenshots_show_the_pages_that_the_code_makes_today():
    for name in ("report", "report-top", "live"):
        for scheme in ("light", "dark"):
            size = (PICTURES / f"{name}-{scheme}.webp").stat().st_size
            assert 10_000 < size < 400_000
    assert json.loads((PICTURES / screens.DIGESTS).read_text()) == screens.digests(), "run: make pictures"


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples/hospitals/README.md"]


def images(page):
    """(words for those who do not see it, file) of every image of a page."""
    for match in IMAGE.finditer(page.read_text()):
        if match.group(2):
            yield match.group(1), match.group(2)
        else:
            tag = match.group()
            yield (re.search(r'alt="([^"]*)"', tag) or [None, ""])[1], re.search(r'src="([^"]*)"', tag)[1]


def test_every_image_exists_and_has_a_text_for_those_who_do_not_see_it():
    for page in pages():
        for words, target in images(page):
            assert len(words.split()) >= 4, f"{page.name}: {target} says too little: {words!r}"
            assert (page.parent / target.partition("#")[0]).is_file(), f"{page.name}: {target}"


def test_every_svg_of_a_page_brings_its_own_ink_and_paper():
    """Without them, its text would be black on a dark page."""
    shown = {page.parent / target.partition("#")[0] for page in pages() for _, target in images(page)}
    texts = {path.name: path.read_text() for path in shown if path.suffix == ".svg"}
    assert len(texts) >= 20
    assert [name for name, text in texts.items() if "background: var(--paper)" not in text] == []


PROMISED = {
    "README.md": {"system.svg", "report-top-light.webp", "survival.svg"},
    "docs/index.md": {"system.svg", "report-top-light.webp"},
    "docs/tutorial.md": {"guesses.svg", "report-top-light.webp"},
    "docs/overview.md": {"round.svg", "sight.svg"},
    "docs/gallery.md": {f"example-{name}.svg" for name in examples.NAMES},
    "docs/glossary.md": {"guesses.svg", "rules.svg"},
    "docs/reading-the-report.md": {"report-light.webp", "report-dark.webp", "live-light.webp", "live-dark.webp"},
    "docs/signing.md": {"ledger.svg"},
    "docs/ledger.md": {"ledger.svg"},
    "docs/it-department.md": {"deployment.svg"},
    "docs/paper.md": {path.name for path in DRAWN if path.parent.name == "paper"},
}


@pytest.mark.parametrize("page", PROMISED)
def test_a_page_shows_the_pictures_that_were_promised(page):
    shown = {Path(target.partition("#")[0]).name for _, target in images(ROOT / page)}
    assert PROMISED[page] <= shown
