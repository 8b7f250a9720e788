"""report.html: one file that a privacy officer reads, prints on two A4 pages, signs and re-checks."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from choral.core.display import up
from choral.core.plan import Plan
from choral.record import Record, RunRecord, Statement, of_right_form, read_run
from choral.report import attacker, charts, nist, parts, registry, words
from choral.report.asked_terms import has_questions
from choral.report.markup import Markup, element, together
from choral.report.probes import answered
from choral.report.questions import asked_questions
from choral.run.folder import write_whole

DATA_FORMAT = 1  # of the claims that a page carries as data
# More would not fit on two pages; run.json and result.json have everything in full.
_MOST_RELEASES = 8
T = TypeVar("T")
_SIGNER, _LONGEST_NAME, _LONGEST_SENTENCE = 28, 80, 160


def write_report(folder: str | Path) -> Path:
    """report.html of a run, finished or not, and privacy.yaml once it is finished; the path of the former."""
    record = read_run(folder)
    target = record.folder / "report.html"
    texts = {}
    with of_right_form(record.folder):
        texts[target] = page(record)
        if record.result is not None:
            texts[record.folder / "privacy.yaml"] = registry.entry_text(record)
    for path, text in texts.items():
        # A lone surrogate, as a JSON file can hold one, has no UTF-8: it becomes a question mark.
        write_whole(path, text.encode("utf-8", "replace"))
    return target


def page(record: RunRecord) -> str:
    """The report as one HTML document that needs no network and runs no script."""
    data = claims_data(record)
    record = replace(
        record,
        about=_fitting(record.about, _LONGEST_NAME),
        result=_fitting(record.result, _LONGEST_SENTENCE),
        attack=_fitting(record.attack, _LONGEST_NAME),
        signatures=_fitting(record.signatures, _SIGNER),
    )
    return document(f"Privacy report: {record.about.name}", _body(record, data))


def document(title: str, *body: Markup) -> str:
    """A page with the style of the report; it names the version that wrote it, and the form in which it did."""
    style = "\n".join(static(name) for name in ("theme.css", "report.css")) + charts.STYLE
    head = together(
        element("meta", charset="utf-8"),
        content_policy(style),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="generator", content=f"choral {words.WRITER}"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    return f"<!doctype html>\n{element('html', element('head', head), element('body', *body), lang='en')}\n"


def claims_data(record: RunRecord) -> str | None:
    """What a finished run claims, as the JSON text that its page carries and that `choral verify` compares."""
    if record.result is None:
        return None
    about, result = record.about, record.result
    claimed = {
        "format": DATA_FORMAT,
        "kind": about.kind,
        "seeded": about.seeded,
        "plan_digest": about.plan_digest,
        "rounds_done": result.rounds_done,
        "test": result.test,
        "privacy": result.privacy.to_dict(),
    }
    # In ASCII, so that no character of it is changed in an attribute.
    return json.dumps(claimed, allow_nan=False, separators=(",", ":"))


def _fitting(value: T, most: int) -> T:
    """The value with every text in it cut to what fits."""
    return cast("T", _cut(value, most))


def _cut(value: object, most: int) -> object:
    if isinstance(value, Record):
        return msgspec.structs.replace(
            value, **{name: _cut(getattr(value, name), most) for name in value.__struct_fields__}
        )
    if isinstance(value, dict):
        return {parts.short(name, most): _cut(item, most) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_cut(item, most) for item in value)
    return parts.short(value, most) if isinstance(value, str) else value


def content_policy(style: str) -> Markup:
    """What a page with this style may load: that style, and images that are in the page itself."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return element("meta", http_equiv="Content-Security-Policy", content=policy)


def static(name: str) -> str:
    """A file of the page's own, as text.

    >>> "@page" in static("report.css")
    True
    """
    return files("choral.report").joinpath("static", name).read_text(encoding="utf-8")


def _body(record: RunRecord, data: str | None) -> Markup:
    sections = (
        _section("statement", "Statement", _statement(record)),
        _section("signature", "Decision", _decision(record)),
        _section("uncovered", "What it does not cover", _uncovered(record)),
        _section("claims", "Annex: how much privacy is lost at most", parts.claims_table(record, slice(2))),
        element(
            "div",
            _section("merit", "How good the model is, on the hold-out", parts.merit_chart(record)),
            _section("budgets", "Budget of each device", parts.budgets(record)),
            class_="pair",
        ),
        _section("nist", "The questions of NIST SP 800-226", _asked_by_nist(record)),
        element(
            "div",
            _section("by-delta", "ε against δ", _by_delta(record)),
            _section("by-colluders", "ε against the number of colluders", parts.colluder_chart(record)),
            class_="pair",
        ),
        _section("sight", "What the device computed, what the server received", _sight(record)),
        *([_section("attacker", attacker.HEADING, attacker.reads(record.attack))] if record.attack is not None else []),
        *([_section("questions", "Questions asked", asked_questions(record))] if has_questions(record) else []),
        *([_section("probes", "What devices answered", answered(record))] if record.about.plan.probes else []),
        _section("releases", "Everything that left a device", _releases(record)),
        _section("check", "Check it again", _check(record)),
        _section("published", "The formula of the paper", parts.claims_table(record, slice(2, None))),
        _section("made-of", "Plan, data and versions", _made_of(record)),
    )
    return together(_header(record), element("main", *sections, data_claims=data))


def _section(name: str, heading: str, *content: str) -> Markup:
    return element("section", element("h2", heading, id=name), *content, aria_labelledby=name)


def _header(record: RunRecord) -> Markup:
    about, result = record.about, record.result
    end = f"finished {words.when(result.finished)}" if result else "not finished"
    when = f"started {words.when(about.started)}, {end}"
    return element(
        "header",
        element("p", f"choral {about.choral} · {when}", class_="quiet"),
        element("h1", f"Privacy report: {about.name}"),
        parts.banner(record),
    )


def _statement(record: RunRecord) -> Markup:
    sentences = [element("p", sentence) for sentence in words.statement(record)]
    return element("div", element("div", _headline(record), *sentences), _guesses(record), class_="statement")


def _guesses(record: RunRecord) -> Markup:
    """What ε means as a picture, where there is one."""
    if not words.claims(record):
        return Markup()
    return guesses(record.about.plan, words.leading_claim(record), predictable=record.about.predictable)


def guesses(plan: Plan, claim: words.ShownClaim, *, predictable: bool) -> Markup:
    """What ε means as a picture: how many of a hundred guesses about a record can be right."""
    right = math.ceil(100 * words.guess(claim.epsilon or 0.0, claim.delta))
    caption = words.guessed_right(plan, right, predictable=predictable)
    return element("figure", charts.dots(50, right, title=caption), element("figcaption", caption))


def _uncovered(record: RunRecord) -> Markup:
    return uncovered(record.about.plan, record.result.privacy if words.claims(record) and record.result else None)


def uncovered(plan: Plan, privacy: Statement | None) -> Markup:
    """What no ε of a run speaks of, as a list; several rows of one person first, where something is claimed of them."""
    items = (*(words.of_several(privacy) if privacy else ()), *words.not_covered(plan))
    return element("div", element("ul", *(element("li", item) for item in items)), class_="uncovered")


def _asked_by_nist(record: RunRecord) -> Markup:
    asked = [
        element("div", element("dt", question), element("dd", answer)) for question, answer in nist.questions(record)
    ]
    return element("dl", *asked, class_="questions")


def _headline(record: RunRecord) -> Markup:
    claims = words.claims(record)
    if not claims:
        return Markup()
    kind, _ = words.label(record)
    return headline(kind, words.leading_claim(record))


def headline(kind: str, claim: words.ShownClaim) -> Markup:
    """A proved ε in large figures, below what it belongs to and above everything without which it means nothing."""
    return element("p", element("span", kind), element("b", claim.figure), claim.terms, class_="headline")


def _by_delta(record: RunRecord) -> Markup:
    claims = words.claims(record)
    if record.result is None or not claims:
        return parts.not_yet(record)
    first = claims[0]
    points = sorted(record.result.privacy.by_delta)
    summary = "; ".join(f"at δ = {words.small(d)} ε ≤ {up(e)}" for d, e in points)
    return together(
        charts.line_chart(
            [charts.Series(name="proved, against everyone", points=points)],
            title="ε against δ",
            summary=summary,
            x=charts.Axis(label="δ", log=True),
            y=charts.Axis(label="ε", least=0.0),
            height=170,
        ),
        element("p", f"Rule {first.rule}; {first.adjacency}; against {first.adversary}.", class_="quiet"),
    )


def _answered(record: RunRecord) -> str:
    probes = record.about.plan.probes
    return (
        f" The device also answered {words.count(probes, 'probe')} of its noisy update in every round."
        if probes
        else ""
    )


def _sight(record: RunRecord) -> Markup:
    sight = record.result and record.result.sight
    if not sight:
        return element("p", "No update was kept for comparison in this run.")
    secure = record.about.secure_sum
    masked = secure is not None and record.about.traits.masked
    received = sight.received or ()
    middle = 2 ** (secure.modulus_bits - 1) if secure and masked else 0
    rows: list[tuple[str, Sequence[float], list[str], int]] = [
        ("computed on the device", sight.computed, [f"{v:+.4f}" for v in sight.computed], 0)
    ]
    if received:
        rows.append(("received by the server", [v - middle for v in received], [f"{v:,}" for v in received], 1))
    shown = [
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", charts.strip(heights, title=f"{name}, as bars", style=style), class_="strip"),
            element("td", " · ".join(texts[:4]) + " …", class_="numbers"),
        )
        for name, heights, texts, style in rows
    ]
    verdict = (
        "The server received masked words. They are not shown: masks come from fresh keys and never repeat, "
        "and this run has a seed so that all of this page repeats."
        if masked and not received
        else "Masked, the numbers are spread evenly over the whole range: by themselves they say nothing about the "
        f"update. The masks cancel in the sum only.{_answered(record)}"
        if masked
        else "A simulation leaves the masks out, since they cancel in the sum: this is not what a server would see."
        if secure
        else "Without a secure sum the server received the noisy update itself; only its noise protects it."
    )
    caption = f"{parts.short(sight.device)}, round {sight.round}: the first numbers of its update."
    head = element("tr", *(element("th", title, scope="col") for title in ("who", "as bars", "first numbers")))
    return together(
        element("table", element("caption", caption), element("thead", head), element("tbody", *shown), class_="sight"),
        element("p", verdict, class_="quiet"),
    )


def _releases(record: RunRecord) -> Markup:
    if record.result is None:
        return parts.not_yet(record)
    releases = record.result.releases
    rows = [
        [release.what, release.to, f"{release.times:,}", release.protected_by] for release in releases[:_MOST_RELEASES]
    ]
    more = len(releases) - len(rows)
    note = element("p", f"and {more} more in result.json", class_="quiet") if more else Markup()
    return together(parts.table(("what", "to whom", "times", "protected by"), rows), note)


def _check(record: RunRecord) -> Markup:
    # Not the folder's own name: a run that was moved must still read the same.
    command = element("code", "choral verify RUN")
    source = "the rounds" if record.about.traits.deployed else "the devices' ledgers"
    text = (
        f" computes every ε again from {source}, compares all hashes and signatures, and ends with 0 if everything "
        "agrees, and with 1 otherwise. result.json and privacy.yaml have the figures for machines. "
    )
    hashes = record.result.files if record.result else {}
    own = {name: digest for name, digest in hashes.items() if not name.startswith("ledgers/")}
    named = [together(f"{name} ", element("code", digest[:16]), " ") for name, digest in sorted(own.items())]
    ledgers = f"The {words.count(len(hashes) - len(own), 'ledger')} in result.json." if len(own) < len(hashes) else ""
    return together(
        element("p", command, text, words.who_signed(record) if record.result else ""),
        element("p", "SHA-256, first 16 digits: ", *named, ledgers, class_="quiet hashes") if named else Markup(),
    )


def _made_of(record: RunRecord) -> Markup:
    about = record.about
    data, model = about.data, about.model
    layers = f", hidden {list(model.hidden)}" if model.hidden else ""
    rows: Sequence[tuple[str, str]] = (
        ("plan", _pairs(about.plan.to_dict())),
        ("plan digest", about.plan_digest),
        ("secure sum", _pairs(about.secure_sum.described) if about.secure_sum else "none"),
        (
            "data",
            f"{data.source}: {words.count(data.rows, 'record')} with {data.features} features "
            f"on {words.count(data.devices, 'device')}, hold-out included",
        ),
        ("notes", "; ".join(data.notes) or "none"),
        ("model", f"{model.kind}, {model.parameters:,} parameters{layers}"),
        ("versions", _pairs(about.versions)),
        *([("made with", about.made_with)] if about.made_with is not None else []),
    )
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", text)) for name, text in rows),
        class_="made-of",
    )


def _pairs(values: Mapping[str, object]) -> str:
    shown = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in values.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items() if value is not None)


def _decision(record: RunRecord) -> Markup:
    asked = element("p", words.signed_before(record))
    if not words.can_be_signed(record):
        return asked
    return to_sign(asked)


def to_sign(asked: Markup) -> Markup:
    """What is asked of a person, the two answers, and the lines for a signature."""
    choices = [element("span", choice, class_="choice") for choice in ("accepted", "not accepted")]
    lines = [
        element("div", element("span", name), class_="line")
        for name in ("name and role", "place and date", "signature")
    ]
    return together(
        element("div", asked, element("p", *choices), class_="decision"), element("div", *lines, class_="signature")
    )
