"""Every module has a test file of its name, or one that calls it directly, or a reason why neither is needed."""

import ast
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Each package with its tests: the product, and the lab next to it.
HOUSES = {ROOT / "src" / "choral": ROOT / "tests", ROOT / "lab" / "src" / "choral_lab": ROOT / "lab" / "tests"}

# Modules that no test imports, and what does test them.
EXEMPT = {
    "choral.cli.": "verbs are tested by the words that people type: tests/cli, tests/report/test_verbs.py and others",
    "choral.planner.": "tests/test_planner.py asks the room by its one front door",
    "choral.backends.flower.enclosed": "a process, started in tests/backends/test_flower_strangers.py",
    "choral.learning.batches.": "tests/learning/test_batches.py asks the room by its one front door, drawer_of",
    "choral.learning.models.": "tests/learning/test_models.py asks the room by its front door",
}


def modules():
    """The name of every module, with where a test file of its name would be."""
    for source, tests in HOUSES.items():
        for file in sorted(source.rglob("*.py")):
            if file.stem not in ("__init__", "__main__"):
                name = ".".join(file.relative_to(source.parent).with_suffix("").parts)
                yield name, has_a_file_of_its_name(tests, file.relative_to(source).with_suffix("").parts)


def has_a_file_of_its_name(tests, parts):
    """As tests/protocol/test_bonds.py for choral.core.terms; deeper names are joined, as test_flower_gate.py."""
    room, rest = (parts[:1], parts[1:]) if len(parts) > 1 else ((), parts)
    return tests.joinpath(*room, f"test_{'_'.join(rest)}.py").exists()


@cache
def called_directly():
    """All that tests import from choral, by its full name."""
    called = set()
    for file in chain.from_iterable(tests.rglob("*.py") for tests in HOUSES.values()):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                called |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
            elif isinstance(node, ast.Import):
                called |= {name.name for name in node.names}
    return called


def test_every_module_has_its_tests_or_a_reason_why_they_are_elsewhere():
    called, groups = called_directly(), tuple(name for name in EXEMPT if name.endswith("."))
    untested = [
        name
        for name, mirrored in modules()
        if name not in called and not mirrored and name not in EXEMPT and not name.startswith(groups)
    ]
    assert untested == [], "write a test file of that name, or say in EXEMPT what tests it"


def test_every_reason_is_still_needed():
    called = called_directly()
    lacking = [name for name, mirrored in modules() if name not in called and not mirrored]
    unneeded = [
        reason
        for reason in EXEMPT
        if not any(name == reason or (reason.endswith(".") and name.startswith(reason)) for name in lacking)
    ]
    assert unneeded == [], "these modules have their tests by now: take the reason out"
