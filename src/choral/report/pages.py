"""Whether a page shows what its record says: by every word where this version wrote it, else by its figures."""

import hashlib
import json
import re
from html.parser import HTMLParser

from choral.record import PAGES, RunRecord, inside
from choral.report.registry import entry_text
from choral.report.report_page import claims_data, page
from choral.report.signed import Note
from choral.report.words import WRITER

_AGAIN = "write it again: choral report RUN"
_WRITER = re.compile(r'<meta name="generator" content="choral ([^"]{1,32})">|^# Written by choral (.{1,32})\.$', re.M)
_EPSILON = re.compile(r"ε\xa0[≤=]\xa0[\d.]+|ε,\xa0δ\)\xa0=\xa0\([\d.]+|epsilon:? [\d.e+-]+")
_NUMBER = re.compile(r"\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?")
_TERM = re.compile(
    r"against ([^,.;:()]+)|(one [a-z]+ (?:replaced|added or removed)[a-z ]*)|\b(S\d+): |rule (S\d+)"
    r"|δ(?: =|\)\s*=\s*\([\d.]+,) ?([\d.e−-]+)|at most ([\d.]+) %"
)
_AFTER_EPSILON = re.compile(r"(?:[εϵɛєԑ]|epsilon)[^\d]{0,16}(\d(?:[\d.]*\d)?)", re.IGNORECASE)
_NO_WRITER, _FIRST = "(an older version)", ((), 1)  # a page that names no version
_NAMING = (0, 2, 0)  # the first version that named a form
_NAMED = re.compile(r"((?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2})(?:, form ([2-9]|[1-9]\d+))?", re.ASCII)
_WRITTEN = frozenset((
    "b", "body", "caption", "circle", "code", "dd", "desc", "div", "dl", "dt", "figcaption", "figure", "h1",
    "h2", "h3", "head", "header", "html", "li", "link", "main", "meta", "ol", "p", "path", "rect",
    "section", "span", "strong", "style", "svg", "table", "tbody", "td", "text", "th", "thead", "title", "tr", "ul",
))  # fmt: skip
_STYLES = (  # SHA-256 of the styles of earlier versions; whoever changes a style adds the one before
    "e55e39090dc975268c48275f3616ba93dac1599307d438cecb322c7564bffb3d",  # reports of 0.1.0
    "92a4d7436b86b190412d2b96299d2786cd57f67ffddf0801da36646522c9d4ff",  # reports of 0.2.0
    "769de5b7b906d3ff61a65d234656ada013f5ff94d01ee2495098459396f9fa2b",  # sites' pages before 0.2.0
    "2d37165568da689a0f6c7b5d85b96702f6255e60ae1c799288ae8315270f7785",
    "9e497c1fabeb8f679d63be224bed57bf3290f6931987454ec0f7ba1ef2e8cd77",  # and of 0.2.0
)
_ICON = {"rel": "icon", "href": "data:,"}  # the one link of a page
_HIDING = frozenset(("style", "hidden", "inert", "srcdoc"))


def check_pages(record: RunRecord) -> list[str]:
    """What is wrong with report.html and privacy.yaml, where they are there.

    A page of this version must be the one that it would write now, in every character. A page of an earlier version may
    have other words, if that version can have written one of this run: its data, if it has any, and every ε on it must
    be the record's.
    """
    found: list[str] = []
    for name, expected in (("report.html", page(record)), ("privacy.yaml", entry_text(record))):
        path = inside(record.folder, name)
        # A lone surrogate of a JSON file was written as a question mark.
        as_written = expected.encode("utf-8", "replace").decode()
        there = path.read_text(encoding="utf-8") if path.exists() else as_written
        if there == as_written:
            continue
        writer = writer_of(there)
        if writer == WRITER:
            found.append(f"{name} does not say what the result says; {_AGAIN}")
        elif why := impossible(writer, form=record.about.pages, version=record.about.choral):
            found.append(f"{name} names choral {writer} as its writer, which {why}; {_AGAIN}")
        elif not _same_data(there, record):
            found.append(f"{name}, by choral {writer}, carries other claims than the record; {_AGAIN}")
        elif _epsilons(there) != _epsilons(as_written) or strange_figures(there, as_written):
            found.append(f"{name}, by choral {writer}, shows another ε than the record; {_AGAIN}")
        elif terms := strange_terms(there, as_written):
            found.append(f"{name}, by choral {writer}, says {terms[0]!r}, which the record does not; {_AGAIN}")
        elif name.endswith(".html") and (odd := never_written(there, as_written)):
            found.append(f"{name}, by choral {writer}, has {odd}, as no version of choral writes it; {_AGAIN}")
        else:
            found.append(Note(f"{name} is by choral {writer}: its ε agree, its words were not compared; {_AGAIN}"))
    return found


def writer_of(text: str) -> str:
    """The version that a page says has written it, with the form of its pages where it names one."""
    return next((a or b for a, b in _WRITER.findall(text)), _NO_WRITER)


def form_of(writer: str) -> int:
    """The form of a writer's pages.

    >>> form_of("0.2.0"), form_of("0.2.0, form 2")
    (1, 2)
    """
    return (_parsed(writer) or _FIRST)[1]


def impossible(writer: str, *, form: int, version: str = "") -> str:
    """Why no page of this writer can be compared here as one of a run of this form, made by this version; or nothing.

    Only the words of earlier versions are not compared: a page that could name any of them as its writer could say
    anything.

    >>> impossible("0.1.0", form=1, version="0.1.0"), impossible("0.1.0", form=1, version="0.2.0")
    ('', 'is older than the run')
    """
    if (named := _parsed(writer)) is None:
        return "is the name of no version"
    if named[1] < form or (named[0] < (_parsed(version) or _FIRST)[0] and writer != _NO_WRITER):
        return "is older than the run"
    if named > (_parsed(WRITER) or named) or named[1] > PAGES:
        return "is newer than this one and knows its own pages: check it with that version"
    return ""


def _parsed(writer: str) -> tuple[tuple[int, ...], int] | None:
    """The version and form that a writer names, in the one way that versions write them."""
    if writer == _NO_WRITER:
        return _FIRST
    found = _NAMED.fullmatch(writer)
    named = None if found is None else (tuple(map(int, found[1].split("."))), int(found[2] or 1))
    return None if named is None or (named[1] > 1 and named[0] < _NAMING) else named


def _epsilons(text: str) -> set[str]:
    """Every ε that a page shows; they must not depend on the version whose words stand around them."""
    return set(_EPSILON.findall(text))


def strange_figures(text: str, expected: str) -> list[str]:
    """Numbers that people see behind an ε, however it is written, and that stand nowhere on the page as expected."""
    there, again = _read(text).seen, _read(expected).seen
    # Also without spaces: two elements may each have a part of a number.
    known = {number for space in (" ", "") for number in _NUMBER.findall(space.join(again))}
    shown = [number for space in (" ", "") for number in _AFTER_EPSILON.findall(space.join(there))]
    return [number for number in shown if number not in known]


def strange_terms(text: str, expected: str) -> list[str]:
    """Terms that people see on a page and that stand nowhere on the page as expected.

    They are adversaries, rules, adjacencies, δ and chances of a guess, which no version has worded differently so far.
    """
    return sorted(_terms(text) - _terms(expected))


def _terms(text: str) -> set[str]:
    seen = " ".join(_read(text).seen).replace("\xa0", " ")
    return {next(filter(None, groups)).strip() for groups in _TERM.findall(seen)}


def _same_data(text: str, record: RunRecord) -> bool:
    """Whether the claims that the page carries are the record's; pages of version 0.1.0 carry none."""
    carried = carried_data(text)
    return not carried or carried == [json.loads(claims_data(record) or "null")]


def carried_data(text: str) -> list[object]:
    """The data that a page carries about its claims: one value, or none on a page of version 0.1.0.

    >>> carried_data('<main data-claims="{&quot;paid&quot;:3}"></main>')
    [{'paid': 3}]
    """
    return _read(text).data


def never_written(text: str, expected: str = "") -> str:
    """What could make a page show something else than its text says, or nothing; the style may be that of `expected`.

    >>> never_written('<p>1</p>'), never_written('<p style="display:none">1</p>')
    ('', 'the attribute style')
    """
    there, known = _read(text), {_digest(one) for one in _read(expected).styles}
    strange = [f"a style of {len(one):,} characters" for one in there.styles if _digest(one) not in {*known, *_STYLES}]
    return next(iter(there.odd + strange), "")


def _digest(style: str) -> str:
    return hashlib.sha256(style.encode("utf-8", "replace")).hexdigest()


def words_of(text: str) -> list[str]:
    """Everything on a page that people read or hear, piece by piece."""
    return _read(text).seen


class _Read(HTMLParser):
    """The data of a page, what people see or hear of it, and what no page of choral has."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.data: list[object] = []
        self.seen: list[str] = []
        self.odd: list[str] = []
        self.styles: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "data-claims" in given:
            self.data.append(_json(given.pop("data-claims")))
        self._within = tag
        self.styles += [""] * (tag == "style")
        if tag not in _WRITTEN or len(self.styles) > 1 or (tag == "link" and given != _ICON):
            self.odd.append(f"the element {tag}")
        if given.get("http-equiv", "").lower() == "refresh":
            self.odd.append("a refresh")
        self.odd += [f"the attribute {name}" for name in given if name in _HIDING or name.startswith("on")]
        self.seen += [given[name] for name in ("aria-label", "title", "alt") if name in given]

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - as HTMLParser calls it
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "style":
            self.styles[-1] += data
        elif data.strip():
            self.seen.append(data)

    def handle_comment(self, data: str) -> None:
        self.odd.append(f"a comment of {len(data)} characters")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(text: str) -> _Read:
    reader = _Read()
    reader.feed(text)
    reader.close()
    return reader
