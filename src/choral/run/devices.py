"""A device that trains on its own machine: secret batches and noise, and an order of passes that outlives restarts."""

import numpy as np
from numpy.typing import NDArray

from choral.learning.models import Model
from choral.learning.records import Labels
from choral.learning.trainer import Trainer
from choral.plan import Plan
from choral.secagg.keys import digest


def trainer_of(
    model: Model,
    plan: Plan,
    features: NDArray[np.float32],
    labels: Labels,
    *,
    secret: bytes,
    run: str,
    rounds: int,
) -> Trainer:
    """The trainer of a device in a run; `secret` is its vault's, `rounds` the charges of the run so far."""
    return Trainer(
        model=model,
        plan=plan,
        features=features,
        labels=labels,
        rounds=rounds,
        # Secret, and the same after a restart: passes that continue must go on in their order.
        order=int.from_bytes(digest("order of passes", secret, run.encode())[:8], "little"),
    )
