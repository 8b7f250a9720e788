"""The claims of a run, in numbers: the three ε, each with its rule and adversary, and who has spent what."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.accounting import groups
from choral.accounting.account import account_of
from choral.accounting.costs import Costs
from choral.accounting.proofs import with_secure_sum
from choral.accounting.reserves import overflow, rounded_coin
from choral.accounting.words import words_of
from choral.core import private_sums
from choral.core.events import Event
from choral.core.exposure import Exposure, adjacency_of
from choral.core.plan import Plan
from choral.learning.batches.poisson import PoissonDrawer
from choral.record import (
    Claim,
    ColludersClaim,
    FormulaValue,
    PublishedClaim,
    Release,
    Running,
    SeveralRows,
    SpentByDevice,
    Statement,
)

DELTAS = (1e-4, 1e-5, 1e-6, 1e-7)
# What a statement says of several rows of one person: those of before said nothing, then all but rounded coins.
SeveralForm = Literal["nothing", "without rounding", "all"]
BEYOND = "CH401"  # what a ledger says that can't pay for one more round
UNCHOSEN = "for a number of rounds that was fixed beforehand, not for one that somebody chose by looking at results"


def privacy_statement(
    costs: Costs,
    rounds: NDArray[np.int64],
    *,
    joined: NDArray[np.int64] | None = None,
    refused: Mapping[str, str] | None = None,
    stopped: bool = False,
    first_form: bool = False,
    several: SeveralForm = "all",
) -> Statement:
    """The statement for the device that has lost most, from public numbers; docs/run-folder.md has the form.

    `rounds` are the uploads that each device has paid for, and `joined` those of them that are in a sum (all, if not
    given). `refused` are the codes of devices whose ledgers are elsewhere: only they know whether they are full.
    Where somebody `stopped` the run, who may have looked at its results, the claim is about all the rounds that plan
    and limits allow: what was reserved. `first_form` is for runs whose statement had no `charged_delta` yet, and
    `several` the form in which theirs said what several rows of one person cost.
    """
    if not costs.private:
        nothing = "no noise was added: nothing is protected"
        return Statement(delta=costs.limits[0].delta, adjacency=adjacency_of(costs.plan), none=nothing)
    spent = costs.spent_by_all(rounds)
    if stopped:
        running = Running(epsilon=max(costs.spent_by_all_against_everyone(rounds)), holds=UNCHOSEN)
        claimed = msgspec.structs.replace(_largest_statement(costs, first_form=False, several=several), running=running)
    elif _is_new(costs, several):
        claimed = _largest_claims(costs, rounds, several)
    else:
        worst = max(range(len(spent)), key=lambda device: spent[device])
        claimed = _statement_of(costs, worst, int(rounds[worst]), first_form=first_form, several=several)
    full = _full(costs, rounds) if refused is None else [refused.get(name) == BEYOND for name in costs.names]
    retried = np.zeros_like(rounds) if joined is None else rounds - joined
    devices = tuple(
        SpentByDevice(
            name=name,
            rounds=int(rounds[device]),
            epsilon=spent[device],
            limit=costs.limits[device].epsilon,
            full=full[device],
            planned=int(costs.allowed_rounds[device]),
            retried=int(retried[device]),
        )
        for device, name in enumerate(costs.names)
    )
    return msgspec.structs.replace(claimed, devices=devices)


def _full(costs: Costs, rounds: NDArray[np.int64]) -> list[bool]:
    """It says whether one more round would pass each device's limit, by the events that its ledger would hold then."""
    unsure = rounds >= costs.allowed_rounds  # the others' limits pay for more rounds of this very plan
    after = costs.spent_by_all(np.where(unsure, rounds + 1, 0))
    return [epsilon > limit.epsilon for epsilon, limit in zip(after, costs.limits, strict=True)]


def in_form_of(recorded: Statement, worked_out: Statement, rounds: NDArray[np.int64], costs: Costs) -> Statement:
    """The statement as a run of before had it, whose devices had no `planned`: full meant that the plan was done."""
    if (
        recorded.devices is None
        or worked_out.devices is None
        or any(one.planned is not None for one in recorded.devices)
    ):
        return worked_out
    done = (rounds >= costs.allowed_rounds).tolist()
    old = tuple(
        msgspec.structs.replace(one, planned=None, retried=0, full=full)
        for one, full in zip(worked_out.devices, done, strict=True)
    )
    return msgspec.structs.replace(worked_out, devices=old)


def several_form(recorded: Statement | None) -> SeveralForm:
    """In which form a recorded statement says what several rows cost.

    >>> several_form(None)
    'nothing'
    """
    if recorded is None or recorded.several is None:
        return "nothing"
    return "all" if recorded.several.charged_delta is not None else "without rounding"


def planned_statement(costs: Costs, *, first_form: bool = False, several: SeveralForm = "all") -> Statement | None:
    """It is what the statement can come to at most, for a device that takes part as often as plan and limit allow."""
    return _largest_statement(costs, first_form=first_form, several=several) if costs.private else None


def _is_new(costs: Costs, several: SeveralForm) -> bool:
    """It says whether a statement counts by the present rules; those of before were about one device."""
    return several != "nothing" or not costs.plan.protects.one_row


def _largest_claims(costs: Costs, rounds: NDArray[np.int64], several: SeveralForm) -> Statement:
    """The statement of the device that has lost most against everyone, with the largest figure of all with the sum."""
    everyone = costs.spent_by_all_against_everyone(rounds)
    worst = max(range(len(everyone)), key=lambda device: everyone[device])
    claimed = _statement_of(costs, worst, int(rounds[worst]), first_form=False, several=several)
    summed, reason = claimed.with_secure_sum, claimed.no_certificate
    alike = {(int(own), int(size)): device for device, (own, size) in enumerate(zip(rounds, costs.rows, strict=True))}
    for (own, _), device in alike.items():
        if summed is None:
            break
        found = costs.epsilon_of_sums(costs.of(device).exposure(max(1, own)), costs.limits[device].delta)
        if found is None:
            summed, reason = None, "of some devices nothing more is proved with the secure sum"
        elif found > summed.epsilon:
            summed = msgspec.structs.replace(summed, epsilon=found)
    return msgspec.structs.replace(claimed, with_secure_sum=summed, no_certificate=reason)


def _largest_statement(costs: Costs, *, first_form: bool, several: SeveralForm) -> Statement:
    allowed = costs.allowed_rounds
    if _is_new(costs, several):
        return _largest_claims(costs, allowed, several)
    most = int(np.lexsort((costs.rows, -allowed))[0])  # with fewer rows, each record is used more often
    rounds = int(allowed[most])
    return _statement_of(costs, most, rounds, first_form=first_form, several=several)


def _statement_of(costs: Costs, device: int, rounds: int, *, first_form: bool, several: SeveralForm) -> Statement:
    """The statement of one device that took part in so many rounds."""
    own, delta = max(1, rounds), costs.limits[device].delta
    part = costs.of(device).exposure(own)
    account = account_of(part, delta)
    proved, paper = account.proved, account.paper
    everyone, found, no_certificate = proved.against_everyone, proved.with_secure_sum, proved.no_certificate
    summed, also = None, "" if costs.questions is None else f" and {private_sums.RULE}"
    if found is not None:
        of_sums = found.epsilon if first_form else costs.epsilon_of_sums(part, delta)
        if of_sums is None:
            no_certificate = "what the rounds take of δ for rare failures leaves nothing of it"
        else:
            summed = ColludersClaim(
                rule=found.rule + also,
                epsilon=of_sums,
                certificate=found.certificate,
                adversary=found.adversary,
                colluders=costs.secure.colluders,
            )
    return Statement(
        delta=delta,
        charged_delta=None if first_form else costs.charged_delta(own),
        adjacency=adjacency_of(costs.plan),
        # ε from the events in the ledgers, so with the small shares of δ that batch room and range take.
        against_everyone=Claim(
            rule=everyone.rule + also,
            adversary=everyone.adversary,
            epsilon=costs.spent_against_everyone(device, rounds, delta),
        ),
        with_secure_sum=summed,
        no_certificate=no_certificate,
        published=_published(paper, asks=costs.questions is not None),
        by_delta=tuple((d, costs.spent_against_everyone(device, own, d)) for d in DELTAS),
        by_colluders=tuple(
            (c, _with_colluders(costs, part, c, delta, first_form=first_form, new=_is_new(costs, several)))
            for c in range(costs.plan.cohort)
        ),
        several=_several(costs, device, own, delta, several) if costs.plan.protects.one_row else None,
    )


def _published(paper: FormulaValue, *, asks: bool) -> PublishedClaim:
    """The formula of the paper, which is about rounds of training: it does not hold for a run that asks as well."""
    if asks and paper.valid:
        return PublishedClaim(
            rule="Theorem 1", epsilon=paper.epsilon, valid=False, because="the questions of this run are not in it"
        )
    return PublishedClaim(rule="Theorem 1", epsilon=paper.epsilon, valid=paper.valid, because=paper.because)


def _several(costs: Costs, device: int, rounds: int, delta: float, form: SeveralForm) -> SeveralRows | None:
    """Several rows of one person have lost this by so many rounds, with what rare failures take of δ."""
    if form == "nothing":
        return None
    plan, size = costs.plan, int(costs.rows[device])
    rows = min(groups.EXAMPLE, size)
    events: list[Event] = [costs.of(device).event(before) for before in range(rounds)]
    events += [] if costs.questions is None else [costs.questions.reserved]
    charged = rounds * plan.out_of_range / plan.rounds
    if (part := costs.of(device).exposure(rounds)).sampled:
        draws, rounded = replace(plan, local_steps=plan.mechanism.draws(plan)), form == "all"
        room = PoissonDrawer(plan=draws).room(size, rounded=rounded)
        full = overflow(rows=plan.used_rows(size), batch=plan.batch_of(size), capacity=room, together=rows)
        coin = rounded_coin(part.batch / part.rows) if rounded else 0.0  # where rows weigh, all devices have one rate
        charged += rounds * draws.local_steps * (full + rows * coin)
    left = delta - charged
    found = (groups.of_rows(events, rows, left) if left > 0 else math.inf, groups.at_two_sites(events, delta))
    here, twice = (one if math.isfinite(one) else None for one in found)
    shown = charged if form == "all" else None
    return SeveralRows(rows=rows, epsilon=here, at_two_sites=twice, charged_delta=shown)


def _with_colluders(
    costs: Costs, part: Exposure, colluders: int, delta: float, *, first_form: bool, new: bool
) -> float | None:
    """ε with the secure sum if so many devices collude with the server; None where nothing more is proved.

    The honest noises are those that are certainly in any sum that the secure sum's own adversary can open. Statements
    of before counted those of a curious server.
    """
    secure, smallest = costs.secure, costs.secure.smallest_sum
    honest = secure.honest_noises(secure.adversary) + secure.colluders - colluders if new else smallest - colluders
    # Beyond the colluders that were planned for, a sparse graph may fall apart, and questions have their own sums.
    unplanned = new and colluders > secure.colluders and (secure.sparse or costs.questions is not None)
    if honest < 1 or unplanned:
        return None
    dropouts = costs.plan.cohort - colluders - honest if new else costs.plan.cohort - smallest
    part = replace(part, colluders=colluders, dropouts=max(0, dropouts))
    if not first_form:
        return costs.epsilon_of_sums(part, delta)
    loss = with_secure_sum(part)
    return None if isinstance(loss, str) else loss.epsilon(delta)


def releases(
    plan: Plan,
    rounds: int,
    *,
    compare: bool,
    sizes: bool = True,
    seen_by: str = "the server",
    shown: int = 0,
    questions: int = 0,
) -> tuple[Release, ...]:
    """Everything that left the devices, and what protects it; `sizes` if their numbers of rows did.

    `seen_by` says who sees who took part, which depends on the kind of run.

    `shown` numbers of one device's update are on the page of a rehearsal, as they were before the masks.
    """
    noisy = words_of(plan).protection(plan)
    left = [
        Release(
            what="the sum of the included devices' updates",
            to="the server",
            times=rounds,
            protected_by=f"{noisy}, pairwise masks",
        ),
        Release(
            what="the model after each round",
            to="the server and every device of the next cohort",
            times=rounds,
            protected_by="computed from the sums alone",
        ),
        Release(
            what="who took part" + (", and each device's number of rows" if sizes else ""),
            to=seen_by,
            times=rounds,
            protected_by="nothing: declared public",
        ),
    ]
    if plan.probes:
        covered = f"{noisy}, no mask: the ε against everyone covers it"
        left += [
            Release(
                what=f"{plan.probes} random projections of each device's update, and up to four along the common "
                "direction and single devices' earlier updates",
                to="the server",
                times=rounds,
                protected_by=covered,
            ),
            Release(
                what="each device's whole update, in a turn that is opened because its sum failed or for an audit",
                to="the server",
                times=plan.opened_turns,
                protected_by=f"{covered}; this is the most that a device shows",
            ),
        ]
    if questions:
        left += [
            Release(
                what="the sum of the included devices' answers to a question",
                to="the server",
                times=questions,
                protected_by=f"whole-number noise (rule {private_sums.RULE}), pairwise masks",
            ),
            Release(
                what="the number of rows of the included devices together",
                to="the server",
                times=questions,
                protected_by="pairwise masks; no replaced record changes it",
            ),
        ]
    if shown:
        covered = "the ε against everyone covers it, the ε with the secure sum does not" if plan.noise else "nothing"
        left.append(
            Release(
                what=f"the first {shown} numbers of one device's update in the last round",
                to="who reads this report",
                times=1,
                protected_by=f"{noisy}, no mask: {covered}",
            )
        )
    if compare:
        left.append(
            Release(
                what="how good a model is without privacy, and each device's alone",
                to="who reads this report",
                times=1,
                protected_by="nothing: worked out of all rows without noise, by who holds them all",
            )
        )
    return tuple(left)
