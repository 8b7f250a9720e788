"""A device that trains on its own machine: secret batches and noise, and an order of passes that outlives restarts."""

import numpy as np
from numpy.typing import NDArray

from choral.core.keys import digest
from choral.core.plan import Plan
from choral.learning.models import Model
from choral.learning.once import OnceTraining
from choral.learning.trainer import LocalTraining
from choral.tables.records import Labels


def trainer_of(
    model: Model,
    plan: Plan,
    features: NDArray[np.float32],
    labels: Labels,
    *,
    secret: bytes,
    run: str,
    rounds: int,
    table: str = "",
) -> LocalTraining | OnceTraining:
    """The training of a device in a run; `secret` is its vault's, `rounds` the charges of the run so far.

    `table` is the digest of a table that was approved: another one has another order of passes.
    """
    if plan.once:  # every step uses all rows: there is no order
        return OnceTraining(model=model, plan=plan, features=features, labels=labels, rounds=rounds)
    named = [run.encode(), table.encode()] if table else [run.encode()]  # as rehearsals have always had it
    return LocalTraining(
        model=model,
        plan=plan,
        features=features,
        labels=labels,
        rounds=rounds,
        # Secret, and the same after a restart: passes that continue must go on in their order.
        order=int.from_bytes(digest("order of passes", secret, *named)[:8], "little"),
    )
