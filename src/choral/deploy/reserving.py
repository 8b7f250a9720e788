"""How much one approval allows: the uploads that a study reserves in a site's ledger before the first of them."""

from dataclasses import replace
from pathlib import Path

from choral.plan import Budget
from choral.privacy.costs import Costs, most_uploads
from choral.privacy.exposure import rounds_each
from choral.privacy.ledger import Balance, Ledger, Reservation
from choral.privacy.shown import up
from choral.run.agreement import Agreement

SLACK = 1 + 1e-9  # the study's noise was solved for its ε to the last bits, perhaps on another machine


def balance_under(limit: Budget, ledger: Path, *, device: str) -> Balance:
    """A ledger's balance as it would be under this limit, in memory; an empty one where there is no ledger yet."""
    if not ledger.exists():
        return Balance(device=device, limit=limit)
    balance = Ledger.read(ledger).balance
    balance.adopt()
    balance.limit = limit
    return balance


def reserve_in(book: Balance | Ledger, study: Agreement, costs: Costs, *, began: int = 0, needed: bool = True) -> None:
    """Reserve what an approval of the study allows, once, and free what other studies have reserved and never used.

    `began` is how many charges of the study came before the passes over the approved table: another table starts a new
    pass, which costs more than going on. CH401 where the limit does not pay for the planned uploads; unless they are
    `needed`, as many as it pays for.
    """
    balance = book if isinstance(book, Balance) else book.balance
    for plan in balance.open_plans:
        if plan != study.run_name:
            book.release(plan)
    if more := _missing(balance, study, costs, began=began, needed=needed):
        book.reserve(more)


def _missing(balance: Balance, study: Agreement, costs: Costs, *, began: int, needed: bool) -> Reservation | None:
    """What is still to be reserved: the planned uploads, and as much of the allowance as the limit pays for."""
    planned, made = rounds_each(study.plan), sum(charge.plan == study.run_name for charge in balance.charges)
    if made >= most_uploads(planned):
        return None
    all_of_them = costs.reservation(0, range(made - began, most_uploads(planned) - began), run=study.run_name)
    left, wanted, planned_ones = balance.left_of(study.run_name), [], 0
    for number, event in enumerate(all_of_them.uploads, start=made):
        if left[event] > 0:
            left[event] -= 1
        else:
            wanted.append(event)
            planned_ones += number < planned
    if not wanted:
        return None
    missing = replace(all_of_them, uploads=tuple(wanted))
    count = balance.affordable(missing)
    if needed and count < planned_ones:
        whole = replace(missing, uploads=missing.uploads[:planned_ones])
        if not balance.epsilon_of_reservation(whole) <= balance.limit.epsilon * SLACK:
            balance.admissible(whole)  # says CH401, with the figures
    return replace(missing, uploads=missing.uploads[:count]) if count else None


def cap_in_words(*, planned: int, uploads: int, epsilon: float, terms: str) -> str:
    """What the approval screen says of the cap; `terms` are δ, adjacency, rule and adversary.

    >>> print(cap_in_words(planned=13, uploads=17, epsilon=2.3, terms="δ = 1e-05, …")[:76])
    at most 17 uploads (4 more than planned, for attempts that fail), so at most
    """
    more = uploads - planned
    extra = f"{more} more than planned, for attempts that fail" if more > 0 else "the limit pays for no more"
    return f"at most {uploads} uploads ({extra}), so at most ε = {up(epsilon)}, whatever the server asks ({terms})"
