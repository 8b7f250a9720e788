"""The worst cases count equal records once; the engine trains on every record. Both must take the same steps."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import relu, softplus

from choral.core.codec import Codec
from choral.engine.compiled import CompiledEngine
from choral.learning.models import own
from choral.tables.records import Records
from choral_lab.audit.cases import CASES, arrange
from choral_lab.audit.trainings import opened_sums

LOSSES = {
    "theorem-1-convex": lambda w, x, y: softplus(-(2 * y - 1) * x[0] * w[0]),
    "theorem-1-network": lambda w, x, y: softplus(-(2 * y - 1) * w[1] * relu(w[0] * x[0])),
}


def records_of(*devices):
    """Every record spelled out; labels 0 and 1 for −1 and 1."""
    return Records.of(
        [
            (
                str(number),
                np.concatenate([np.full((rows.count, 1), rows.x) for rows in device]),
                np.concatenate([np.full(rows.count, rows.y > 0) for rows in device]),
            )
            for number, device in enumerate(devices)
        ]
    )


@pytest.mark.parametrize("name", CASES)
def test_the_engine_without_noise_gives_the_opened_sum_of_the_construction(name):
    case = arrange(name).construction
    plan = replace(case.plan, noise=0.0, rounds=1, devices=2, cohort=2)
    model = own(
        lambda _: jnp.array(case.start, dtype=jnp.float32),
        LOSSES[name],
        lambda w, rows: rows @ w[:1, None],
        features=1,
    )
    for world in (0, 1):
        records = records_of((*case.device, case.worlds[world]), case.others)
        engine = CompiledEngine(
            model=model, records=records, plan=plan, codec=Codec(grid=1.0, largest=1, cohort=2), seed=0
        )
        start = np.array(case.start, dtype=np.float32)
        updates = engine.updates(start, 1, np.array([0, 1]))
        ((_, total),) = opened_sums(replace(case, plan=plan), world, np.random.default_rng(0), 1)
        signal = plan.local_steps * plan.step_size * plan.clip / plan.batch
        assert updates.sum(axis=0) == pytest.approx(total[:, 0], abs=1e-3 * signal + 2e-6)
