"""Every planted bug must make its named test fail; without it, the same test must pass."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS as FIRST
from tests.mutants.edges import EDGES
from tests.mutants.lists import LISTS
from tests.mutants.planting import planted
from tests.mutants.reviewed import FINDINGS, LOCK, REVIEWED

ROOT = Path(__file__).parents[2]
SOURCES = {"choral": ROOT / "src", "choral_lab": ROOT / "lab" / "src"}
MUTANTS = [*FIRST, *REVIEWED, *LISTS, *EDGES]
NO_TORCH = find_spec("torch") is None


def copy_of_source(folder):
    for package, source in SOURCES.items():
        shutil.copytree(source / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(source, tests):
    """The exit status of pytest over these tests with this source: 0 all passed, 1 some failed."""
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not long",
        "-o", f"pythonpath={source} lab .", *tests,
    ]  # fmt: skip
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYTEST"))}
    done = subprocess.run(
        command, cwd=ROOT, env={**clean, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


def test_there_are_at_least_25_bugs_each_with_its_own_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_can_still_be_planted_and_its_catcher_is_there(mutant):
    package = mutant.changes[0].function.partition(".")[0]
    for file, text in planted(SOURCES[package], mutant.changes).items():
        compile(text, file, "exec")
    assert is_there(mutant.caught_by)


def is_there(test):
    path, _, name = test.partition("::")
    return f"def {name}(" in (ROOT / path).read_text()


def test_everything_that_the_reviews_found_has_a_planted_bug_and_a_test():
    assert list(FINDINGS) == [f"N{number}" for number in range(1, 10)] + [f"P{number}" for number in range(1, 12)]
    planted_here = {mutant.name for mutant in MUTANTS}
    named = [name for _, bugs in FINDINGS.values() for name in bugs]
    assert set(named) <= planted_here and {mutant.name for mutant in REVIEWED} <= set(named)
    assert [item for item, (_, bugs) in FINDINGS.items() if not bugs] == ["P10"] and is_there(LOCK)


def test_every_bug_is_in_the_table_of_the_docs():
    page = (ROOT / "docs" / "audit.md").read_text()
    for mutant in MUTANTS:
        assert f"| {mutant.name} | `{mutant.caught_by.partition('::')[2]}` |" in page


def is_skipped(mutant):
    """Whether its catcher runs on the extra choral[torch] alone, which is not here."""
    return NO_TORCH and "/test_torch_" in mutant.caught_by


@pytest.mark.long
def test_every_catcher_passes_without_a_bug(tmp_path):
    catchers = {mutant.caught_by for mutant in MUTANTS if not is_skipped(mutant)}
    status, said = run(copy_of_source(tmp_path), sorted(catchers))
    assert status == 0, said


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_caught(mutant, tmp_path):
    if is_skipped(mutant):
        pytest.skip("the extra choral[torch] is not installed")
    source = copy_of_source(tmp_path)
    for file, text in planted(source, mutant.changes).items():
        file.write_text(text)
    status, said = run(source, [mutant.caught_by])
    assert status == 1, said
    assert "failed" in said and "error during collection" not in said
