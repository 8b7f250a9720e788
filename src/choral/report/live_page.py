"""What the live page shows of a run at one moment: pieces of markup by the place on the page where they belong."""

from collections.abc import Sequence

from choral.record import RunRecord
from choral.report import parts, viewpoints, words
from choral.report.colluders import by_colluders
from choral.report.markup import Markup, element, together
from choral.report.questions import asked_so_far
from choral.report.viewpoints import Viewpoint

MOST_NAMES = 60  # devices of a cohort shown by name; more are counted
MOST_EVENTS = 40


def live_page(record: RunRecord, viewpoint: Viewpoint = None) -> dict[str, Markup]:
    """Every place of the page with what belongs there now: all of the run, or only what one side of it has."""
    if isinstance(viewpoint, int):
        return _device(viewpoints.taken(record, viewpoint), viewpoint)
    server = viewpoint == "server"
    record = viewpoints.served(record) if server else record
    return {
        "title": _seen_by(record, "the server") if server else together(record.about.name),
        "banner": parts.banner(record),
        "progress": _progress(record),
        "status": _status(record),
        "curve-h": together("How good the model is"),
        "curve": parts.merit_chart(record),
        "budgets-h": together("How often each device was asked" if server else "Budget of each device"),
        "budgets": viewpoints.asked(record) if server else parts.budgets(record),
        "cohort": _cohort(record),
        "sees-h": together("What the server can and can't see"),
        "sees": together(
            _sees("The server", *words.server_sees(record.about.secure_sum, record.about.plan)),
            viewpoints.received(record),
        ),
        "colluder-table": _colluders(record),
        "claims": parts.claims_table(record),
        "questions": asked_so_far(record),
        "events": _events(record),
    }


def _device(record: RunRecord, number: int) -> dict[str, Markup]:
    """The page of one device, of the record that it could have kept."""
    name = parts.short(record.about.devices[number].name)
    said = viewpoints.own_progress(record, number)
    return {
        "title": _seen_by(record, name),
        "banner": parts.banner(record),
        "progress": said,
        "status": said,
        "curve-h": together("What this device has spent"),
        "curve": viewpoints.own_curve(record, number),
        "budgets-h": together("Budget of this device"),
        "budgets": parts.budgets(record, number),
        "cohort": _cohort(record),
        "sees-h": together("What this device can and can't see"),
        "sees": _sees("This device", *viewpoints.OWN_SIGHT),
        "colluder-table": _colluders(record),
        "claims": element(
            "p", "The run's report has these; a device by itself has its own ledger only.", class_="quiet"
        ),
        "questions": asked_so_far(record, number),
        "events": element(
            "ol",
            *(
                element("li", f"Round {line.round:,}: {'in the sum' if number in line.included else 'left out'}.")
                for line in reversed(record.rounds[-MOST_EVENTS:])
            ),
            reversed=True,
        ),
    }


def _seen_by(record: RunRecord, who: str) -> Markup:
    return together(f"{record.about.name}, as {who} sees it")


def _progress(record: RunRecord) -> Markup:
    done, planned = len(record.rounds), record.about.plan.rounds
    ended = record.result.stopped if record.result else ""
    good = [words.goodness(line.test) for line in record.rounds[-1:] if line.test]
    words_ = " · ".join([f"round {done:,} of {planned:,}", *good, *([f"ended: {ended}"] if record.result else [])])
    return together(element("progress", max=planned, value=done, aria_label="rounds done"), element("span", words_))


def _status(record: RunRecord) -> Markup:
    """The sentence that a screen reader speaks: at every tenth of the run and at its end, not at every round."""
    done, planned = len(record.rounds), record.about.plan.rounds
    if record.result:
        good = f"; {words.goodness(record.result.test)}" if record.result.test else ""
        return together(f"The run has ended after {words.count(done, 'round')}{good}.")
    tenth = max(planned // 10, 1)
    if done < tenth:
        return together("The run has begun.")
    line = record.rounds[done - done % tenth - 1]
    included = words.count(len(line.included), "device")
    return together(f"Round {line.round} of {planned}: {included} in the sum.")


def _cohort(record: RunRecord) -> Markup:
    if not record.rounds:
        return element("p", "No round is over yet.", class_="quiet")
    line = record.rounds[-1]
    asked, included = set(line.cohort), set(line.included)
    lead = element(
        "p",
        f"Round {line.round:,}: {words.count(len(asked), 'device')} asked, {len(included):,} in the sum, "
        f"{len(asked - included):,} dropped out.",
    )
    devices = record.about.devices
    if len(devices) > MOST_NAMES:
        return lead
    chips = []
    for number, device in enumerate(devices):
        state = "in" if number in included else "dropped" if number in asked else "not asked"
        sign = {"in": "●", "dropped": "✕", "not asked": "·"}[state]
        name = element("span", parts.short(device.name, 20))
        chips.append(
            element(
                "li",
                element("span", f"{sign} ", aria_hidden="true"),
                name,
                element("small", f" {state}"),
                class_=state.split()[0],
            )
        )
    return together(lead, element("ul", *chips, class_="chips"))


def _sees(who: str, can: Sequence[str], cannot: Sequence[str]) -> Markup:
    return element(
        "div",
        element("div", element("h3", f"{who} can see"), element("ul", *(element("li", item) for item in can))),
        element("div", element("h3", "It can't see"), element("ul", *(element("li", item) for item in cannot))),
        class_="pair",
    )


def _colluders(record: RunRecord) -> Markup:
    """A row for every place of the slider; the page shows one of them at a time."""
    rows, secure = by_colluders(record), record.about.secure_sum
    if secure is None:
        return element("p", "There is no secure sum: colluders change nothing.")
    now = words.spent_so_far(record)
    body = [element("tr", element("th", f"{c}", scope="row"), element("td", text + now)) for c, _, text in rows]
    head = element("tr", element("th", "colluders", scope="col"), element("th", "what holds", scope="col"))
    return element("table", element("thead", head), element("tbody", *body), data_planned=secure.colluders)


def _events(record: RunRecord) -> Markup:
    events = [f"Started {words.when(record.about.started)}."]
    events += [f"Round {line.round:,}: {line.note}." for line in record.rounds if line.note]
    if record.result:
        events.append(f"Ended {words.when(record.result.finished)}: {record.result.stopped}.")
    return element("ol", *(element("li", sentence) for sentence in reversed(events[-MOST_EVENTS:])), reversed=True)
