"""Pieces that the report and the live page share: the banner, the three ε, the curve, the budgets, the colluders."""

import math
import statistics
from collections.abc import Iterable, Sequence

from choral.core.display import up
from choral.core.exposure import adjacency_of
from choral.core.private_sums import RULE
from choral.record import RunRecord, SpentByDevice, merit
from choral.report import charts, words
from choral.report.asked_terms import has_questions, reserved
from choral.report.colluders import by_colluders
from choral.report.markup import Markup, element, together

MOST_BARS = 20  # devices; more are summarised
LEAST_SPAN = 0.1  # of an axis with accuracies or R²: ten points, some standard errors of a small hold-out


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table whose first cell in each row is that row's heading.

    >>> "<td>20</td>" in table(("what", "times"), [("model", "20")])
    True
    """
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    ]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


def short(text: str, most: int = 28) -> str:
    """The text, cut with an ellipsis where it is longer.

    >>> short("a very long name of a device", 12)
    'a very long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


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
