"""README and docs are executed: Python blocks run, TOML blocks parse, console blocks give the output that they show."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from choral.config import parse

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
MAKE = {"make demo": "choral demo"}  # what the targets run once .venv is set up


def blocks(language):
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match.group(1) == language:
                line = text[: match.start()].count("\n") + 2
                found.append(pytest.param(match.group(2), id=f"{page.name}:{line}"))
    return found


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("code", blocks("python"))
def test_a_python_block_runs(code, elsewhere):
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, {}, "block", None, None)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0
        return
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=elsewhere, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", blocks("toml"))
def test_a_toml_block_is_a_job(text):
    assert parse(text)


def shape_of(text):
    """The text without what differs from run to run: numbers, masked words, bars, and which device is full."""
    text = re.sub(r"^  device .*\n(  device .*\n)*", "  DEVICES\n", text, flags=re.M)
    text = re.sub(r"\b[0-9a-f]{8}\b", "WORD", text)
    text = re.sub(r"[▁▂▃▄▅▆▇█]+", "CURVE", text)
    return re.sub(r"[+-]?\d[\d.,e-]*", "N", text).strip()


@pytest.mark.parametrize("session", blocks("console"))
def test_a_console_block_prints_what_it_shows(session, elsewhere):
    parts = re.split(r"^\$ (.*)$", session, flags=re.M)[1:]
    for command, shown in zip(parts[::2], parts[1::2], strict=True):
        words = shlex.split(MAKE.get(command, command))
        if words[0] == "make":
            done = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, f"make knows no way to {command}"
            continue
        assert words[0] == "choral", f"{command}: only choral and make are run"
        done = subprocess.run(
            [sys.executable, "-m", "choral", *words[1:]],
            cwd=elsewhere,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        )
        assert shape_of(done.stdout + done.stderr) == shape_of(shown)


def test_every_link_between_pages_leads_somewhere():
    missing = []
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs/decisions").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            if not (page.parent / target).exists():
                missing.append(f"{page.name}: {target}")
    assert missing == []


def test_the_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
