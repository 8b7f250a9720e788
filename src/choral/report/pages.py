"""Whether the pages of a run show what its record says: their claims as data, and every figure that people see."""

import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser

from choral import __version__
from choral.record import RunRecord, inside
from choral.report.registry import entry_text
from choral.report.report_page import claims_data, page
from choral.report.signed import Note

_AGAIN = "write it again: choral report RUN"
_WRITER = re.compile(r'<meta name="generator" content="choral ([^"]{1,32})">|^# Written by choral (.{1,32})\.$', re.M)
_EPSILON = re.compile(r"ε\xa0[≤=]\xa0[\d.]+|ε,\xa0δ\)\xa0=\xa0\([\d.]+|epsilon:? [\d.e+-]+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?")
_PROSE = frozenset(("p", "dd", "li"))  # elements whose words may change; numbers, cells and labels may not
_SPOKEN = frozenset(("aria-label", "title"))  # attributes that hold sentences
_EMPTY = frozenset(("meta", "link", "br", "hr"))
_SENTENCE = re.compile(r'(\s*\w+: )"(.*\.)"')  # of the registry entry; its other values are terms

Form = list[tuple[object, ...]]


def check_pages(record: RunRecord) -> list[str]:
    """What is wrong with report.html and privacy.yaml, where they are there.

    A page of this version may differ from the one that it would write now in the words of its sentences only. A page
    of another version may be laid out differently: its data, if it has any, and every ε on it must be the record's.
    """
    found: list[str] = []
    for name, expected, form in (
        ("report.html", page(record), _of_html),
        ("privacy.yaml", entry_text(record), _of_yaml),
    ):
        path = inside(record.folder, name)
        there = path.read_text(encoding="utf-8") if path.exists() else expected
        if there == expected:
            continue
        writer = next((a or b for a, b in _WRITER.findall(there)), "(an older version)")
        if form(there) == form(expected):
            found.append(Note(f"{name} is worded differently: its data and figures agree; {_AGAIN}"))
        elif writer == __version__:
            found.append(f"{name} does not say what the result says; {_AGAIN}")
        elif not _same_data(there, record):
            found.append(f"{name}, by choral {writer}, carries other claims than the record; {_AGAIN}")
        elif _epsilons(there) != _epsilons(expected):
            found.append(f"{name}, by choral {writer}, shows another ε than the record; {_AGAIN}")
        else:
            found.append(Note(f"{name} is by choral {writer}: its ε agree, its words were not compared; {_AGAIN}"))
    return found


def _epsilons(text: str) -> set[str]:
    """Every ε that a page shows; they must not depend on the version whose words stand around them."""
    return set(_EPSILON.findall(text))


def _same_data(text: str, record: RunRecord) -> bool:
    """Whether the claims that the page carries are the record's; pages of version 0.1.0 carry none."""
    carried = carried_data(text)
    return not carried or carried == [json.loads(claims_data(record) or "null")]


def carried_data(text: str) -> list[object]:
    """The data that a page carries about its claims: one value, or none on a page of version 0.1.0.

    >>> carried_data('<main data-claims="{&quot;paid&quot;:3}"></main>')
    [{'paid': 3}]
    """
    return [value for what, *rest in _of_html(text) if what == "data" for value in rest]


def _numbers(text: str) -> tuple[str, ...]:
    """The numbers in a sentence, in an order that does not depend on its words.

    >>> _numbers("in 20 of 20 rounds, ε ≤ 1.98 at δ = 1e-5")
    ('1.98', '1e-5', '20', '20')
    """
    return tuple(sorted(_NUMBER.findall(text)))


class _Reduced(HTMLParser):
    """A page as the list of everything in it, with sentences reduced to their numbers."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.form: Form = []
        self._open = [""]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kept = {name: _numbers(value or "") if name in _SPOKEN else value for name, value in attrs}
        if kept.get("name") == "generator":
            kept.pop("content", None)  # the same page by another version is the same page
        if (data := kept.pop("data-claims", None)) is not None:
            self.form.append(("data", _json(str(data))))
        self.form.append(("start", tag, kept))
        if tag not in _EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.form.append(("end", tag))
        self._open[1:] = self._open[1:-1]

    def handle_data(self, data: str) -> None:
        self.form.append(("text", _numbers(data) if self._open[-1] in _PROSE else data))

    def handle_comment(self, data: str) -> None:
        self.form.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.form.append(("declaration", decl))

    def handle_pi(self, data: str) -> None:
        self.form.append(("instruction", data))

    def unknown_decl(self, data: str) -> None:
        self.form.append(("declaration", data))


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_html(text: str) -> Form:
    reduced = _Reduced()
    reduced.feed(text)
    reduced.close()
    return reduced.form


def _of_yaml(text: str) -> Form:
    return [*_reduced_lines(text.split("\n"))]


def _reduced_lines(lines: Iterable[str]) -> Iterable[tuple[object, ...]]:
    for line in lines:
        if line.startswith("# Written by choral "):
            continue
        if line.startswith("# "):  # the first word says what kind of run it is
            yield line.split()[1], _numbers(line)
        elif (sentence := _SENTENCE.fullmatch(line)) is not None:
            yield sentence[1], _numbers(sentence[2])
        else:
            yield (line,)
