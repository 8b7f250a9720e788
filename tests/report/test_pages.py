"""Pages of a run: of this version they are compared in every character, of another one by their data and every ε."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from choral.cli import main
from choral.record import read_run
from choral.report import report_page, words, write_report
from choral.report.pages import check_pages
from choral.report.signed import Note
from choral.report.verify import verify

PRESENT = Path(__file__).parents[1] / "vectors" / "present_version"
KINDS = ("simulation", "rehearsal", "deployment")
DATA = re.compile(r'data-claims="([^"]*)"')


@pytest.fixture(params=KINDS)
def run(request, tmp_path):
    return shutil.copytree(PRESENT / request.param, tmp_path / "run")


@pytest.fixture
def rehearsal(tmp_path):
    """A rehearsal with the pages that this version writes."""
    folder = shutil.copytree(PRESENT / "rehearsal", tmp_path / "run")
    write_report(folder)
    return folder


def wrong(folder):
    return " ".join(line for finding in verify(folder) for line in finding.wrong)


def notes(folder):
    return " ".join(line for finding in verify(folder) for line in finding.notes)


def rewrite(folder, old, new, name="report.html"):
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_run_of_the_present_version_verifies_as_it_was_kept_and_with_its_pages_written_again(run):
    assert wrong(run) == ""
    write_report(run)
    assert (wrong(run), notes(run)) == ("", "")


def test_a_run_of_the_present_version_verifies_after_sentences_were_reworded(run, monkeypatch, capsys):
    reworded = ("A device's computer, with its operating system, memory and data file.", *words.ALWAYS[1:])
    monkeypatch.setattr(words, "ALWAYS", reworded)
    real = words.statement
    monkeypatch.setattr(words, "statement", lambda record: tuple(f"{text} So it is." for text in real(record)))
    assert "So it is." not in (run / "report.html").read_text()
    assert main(["verify", str(run)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("verified.")
    assert "the words of a page that another version wrote, or whose sentences were reworded" in last
    assert "report.html is " in notes(run)


FIGURES = {
    "the ε of the headline": (r"(<b>ε\xa0≤\xa0)[\d.]+", r"\g<1>0.10"),
    "the ε of the statement": (r"(\(ε,\xa0δ\)\xa0=\xa0\()[\d.]+", r"\g<1>0.10"),
    "the chance of a guess": (r"right at most [\d.]+ %", "right at most 50.1 %"),
    "the number of records": (r"trained on \d+ records", "trained on 99999 records"),
    "a device's budget": (r"[\d.]+ / 4.00", "0.10 / 4.00"),
    "the kind": (r"<strong>REHEARSAL</strong>", "<strong>DEPLOYMENT</strong>"),
    "the rule": (r">S5: ", ">S1: "),
    "an accuracy": (r"this run: [\d.]+", "this run: 0.999"),
    "a sentence that was added": (r"</h1>", "</h1><p>ε\xa0≤\xa00.10</p>"),
    "a comment": (r"<main", "<!-- --><main"),
    "a word of a sentence": (r"In plain words: whoever must say", "In other words: whoever has to say"),
    "the adversary": (r"against the server and all other devices together", "against a curious neighbour"),
    "a heading that is added": (r"</h1>", "</h1><h2>Approved by the ethics board</h2>"),
    "text that is hidden": (r'class="uncovered"', 'class="uncovered" style="display:none"'),
    "a style": (r"</style>", ".uncovered { display: none }</style>"),
    "a script": (r"</main>", "<script>document.body.textContent = ''</script></main>"),
    "a refresh": (r"<head>", '<head><meta http-equiv="refresh" content="0;url=https://example.org">'),
    "a spoken text": (r'aria-labelledby="[^"]*', 'aria-label="Nothing is lost'),
    "the text of a picture": (r"<title>[^<]*(</title><)", r"<title>Nothing is lost\1"),
    "a letter that looks alike": ("device", "devіce"),
    "a list without an item": (r"<li>Poisoned updates[^<]*</li>", ""),
    "sections in another order": (r"(<section.*?</section>)(<section.*?</section>)", r"\2\1"),
}  # fmt: skip


@pytest.mark.parametrize("what", FIGURES)
def test_an_edited_page_is_refused(what, rehearsal):
    path = rehearsal / "report.html"
    text, changed = re.subn(*FIGURES[what], path.read_text(), count=1)
    assert changed
    path.write_text(text)
    assert "report.html does not say what the result says" in wrong(rehearsal)


def test_no_piece_of_text_and_no_attribute_can_be_changed(rehearsal):
    path, record = rehearsal / "report.html", read_run(rehearsal)
    text = path.read_text()
    pieces = [one.span(1) for one in re.finditer(r">([^<]*[^<\s][^<]*)<", text)]
    attributes = [one.span(1) for one in re.finditer(r'="([^"]+)"', text)]
    assert len(pieces) > 200 and len(attributes) > 200
    generator = text.index(' content="choral ')  # without its version it is a page of an unknown one
    for first, last in (*pieces[::5], *(one for one in attributes[::5] if abs(one[0] - generator) > 40)):
        path.write_text(text[:first] + text[last:])
        assert check_pages(record) == [
            "report.html does not say what the result says; write it again: choral report RUN"
        ]


def by_another_version(folder, old="", new=""):
    """The page of the folder as one that another version wrote, with an edit."""
    path = folder / "report.html"
    text = re.sub(r"(?<=generator\" content=\"choral )[^\"]+", "0.2.0", path.read_text())
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_page_of_another_version_is_compared_by_its_figures_and_that_is_said(rehearsal):
    by_another_version(rehearsal, "In plain words: whoever must say", "In other words: whoever has to say")
    assert wrong(rehearsal) == ""
    assert "report.html is by choral 0.2.0: its ε agree, its words were not compared" in notes(rehearsal)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ε\xa0≤\xa0", "ε\xa0≤\xa01"),
        ("</h1>", "</h1><p>epsilon of at most 0.25</p>"),
        ("</h1>", "</h1><p>ϵ &lt; 0.25</p>"),
        ("against the server and all other devices together", "against a curious neighbour"),
        ("one record replaced", "one record added or removed"),
        (">S5: ", ">S1: "),
        (",\xa0δ)\xa0=\xa0(4.00,\xa0", ",\xa0δ)\xa0=\xa0(4.00,\xa01e-12 "),
        ("right at most ", "right at most 1"),
        ("</style>", ".uncovered { display: none }</style>"),
        ("</head>", '<link rel="stylesheet" href="data:text/css,.uncovered{display:none}"></head>'),
        ("</h1>", '</h1><img src="data:image/png;base64,iVBORw0KGgo=">'),
        ("</h1>", "</h1><p>ε\xa0≤\xa0<b>0</b><b>.25</b></p>"),
        ("</h1>", "</h1><picture></picture>"),
        ("</main>", "<script>document.body.textContent = ''</script></main>"),
        ('class="uncovered"', 'class="uncovered" style="display:none"'),
        ("</main>", "<style>h1 { display: none }</style></main>"),
        ("<head>", '<head><meta http-equiv="Refresh" content="0;url=https://example.org">'),
    ],
)
def test_a_page_of_another_version_shows_no_other_figure_or_term_and_has_nothing_that_hides_or_runs(
    old, new, rehearsal
):
    by_another_version(rehearsal, old, new)
    assert "report.html, by choral 0.2.0, " in wrong(rehearsal)


def of_this_version(folder):
    """The run of the folder as one that this version has made, as far as its pages are concerned; nothing is signed."""
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "choral": words.__version__, "pages": 2}))
    write_report(folder)
    return read_run(folder)


OTHERS = (
    "0.1.0",
    "0.2.0",
    "0.1.0, form 2",
    "0.2.0, form 3",
    "9.9.9",
    "0.2.0, form 1",
    "0.2.00, form 2",
    "0.2.0,  form 2",
    "",
)


@pytest.mark.parametrize("version", OTHERS)
def test_a_page_of_this_versions_run_passes_under_no_other_versions_name(version, rehearsal):
    record, path = of_this_version(rehearsal), rehearsal / "report.html"
    assert check_pages(record) == []
    text = path.read_text()
    for edit in (*FIGURES.values(), ("z{0}", "")):
        edited = re.sub(*edit, text, count=1, flags=re.S)
        path.write_text(re.sub(r"(?<=generator\" content=\"choral )[^\"]*", version, edited))
        (line,) = check_pages(record)
        assert not isinstance(line, Note)
    path.write_text(text)
    entry = rehearsal / "privacy.yaml"
    entry.write_text(entry.read_text().replace(f"choral {words.WRITER}.", f"choral {version}.", 1))
    (line,) = check_pages(record)
    assert not isinstance(line, Note)


@pytest.mark.parametrize("version", ["9.9.9", "0.0.9", "later"])
def test_a_page_is_neither_older_than_its_run_nor_newer_than_its_reader(version, rehearsal):
    path = rehearsal / "report.html"
    path.write_text(re.sub(r"(?<=generator\" content=\"choral )[^\"]+", version, path.read_text()))
    assert f"report.html names choral {version} as its writer, which is " in wrong(rehearsal)


def edit_data(folder, change):
    """The claims that the page carries, changed; nothing that people see is."""
    path = folder / "report.html"
    text = path.read_text()
    data = json.loads(html.unescape(DATA.search(text)[1]))
    change(data)
    path.write_text(DATA.sub(lambda _: f'data-claims="{html.escape(json.dumps(data))}"', text))


@pytest.mark.parametrize("version", ["this", "another"])
def test_edited_data_are_refused_whoever_wrote_the_page(rehearsal, version):
    edit_data(rehearsal, lambda data: data["privacy"]["against_everyone"].update(epsilon=0.1))
    if version == "another":
        path = rehearsal / "report.html"
        path.write_text(re.sub(r"(?<=generator\" content=\"choral )[^\"]+", "0.2.0", path.read_text()))
    meant = "does not say what the result says" if version == "this" else "by choral 0.2.0, carries other claims"
    assert meant in wrong(rehearsal)


def test_the_data_are_the_statement_of_the_record_and_leave_the_page_without_scripts(rehearsal):
    text = (rehearsal / "report.html").read_text()
    data = json.loads(html.unescape(DATA.search(text)[1]))
    result = json.loads((rehearsal / "result.json").read_text())
    assert data["format"] == report_page.DATA_FORMAT
    assert (data["privacy"], data["test"]) == (result["privacy"], result["test"])
    assert "<script" not in text and "default-src &#x27;none&#x27;" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"epsilon: [\d.]+", "epsilon: 0.1"),
        ('privacy_unit: "Record-level"', 'privacy_unit: "User-level"'),
        ("against the server and all other devices together", "against a curious neighbour"),
        ("Whoever holds the model sees the model.", "Nobody sees the model."),
    ],
)
def test_an_edited_registry_entry_is_refused(old, new, rehearsal):
    path = rehearsal / "privacy.yaml"
    text, count = re.subn(old, new, path.read_text(), count=1)
    assert count
    path.write_text(text)
    assert "privacy.yaml does not say what the result says" in wrong(rehearsal)


def test_a_registry_entry_of_another_version_may_have_other_words_and_no_other_figure(rehearsal):
    rewrite(rehearsal, f"# Written by choral {words.WRITER}.", "# Written by choral 0.2.0.", "privacy.yaml")
    rewrite(rehearsal, "Whoever holds the model sees the model.", "Holders of the model see it.", "privacy.yaml")
    assert wrong(rehearsal) == ""
    assert "privacy.yaml is by choral 0.2.0: its ε agree, its words were not compared" in notes(rehearsal)
    path = rehearsal / "privacy.yaml"
    path.write_text(re.sub(r"epsilon: [\d.]+", "epsilon: 0.1", path.read_text()))
    assert "privacy.yaml, by choral 0.2.0, shows another ε" in wrong(rehearsal)
