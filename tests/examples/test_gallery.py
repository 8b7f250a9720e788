"""The examples of the gallery are short, run, and find what the gallery's pictures show."""

import json
from pathlib import Path

import pytest

from docs.drawings import examples

ROOT = Path(__file__).parents[2]
SHOWN = json.loads(examples.FOUND.read_text())


@pytest.mark.parametrize("name", examples.NAMES)
def test_an_example_has_fewer_than_60_lines_and_is_shown_on_the_page(name):
    assert len((ROOT / f"examples/gallery/{name}.py").read_text().splitlines()) < 60
    page = (ROOT / "docs/gallery.md").read_text()
    assert f"<!-- file: examples/gallery/{name}.py -->" in page and f"pictures/example-{name}.svg" in page


@pytest.mark.parametrize(
    "name", ["bank", "survival", *(pytest.param(name, marks=pytest.mark.long) for name in ("fleet", "images", "sweep"))]
)
def test_an_example_finds_what_its_picture_shows(name):
    now, shown = examples.found(name), SHOWN[name]
    assert now["claim"] == shown["claim"]
    for line, points in shown["lines"].items():
        (_, last), (_, then) = now["lines"][line][-1], points[-1]
        assert last == pytest.approx(then, abs=0.02)  # the seed is the same; machines differ in the last bits
