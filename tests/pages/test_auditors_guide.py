"""The auditors' guide names functions and tests that exist, each theorem of its pages, and each part of the core."""

import ast
import re
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/auditors-guide.md").read_text()
ROWS = [line.split("|")[1:-1] for line in GUIDE.splitlines() if re.match(r"\| .*`choral\..*:.*\| `tests/", line)]
# Sections of the two pages that say how something is done or shown, and claim nothing that a function computes.
NO_THEOREMS = {
    "accounting.md": {
        "Assumptions of all rules", "A record is read by itself", "Order of what is shown",
        "What the server does with a sum", "Against whom", "Sources",
    },
    "secure-sum.md": {
        "Messages", "Round", "Who lied", "What a device refuses", "Derivations", "Parameters", "Not covered", "Numbers",
        "Claims and arguments",
    },
}  # fmt: skip


@cache
def names_in(path):
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:40])
def test_every_function_and_every_test_of_a_row_exists(row):
    functions, tests = (re.findall(r"`([^`]+)`", cell) for cell in row[1:])
    assert functions and tests
    for function in functions:
        module, _, name = function.partition(":")
        assert callable(attrgetter(name)(import_module(module))), function
    for test in tests:
        path, _, name = test.partition("::")
        assert name in names_in(path), test


def test_every_file_and_module_that_the_guide_names_is_there():
    for path in re.findall(r"`((?:tests|tools)/[\w./]+)`", GUIDE):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"`(choral(?:\.\w+)+)`", GUIDE):
        import_module(module)


def test_the_order_has_every_module_of_the_core_that_proves_something():
    first = GUIDE.split("## The order")[1].split("\n## ")[0]
    others = {"messages", "signed", "errors", "printable", "display"}  # named below, or no proof
    core = {path.stem for path in (ROOT / "src/choral/core").glob("*.py")} - {"__init__"} - others
    assert core <= set(re.findall(r"`choral\.core\.(\w+)", first))


@pytest.mark.parametrize("page", NO_THEOREMS)
def test_every_section_that_proves_something_has_a_row(page):
    sections = re.findall(r"(?m)^##+ (.+)$", (ROOT / "docs" / page).read_text())
    anchors = {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-"): title for title in sections}
    named = set(re.findall(rf"{re.escape(page)}#([\w-]+)", "\n".join("|".join(row) for row in ROWS)))
    assert {title for anchor, title in anchors.items() if anchor not in named} == NO_THEOREMS[page]


def test_it_is_read_in_minutes():
    assert len(GUIDE.split()) <= 1500
