"""The report's section on what an attacker reads, from attack.json: a demonstration on public data, not on the run."""

from choral.accounting.words import rule_in_words
from choral.core.display import up
from choral.record import ShownAttack
from choral.report import parts, words
from choral.report.markup import Markup, element, together

HEADING = "What an attacker reads"
# What `choral attack` writes; a longer list would not fit on the page.
_MOST_COLUMNS, _MOST_TARGETS = 6, 4


def reads(attack: ShownAttack) -> Markup:
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
        parts.table(("from", "cells read right", *shown), rows),
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
    return parts.table(("was the row in it?", alarms, "no attack finds more than"), rows)


def _terms(attack: ShownAttack) -> Markup:
    return element(
        "p",
        f"Limits of choral's plan in the demonstration: ε\xa0≤\xa0{up(attack.epsilon)} at "
        f"δ = {words.small(attack.delta)}; rule {rule_in_words(attack.rule)}; {attack.adjacency}; "
        f"against {attack.adversary}.",
        class_="quiet",
    )
