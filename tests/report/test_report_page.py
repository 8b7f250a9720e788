"""report.html: everything is there, in order, labelled, escaped, and in one small file."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import pytest

from choral.cli import main
from choral.core.errors import StorageError
from choral.record import read_run
from choral.report import page, write_report
from choral.report.words import up
from choral.run.folder import write_json
from tests.report.runs import NASTY, attack, make_run

KINDS = {
    "16 devices": {},
    "20 devices": {"devices": 20},
    "3 devices": {"devices": 3},
    "200 devices": {"devices": 200},
    "1000 devices, under way": {"devices": 1000, "finished": False, "done": 4},
    "under way": {"finished": False, "done": 7},
    "not begun": {"finished": False, "done": 0},
    "a simulation": {"kind": "simulation", "seeded": True},
    "no secure sum": {"secure": False},
    "no certificate": {"certificate": None},
    "hostile names": {"nasty": NASTY},
    "endless names": {"nasty": "endless" * 40},
    "an attack": {"attacked": True},
    "an attack, under way": {"attacked": True, "finished": False, "done": 7},
    "a hostile attack": {"attacked": True, "nasty": NASTY},
    "an endless attack": {"attacked": True, "nasty": "endless" * 40, "devices": 20},
}


class Page(HTMLParser):
    """The tags, the words by section, and what is open when the page ends."""

    void = ("meta", "link", "br")

    def __init__(self, text):
        super().__init__()
        self.tags, self.stack, self.attributes, self.sections, self.said = [], [], [], {}, ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "section":
            self.here = dict(attrs)["aria-labelledby"]
            self.sections[self.here] = ""
        if tag not in self.void:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if "style" in self.stack:
            return
        data = data.replace("\xa0", " ")
        self.said += data + " "
        if "section" in self.stack:
            self.sections[self.here] += data + " "


@pytest.fixture
def made(tmp_path):
    return lambda **other: Page(page(read_run(make_run(tmp_path / "run", **other))))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_well_formed_and_needs_nothing_else(kind, made):
    seen = made(**KINDS[kind])
    assert seen.stack == []
    assert not {"script", "img", "iframe", "object", "form"} & set(seen.tags)
    links = [value for tag, name, value in seen.attributes if name in ("src", "href", "srcset", "style")]
    assert links == ["data:,"]
    assert not [name for _, name, _ in seen.attributes if name.startswith("on")]
    assert seen.tags.count("h1") == 1
    assert ("html", "lang", "en") in seen.attributes


@pytest.mark.parametrize("kind", KINDS)
def test_no_epsilon_stands_without_its_rule_adjacency_and_adversary(kind, made):
    sections = made(**KINDS[kind]).sections
    with_figures = [text for text in sections.values() if re.search(r"ε [≤=] [\d.]+|\d / \d", text)]
    assert with_figures or KINDS[kind].get("finished") is False
    for text in with_figures:
        assert re.search(r"[Rr]ule", text)
        assert "one record replaced" in text
        assert re.search(r"server|everyone", text)
        assert "δ = " in text


def test_the_sections_stand_in_their_order(made):
    assert list(made().sections) == [
        "statement", "signature", "uncovered", "claims", "merit", "budgets", "nist", "by-delta", "by-colluders",
        "sight", "releases", "check", "published", "made-of",
    ]  # fmt: skip


def test_the_page_has_what_an_officer_asks_for(made):
    sections = made().sections
    assert all(f"{question}?" in sections["nist"] for question in ("Whose record", "Against whom", "For how long"))
    assert "A device's own computer" in sections["uncovered"] and "Rows are counted" not in sections["statement"]
    assert "not accepted" in sections["signature"] and "before the model is released" in sections["signature"]
    assert "Theorem 1" in sections["published"] and "Theorem 1" not in sections["claims"]
    assert "without privacy: 0.852" in sections["merit"]
    assert "alone, mean of 16: 0.809" in sections["merit"]
    assert "device 16" in sections["budgets"]
    assert "choral verify RUN" in sections["check"]
    assert "received by the server" in sections["sight"]
    assert "noisy clipped update, masked" in sections["releases"]
    assert "numpy 2.4.6" in sections["made-of"]
    assert "CPython 3.11.9 on Linux x86_64" in sections["made-of"]
    assert "place and date" in sections["signature"]


def test_the_picture_shows_the_most_guesses_that_can_be_right_rounded_up(made):
    said = made().sections["statement"]
    chance = float(re.search(r"right at most ([0-9.]+) %", said)[1])
    assert f"at most {math.ceil(chance)} are right (squares added)" in said
    assert "would be right (squares added)" in made(kind="simulation", seeded=True).sections["statement"]
    nothing = made(kind="simulation", seeded=True).sections["signature"]
    assert "nothing to sign" in nothing and "accepted" not in nothing and "place and date" not in nothing


def test_a_simulation_is_labelled_at_the_top_and_in_the_statement(made):
    seen = made(kind="simulation", seeded=True)
    assert seen.said.index("SIMULATION") < seen.said.index("Statement")
    assert "Simulation: " in seen.sections["statement"]
    assert "SIMULATION" not in made().said


def test_hostile_names_are_text_and_nothing_else(made):
    seen = made(nasty=NASTY)
    harmless = made()
    assert set(seen.tags) == set(harmless.tags)
    assert NASTY in seen.sections["made-of"]
    assert NASTY in seen.sections["releases"]


def test_the_section_on_an_attacker_is_there_when_its_file_is_and_says_whose_row_it_shows(made):
    sections = made(attacked=True).sections
    assert list(sections).index("attacker") == list(sections).index("sight") + 1
    said = sections["attacker"]
    # From the fixture: what was read three times, the guess, and rates with limits that are rounded up.
    assert re.findall(r"(\d+) of 14", said) == ["14", "1", "5", "8"]
    assert "1.6 ± 0.7 %" in said and "1.5 %" in said and "3.5 %" in said and said.count("no limit") == 2
    assert "public data" in said and "It read nothing of this run" in said and "does not vouch" in said
    assert "1 % false alarms" in said
    assert "ε ≤ 2.00 at δ = 1e-5; rule S5" in said and "against the server and all other devices" in said


@pytest.mark.parametrize(
    "change", [{"membership": [{}]}, {"row": None}, {"epsilon": "2"}, {"shown": ["no such column"]}, {"guess": []}]
)
def test_an_attack_of_another_form_is_refused_in_one_line(change, tmp_path, capsys):
    folder = make_run(tmp_path / "run", attacked=True)
    write_json(folder / "attack.json", {**attack(), **change})
    assert main(["report", str(folder)]) == 1
    said = capsys.readouterr().err
    assert re.match(r"CH802 .*attack\.json does not have the form that it should: .* choral attack --run\.\n$", said)


def test_many_devices_are_summarised(made):
    budgets = made(devices=200).sections["budgets"]
    assert "200 devices have used between" in budgets
    assert budgets.count(" / 2.00") == 8


def test_an_unfinished_run_shows_what_was_spent_and_claims_nothing(made, tmp_path):
    sections = made(finished=False, done=7).sections
    assert "has not ended" in sections["statement"]
    assert "Known when the run has ended" in sections["claims"]
    # By hand from the fixture: the last line of rounds.jsonl says what each device has spent.
    spent = json.loads((tmp_path / "run/rounds.jsonl").read_text().splitlines()[-1])["spent"]
    assert re.findall(r"([\d.]+) / 2\.00", sections["budgets"]) == [up(epsilon) for epsilon in spent]


def test_the_policy_allows_the_page_its_own_style_and_nothing_else(tmp_path):
    text = page(read_run(make_run(tmp_path / "run")))
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#x27;", "'")
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "script-src" not in policy


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_small_and_the_same_every_time(kind, tmp_path):
    folder = make_run(tmp_path / "run", **KINDS[kind])
    first = write_report(folder)
    content = first.read_bytes()
    assert len(content) < 100_000  # the limit is 500 kB; what is far below it stays readable by mail programs too
    assert write_report(folder).read_bytes() == content
    assert (folder / "privacy.yaml").exists() == KINDS[kind].get("finished", True)


def test_a_run_that_was_moved_has_the_same_report(tmp_path):
    text = page(read_run(make_run(tmp_path / "run")))
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    assert page(read_run(tmp_path / "elsewhere")) == text


def test_a_run_without_noise_has_a_report_that_says_that_nothing_is_protected(tmp_path):
    folder = make_run(tmp_path / "run")
    result = json.loads((folder / "result.json").read_text())
    nothing = "no noise was added: nothing is protected"
    result["privacy"] = {"delta": 1e-5, "adjacency": "one record replaced", "none": nothing}
    write_json(folder / "result.json", result)
    seen = Page(write_report(folder).read_text())
    assert all(
        nothing in seen.sections[name]
        for name in ("nist", "published", "claims", "budgets", "by-delta", "by-colluders")
    )
    assert not re.search(r"ε [≤=]", seen.said)
    assert nothing in (folder / "privacy.yaml").read_text()
    assert "epsilon:" not in (folder / "privacy.yaml").read_text()


def test_a_lone_surrogate_in_a_name_does_not_stop_the_report(tmp_path):
    folder = make_run(tmp_path / "run")
    text = (folder / "run.json").read_text().replace("adult-demo", "\\ud800")
    (folder / "run.json").write_text(text)
    assert b"Privacy report: \\ud800<" in write_report(folder).read_bytes()
    assert b"\\ud800" in (folder / "privacy.yaml").read_bytes()


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(StorageError, match="CH802"):
        write_report(tmp_path)


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(first, second):
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_and_lines_have_the_contrast_that_wcag_asks_for_on_both_papers(tmp_path):
    text = page(read_run(make_run(tmp_path / "run")))
    themes = re.findall(r":root \{([^}]*)\}", text)[:2]
    lines = re.findall(r"\{ [^{}]*(--s0:[^}]*)\}", text)[:2]
    assert len(themes) == len(lines) == 2
    for theme, line in zip(themes, lines, strict=True):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme + line))
        for ink, paper, least in [
            ("ink", "paper", 7), ("quiet", "paper", 4.5), ("warn-ink", "warn", 4.5), ("ink", "tint", 4.5),
            ("focus", "paper", 3), ("s0", "paper", 3), ("s1", "paper", 3), ("s2", "paper", 3), ("s3", "paper", 3),
        ]:  # fmt: skip
            assert _contrast(colours[ink], colours[paper]) >= least, (ink, paper)
