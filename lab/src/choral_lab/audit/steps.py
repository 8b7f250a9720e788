"""Many trainings side by side by the engine's own code, seen as a rule's adversary sees them.

Rules S1 and S5 grant every noisy step; rules S2, S4 and S6 grant every opened sum. The canary's gradient is ±G wherever
the model is (least squares with a label far off); all other records are zeros, and so is their gradient in its
coordinate. Local steps, batches, noise, rounding and whole noise are those that a run uses.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.core.codec import Codec
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.learning import noise, streams
from choral.learning.batches import Batches, drawer_of
from choral.learning.local import local_update
from choral.learning.models import Model, linear
from choral.learning.recipe import Recipe
from choral.run.folder import Watch, unwatched

Scores = NDArray[np.float64]
Weigh = Callable[[Scores, NDArray[np.bool_]], Scores]  # (pull, whether the canary was drawn) -> log-likelihood ratio

LANES = 2**15  # trainings in one compiled call
FAR_OFF = 10**6  # a label that no noise reaches
STEEP = 1000.0  # the canary's feature: the weight and not the intercept takes its gradient


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A plan's training with a canary in it: how devices train, and what one unit of the canary's pull is.

    `reach` is how far the canary moves the weight of an update, one way or the other. `whole_device` makes every record
    of its device a canary.
    """

    plan: Plan
    recipe: Recipe
    rounds: int
    reach: float
    whole_device: bool = False

    @property
    def model(self) -> Model:
        """One weight and an intercept."""
        return linear(1)

    def table(self, world: int | None) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The records of a device in the first or second world; of a device without a canary if None."""
        features = np.zeros((self.plan.rows, 1), dtype=np.float32)
        labels = np.zeros(self.plan.rows, dtype=np.int32)
        if world is not None:
            canaries = slice(None) if self.whole_device else slice(1)
            features[canaries], labels[canaries] = STEEP, (-FAR_OFF, FAR_OFF)[world]
        return features, labels


@partial(jax.jit, static_argnames=("model", "recipe"))
def _updates(
    model: Model,
    recipe: Recipe,
    parameters: Array,
    features: Array,
    labels: Array,
    rows: Array,
    counts: Array,
    keys: Array,
) -> Array:
    """The updates of devices with one table, each from its own parameters."""
    one = partial(local_update, model, recipe)
    return jax.vmap(one, in_axes=(0, None, None, 0, 0, 0))(parameters, features, labels, rows, counts, keys)


def _drawn(watched: Watched, lanes: NDArray[np.int64], number: int, seed: int) -> tuple[Batches, NDArray[np.uint32]]:
    """The batches of a round, and the keys of its noise, as a simulation draws them."""
    plan = watched.plan
    drawer = drawer_of(plan)
    key = streams.keys(seed, "batches", 0 if drawer.one_order else number, lanes)
    sizes, before = np.full(len(lanes), plan.rows), np.full(len(lanes), number)
    batches = drawer.draw(sizes, before, key, None, drawer.room(plan.rows))
    steps = np.arange(plan.local_steps + 1)
    return batches, noise.split(streams.words(streams.keys(seed, "noise", number, lanes)[:, None], steps))


def _trained(
    watched: Watched, recipe: Recipe, parameters: NDArray[np.float32], world: int | None, *drawn: NDArray[Any]
) -> NDArray[np.float32]:
    with jax.default_matmul_precision("highest"):
        given = (jnp.asarray(parameters), *map(jnp.asarray, watched.table(world)), *map(jnp.asarray, drawn))
        return np.asarray(_updates(watched.model, recipe, *given))


def noisy_steps(
    watched: Watched, world: int, lanes: NDArray[np.int64], seed: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
    """(what the step added to each model, whether the canary was drawn), for every local step of every round."""
    recipe = replace(watched.recipe, steps=1)
    parameters = np.tile(watched.model.start(), (len(lanes), 1))
    for number in range(watched.rounds):
        batches, keys = _drawn(watched, lanes, number, seed)
        for step in range(watched.plan.local_steps):
            now = slice(step, step + 1)
            rows, counts = batches.rows[:, now], batches.counts[:, now]
            added = _trained(watched, recipe, parameters, world, rows, counts, keys[:, [step, -1]])
            parameters = parameters + added
            used = (rows[:, 0] == 0) & (np.arange(rows.shape[2]) < counts)
            yield added, used.any(axis=1)


def opened_sums(
    watched: Watched, codec: Codec, honest: int, world: int, lanes: NDArray[np.int64], seed: int
) -> Iterator[NDArray[np.float64]]:
    """What is opened of the canary's device and its honest company, in every round, for each training.

    The coordinates of all trainings are encoded as one long update: the codec treats each by itself.
    """
    parameters = np.tile(watched.model.start(), (len(lanes), 1))
    for number in range(watched.rounds):
        total = np.zeros(codec.length(parameters.size), f"<u{codec.word_bits // 8}")
        for device in range(honest):
            own = lanes + (device << 40)
            batches, keys = _drawn(watched, own, number, seed)
            given = (world if device == 0 else None, batches.rows, batches.counts, keys)
            updates = _trained(watched, watched.recipe, parameters, *given)
            secret = partial(_stream, seed, number, int(own[0]), world)
            total += codec.encode(updates.ravel(), dither=secret("dither"), noise=secret("whole noise"))
        steps = codec.decode(total, parameters.size, count=honest).reshape(parameters.shape)
        opened = codec.grid * steps.astype(np.float64)
        parameters = (parameters + opened / honest).astype(np.float32)
        yield opened


def _stream(seed: int, number: int, lane: int, world: int, purpose: str) -> Stream:
    return Stream(hashlib.sha256(f"choral/1|audit|{seed}|{purpose}|{number}|{lane}|{world}".encode()).digest())


def by_steps(
    watched: Watched, weigh: Weigh, world: int, *, trainings: int, seed: int, watch: Watch = unwatched
) -> Scores:
    """The log-likelihood ratio of all that a training's noisy steps show, for so many trainings."""

    def score(lanes: NDArray[np.int64]) -> Scores:
        total = np.zeros(len(lanes))
        for added, used in noisy_steps(watched, world, lanes, seed):
            total += weigh(added[:, 0].astype(np.float64) / watched.reach, used)
        return total

    return _in_blocks(score, world, trainings, watch)


def by_sums(
    watched: Watched,
    weigh: Weigh,
    codec: Codec,
    honest: int,
    world: int,
    *,
    trainings: int,
    seed: int,
    watch: Watch = unwatched,
) -> Scores:
    """The log-likelihood ratio of all that a training's opened sums show, for so many trainings."""

    def score(lanes: NDArray[np.int64]) -> Scores:
        total, always = np.zeros(len(lanes)), np.ones(len(lanes), dtype=np.bool_)
        for opened in opened_sums(watched, codec, honest, world, lanes, seed):
            total += weigh(opened[:, 0] / watched.reach, always)
        return total

    return _in_blocks(score, world, trainings, watch)


def _in_blocks(score: Callable[[NDArray[np.int64]], Scores], world: int, trainings: int, watch: Watch) -> Scores:
    """The scores of so many trainings, some at a time; no two trainings of either world share their randomness."""
    size = min(LANES, trainings)  # one shape, so that one call is compiled
    starts = range(0, trainings, size)
    label = f"WORLD {world + 1} OF 2"
    blocks = [score((world << 48) + start + np.arange(size)) for start in watch(starts, total=len(starts), label=label)]
    return np.concatenate(blocks)[:trainings]
