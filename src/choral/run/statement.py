"""What may be claimed of a run, in numbers: the three ε, each with its rule and adversary, and who has spent what."""

from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.plan import Plan
from choral.privacy import private_sums
from choral.privacy.account import account_of
from choral.privacy.costs import Costs
from choral.privacy.exposure import Exposure
from choral.privacy.mechanisms import mechanism_of, with_secure_sum
from choral.privacy.rules import ADJACENT
from choral.record import Claim, ColludersClaim, PublishedClaim, Release, Running, SpentByDevice, Statement

DELTAS = (1e-4, 1e-5, 1e-6, 1e-7)


UNCHOSEN = "for a number of rounds that was fixed beforehand, not for one that somebody chose by looking at results"


def privacy_statement(
    costs: Costs, rounds: NDArray[np.int64], *, stopped: bool = False, first_form: bool = False
) -> Statement:
    """The statement for the device that has lost most, from public numbers; docs/run-folder.md has the form.

    Where somebody `stopped` the run, who may have looked at its results, the claim is about all the rounds that plan
    and limits allow: what was reserved. `first_form` is for runs whose statement had no `charged_delta` yet.
    """
    if not costs.private:
        nothing = "no noise was added: nothing is protected"
        return Statement(delta=costs.limits[0].delta, adjacency=ADJACENT[costs.plan.unit], none=nothing)
    spent = costs.spent_by_all(rounds)
    worst = max(range(len(spent)), key=lambda device: spent[device])
    if stopped:
        running = Running(epsilon=spent[worst], holds=UNCHOSEN)
        claimed = msgspec.structs.replace(_largest_statement(costs, first_form=False), running=running)
    else:
        claimed = _statement_of(costs, worst, int(rounds[worst]), spent[worst], first_form=first_form)
    devices = tuple(
        SpentByDevice(
            name=name,
            rounds=int(rounds[device]),
            epsilon=spent[device],
            limit=costs.limits[device].epsilon,
            full=bool(rounds[device] >= costs.allowed_rounds[device]),
        )
        for device, name in enumerate(costs.names)
    )
    return msgspec.structs.replace(claimed, devices=devices)


def planned_statement(costs: Costs, *, first_form: bool = False) -> Statement | None:
    """What the statement can come to at most, for a device that takes part as often as plan and limit allow."""
    return _largest_statement(costs, first_form=first_form) if costs.private else None


def _largest_statement(costs: Costs, *, first_form: bool) -> Statement:
    allowed = costs.allowed_rounds
    most = int(np.lexsort((costs.rows, -allowed))[0])  # on fewer rows a record is used more often
    rounds = int(allowed[most])
    spent = costs.spent(most, rounds, costs.limits[most].delta)
    return _statement_of(costs, most, rounds, spent, first_form=first_form)


def _statement_of(costs: Costs, device: int, rounds: int, epsilon: float, *, first_form: bool) -> Statement:
    """The statement of one device that has spent ε in so many rounds."""
    own, delta = max(1, rounds), costs.limits[device].delta
    part = costs.exposure(device, own)
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
        adjacency=ADJACENT[costs.plan.unit],
        # ε from the events in the ledgers, so with the small shares of δ that batch room and range take.
        against_everyone=Claim(rule=everyone.rule + also, adversary=everyone.adversary, epsilon=epsilon),
        with_secure_sum=summed,
        no_certificate=no_certificate,
        published=PublishedClaim(rule="Theorem 1", epsilon=paper.epsilon, valid=paper.valid, because=paper.because),
        by_delta=tuple((d, costs.spent(device, own, d)) for d in DELTAS),
        by_colluders=tuple(
            (c, _with_colluders(costs, part, c, delta, first_form=first_form)) for c in range(costs.plan.cohort)
        ),
    )


def _with_colluders(costs: Costs, part: Exposure, colluders: int, delta: float, *, first_form: bool) -> float | None:
    """ε with the secure sum if so many devices collude with a curious server; None where nothing more is proved."""
    smallest = costs.secure.smallest_sum
    if smallest <= colluders:
        return None
    part = replace(part, colluders=colluders, dropouts=max(0, costs.plan.cohort - smallest))
    if not first_form:
        return costs.epsilon_of_sums(part, delta)
    loss = with_secure_sum(part)
    return None if isinstance(loss, str) else loss.epsilon(delta)


def releases(
    plan: Plan, rounds: int, *, compare: bool, sizes: bool = True, shown: int = 0, questions: int = 0
) -> tuple[Release, ...]:
    """Everything that left the devices, and what protects it; `sizes` if their numbers of rows did.

    `shown` numbers of one device's update are on the page of a rehearsal, as they were before the masks.
    """
    noisy = mechanism_of(plan).protection(plan)
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
            to="the server",
            times=rounds,
            protected_by="nothing: declared public",
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
