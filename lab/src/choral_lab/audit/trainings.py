"""Algorithm 1 for tiny models, thousands of trainings side by side: what a worst case needs, step by step.

Every step is the paper's: gradients per record, clipped, averaged over the batch, noise added, a step taken. Records
that are alike are computed once and counted, which changes nothing.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.core.plan import Plan, require_whole
from choral.run.folder import Watch, unwatched

Array = NDArray[np.float32]
Gradient = Callable[[Array, float, float], Array]  # (parameters, x, y) -> gradient of one record's loss, same shape
Score = Callable[[Array, Array], Array]  # (model sent, opened sum) of a round -> evidence for the second record

CHUNK = 8192  # trainings at once: a cohort's parameters stay in the cache


@dataclass(frozen=True, kw_only=True)
class Rows:
    """So many records that are alike: feature x and label y, which is −1 or 1."""

    count: int
    x: float
    y: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Construction:
    """A federation in which all but one record is known: what an adversary against that record may arrange.

    `device` holds plan.rows − 1 records and one of `worlds`; the other devices of the cohort hold `others`. It takes
    part in every round of the plan, whose batches are all of its records: nothing is random except the noise.
    """

    plan: Plan
    loss: Gradient
    start: tuple[float, ...]
    device: tuple[Rows, ...]
    others: tuple[Rows, ...]
    worlds: tuple[Rows, Rows]
    score: Score


def logistic(parameters: Array, x: float, y: float) -> Array:
    """The gradient of ln(1 + exp(−yxθ)): logistic regression with one weight.

    >>> logistic(np.zeros((1, 1), np.float32), 2.0, 1.0).tolist()
    [[-1.0]]
    """
    gradient: Array = np.float32(-y * x) / (1 + np.exp(np.float32(y * x) * parameters))
    return gradient


def relu_network(parameters: Array, x: float, y: float) -> Array:
    """The gradient of ln(1 + exp(−y·v·relu(ux))): a network of one hidden unit; parameters are (u, v).

    >>> relu_network(np.array([[1.0], [0.0]]), 1.0, -1.0).ravel().tolist()
    [0.0, 0.5]
    """
    inner, outer = parameters
    hidden = np.maximum(np.float32(x) * inner, 0)
    residual = np.float32(-y) / (1 + np.exp(np.float32(y) * outer * hidden))
    return np.stack([residual * outer * np.float32(x) * (hidden > 0), residual * hidden])


def mean_clipped(construction: Construction, records: tuple[Rows, ...], parameters: Array) -> Array:
    """Lines 6 to 8 of Algorithm 1: each record's gradient clipped to G, summed and divided by γ."""
    plan, mean = construction.plan, np.zeros_like(parameters)
    for rows in records:
        gradient = construction.loss(parameters, rows.x, rows.y)
        norm = np.sqrt(np.sum(gradient * gradient, axis=0))
        mean += gradient * (np.float32(rows.count / plan.batch) * (plan.clip / np.maximum(norm, plan.clip)))
    return mean


def _local(construction: Construction, records: tuple[Rows, ...], sent: Array, rng: np.random.Generator) -> Array:
    """τ noisy steps from the model that was sent."""
    plan, parameters = construction.plan, sent.copy()
    for _ in range(plan.local_steps):
        noise = rng.standard_normal(parameters.shape, dtype=np.float32)
        step = mean_clipped(construction, records, parameters) + np.float32(plan.noise) * noise
        parameters -= np.float32(plan.step_size) * step
    return parameters


def opened_sums(
    construction: Construction, world: int, rng: np.random.Generator, count: int
) -> Iterator[tuple[Array, Array]]:
    """(model sent, opened sum of the cohort's updates) of every round, for `count` trainings side by side."""
    plan = construction.plan
    sent = np.repeat(np.array(construction.start, dtype=np.float32)[:, None], count, axis=1)
    for _ in range(plan.rounds):
        alone = _local(construction, (*construction.device, construction.worlds[world]), sent, rng)
        crowd = np.repeat(sent[:, None, :], plan.cohort - 1, axis=1)
        total = alone - sent + np.sum(_local(construction, construction.others, crowd, rng) - crowd, axis=1)
        yield sent, total
        sent = sent + total / np.float32(plan.cohort)


def scores(construction: Construction, world: int, *, trainings: int, seed: int, watch: Watch = unwatched) -> Array:
    """The summed evidence of so many trainings; the seed decides it, however many cores there are."""
    require_whole("trainings", trainings)
    sizes = [min(CHUNK, trainings - start) for start in range(0, trainings, CHUNK)]
    seeds = np.random.SeedSequence([seed, world]).spawn(len(sizes))

    def chunk(part: int) -> Array:
        rng = np.random.Generator(np.random.SFC64(seeds[part]))
        summed = np.zeros(sizes[part], dtype=np.float32)
        for sent, total in opened_sums(construction, world, rng, sizes[part]):
            summed += construction.score(sent, total)
        return summed

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # NumPy lets other threads run while it computes
        done = watch(pool.map(chunk, range(len(sizes))), total=len(sizes), label=f"WORLD {world + 1} OF 2")
        return np.concatenate(list(done))
