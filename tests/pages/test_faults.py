"""Each fault that must fail `make docs`, planted: links, code that no test runs, names and codes without a word."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.hooks import check

ROOT = Path(__file__).parents[2]


@pytest.fixture
def house(tmp_path):
    """What the site is built from."""
    for folder in ("docs", "examples", "lab", "src"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.xz"))
    (tmp_path / "tests").mkdir()
    for name in ("README.md", "mkdocs.yml", "tests/test_docs.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def add(path, text):
    with path.open("a") as file:
        file.write(text)


def build(house):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", "out"]
    return subprocess.run(command, cwd=house, capture_output=True, text=True)


def test_the_site_as_it_is_has_no_fault():
    assert check.faults(ROOT) == []


BLOCKS = {
    "a language that nothing runs": "```sh\nls\n```\n",
    "no language": "```\nls\n```\n",
    "a tilde fence": "~~~ruby\nputs 1\n~~~\n",
    "an indented block": "Text.\n\n    choral demo\n",
    "a command that passes for text": "```text\n$ choral demo\n```\n",
    "Python that passes for text": "```text\nimport choral\n```\n",
}


@pytest.mark.parametrize("fault", BLOCKS)
def test_code_that_no_test_runs_is_a_fault(fault, house):
    (house / "docs/decisions/9999-planted.md").write_text(f"# Planted\n\n{BLOCKS[fault]}")
    faults = check.unexecuted(house)
    assert len(faults) == 1 and "docs/decisions/9999-planted.md" in faults[0]


def test_lists_formulas_and_executed_blocks_are_no_fault(house):
    text = "- one\n\n    going on\n\n```text\na = b + c\n```\n\n```python\n1 + 1\n```\n"
    (house / "docs/planted.md").write_text(text)
    assert check.unexecuted(house) == []


def test_a_language_whose_test_is_gone_is_a_fault(house):
    tests = house / "tests/test_docs.py"
    tests.write_text(tests.read_text().replace("def run_toml", "def forgotten"))
    assert check.unexecuted(house) == ["tests/test_docs.py has no run_toml"]


NAMES = {
    "a function": ("def planted() -> int:\n    return 1\n", "choral.core.plan.planted"),
    "a class": ("class Planted:\n    x = 1\n", "choral.core.plan.Planted"),
    "a method": (
        'class Planted:\n    """One."""\n\n    def go(self) -> int:\n        return 1\n',
        "choral.core.plan.Planted.go",
    ),
}


@pytest.mark.parametrize("fault", NAMES)
def test_a_public_name_without_a_docstring_is_a_fault(fault, house):
    code, name = NAMES[fault]
    add(house / "src/choral/core/plan/__init__.py", f"\n\n{code}")
    assert check.undocumented(house) == [f"{name} has no docstring"]


def test_private_names_and_the_forms_of_a_protocol_need_none(house):
    add(house / "src/choral/core/plan/__init__.py", "\n\ndef _quiet() -> int:\n    return 1\n")
    add(house / "src/choral/core/plan/__init__.py", '\n\nclass Form:\n    """One."""\n\n    def go(self) -> int: ...\n')
    assert check.undocumented(house) == []


def test_a_name_of_the_front_door_that_is_nowhere_is_a_fault(house):
    door = house / "src/choral/__init__.py"
    door.write_text(door.read_text().replace('"fit": "choral.front"', '"fit": "choral.core.plan"'))
    assert check.undocumented(house) == ["choral.fit is public and defined nowhere"]


def test_a_code_that_nobody_explains_and_a_story_without_a_code_are_faults(house):
    errors = house / "src/choral/core/errors.py"
    errors.write_text(errors.read_text().replace('"CH100": ', '"CH199": "planted",\n    "CH100": '))
    add(house / "src/choral/errors.toml", '\n[CH999]\ncause = "Planted."\nway_out = "None."\n')
    assert check.unexplained(house) == [
        "CH199 (planted) is not explained in src/choral/errors.toml",
        "src/choral/errors.toml explains CH999, which is no code",
    ]


@pytest.mark.long
def test_the_build_itself_passes_on_what_is_here_and_fails_on_each_kind_of_fault(house):
    clean = build(house)
    assert clean.returncode == 0, clean.stderr
    made = [page.read_text() for page in (house / "out").rglob("*.html")]
    assert not any(part in page for page in made for part in ('src="http', 'href="http://fonts', "//cdn"))
    assert (house / "out/errors/CH401.html").exists() and (house / "out/reference/rooms/core.html").exists()
    assert ">LossyNetwork<" in (house / "out/overview.html").read_text()  # in the file that the page names, in colours
    assert (house / "out/paper/bounds-1.svg").exists()
    index = house / "docs/index.md"
    text = index.read_text()
    for planted, reported in (
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](ledger.md#nowhere)", "nowhere"),
        ("```sh\nls\n```", "which no test runs"),
    ):
        index.write_text(f"{text}\n\n{planted}\n")
        broken = build(house)
        assert broken.returncode != 0 and reported in broken.stderr + broken.stdout, planted
    index.write_text(text)
    add(house / "src/choral/core/plan/__init__.py", "\n\ndef planted() -> int:\n    return 1\n")
    broken = build(house)
    assert broken.returncode != 0 and "choral.core.plan.planted has no docstring" in broken.stderr + broken.stdout


def test_a_page_that_would_call_another_host_is_caught(tmp_path):
    (tmp_path / "good.html").write_text('<a href="https://flower.ai">Flower</a><script src="own.js"></script>')
    assert check.fetched(tmp_path) == []
    (tmp_path / "bad.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/a.css"><img src="//x.example/y">'
    )
    assert [fault.split(" ")[0] for fault in check.fetched(tmp_path)] == ["bad.html", "bad.html"]
