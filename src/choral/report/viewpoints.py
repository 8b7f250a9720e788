"""What one side of a run truly has, the server or one device, as the places of the live page; nothing else is sent."""

import math
from typing import Literal

from msgspec.structs import replace

from choral.core.display import up
from choral.core.errors import ConfigError
from choral.record import About, Baselines, DeviceLimit, RunRecord
from choral.report import charts, parts, words
from choral.report.markup import Markup, element, together

Viewpoint = Literal["server"] | int | None  # a device by its number; None for who ran it all in one process
_SHOWN = 6  # words of a masked upload


def viewpoint_of(text: str | None, about: About) -> Viewpoint:
    """The viewpoint that `--as` names."""
    if text is None or text == "server":
        return "server" if text else None
    name = text.removeprefix("device:")
    names = [device.name for device in about.devices]
    if name == text or name not in names:
        known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise ConfigError("CH102", f'"{text}" is no side of this run.', where="--as",
                          fix=f'Use "server", or "device:NAME" with one of: {known}.')  # fmt: skip
    return names.index(name)


def served(record: RunRecord) -> RunRecord:
    """The record as the server could have kept it: no ledger, no update before its masks, no model but its own."""
    about = replace(record.about, devices=tuple(replace(one, limit=math.inf) for one in record.about.devices))
    lines = [replace(line, spent=()) for line in record.rounds]
    result = record.result
    if result is not None:
        result = replace(
            result,
            privacy=replace(result.privacy, devices=None),
            sight=result.sight and replace(result.sight, computed=()),
            baselines=Baselines(without_privacy=None, alone=None),
            verdict=None,
        )
    return RunRecord(folder=record.folder, about=about, rounds=lines, result=result)


def asked(record: RunRecord) -> Markup:
    """How often the server asked each device, and in how many sums it is: all that a server has of their budgets."""
    kept = "Each device's ledger stays on the device: the server knows only whom it asked and who answered."
    devices = record.about.devices
    if len(devices) > parts.MOST_BARS:
        return element("p", kept, class_="quiet")
    rows = [
        (parts.short(device.name), f"{_asked(record, number):,}", f"{_included(record, number):,}")
        for number, device in enumerate(devices)
    ]
    return together(parts.table(("device", "asked", "in the sum"), rows), element("p", kept, class_="quiet"))


def _asked(record: RunRecord, number: int) -> int:
    return sum(number in line.cohort for line in record.rounds)


def _included(record: RunRecord, number: int) -> int:
    return sum(number in line.included for line in record.rounds)


def received(record: RunRecord) -> Markup:
    """The beginning of a masked upload, as the server got it."""
    sight = record.result and record.result.sight
    if not sight or sight.received is None:
        return Markup()
    begins = " ".join(f"{word % 2**32:08x}" for word in sight.received[:_SHOWN])
    sentence = f"Of {parts.short(sight.device)} in round {sight.round} it received "
    return element("p", sentence, element("code", f"{begins} …"))


def taken(record: RunRecord, number: int) -> RunRecord:
    """The record as one device could have kept it: its own rounds, what it spent itself, no test figure, no result."""
    about, own = record.about, record.about.devices[number]
    # The others' rows are not known to it. Its own stand for them, so that only its own ledger's rule is named.
    devices = [DeviceLimit(name=device.name, rows=own.rows, limit=math.inf) for device in about.devices]
    devices[number] = own
    lines = []
    for line in record.rounds:
        if number in line.cohort:
            spent = tuple(epsilon * (place == number) for place, epsilon in enumerate(line.spent))
            lines.append(replace(line, test={}, spent=spent, note=""))
    about = replace(about, devices=tuple(devices))
    return RunRecord(folder=record.folder, about=about, rounds=lines, result=None)


def own_progress(record: RunRecord, number: int) -> Markup:
    """In how many rounds the device was asked, and in how many sums it is."""
    asked, included = len(record.rounds), _included(record, number)
    return element("span", f"asked in {words.count(asked, 'round')}, in the sum of {included:,}")


def own_curve(record: RunRecord, number: int) -> Markup:
    """The device's ε after each of its rounds, below its limit."""
    points = [(float(line.round), line.spent[number]) for line in record.rounds if line.spent]
    if not points:
        return parts.not_yet(record)
    limit, last = record.about.devices[number].limit, float(record.about.plan.rounds)
    series = [charts.Series(name=f"spent: ε ≤ {up(points[-1][1])}", points=points)]
    if limit < 1e4:  # the largest that [privacy] takes; beyond, the ledger counts and refuses nothing
        across = [(points[0][0], limit), (last, limit)]
        series.append(charts.Series(name=f"limit: {up(limit)}", points=across, marks=False))
    return together(
        charts.line_chart(
            series,
            title="ε of this device",
            summary="; ".join(line.name for line in series),
            x=charts.Axis(label="round", whole=True, least=last),
            y=charts.Axis(label="ε", least=0.0),
            height=300,
        ),
        parts.ledger_terms(record),
    )


OWN_SIGHT = (
    ("its own rows, its own update before masks, its own ledger", "the plan, and the model of every round it is in",
     "which devices are in its rounds, and who dropped out"),
    ("another device's rows, update or ledger", "the sum, before it is in the next model", "rounds that it is not in"),
)  # fmt: skip
