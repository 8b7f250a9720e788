"""choral itself: the vectorised backend, as a run that reports at its end. `poisson` draws Poisson batches.

A round draws its batches, trains the cohort, sums in the codec's integers and applies the mean. The default is the
partition, whose batches hold exactly γ rows as every peer's do.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.peers import bare  # noqa: F401 - before the engine, for machines with little installed
from bench.work import Work, cohort_of, first_weights, rows_of
from bench.worker import serve
from choral.core.plan import Plan
from choral.engine.compiled import CompiledEngine
from choral.learning import models
from choral.tables.records import Records


class Grid:
    """A grid of the fineness that the codec takes for these works, without the codec's checks."""

    grid = 2.0**-20
    largest = 2**23 - 1


def backend_of(
    work: Work,
    *,
    sampling: str = "partition",
    records: Records | None = None,
    **options: Any,  # noqa: ANN401
) -> CompiledEngine:
    """The engine for a work, over its rows or over those that were made for it before."""
    hidden, classes = work.layers[1:-1], work.layers[-1]
    model = models.mlp(work.layers[0], hidden, classes) if hidden else models.logistic(work.layers[0], classes)
    records = records or records_of(work)
    plan = plan_of(work, records, sampling=sampling)
    return CompiledEngine(model=model, records=records, plan=plan, codec=Grid(), seed=1, **options)


def records_of(work: Work, shape: tuple[int, ...] | None = None) -> Records:
    """The rows of a work, in this shape."""
    rows = rows_of(work)
    return Records(
        features=rows.features if shape is None else rows.features.reshape(-1, *shape),
        labels=rows.labels,
        offsets=rows.offsets,
        names=tuple(map(str, range(work.devices))),
        classes=work.layers[-1],
    )


def plan_of(work: Work, records: Records, *, sampling: str = "partition") -> Plan:
    """The work as a plan."""
    return Plan(
        devices=work.devices,
        cohort=work.cohort,
        rounds=100,
        rows=min(work.fewest_rows, int(records.sizes.min())),
        batch=work.batch,
        step_size=work.step_size,
        clip=work.clip,
        noise=work.noise,
        local_steps=work.steps,
        sampling=sampling,  # type: ignore[arg-type]
    )


def flat_weights(work: Work) -> NDArray[np.float32]:
    """The first weights as the engine's flat vector."""
    return np.concatenate([part.ravel() for layer in first_weights(work) for part in layer])


def prepare(values: dict[str, Any]) -> Callable[[int], NDArray[np.float32]]:
    work = Work.from_dict(values)
    backend = backend_of(work, sampling=sys.argv[1] if len(sys.argv) > 1 else "partition")
    shared = flat_weights(work)
    done = 0

    def rounds(count: int) -> NDArray[np.float32]:
        nonlocal shared, done
        cohorts = [cohort_of(work, number) for number in range(done, done + count)]
        for progress in backend.rounds(shared, cohorts, first=done, every=count):
            shared = progress.parameters
        done += count
        return shared

    return rounds


if __name__ == "__main__":
    serve(prepare)
