"""README and docs are executed, page by page from top to bottom: Python and bash run, a TOML block is the choral.toml
from there on, and console blocks give the output that they show.
"""

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from choral.config import parse
from docs.hooks import check

ROOT = Path(__file__).parent.parent
PAGES = check.pages(ROOT)
MAKE = {"make demo": "choral demo"}  # what the targets run once .venv is set up
NEEDS = {"own-torch.md": "torch", "own-equinox.md": "equinox"}  # pages that are run where the package is installed
# Pages that take longest, and whose means other pages and the tests of their modules use too.
SLOW = {"own-images.md", "own-model.md", "own-experiments.md", "own-audit.md", "own-equinox.md", "personal.md"}
PROGRAMS = {"choral": ("-m", "choral"), "python": ("-W", "error")}  # in a folder that also holds the examples


def run(*command, folder, **variables):
    reported = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=reported)


def run_python(code, folder):
    if ">>>" in code:
        test = doctest.DocTestParser().get_doctest(code, {}, "block", None, None)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0
        return
    done = run(sys.executable, "-W", "error", "-c", code, folder=folder)
    assert done.returncode == 0, done.stderr


def run_bash(code, folder):
    done = run("bash", "-euc", code, folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all lines fit" in done.stdout  # the one block there is checks a ledger


def run_toml(text, folder):
    assert parse(text)
    (folder / "choral.toml").write_text(text)


def shape_of(text):
    """The text without what differs from run to run: numbers, masked words, bars, and which device is full."""
    text = re.sub(r"^  device .*\n(  device .*\n)*", "  DEVICES\n", text, flags=re.M)
    text = re.sub(r"\b[0-9a-f]{8}\b", "WORD", text)
    text = re.sub(r"[▁▂▃▄▅▆▇█]+", "CURVE", text)
    return re.sub(r"[+-]?\d[\d.,e-]*", "N", text).strip()


def run_console(session, folder):
    parts = re.split(r"^\$ (.*)$", session, flags=re.M)[1:]
    for command, shown in zip(parts[::2], parts[1::2], strict=True):
        words = shlex.split(MAKE.get(command, command) if shown.strip() else command)
        if words[0] == "make":
            assert run(*words, "-n", folder=ROOT).returncode == 0, f"make knows no way to {command}"
            continue
        program = PROGRAMS.get(words[0])
        assert program, f"{command}: only choral, make and python are run"
        done = run(sys.executable, *program, *words[1:], folder=folder, COLUMNS="80", NO_COLOR="1")
        assert shape_of(done.stdout + done.stderr) == shape_of(shown)


RUN = {"bash": run_bash, "console": run_console, "python": run_python, "toml": run_toml}


EACH = [pytest.param(page, id=page.name, marks=pytest.mark.long if page.name in SLOW else ()) for page in PAGES]


@pytest.mark.parametrize("page", EACH)
def test_the_blocks_of_a_page_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name], reason=f"{NEEDS[page.name]} is not installed")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for line, language, text in check.blocks(page):
        if language != check.SHOWN:
            print(f"{page.name}:{line}")  # shown when it fails
            RUN[language](text, tmp_path)


def test_every_link_between_pages_leads_somewhere():
    missing = []
    made = ("errors/", "reference/")  # pages that are made when the site is built; mkdocs checks the links to them
    for page in [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"))]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            if not target.startswith(made) and not (page.parent / target).exists():
                missing.append(f"{page.name}: {target}")
    assert missing == []


def test_the_readme_shows_the_two_commands_and_is_short():
    text = (ROOT / "README.md").read_text()
    assert "$ make demo\n$ make test\n" in text
    assert len(text.splitlines()) <= 150


def test_the_readme_quotes_the_demo_as_the_site_shows_it():
    shown = (ROOT / "docs/demo.md").read_text()
    assert "```console\n$ make demo\nchoral " in shown
    accuracy = re.search(r"accuracy \S+ (\d\.\d+) ±.*\n  without privacy +(\S+)\n  alone.* (\S+)\n", shown)
    proved = re.search(r"PROVED +(ε = \S+) (against .*)\n +\((rule \S+, δ = \S+, one record replaced)\)", shown)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert all(figure in readme for figure in accuracy.groups())
    assert f"{proved[1]} ({proved[3]}, {proved[2]})" in readme
