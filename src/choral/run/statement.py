"""What may be claimed of a run, in numbers: the three ε, each with its rule and adversary, and who has spent what."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.plan import Plan
from choral.privacy.account import account_of
from choral.privacy.exposure import Exposure
from choral.privacy.rules import ADJACENT, NOISE, with_secure_sum
from choral.run.costs import Costs

DELTAS = (1e-4, 1e-5, 1e-6, 1e-7)


UNCHOSEN = "for a number of rounds that was fixed beforehand, not for one that somebody chose by looking at results"


def privacy_statement(
    costs: Costs, rounds: NDArray[np.int64], *, stopped: bool = False, first_form: bool = False
) -> dict[str, Any]:
    """The statement for the device that has lost most, from public numbers; docs/run-folder.md has the form.

    Where somebody `stopped` the run, who may have looked at its results, the claim is about all the rounds that plan
    and limits allow: what was reserved. `first_form` is for runs whose statement had no `charged_delta` yet.
    """
    if not costs.private:
        nothing = "no noise was added: nothing is protected"
        return {"delta": costs.limits[0].delta, "adjacency": ADJACENT[costs.plan.unit], "none": nothing}
    spent = costs.spent_by_all(rounds)
    worst = max(range(len(spent)), key=lambda device: spent[device])
    if stopped:
        claimed = {**(planned_statement(costs) or {}), "running": {"epsilon": spent[worst], "holds": UNCHOSEN}}
    else:
        claimed = _statement_of(costs, worst, int(rounds[worst]), spent[worst], first_form=first_form)
    return {
        **claimed,
        "devices": [
            {
                "name": name,
                "rounds": int(rounds[device]),
                "epsilon": spent[device],
                "limit": costs.limits[device].epsilon,
                "full": bool(rounds[device] >= costs.allowed_rounds[device]),
            }
            for device, name in enumerate(costs.names)
        ],
    }


def planned_statement(costs: Costs, *, first_form: bool = False) -> dict[str, Any] | None:
    """What the statement can come to at most, for a device that takes part as often as plan and limit allow."""
    if not costs.private:
        return None
    allowed = costs.allowed_rounds
    most = int(np.lexsort((costs.rows, -allowed))[0])  # on fewer rows a record is used more often
    rounds = int(allowed[most])
    spent = costs.spent(most, rounds, costs.limits[most].delta)
    return _statement_of(costs, most, rounds, spent, first_form=first_form)


def _statement_of(costs: Costs, device: int, rounds: int, epsilon: float, *, first_form: bool) -> dict[str, Any]:
    """The statement of one device that has spent ε in so many rounds."""
    own, delta = max(1, rounds), costs.limits[device].delta
    part = costs.exposure(device, own)
    told = account_of(part, delta)
    summed, everyone = told["proved"]["with_secure_sum"], told["proved"]["against_everyone"]
    no_certificate = told["proved"]["no_certificate"]
    if summed and not first_form:
        summed = {**summed, "epsilon": costs.epsilon_of_sums(part, delta)}
        if summed["epsilon"] is None:
            summed, no_certificate = None, "what the rounds take of δ for rare failures leaves nothing of it"
    return {
        "delta": delta,
        **({} if first_form else {"charged_delta": costs.charged_delta(own)}),
        "adjacency": ADJACENT[costs.plan.unit],
        "against_everyone": {
            "rule": everyone["rule"],
            "adversary": everyone["adversary"],
            # From the events in the ledgers, so with the small shares of δ that batch room and range take.
            "epsilon": epsilon,
        },
        "with_secure_sum": summed and {**summed, "colluders": costs.secure.colluders},
        "no_certificate": no_certificate,
        "published": {"rule": "Theorem 1", **{key: told["paper"][key] for key in ("epsilon", "valid", "because")}},
        "by_delta": [[d, costs.spent(device, own, d)] for d in DELTAS],
        "by_colluders": [
            [c, _with_colluders(costs, part, c, delta, first_form=first_form)] for c in range(costs.plan.cohort)
        ],
    }


def _with_colluders(costs: Costs, part: Exposure, colluders: int, delta: float, *, first_form: bool) -> float | None:
    """ε with the secure sum if so many devices collude with a curious server; None where nothing more is proved."""
    smallest = costs.secure.smallest_sum
    if smallest <= colluders:
        return None
    part = replace(part, colluders=colluders, dropouts=max(0, costs.plan.cohort - smallest))
    if not first_form:
        return costs.epsilon_of_sums(part, delta)
    loss = with_secure_sum(part)
    return None if loss is None else loss.epsilon(delta)


def releases(plan: Plan, rounds: int, *, compare: bool, sizes: bool = True, shown: int = 0) -> list[dict[str, Any]]:
    """Everything that left the devices, and what protects it; `sizes` if their numbers of rows did.

    `shown` numbers of one device's update are on the page of a rehearsal, as they were before the masks.
    """
    told = [
        {
            "what": "the sum of the included devices' updates",
            "to": "the server",
            "times": rounds,
            "protected_by": f"clipping to {plan.clip:g}, {NOISE[plan.law]} {plan.noise:.4g}, pairwise masks",
        },
        {
            "what": "the model after each round",
            "to": "the server and every device of the next cohort",
            "times": rounds,
            "protected_by": "computed from the sums alone",
        },
        {
            "what": "who took part" + (", and each device's number of rows" if sizes else ""),
            "to": "the server",
            "times": rounds,
            "protected_by": "nothing: declared public",
        },
    ]
    if shown:
        told.append(
            {
                "what": f"the first {shown} numbers of one device's update in the last round",
                "to": "who reads this report",
                "times": 1,
                "protected_by": f"clipping to {plan.clip:g}, {NOISE[plan.law]} {plan.noise:.4g}, no mask: "
                + ("the ε against everyone covers it, the ε with the secure sum does not" if plan.noise else "nothing"),
            }
        )
    if compare:
        told.append(
            {
                "what": "how good a model is without privacy, and each device's alone",
                "to": "who reads this report",
                "times": 1,
                "protected_by": "nothing: worked out of all rows without noise, by who holds them all",
            }
        )
    return told
