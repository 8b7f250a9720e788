"""How much one approval allows: the uploads that a study reserves in a site's ledger before the first of them."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from choral.core.costs import NO_LIMIT, Costs, most_uploads, spare_uploads
from choral.core.display import up
from choral.core.errors import LedgerError
from choral.core.events import epsilon_of
from choral.core.exposure import rounds_each
from choral.core.ledger import Balances, Ledger, Reservation
from choral.core.plan import Budget
from choral.core.printable import count
from choral.core.private_sums import RULE
from choral.core.rules import ADJACENCY, EVERYONE
from choral.run.agreement import Agreement
from choral.run.questions import AskTerms
from choral.run.study import plan_of_questions, reserve_questions

_NO_MORE = "the limit pays for no more, and each attempt that fails costs a round"
SLACK = 1 + 1e-9  # the study's noise was solved for its ε to the last bits, perhaps on another machine


def balances_under(limit: Budget, sum_epsilon: float | None, ledger: Path, *, device: str) -> Balances:
    """A ledger's balances as they would be under these limits, in memory; empty where there is no ledger yet."""
    if not ledger.exists():
        return Balances(device=device, limit=limit, sum_epsilon=sum_epsilon)
    balances = Ledger.read(ledger).balances
    balances.adopt()
    balances.set_limit(limit, sum_epsilon)
    return balances


def reserve_in(
    book: Balances | Ledger,
    study: Agreement,
    costs: Costs,
    *,
    began: int = 0,
    needed: bool = True,
    most: int | None = None,
) -> None:
    """Reserve what an approval of the study allows, once, and free what other studies have reserved and never used.

    `began` is how many charges of the study came before the passes over the approved table: another table starts a new
    pass, which costs more than going on. CH401 where the limit does not pay for the planned uploads; unless they are
    `needed`, as many as it pays for. `most` is how many uploads the study may make, if not the usual allowance.
    """
    balances = book if isinstance(book, Balances) else book.balances
    for plan in balances.everyone.open_plans:
        if plan not in (study.run_name, plan_of_questions(study.run_name)):
            book.release(plan)
    if costs.questions is not None:  # first: the allowance for rounds that fail takes what is left
        reserve_questions(book, costs.questions, study.run_name)
    if more := _missing(balances, study, costs, began=began, needed=needed, most=most):
        book.reserve(more)


def _missing(
    balances: Balances, study: Agreement, costs: Costs, *, began: int, needed: bool, most: int | None
) -> Reservation | None:
    """What is still to be reserved: the planned uploads, and as much of the allowance as the limit pays for."""
    balance = balances.everyone
    planned, made = rounds_each(study.plan), balance.charges_of(study.run_name)
    most = most_uploads(planned) if most is None else most
    if made >= most:
        return None
    all_of_them = costs.reservation(0, range(made - began, most - began), run=study.run_name)
    left, wanted, planned_ones = balance.left_of(study.run_name), [], 0
    for number, event in enumerate(all_of_them.uploads, start=made):
        if left[event] > 0:
            left[event] -= 1
        else:
            wanted.append(number - made)
            planned_ones += number < planned
    if not wanted:
        return None
    missing = all_of_them.only(wanted)
    count = balances.affordable(missing)
    if needed and count < planned_ones:
        whole = missing.first(planned_ones)
        if not balances.within(whole, slack=SLACK):
            balances.admissible(whole)  # says CH401, with the figures
    return missing.first(count) if count else None


def check_spare(balances: Balances, study: Agreement, costs: Costs, ledger: Path) -> None:
    """Nothing, or CH413 where limits pay for the planned rounds of a new study and for too few attempts that fail.

    `balances` have reserved the study by now; `ledger` is the file that they were read from.
    """
    planned, run = rounds_each(study.plan), study.run_name
    wanted, spare = spare_uploads(planned), balances.everyone.uploads_of(run) - planned
    if spare >= wanted or balances.everyone.charges_of(run):
        return
    everyone, sums = balances.everyone, balances.sum_epsilon
    free = balances_under(
        replace(everyone.limit, epsilon=NO_LIMIT), None if sums is None else NO_LIMIT, ledger, device=everyone.device
    )
    reserve_in(free, study, costs, most=planned + wanted)
    limits = f"--max-epsilon {up(free.everyone.reserved)}"
    if sums is not None:
        limits += f" --max-epsilon-sum {up(free.sums.reserved)}"
    raise LedgerError(
        "CH413",
        f"the limit pays for the {count(planned, 'planned round')} and {count(spare, 'failed attempt')}, "
        f"{wanted} is the least.",
        why="An attempt that fails is charged, too: each one more would cost the study a round of this site.",
        fix=f"Only the owner can decide: {limits} has room for {wanted}; --no-spare approves without.",
    )


def cap_in_words(*, planned: int, uploads: int, epsilon: float, terms: str) -> str:
    """What the approval screen says of the cap; `terms` are δ, adjacency, rule and adversary.

    >>> print(cap_in_words(planned=13, uploads=17, epsilon=2.3, terms="δ = 1e-05, …")[:76])
    at most 17 uploads (4 more than planned, for attempts that fail), so at most
    """
    more = uploads - planned
    extra = f"{more} more than planned, for attempts that fail" if more > 0 else _NO_MORE
    cap = f"at most {count(uploads, 'upload')} ({extra})"
    return f"{cap}, so at most ε = {up(epsilon)}, whatever the server asks ({terms})"


def asks_in_words(study: Agreement, costs: Costs, delta: float, struck: Collection[str] = ()) -> str:
    """What the approval screen says of questions; empty where the study may ask none."""
    if costs.questions is None:
        return ""
    terms = AskTerms.of(study.job, run=study.run_name, devices=len(study.roster)).without(struck)
    epsilon, price = epsilon_of([costs.questions.reserved], delta), costs.questions
    return (
        f"at most {count(price.most, 'question')} ({', '.join(terms.names)}) about the columns "
        f"{', '.join(terms.columns)}; "
        f"all of them together cost ε = {up(epsilon)} (δ = {delta:g}, {ADJACENCY}, rule {RULE}, against {EVERYONE}), "
        "which is part of the planned ε. choral device questions shows each in words"
    )
