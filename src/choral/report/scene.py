"""What the live page shows of a run at one moment: pieces of markup by the place on the page where they belong."""

from typing import Any

from choral.report import parts, words
from choral.report.markup import Markup, element, together
from choral.run.folder import RunRecord

MOST_NAMES = 60  # devices of a cohort shown by name; more are counted
MOST_EVENTS = 40


def scene(record: RunRecord) -> dict[str, Markup]:
    """Every place of the page with what belongs there now."""
    return {
        "title": together(record.about["name"]),
        "banner": parts.banner(record),
        "progress": _progress(record),
        "status": _status(record),
        "curve": parts.accuracy_chart(record),
        "budgets": parts.budgets(record),
        "cohort": _cohort(record),
        "sees": _sees(record.about),
        "colluder-table": _colluders(record),
        "claims": parts.claims_table(record),
        "events": _events(record),
    }


def _progress(record: RunRecord) -> Markup:
    done, planned = len(record.rounds), record.about["plan"]["rounds"]
    ended = record.result["stopped"] if record.result else ""
    accuracy = [f"accuracy {line['test']['accuracy']:.3f}" for line in record.rounds[-1:] if line["test"]]
    words_ = " · ".join([f"round {done:,} of {planned:,}", *accuracy, *([f"ended: {ended}"] if record.result else [])])
    return together(element("progress", max=planned, value=done, aria_label="rounds done"), element("span", words_))


def _status(record: RunRecord) -> Markup:
    """The sentence that a screen reader speaks: at every tenth of the run and at its end, not at every round."""
    done, planned = len(record.rounds), record.about["plan"]["rounds"]
    if record.result:
        test = record.result["test"]
        accuracy = f"; accuracy {test['accuracy']:.3f}" if test else ""
        return together(f"The run has ended after {words.count(done, 'round')}{accuracy}.")
    tenth = max(planned // 10, 1)
    if done < tenth:
        return together("The run has begun.")
    line = record.rounds[done - done % tenth - 1]
    included = words.count(len(line["included"]), "device")
    return together(f"Round {line['round']} of {planned}: {included} in the sum.")


def _cohort(record: RunRecord) -> Markup:
    if not record.rounds:
        return element("p", "No round is over yet.", class_="quiet")
    line = record.rounds[-1]
    asked, included = set(line["cohort"]), set(line["included"])
    lead = element(
        "p",
        f"Round {line['round']:,}: {words.count(len(asked), 'device')} asked, {len(included):,} in the sum, "
        f"{len(asked - included):,} dropped out.",
    )
    devices = record.about["devices"]
    if len(devices) > MOST_NAMES:
        return lead
    chips = []
    for number, device in enumerate(devices):
        state = "in" if number in included else "dropped" if number in asked else "not asked"
        sign = {"in": "●", "dropped": "✕", "not asked": "·"}[state]
        name = element("span", parts.short(device["name"], 20))
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


def _sees(about: dict[str, Any]) -> Markup:
    can, cannot = words.server_sees(about)
    return element(
        "div",
        element("div", element("h3", "The server can see"), element("ul", *(element("li", item) for item in can))),
        element("div", element("h3", "It can't see"), element("ul", *(element("li", item) for item in cannot))),
        class_="pair",
    )


def _colluders(record: RunRecord) -> Markup:
    """A row for every place of the slider; the page shows one of them at a time."""
    rows = words.by_colluders(record)
    if not rows:
        return element("p", "There is no secure sum: colluders change nothing.")
    body = [element("tr", element("th", f"{c}", scope="row"), element("td", text)) for c, _, text in rows]
    head = element("tr", element("th", "colluders", scope="col"), element("th", "what holds", scope="col"))
    planned = record.about["secure_sum"]["colluders"]
    return element("table", element("thead", head), element("tbody", *body), data_planned=planned)


def _events(record: RunRecord) -> Markup:
    told = [f"Started {words.when(record.about['started'])}."]
    told += [f"Round {line['round']:,}: {line['note']}." for line in record.rounds if line["note"]]
    if record.result:
        told.append(f"Ended {words.when(record.result['finished'])}: {record.result['stopped']}.")
    return element("ol", *(element("li", sentence) for sentence in reversed(told[-MOST_EVENTS:])), reversed=True)
