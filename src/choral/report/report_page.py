"""report.html: one file that a privacy officer reads, prints on two A4 pages, signs and re-checks."""

import base64
import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from choral.accounting.words import rule_in_words, up
from choral.core.exposure import adjacency_of
from choral.core.plan import Plan
from choral.core.private_sums import RULE
from choral.record import Record, RunRecord, ShownAttack, SpentByDevice, Statement, merit, of_right_form, read_run
from choral.report import charts, registry, words
from choral.report.markup import Markup, element, short, table, together
from choral.report.probes import answered
from choral.report.questions import asked_questions, has_questions, reserved
from choral.report.words import by_colluders
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
        return {short(name, most): _cut(item, most) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_cut(item, most) for item in value)
    return short(value, most) if isinstance(value, str) else value


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
        _section("claims", "Annex: how much privacy is lost at most", claims_table(record, slice(2))),
        element(
            "div",
            _section("merit", "How good the model is, on the hold-out", merit_chart(record)),
            _section("budgets", "Budget of each device", budgets(record)),
            class_="pair",
        ),
        _section("nist", "The questions of NIST SP 800-226", _asked_by_nist(record)),
        element(
            "div",
            _section("by-delta", "ε against δ", _by_delta(record)),
            _section("by-colluders", "ε against the number of colluders", colluder_chart(record)),
            class_="pair",
        ),
        _section("sight", "What the device computed, what the server received", _sight(record)),
        *(
            [_section("attacker", "What an attacker reads", attacker_section(record.attack))]
            if record.attack is not None
            else []
        ),
        *([_section("questions", "Questions asked", asked_questions(record))] if has_questions(record) else []),
        *([_section("probes", "What devices answered", answered(record))] if record.about.plan.probes else []),
        _section("releases", "Everything that left a device", _releases(record)),
        _section("check", "Check it again", _check(record)),
        _section("published", "The formula of the paper", claims_table(record, slice(2, None))),
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
        banner(record),
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
        element("div", element("dt", question), element("dd", answer))
        for question, answer in registry.nist_answers(record)
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
        return not_yet(record)
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
    caption = f"{short(sight.device)}, round {sight.round}: the first numbers of its update."
    head = element("tr", *(element("th", title, scope="col") for title in ("who", "as bars", "first numbers")))
    return together(
        element("table", element("caption", caption), element("thead", head), element("tbody", *shown), class_="sight"),
        element("p", verdict, class_="quiet"),
    )


def _releases(record: RunRecord) -> Markup:
    if record.result is None:
        return not_yet(record)
    releases = record.result.releases
    rows = [
        [release.what, release.to, f"{release.times:,}", release.protected_by] for release in releases[:_MOST_RELEASES]
    ]
    more = len(releases) - len(rows)
    note = element("p", f"and {more} more in result.json", class_="quiet") if more else Markup()
    return together(table(("what", "to whom", "times", "protected by"), rows), note)


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


MOST_BARS = 20  # devices; more are summarised
LEAST_SPAN = 0.1  # of an axis with accuracies or R²: ten points, some standard errors of a small hold-out


def not_yet(record: RunRecord) -> Markup:
    """What stands where there is no figure: the run has not ended, or nothing is protected."""
    return element("p", words.unprotected(record) or "Known when the run has ended.", class_="quiet")


def banner(record: RunRecord) -> Markup:
    """The kind of the run and what that means, at the top of everything."""
    kind, meaning = words.label(record)
    return element("p", element("strong", kind), f" {meaning}", class_="banner", role="note")


def claims_table(record: RunRecord, shown: slice = slice(None)) -> Markup:
    """The three ε, or some of them, each with its rule, adjacency and adversary."""
    claims = words.claims(record)
    if not claims:
        return not_yet(record)
    columns = ("claim", "at most", "standing", "rule", "adjacency", "against")
    rows = [
        element(
            "tr",
            element("th", f"{number}. {claim.title}", scope="row"),
            element(
                "td",
                element("b", claim.figure),
                element("span", f"δ = {words.small(claim.delta)}", class_="quiet") if claim.epsilon is not None else "",
                class_="figure",
            ),
            *(
                element("td", text, data_label=name)
                for name, text in zip(
                    columns[2:], (claim.standing, claim.rule, claim.adjacency, claim.adversary), strict=True
                )
            ),
            class_=None if claim.guarantee else "no-guarantee",
        )
        for number, claim in list(enumerate(claims, start=1))[shown]
    ]
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    return element(
        "div", element("table", element("thead", head), element("tbody", *rows), class_="claims"), class_="wide"
    )


def merit_chart(record: RunRecord) -> Markup:
    """Accuracy, or R², on the hold-out after every round, with the lines without privacy and of each device alone."""
    if record.about.sums is not None and record.result is not None and record.result.test:
        return element(
            "p", ", ".join(f"{name.replace('_', '-')} {value:.3f}" for name, value in record.result.test.items()) + "."
        )
    chart = merit_curve(record)
    if chart is None:
        why = "yet" if record.result is None else "on held-out rows"
        return element("p", f"No round has been evaluated {why}.", class_="quiet")
    return together(chart, element("p", words.measured(record.result), class_="quiet")) if record.result else chart


def merit_curve(record: RunRecord) -> Markup | None:
    """The chart itself; None where no round has been evaluated."""
    found = [(float(line.round), *merit(line.test)) for line in record.rounds if line.test]
    if not found:
        return None
    name = found[-1][1]
    points = [(number, value) for number, _, value in found]
    result = record.result
    last = float(record.about.plan.rounds)
    series = [charts.Series(name=f"this run: {points[-1][1]:.3f}", points=points, spread=_errors(record, points))]
    for other, value in (result.baselines.named() if result else {}).items():
        across = [(points[0][0], value), (last, value)]
        series.append(charts.Series(name=f"{other}: {value:.3f}", points=across, marks=False))
    return charts.line_chart(
        series,
        title=f"{name} per round",
        summary=f"{points[0][1]:.3f} after round {points[0][0]:g}; " + "; ".join(line.name for line in series),
        x=charts.Axis(label="round", whole=True, least=last),
        y=charts.Axis(label=name, span=LEAST_SPAN),
        height=300,
    )


def _errors(record: RunRecord, points: Sequence[charts.Point]) -> list[charts.Point]:
    """One standard error either side of each accuracy, from the rows of the hold-out; none for other figures."""
    found = record.result.measured if record.result is not None else None
    if found is None or found.error is None:
        return []
    errors = [math.sqrt(max(value * (1 - value), 0.0) / found.rows) for _, value in points]
    return [(value - error, value + error) for (_, value), error in zip(points, errors, strict=True)]


def spent(record: RunRecord) -> Sequence[SpentByDevice]:
    """What each device has used: from the result, from the last round of a run under way, or for its questions."""
    if record.result is not None:
        return record.result.privacy.devices or ()
    devices = record.about.devices
    so_far = record.rounds[-1].spent if record.rounds else (reserved(record),) * len(devices)
    if not so_far:
        return ()
    # Asked, not included: who drops out late has sent its update, and was charged for it.
    taken = [sum(number in line.cohort for line in record.rounds) for number in range(len(devices))]
    return [
        SpentByDevice(name=device.name, epsilon=epsilon, limit=device.limit, rounds=rounds, full=False)
        for device, epsilon, rounds in zip(devices, so_far, taken, strict=True)
    ]


def ledger_terms(record: RunRecord, more: str = "") -> Markup:
    """Everything without which an ε of a ledger means nothing, and what else there is to say of it."""
    rules = words.ledger_rules(record.about) + f" and {RULE}: whole-number noise on sums" * has_questions(record)
    against, adjacency = words.limited_against(record.about), adjacency_of(record.about.plan)
    terms = f"ε at δ = {words.small(record.about.delta)}; rule {rules}; {adjacency}; against {against}. {more}"
    return element("p", terms.rstrip(), class_="quiet")


def budgets(record: RunRecord, only: int | None = None) -> Markup:
    """A bar per device with used, limit and rounds; many devices in summary, or one alone by its number."""
    devices = spent(record)
    if not devices:
        return not_yet(record)
    if only is not None:
        devices = devices[only : only + 1]
    summary = Markup()
    if len(devices) > MOST_BARS:
        summary = _summary(devices)
        devices = sorted(devices, key=lambda device: -device.epsilon / device.limit)[:8]
    rows = [
        element(
            "tr",
            element("th", short(device.name), scope="row"),
            element(
                "td",
                charts.bar(
                    device.epsilon / device.limit,
                    title=f"{words.percent(device.epsilon / device.limit)} used",
                    style=1 if device.full else 0,
                ),
                class_="bar",
            ),
            element("td", f"{up(device.epsilon)} / {up(device.limit)}", class_="numbers"),
            element("td", f"{_paid(device)}{_state(device)}"),
        )
        for device in devices
    ]
    used = "at most / limit" if record.about.traits.deployed else "used / limit"
    paid = "paid / planned" if any(device.planned is not None for device in devices) else "paid"
    columns = ("device" if not summary else "most used", "", used, paid)
    head = element("tr", *(element("th", column, scope="col") if column else element("td") for column in columns))
    return together(
        summary,
        element("table", element("thead", head), element("tbody", *rows), class_="budgets"),
        ledger_terms(record, words.budget_terms(record)),
    )


def _paid(device: SpentByDevice) -> str:
    """The uploads that a device has paid for, of those that were planned for it at most."""
    return f"{device.rounds:,}" + ("" if device.planned is None else f" / {device.planned:,}")


def _state(device: SpentByDevice) -> str:
    """What was retried, and whether the next round would pass the limit; a run from before knows only of its plan.

    >>> _state(SpentByDevice(name="a", epsilon=0.0, limit=0.1, rounds=0, full=True, planned=0))
    ' · limit below one round'
    >>> _state(SpentByDevice(name="a", epsilon=0.06, limit=2.0, rounds=20, full=True))
    ' · as many as planned'
    """
    retried = f" · {device.retried:,} retried" if device.retried else ""
    if not device.full:
        return retried
    if not device.rounds:
        return " · limit below one round"
    return f"{retried} · full" if device.planned is not None else " · as many as planned"


def _summary(devices: Sequence[SpentByDevice]) -> Markup:
    used = [device.epsilon / device.limit for device in devices]
    full = sum(device.full and device.planned is not None for device in devices)
    text = (
        f"{len(devices):,} devices have used between {words.percent(min(used))} and {words.percent(max(used))} "
        f"of their limits, half of them at most {words.percent(statistics.median(used))}; "
        f"{words.count(full, 'device')} would pass its limit by one more round, and so refuses it."
    )
    return element("p", text)


def colluder_chart(record: RunRecord) -> Markup:
    """The proved ε with the secure sum for every number of colluders, next to the ε against everyone."""
    if record.about.secure_sum is None:
        return element("p", "There was no secure sum: colluders change nothing, the ε against everyone holds.")
    if not words.claims(record):
        return not_yet(record)
    rows = by_colluders(record)
    points = [(float(colluders), epsilon) for colluders, epsilon, _ in rows if epsilon is not None]
    everyone, summed, _ = words.claims(record)
    if not points or everyone.epsilon is None:
        none = "No provable extra protection here, for any number of colluders."
        return element("p", f"{none} {everyone.figure} holds ({everyone.terms}).")
    most = float(max(colluders for colluders, _, _ in rows))
    return together(
        charts.line_chart(
            [
                charts.Series(name="proved with the secure sum", points=points),
                charts.Series(
                    name="against everyone", points=[(0.0, everyone.epsilon), (most, everyone.epsilon)], marks=False
                ),
            ],
            title="ε against the number of colluders",
            summary=" ".join(sentence for _, _, sentence in rows),
            x=charts.Axis(label="colluders", whole=True),
            y=charts.Axis(label="ε", least=0.0),
            height=170,
        ),
        element(
            "p",
            f"Rule {summed.rule}; {summed.adjacency}; δ = {words.small(summed.delta)}. "
            "A colluder shares its noise and keys with the server.",
            class_="quiet",
        ),
    )


# What `choral attack` writes; a longer list would not fit on the page.
_MOST_COLUMNS, _MOST_TARGETS = 6, 4


def attacker_section(attack: ShownAttack) -> Markup:
    """Three lines on a row, four on membership, and whose row and which plan that is."""
    return together(_whose(attack), _row(attack), _membership(attack), _terms(attack))


def _whose(attack: ShownAttack) -> Markup:
    return element(
        "p",
        f"A demonstration on one person's row of public data ({attack.data}). It read nothing of this run, proves "
        "nothing about it, and choral verify does not vouch for it; choral attack makes it again.",
    )


def _row(attack: ShownAttack) -> Markup:
    shown = attack.shown[:_MOST_COLUMNS]
    guess = attack.guess
    lines = [
        (
            "an ordinary update",
            attack.ordinary["network"],
            ", and the label" if attack.label_read == attack.label else "",
        ),
        ("a masked upload of choral", attack.masked, ""),
        ("choral's opened sum, with noise", attack.opened, ""),
    ]
    rows = [("the row itself", "–", *(attack.row[name] for name in shown))]
    rows += [
        (what, f"{reading.matched:,} of {reading.of:,}{also}", *(reading.cells[name] for name in shown))
        for what, reading, also in lines
    ]
    return together(
        table(("from", "cells read right", *shown), rows),
        element(
            "p",
            f"Who sees no update and says every column's most common cell has {guess.matched:,} of {guess.of:,}.",
            class_="quiet",
        ),
    )


def _membership(attack: ShownAttack) -> Markup:
    rows = []
    for one in attack.membership[:_MOST_TARGETS]:
        error = f" ± {100 * one.error:.1f}" if one.error else ""
        limit = "no limit" if one.bound is None else f"{up(100 * one.bound, 1)} %"
        rows.append((one.target, f"{100 * one.measured:.1f}{error} %", limit))
    alarms = f"found, with {words.percent(attack.false_alarms)} false alarms"
    return table(("was the row in it?", alarms, "no attack finds more than"), rows)


def _terms(attack: ShownAttack) -> Markup:
    return element(
        "p",
        f"Limits of choral's plan in the demonstration: ε\xa0≤\xa0{up(attack.epsilon)} at "
        f"δ = {words.small(attack.delta)}; rule {rule_in_words(attack.rule)}; {attack.adjacency}; "
        f"against {attack.adversary}.",
        class_="quiet",
    )
