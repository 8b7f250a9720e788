"""What the accounting says of a spread of plans, written down by `python -m tests.privacy.golden`.

The vectors were made by the code in which rules were still chosen by comparing names. Do not make them again to get a
test green: a figure that changes on purpose needs its reason in the commit.
"""

import json
from itertools import product
from pathlib import Path

import numpy as np

import choral
from choral.accounting.calibrate import most_rounds, smallest_noise
from choral.accounting.costs import Costs
from choral.core.errors import ChoralError
from choral.core.plan import Budget, Plan, SecureSum

FILE = Path(__file__).parents[1] / "vectors" / "privacy.json"
USUAL = {"devices": 6, "cohort": 4, "rounds": 6, "rows": 40, "batch": 8, "step_size": 0.5, "clip": 1.5, "noise": 0.4,
         "local_steps": 1}  # fmt: skip
ROUNDS_SHOWN = 4


def plans():
    """Every law, sampling and kind of pass, one and several local steps, batches of some and of all rows."""
    for passes, steps, batch in product(("continue", "reshuffle"), (1, 3, 10), (7, 8, 40)):
        yield {**USUAL, "sampling": "partition", "passes": passes, "local_steps": steps, "batch": batch}
    for steps, batch in product((1, 3), (8, 40)):
        yield {**USUAL, "sampling": "poisson", "local_steps": steps, "batch": batch}
    for law, passes, batch in product(("discrete_gaussian", "skellam"), ("continue", "reshuffle"), (8, 40)):
        yield {**USUAL, "sampling": "partition", "passes": passes, "batch": batch, "law": law}
    yield {**USUAL, "noise": 0.0}


def accounts():
    """With and without a secure sum, colluders, drop-outs, and what is known of the steps."""
    crowds = ({}, {"secure_sum": False}, {"colluders": 1}, {"colluders": 1, "dropouts": 1})
    smooth = ({}, {"step_size": 0.5, "smoothness": 2.0, "convex": True}, {"step_size": 0.5, "smoothness": 2.0},
              {"smoothness": 2.0})  # fmt: skip
    for numbers in plans():
        if not numbers["noise"]:
            continue
        own = {name: value for name, value in numbers.items() if name != "step_size"}
        for crowd, delta in zip(crowds, (1e-5, 1e-4, 1e-6, 1e-5), strict=True):
            yield {**own, **crowd, "delta": delta}
        if own["local_steps"] > 1 and own["sampling"] == "partition":
            for known in smooth[1:]:
                yield {**own, **known, "delta": 1e-5}


def account(**numbers):
    """`choral.account` as plain values."""
    return choral.account(**numbers).to_dict()


def answer(question, *given, **named):
    """The answer as JSON holds it, or the words in which it is refused."""
    try:
        return question(*given, **named)
    except ChoralError as error:
        return str(error)


def costs_of(plan):
    """What the plan costs three sizes of devices, the smallest with just its rows."""
    sizes = [plan.rows, plan.rows + 5, 3 * plan.rows, plan.rows, plan.rows, plan.rows]
    limits = tuple(Budget(epsilon=epsilon, delta=1e-5) for epsilon in (3.0, 3.0, 3.0, 0.5, 50.0, 1e9))
    return Costs(plan=plan, secure=SecureSum.for_cohort(plan.cohort), rows=np.array(sizes), limits=limits,
                 names=tuple("abcdef"))  # fmt: skip


def charges(plan):
    """The first charges of each size, as a ledger's lines hold them, and how many rounds each limit allows."""
    costs = costs_of(plan)
    if not costs.private:
        return {"plan": plan.digest, "allowed": costs.allowed_rounds.tolist()}
    lines = [
        costs.of(device).charge(before, run="run", round_number=before + 1, attempt=0).to_dict()
        for device in range(3)
        for before in range(ROUNDS_SHOWN)
    ]
    held = costs.of(0).reservation(range(ROUNDS_SHOWN), run="run").to_dict()
    return {"plan": plan.digest, "charges": lines, "reservation": held, "allowed": costs.allowed_rounds.tolist()}


def calibrations(plan):
    """The least noise and the most rounds by each rule that is proved."""
    part, budget = costs_of(plan).of(0).exposure(plan.rounds), Budget(epsilon=2.0, delta=1e-5)
    return {
        rule: {"noise": answer(smallest_noise, part, budget, rule), "rounds": answer(most_rounds, part, budget, rule)}
        for rule in ("proved", "with_secure_sum", "clipped_updates", "paper")
    }


def everything():
    """All that is written down."""
    made = [Plan.from_dict(numbers) for numbers in plans()]  # so whole noise counts as it did when they were made
    return {
        "accounts": [{"given": one, "account": answer(account, **one)} for one in accounts()],
        "charges": [{"given": plan.to_dict(), **charges(plan)} for plan in made],
        "calibrations": [{"plan": plan.digest, **calibrations(plan)} for plan in made if plan.noise],
    }


if __name__ == "__main__":
    parts = (
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in many) + "\n]"
        for name, many in everything().items()
    )
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")
