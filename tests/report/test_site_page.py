"""result.html of a site: the run's proved ε, compared word for word with the home, and without scripts."""

import re

import msgspec
import pytest

from choral.accounting.words import up
from choral.cli import main
from choral.deploy.status import site_end
from choral.record import read_run
from choral.report import words
from choral.report.pages import carried_data
from choral.report.signed import Note
from choral.report.site_page import differences, site_page


@pytest.fixture
def end(ended_study):
    return site_end(ended_study.homes["hill"])


def test_the_page_agrees_with_the_home_that_wrote_it(end):
    assert differences(site_page(end), end) == []
    assert carried_data(site_page(end))[0]["paid"] == 3


@pytest.mark.parametrize(
    ("field", "value"), [("paid", 2), ("reserved", 0.1), ("model", "00" * 32), ("device", "lake"), ("ledger", "1:00")]
)
def test_a_changed_figure_is_found_by_name(end, field, value):
    page = site_page(msgspec.structs.replace(end, **{field: value}))
    assert differences(page, end) == [field]


def test_a_page_without_data_agrees_with_nothing(end):
    for page in ("<main></main>", '<main data-claims="[]"></main>'):
        assert differences(page, end) == ["its version: choral (an older version) is older than the run"]
        assert "paid" in differences(page, msgspec.structs.replace(end, pages=1))


EDITS = {
    "the proved ε": (r"(<b>ε\xa0≤\xa0)[\d.]+", r"\g<1>0.25"),
    "the adversary": ("against the server and all other devices together", "against a curious neighbour"),
    "a heading that is added": ("</h1>", "</h1><h2>Approved by the ethics board</h2>"),
    "a sentence that is added": ("</h1>", "</h1><p>Nothing is lost.</p>"),
    "a word of a sentence": ("is protected against", "is not protected against"),
    "text that is hidden": ('class="uncovered"', 'class="uncovered" style="display:none"'),
    "a style": ("</style>", ".uncovered { display: none }</style>"),
    "a second style": ("</main>", "<style>h1 { display: none }</style></main>"),
    "a script": ("</main>", "<script>document.body.textContent = ''</script></main>"),
    "a refresh": ("<head>", '<head><meta http-equiv="refresh" content="0;url=https://example.org">'),
    "a comment": ("<main", "<!-- --><main"),
    "a title": ("<title>", "<title>Accepted: "),
    "the text of the picture": (r"<title>[^<]*(</title><)", r"<title>Nothing is lost\1"),
    "a letter that looks alike": ("hill", "hіll"),
    "a list without an item": (r"<li>Poisoned updates[^<]*</li>", ""),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_page_differs_though_its_data_are_untouched(what, end):
    page = site_page(end)
    edited, count = re.subn(*EDITS[what], page, count=1)
    assert count == 1 and edited != page and carried_data(edited) == carried_data(page)
    assert differences(edited, end) != []
    assert not any(isinstance(one, Note) for one in differences(edited, end))


def visible(page):
    """Each piece of text of a page, with where it stands."""
    return [match.span(1) for match in re.finditer(r">([^<]*[^<\s][^<]*)<", page[page.index("<body") :])]


def test_no_piece_of_text_can_be_changed_or_left_out(end):
    page = site_page(end)
    start, pieces = page.index("<body"), visible(page)
    assert len(pieces) > 50
    for first, last in pieces:
        for text in ("", "something else"):
            assert differences(page[: start + first] + text + page[start + last :], end), page[start + first :][:80]


def test_the_text_that_differs_is_named_with_what_the_home_gives(end):
    page = site_page(end).replace("ε\xa0≤\xa0", "ε\xa0≤\xa01", 1)
    assert differences(page, end) == ["the text 'ε ≤ 14.00', where the home gives 'ε ≤ 4.00'"]


def earlier(end):
    """A page as version 0.2.0 wrote it, as far as the comparison looks at it."""
    data = {"format": 1} | {name: value for name, value in end.to_dict().items() if name in FIRST}
    text = msgspec.json.encode(data).decode().replace('"', "&quot;")
    return (
        '<head><meta name="generator" content="choral 0.2.0"></head>'
        f'<main data-claims="{text}"><b>ε ≤ {up(end.reserved)}</b><p>In other words.</p></main>'
    )


FIRST = (
    "device", "study", "study_digest", "safety_number", "run", "approved", "table", "paid", "record", "model", "ledger",
    "limit", "reserved", "spent", "with_secure_sum",
)  # fmt: skip


def test_a_page_of_an_earlier_version_is_compared_by_its_figures_and_that_is_said(end):
    end = msgspec.structs.replace(end, pages=1)  # of a study that was enrolled with version 0.2.0
    (note,) = differences(earlier(end), end)
    assert isinstance(note, Note) and "choral 0.2.0 wrote the page" in note
    for old, new in (
        (f"ε ≤ {up(end.reserved)}", "ε ≤ 0.25"),
        ("In other words.", "epsilon = 0.25"),
        ("In other words.", "It holds against a curious neighbour."),
        ("In other words.", "δ = 1e-12"),
        ("<p>", '<p style="display:none">'),
        ("</main>", "<script></script></main>"),
        ("hill", "lake"),
    ):
        assert not isinstance(differences(earlier(end).replace(old, new), end)[0], Note)


def test_the_verb_ends_with_1_for_an_edited_page_and_says_what_it_found(ended_study, end, tmp_path, capsys):
    path, home = tmp_path / "result.html", str(ended_study.homes["hill"].path)
    path.write_text(site_page(end))
    assert main(["device", "result", "--check", str(path), "--home", home]) == 0
    assert capsys.readouterr().out.startswith("AGREES")
    path.write_text(site_page(end).replace("ε\xa0≤\xa04.00", "ε\xa0≤\xa00.25"))
    assert main(["device", "result", "--check", str(path), "--home", home]) == 1
    assert "DIFFERS   in the text 'ε ≤ 0.25', where the home gives 'ε ≤ 4.00'" in capsys.readouterr().out
    path.write_text(earlier(end))
    assert main(["device", "result", "--check", str(path), "--home", home]) == 1
    assert "its version: choral 0.2.0 is older than the run" in " ".join(capsys.readouterr().out.split())


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
@pytest.mark.parametrize("what", EDITS)
def test_no_edit_passes_under_the_name_of_another_version(what, version, end):
    page, old = re.subn(r'generator" content="choral [^"]*', f'generator" content="choral {version}', site_page(end))
    edited, count = re.subn(*EDITS[what], page, count=1)
    assert (old, count) == (1, 1)
    data = {"format": 1} | {name: value for name, value in end.to_dict().items() if name in FIRST}
    text = msgspec.json.encode(data).decode().replace('"', "&quot;")
    for one in (edited, re.sub(r'(?<=data-claims=")[^"]*', lambda _: text, edited)):
        assert differences(one, end) and not any(isinstance(line, Note) for line in differences(one, end))


def test_a_page_of_this_form_is_still_read_by_the_version_after_this_one(end, monkeypatch):
    page = site_page(end)
    for module in ("choral.report.site_page", "choral.report.pages", "choral.report.words"):
        monkeypatch.setattr(f"{module}.WRITER", "0.3.0, form 2")
    (note,) = differences(page, end)
    assert isinstance(note, Note) and "choral 0.2.0, form 2 wrote the page" in note
    assert differences(page.replace("hill", "lake"), end) != [note]


def test_the_headline_is_the_proved_figure_of_the_coordinators_report_and_others_say_what_they_are(ended_study, end):
    record = read_run(next((ended_study.study / "runs").glob("*/")))
    claim = words.leading_claim(record)
    text = site_page(end)
    assert f"<b>{claim.figure}</b>" in text and claim.terms in text
    for figure, of in ((end.reserved, "have reserved, of the limit"), (end.spent.epsilon, "made so far")):
        row = next(row for row in text.split("<tr>") if of in row)
        assert f"ε ≤ {up(figure)}" in row and "this site's ledger" in row


def test_a_site_that_paid_for_attempts_that_failed_claims_what_they_cost(ended_study):
    from choral.deploy.status import claimed_of_the_run

    planned, more = (claimed_of_the_run(ended_study.agreement, "hill", paid) for paid in (3, 5))
    assert more.against_everyone.epsilon > planned.against_everyone.epsilon
    assert claimed_of_the_run(ended_study.agreement, "hill", 0) == planned


def test_the_page_has_plain_words_the_picture_what_is_not_covered_columns_rows_and_parties(end):
    text = site_page(end)
    assert "In plain words: whoever must say" in text and "<figure><svg" in text
    for item in words.not_covered(end.plan):
        assert item.replace("'", "&#x27;") in text or item in text
    assert "age, pulse, smokes; predicted: sick" in text
    assert "hill.csv, with 80 records that were trained on" in text
    assert "harbour, hill, lake; the server at 127.0.0.1:9092" in text


def test_rows_that_an_older_version_did_not_keep_are_said_to_be_those_of_the_plan(end):
    text = site_page(msgspec.structs.replace(end, rows=60, rows_known=False))
    assert "with at least 60 records that were trained on" in text


def test_every_epsilon_on_the_page_stands_with_delta_rule_adjacency_and_adversary(end):
    text = site_page(end)
    assert f"ε ≤ {up(end.reserved)}" in text
    for part in (
        f"δ = {words.small(1e-4)}",
        "one record replaced",
        "rules S5",
        "against the server and all other devices together",
    ):
        assert part in text


def test_the_page_runs_no_script_and_names_no_host(end):
    text = site_page(end)
    assert "<script" not in text
    assert "http://" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "default-src" in text
