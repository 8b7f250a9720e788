"""The counts that show how open the seams are, on a sample that was counted by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import seams

ROOT = Path(__file__).parents[1]
FRONT = """
__all__ = ["Result", "run", "__version__"]
_ROOM_OF = {"Result": "choral.work", "run": "choral.work"}
"""
WORK = '''"""The law is one of two."""
from typing import Any

def run(settings: dict[str, Any], *more: dict[str, Any], law: str = "a", kind: str = "b") -> dict[str, Any]:
    if law == "a" or kind != "b":                 # one line, counted for the law
        return {}
    if settings["kind"] == "deployment":          # the syntax tree sees it, the pattern does not
        return {}
    if law is None or settings.get("mode") == 3:  # as above, once: None is no variant
        return {}
    return {} if kind in ("x", "y") else settings

def _hidden(values: dict[str, Any]) -> None:
    match values["rule"]:
        case "S1":
            kept: dict[str, Any] = {}

class Result:
    privacy: dict[str, Any]
    _kept: dict[str, Any]

    def read(self, sampling: str) -> bool:
        return sampling in {"poisson"}
'''
OTHER = "class Result:\n    pass\n\n\nclass Once:\n    pass\n"


@pytest.fixture
def sample(tmp_path):
    files = {"__init__.py": FRONT, "work.py": WORK, "room/__init__.py": "", "room/work.py": OTHER, "room/alone.py": ""}
    for name, text in files.items():
        path = tmp_path / "choral" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return seams.count(tmp_path)


def test_a_line_that_compares_a_variant_is_counted_once_for_the_first_that_it_names(sample):
    assert {name: count for name, count in sample.comparisons_of.items() if count} == {
        "law": 1,
        "kind": 1,
        "sampling": 1,
    }
    assert sample.comparisons == 3


def test_the_syntax_tree_finds_every_comparison_and_match_and_leaves_none_and_docstrings_out(sample):
    # law == "a", kind != "b", settings["kind"] ==, .get("mode") ==, kind in, match, sampling in
    assert sample.switches == 7


def test_untyped_dicts_are_counted_in_all_in_signatures_and_in_what_is_public(sample):
    assert (sample.untyped, sample.untyped_in_signatures, sample.untyped_in_public_signatures) == (7, 4, 4)


def test_names_that_two_classes_or_modules_share_are_reported_with_their_files(sample):
    both = ["choral/room/work.py", "choral/work.py"]
    assert sample.classes_twice == {"Result": both}
    assert sample.modules_twice == {"work": both}
    assert sample.modules == 5
    assert sample.lines == sum(len(text.splitlines()) for text in (FRONT, WORK, OTHER))


def test_the_table_has_a_column_for_each_revision(sample):
    lines = seams.table({"v1": sample, ".": sample}).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["", "v1", "now"]
    assert [cell.strip() for cell in lines[3].split("|")[1:-1]] == ["modules", "5", "5"]
    assert lines[-1] == "now, modules used twice: work"


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "tools.seams", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def counted():
    return json.loads(run("--json").stdout)["."]


def test_the_seams_of_the_working_tree_stay_open(counted):
    """The limits of the plan: 25 lines compare a variant (there were 168), 20 signatures have an untyped dict (151)."""
    assert counted["comparisons"] <= 25, "ask a value instead, as plan.protects or plan.mechanism"
    assert counted["untyped_in_signatures"] <= 20
    assert counted["untyped_in_public_signatures"] == 0
    assert counted["classes_twice"] == {}
    assert set(counted["modules_twice"]) == set(seams.SHARED), "another name, or a reason in SHARED that still holds"


def test_the_working_tree_is_counted_from_the_command_line(counted):
    assert counted["modules"] == len(list((ROOT / "src").rglob("*.py")))
    assert counted["comparisons"] == sum(counted["comparisons_of"].values())


def test_a_revision_that_git_does_not_know_is_refused_in_one_line():
    done = run("no-such-revision")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no repository here, only its files")
def test_a_revision_is_counted_from_what_git_holds():
    counted = json.loads(run("HEAD", "--json").stdout)["HEAD"]
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "src"], cwd=ROOT, capture_output=True, text=True
    )
    assert counted["modules"] == sum(name.endswith(".py") for name in listed.stdout.splitlines())
