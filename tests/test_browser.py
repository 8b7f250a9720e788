"""Without a browser the tests that look at pages are skipped, and say so; CI fails instead."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser import chromium

ROOT = Path(__file__).parent.parent


@pytest.fixture
def no_browser(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CHORAL_CHROMIUM", "CHORAL_CHROMEDRIVER", "CHORAL_REQUIRE_BROWSER"):
        monkeypatch.delenv(variable, raising=False)


def look(folder):
    with chromium(folder):
        raise AssertionError("a browser was found where there is none")


@pytest.mark.usefixtures("no_browser")
def test_without_a_browser_a_test_that_looks_at_pages_is_skipped_with_the_way_out(tmp_path):
    with pytest.raises(pytest.skip.Exception, match="no chromium on this machine: run `make browser`"):
        look(tmp_path)


@pytest.mark.usefixtures("no_browser")
def test_a_browser_without_its_driver_is_no_browser(monkeypatch, tmp_path):
    monkeypatch.setenv("CHORAL_CHROMIUM", "/bin/true")
    with pytest.raises(pytest.skip.Exception, match="no chromedriver on this machine"):
        look(tmp_path)


@pytest.mark.usefixtures("no_browser")
def test_where_a_browser_is_required_its_absence_is_a_failure(monkeypatch, tmp_path):
    monkeypatch.setenv("CHORAL_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no chromium on this machine"):
        look(tmp_path)


def make_that_notes(folder):
    """A `make` in this folder that writes its arguments and whether a browser is required, and fails for one target."""
    script = folder / "make"
    script.write_text(
        f'#!/bin/sh\necho "$* ${{CHORAL_REQUIRE_BROWSER:-0}}" >> {folder}/called\n[ "$1" != "$BROKEN" ]\n'
    )
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CHORAL_REQUIRE_BROWSER": "0"}


def test_ci_asks_for_a_browser_and_requires_it(tmp_path):
    environment = make_that_notes(tmp_path)
    assert subprocess.run([ROOT / ".ci/run"], env=environment).returncode == 0
    assert (tmp_path / "called").read_text().split("\n")[:-1] == ["check 0", "docs 0", "browser 0", "test 1"]


def test_ci_fails_where_no_browser_can_be_had(tmp_path):
    environment = make_that_notes(tmp_path) | {"BROKEN": "browser"}
    assert subprocess.run([ROOT / ".ci/run"], env=environment).returncode != 0
    assert "test" not in (tmp_path / "called").read_text()


@pytest.mark.skipif(not shutil.which("make"), reason="no make on this machine")
def test_make_test_installs_no_browser():
    shown = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0 and "pytest" in shown.stdout
    assert "apt-get" not in shown.stdout
