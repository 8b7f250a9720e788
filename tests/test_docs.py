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
from choral.plan import Budget
from choral.privacy.events import Gaussian
from choral.privacy.ledger import Charge, Ledger
from docs.hooks import check

ROOT = Path(__file__).parent.parent
PAGES = check.pages(ROOT)
MAKE = {"make demo": "choral demo"}  # what the targets run once .venv is set up


def blocks(language):
    return [
        pytest.param(text, id=f"{page.name}:{line}")
        for page in PAGES
        for line, written_in, text in check.blocks(page)
        if written_in == language
    ]


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


@pytest.mark.parametrize("code", blocks("bash"))
def test_a_bash_block_runs(code, elsewhere):
    with Ledger.open(elsewhere / "FILE", device="site-a", limit=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        ledger.charge(Charge(rule="S1", plan="9f3c…", round=1, attempt=0, event=Gaussian(mu=0.3)))
    good = subprocess.run(["bash", "-euc", code], cwd=elsewhere, capture_output=True, text=True)
    assert (good.returncode, good.stderr) == (0, "")
    assert "all lines fit" in good.stdout
    (elsewhere / "FILE").write_text((elsewhere / "FILE").read_text().replace("site-a", "site-b"))
    assert (
        "line 1 does not fit"
        in subprocess.run(["bash", "-c", code], cwd=elsewhere, capture_output=True, text=True).stdout
    )


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
    made = ("errors/", "reference/")  # pages that are made when the site is built; mkdocs checks the links to them
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            if not target.startswith(made) and not (page.parent / target).exists():
                missing.append(f"{page.name}: {target}")
    assert missing == []


def test_the_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
