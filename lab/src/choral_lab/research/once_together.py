"""Several runs with noise once through the same rows: their products with the rows are one product."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.core.codec import quantise
from choral.engine import SimulatedSum
from choral.engine.per_device import PerDeviceEngine, gaussians_of
from choral.learning.models import Link, Model, slopes
from choral.learning.once import (
    LARGEST_MODEL,
    LocalWork,
    local_work,
    padded,
    pulls,
    require_bounded,
    shortened,
    with_noise,
)
from choral.tables.records import Labels

BLOCK = 256  # rows that a core's cache holds between the two products that a step takes with them


def train_together(
    engines: Sequence[PerDeviceEngine],
    parameters: Sequence[NDArray[np.float32]],
    round_number: int,
    cohort: NDArray[np.integer],
) -> list[SimulatedSum]:
    """A round of each of several runs over the same rows, from one seed, on all rows, with Gaussian noise.

    They differ in their clips and noises, so their local steps are one call per device.
    """
    first, works = engines[0], [LocalWork.of(one.plan) for one in engines]
    totals = [np.zeros(first.model.size, np.int64) for _ in engines]
    for device in map(int, cohort):
        rows, labels = first.records.features_of(device), first.records.labels_of(device)
        noise, dither = (
            gaussians_of(first.seed, round_number, device, first.model.size),
            first.dither(round_number, device),
        )
        cleans = local_works(first.model, works, parameters, rows, labels)
        for one, total, clean in zip(engines, totals, cleans, strict=True):
            update = with_noise(one.model, one.plan, len(labels), clean, noise)
            one.work.check(round_number, [one.state(update)])
            total += quantise(update, dither, one.codec.grid)
    return [SimulatedSum(total=total, count=len(cohort)) for total in totals]


def local_works(
    model: Model,
    works: Sequence[LocalWork],
    parameters: Sequence[NDArray[np.float32]],
    features: NDArray[np.float32],
    labels: Labels,
) -> NDArray[np.float64]:
    """`once.local_work` of runs that differ in their clips, each from its own model, to the last bits of float64.

    Rows are added in blocks, and products of other shapes may be added in another order. That is 1e-16 of an update,
    so after rounding to the codec's grid few integers differ.
    """
    if any(work.parts > 1 for work in works):  # each step takes a part of the rows, and there is little to share
        pairs = zip(works, parameters, strict=True)
        return np.stack([local_work(model, work, start, features, labels) for work, start in pairs])
    for work, start in zip(works, parameters, strict=True):
        work.check(model, len(labels))
        require_bounded(start)
    (steps,), first = {work.steps(model, len(labels)) for work in works}, works[0]
    model, *given = first.table(model, features, labels, len(labels), _in_blocks)
    with jax.enable_x64(True):
        starts = np.stack(parameters).astype(np.float64).reshape(len(works), model.features + 1, -1)
        numbers = np.array([work.numbers(steps) for work in works])
        return np.asarray(work_through_together(model.link, starts, *given, numbers, steps)).reshape(len(works), -1)


@partial(jax.jit, static_argnames=("link",))
def work_through_together(
    link: Link, starts: Array, rows: Array, labels: Array, weights: Array, numbers: Array, steps: Array
) -> Array:
    """`once.work_through` for models (runs, features, outputs), all rows being one part."""
    rate, clip, row_length, bound, home = numbers.T[..., None, None]
    short = shortened(rows, weights, row_length[0, 0, 0])
    blocks = 1 if len(labels) % BLOCK else len(labels) // BLOCK  # persons of seven rows do not fill whole blocks
    given = tuple(one.reshape(blocks, -1, *one.shape[1:]) for one in (*short, labels, weights))
    gradients = _of_two_classes if link == "softmax" and starts.shape[-1] == 2 else partial(_of_outputs, link)

    def step(_: int, models: Array) -> Array:
        moved: Array = models - rate * gradients(models, given, clip[..., 0]) - home * (models - starts)
        return _within(LARGEST_MODEL, moved)

    return _within(bound, lax.fori_loop(0, steps, step, starts) - starts)


Blocks = tuple[Array, ...]  # rows, lengths, used, labels and weights, each in blocks of rows


def _of_outputs(link: Link, models: Array, blocks: Blocks, clip: Array) -> Array:
    """The sum of the clipped gradients of each run."""
    runs, width, outputs = models.shape
    flat = jnp.moveaxis(models, 2, 1).reshape(runs * outputs, width)

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        rows, lengths, used, labels, weights = block
        slopes_of: Callable[[Array], Array] = jax.vmap(lambda scores: slopes(link, scores, labels))
        # Rows are the last axis of both products, so that what lies between them is done for many rows at a time.
        slope = slopes_of(jnp.moveaxis((flat @ rows.T).reshape(runs, outputs, -1), 1, 2))
        longest = jnp.maximum(lengths * pulls(link, slope), clip)
        factor = jnp.where(used, weights * (clip / longest), 0)
        scaled = jnp.moveaxis(slope * factor[..., None], 2, 1).reshape(runs * outputs, -1)
        return total + scaled @ rows, None

    total = lax.scan(add, jnp.zeros_like(flat), blocks)[0]
    return jnp.moveaxis(total.reshape(runs, outputs, width), 1, 2)


def _of_two_classes(models: Array, blocks: Blocks, clip: Array) -> Array:
    """The same for a softmax over two classes, whose slopes differ in their sign alone: half the work."""
    flat = models[..., 1] - models[..., 0]

    def add(total: Array, block: Blocks) -> tuple[Array, None]:
        rows, lengths, used, labels, weights = block
        slope = jax.nn.sigmoid(flat @ rows.T) - labels
        longest = jnp.maximum(lengths * (math.sqrt(2) * jnp.abs(slope)), clip)
        factor = jnp.where(used, weights * (clip / longest), 0)
        return total + (slope * factor) @ rows, None

    total = lax.scan(add, jnp.zeros_like(flat), blocks)[0]
    return jnp.stack([-total, total], axis=-1)


def _in_blocks(rows: int) -> int:
    """So many places are computed for a device of this size: whole blocks, or as many as it would have alone.

    >>> _in_blocks(2440), _in_blocks(100)
    (2560, 128)
    """
    return -(-rows // BLOCK) * BLOCK if rows > BLOCK else padded(rows)


def _within(most: float | Array, models: Array) -> Array:
    """Of each model the nearest point that is no longer than this."""
    lengths = jnp.sqrt(jnp.sum(models * models, axis=(1, 2), keepdims=True))
    return models * (most / jnp.maximum(lengths, most))
