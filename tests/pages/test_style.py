"""What people read keeps to the word list of CONTRIBUTING.md, and help texts fit a terminal of 80 columns."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from choral.cli import VERBS, main
from docs.hooks.style import faults

ROOT = Path(__file__).parents[2]
# What may use the words, and why. An entry that has become clean must be taken out.
WAIVED = {
    "docs/hooks/style.py",  # it is the list
    "docs/paper.md",  # it quotes claims as a run of choral printed them
}


def read_by_people():
    """Every page, example and source, by its place in the repository."""
    folders = ("docs/**/*.py", "docs/*.toml", "examples/**/*.py", "examples/**/*.toml", "src/choral/**/*.py")
    pages = ("*.md", "docs/**/*.md", "examples/**/*.md", "lab/*.md", "lab/bench/*.md")
    for pattern in (*pages, *folders, "lab/src/**/*.py", "lab/bench/**/*.py"):
        for path in sorted(ROOT.glob(pattern)):
            yield path.relative_to(ROOT)


def waived(path):
    return next(
        (entry for entry in WAIVED if path.as_posix() == entry or path.as_posix().startswith(f"{entry}/")), None
    )


def test_the_word_list_is_kept():
    found = [
        f"{path}:{fault}"
        for path in read_by_people()
        if not waived(path)
        for fault in faults((ROOT / path).read_text())
    ]
    assert found == [], "\n".join(found)


def test_what_has_become_clean_is_no_longer_waived():
    needed = {waived(path) for path in read_by_people() if faults((ROOT / path).read_text())}
    assert needed >= WAIVED


@pytest.mark.parametrize(
    "text",
    [
        "It was told.",
        "25 devices a round",
        "drawn anew",
        "but for the last",
        "a file of its own",
        "Beside it",
        "4 bytes a\nrow",
        "32 bytes an upload",
        "noise that can be foreseen",
        "an update, noise and all",
    ],
)
def test_a_word_of_the_list_is_found(text):
    assert len(faults(text)) == 1


def test_quoted_output_of_a_program_is_not_looked_at():
    assert faults("```console\n$ choral demo\n25 devices a round\n```\n") == []


def test_a_heading_and_the_sentence_below_it_are_not_read_as_one():
    assert faults("## Noise once\n\nA device adds noise once.") == []


def test_words_that_records_contain_are_kept_by_a_mark():
    assert faults('because = "one step a round"  # in records\n') == []
    assert len(faults('because = "one step a round"  # in records, too\n')) == 1


def test_the_readme_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_menu_of_the_site_names_every_page_once():
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"[\w/.-]+\.md\b", menu)
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    listed = {page for page in written if page.startswith("decisions/")}
    made = {page for page in named if page.startswith(("reference/", "errors/"))}
    assert len(listed) > 10 and sorted(named) == sorted((written - listed) | made)
    sys.path.append(str(ROOT / "docs/hooks"))  # where mkdocs looks for the hook's own imports
    assert sorted(import_module("generate").decisions(ROOT / "docs")) == sorted(listed)


def test_every_link_of_a_page_leads_to_a_file_of_the_repository():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert dead == [], "pages that are made when the site is built are not there for who reads the repository"


def help_of(capsys, *words):
    """The help text of a verb, and of each verb below it."""
    assert main([*words, "--help"]) == 0
    text = capsys.readouterr().out
    yield text
    for word in re.findall(r"^    (\w+)(?=\s)", text.partition("\n  PHASE\n")[2].partition("\n\n")[0], flags=re.M):
        yield from help_of(capsys, *words, word)


def test_every_help_text_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    texts = [capsys.readouterr().out, *(text for verb in VERBS for text in help_of(capsys, verb))]
    assert len(texts) >= 1 + len(VERBS) + 13  # those below `choral server` and `choral device` are among them
    assert [line for text in texts for line in text.splitlines() if len(line) > 80] == []
