"""What may be claimed of a run, in numbers: the three ε, each with its rule and adversary, and who has spent what."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.plan import Plan
from choral.privacy.account import account_of
from choral.privacy.rules import ADJACENCY, NOISE, with_secure_sum
from choral.run.costs import Costs

DELTAS = (1e-4, 1e-5, 1e-6, 1e-7)


def privacy_statement(costs: Costs, rounds: NDArray[np.int64]) -> dict[str, Any]:
    """The statement for the device that has lost most, from public numbers; docs/run-folder.md has the form."""
    if not costs.private:
        nothing = "no noise was added: nothing is protected"
        return {"delta": costs.limits[0].delta, "adjacency": ADJACENCY, "none": nothing}
    spent = costs.spent_by_all(rounds)
    worst = max(range(len(spent)), key=lambda device: spent[device])
    return {
        **_statement_of(costs, worst, int(rounds[worst]), spent[worst]),
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


def planned_statement(costs: Costs) -> dict[str, Any] | None:
    """What the statement can come to at most, for a device that takes part as often as plan and limit allow."""
    if not costs.private:
        return None
    allowed = costs.allowed_rounds
    most = int(np.lexsort((costs.rows, -allowed))[0])  # on fewer rows a record is used more often
    rounds = int(allowed[most])
    return _statement_of(costs, most, rounds, costs.spent(most, rounds, costs.limits[most].delta))


def _statement_of(costs: Costs, device: int, rounds: int, epsilon: float) -> dict[str, Any]:
    """The statement of one device that has spent ε in so many rounds."""
    own, delta = max(1, rounds), costs.limits[device].delta
    told = account_of(costs.exposure(device, own), delta)
    summed, everyone = told["proved"]["with_secure_sum"], told["proved"]["against_everyone"]
    return {
        "delta": delta,
        "adjacency": ADJACENCY,
        "against_everyone": {
            "rule": everyone["rule"],
            "adversary": everyone["adversary"],
            # From the events in the ledgers, so with the small shares of δ that batch room and range take.
            "epsilon": epsilon,
        },
        "with_secure_sum": summed and {**summed, "colluders": costs.secure.colluders},
        "no_certificate": told["proved"]["no_certificate"],
        "published": {"rule": "Theorem 1", **{key: told["paper"][key] for key in ("epsilon", "valid", "because")}},
        "by_delta": [[d, costs.spent(device, own, d)] for d in DELTAS],
        "by_colluders": [[c, _with_colluders(costs, device, own, c, delta)] for c in range(costs.plan.cohort)],
    }


def _with_colluders(costs: Costs, device: int, rounds: int, colluders: int, delta: float) -> float | None:
    """ε with the secure sum if so many devices collude with a curious server; None where nothing more is proved."""
    smallest = costs.secure.smallest_sum
    if smallest <= colluders:
        return None
    part = replace(costs.exposure(device, rounds), colluders=colluders, dropouts=max(0, costs.plan.cohort - smallest))
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
