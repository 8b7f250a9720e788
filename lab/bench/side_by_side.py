"""Many settings trained side by side, for `bench.planner`: the engine's own local steps, with one lane per setting.

Sites are computed in groups of about one size. Numbers are float32 where a device of rule S7 has float64, which moves
no accuracy; tests/bench/test_side_by_side.py compares both ways with what `choral.simulate` computes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.core.plan import Plan
from choral.learning.clipped import dense_clipped_sum
from choral.learning.models import Model
from choral.learning.once import LocalWork, padded, shortened, walk
from choral.tables.records import Records

Models = NDArray[np.float32]  # lanes × rows of weights, the intercept last × outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Sites of about one size: their rows in places that are as many for each of them, and who they are."""

    numbers: NDArray[np.int64]
    most: int  # rows of the largest
    rows: NDArray[np.float32]
    labels: NDArray[Any]
    weights: NDArray[np.float32]


def groups_of(records: Records) -> list[Group]:
    """The sites by the places that the engine has for them."""
    places = np.array([padded(int(size)) for size in records.sizes])
    return [_group(records, np.flatnonzero(places == one)) for one in np.unique(places)]


def _group(records: Records, numbers: NDArray[np.int64]) -> Group:
    most = int(records.sizes[numbers].max())
    shape = len(numbers), most
    rows, weights = np.zeros((*shape, records.features.shape[1] + 1), np.float32), np.zeros(shape, np.float32)
    labels = np.zeros(shape, records.labels.dtype)
    for at, number in enumerate(numbers):
        features, own = records.features_of(int(number)), records.labels_of(int(number))
        rows[at, : len(own), :-1], rows[at, : len(own), -1] = features, 1
        labels[at, : len(own)], weights[at, : len(own)] = own, 1
    return Group(numbers=numbers, most=most, rows=rows, labels=labels, weights=weights)


def rounds_of(
    model: Model, records: Records, plans: Sequence[Plan], rng: np.random.Generator
) -> Iterator[tuple[int, Models]]:
    """The models after each round of plans that differ in clip, noise and, with noise in every step, step size alone.

    Batches of one site and step are the same for all plans; noise is not.
    """
    plan, groups = plans[0], groups_of(records)
    outputs = model.size // (model.features + 1)
    now = np.zeros((len(plans), model.features + 1, outputs), np.float32)
    update = _once if plan.once else _every_step
    for number in range(plan.rounds):
        cohort = rng.permutation(plan.devices)[: plan.cohort]
        total = np.zeros_like(now)
        for group in groups:
            here = np.flatnonzero(np.isin(group.numbers, cohort))
            if len(here):
                total += update(model, group, here, plans, now, rng)
        now = now + total / plan.cohort
        yield number, now


def _once(
    model: Model, group: Group, here: NDArray[np.int64], plans: Sequence[Plan], now: Models, rng: np.random.Generator
) -> Models:
    """The sum of the uploads of these sites, for each plan (rule S7)."""
    work = LocalWork.of(plans[0])
    steps = work.steps(model, group.most)
    rate = np.full(len(plans), work.local_time / steps / work.divisor)
    bounds = [one.mechanism.upload_bound(one) for one in plans]
    numbers = np.stack([rate, [one.clip for one in plans], bounds]).astype(np.float32)
    clean = _walked(
        model.link, now, group.rows[here], group.labels[here], group.weights[here], numbers,
        np.float32(work.row_length), steps,
    )  # fmt: skip
    deviations = np.array([one.noise for one in plans]) * np.sqrt(len(here))
    noise = deviations[:, None, None] * rng.standard_normal(now.shape, np.float32)
    return np.asarray(clean + noise, np.float32)


@partial(jax.jit, static_argnames=("link",))
def _walked(
    link: Any,  # noqa: ANN401 - a Link
    starts: Array,
    rows: Array,
    labels: Array,
    weights: Array,
    numbers: Array,
    row_length: Array,
    steps: Array,
) -> Array:
    """Summed over sites, the engine's own walk from several models with several clips."""

    def site(rows: Array, labels: Array, weights: Array) -> Array:
        short = shortened(rows, weights, row_length)

        def lane(start: Array, rate: Array, clip: Array, bound: Array) -> Array:
            return walk(link, start, short, labels, weights, (rate, clip, bound, jnp.float32(0)), steps, 1)

        return jax.vmap(lane)(starts, *numbers)

    return jax.vmap(site)(rows, labels, weights).sum(axis=0)


def _every_step(
    model: Model, group: Group, here: NDArray[np.int64], plans: Sequence[Plan], now: Models, rng: np.random.Generator
) -> Models:
    """The sum of the updates of these sites, for each plan (rule S5): Poisson batches, clipped by length."""
    plan = plans[0]
    numbers = np.stack([
        [one.step_size / one.batch for one in plans], [one.clip for one in plans],
        [one.noise * one.batch for one in plans],
    ]).astype(np.float32)  # fmt: skip
    key = jax.random.key(int(rng.integers(2**31)))
    how = (plan.local_steps, now, group.rows[here], group.labels[here], group.weights[here], numbers)
    return np.asarray(_stepped(model, *how, np.float32(min(1.0, plan.batch / plan.rows)), key))


@partial(jax.jit, static_argnames=("model", "local_steps"))
def _stepped(
    model: Model,
    local_steps: int,
    starts: Array,
    rows: Array,
    labels: Array,
    weights: Array,
    numbers: Array,
    rate: Array,
    key: Array,
) -> Array:
    """Summed over sites, noisy steps from several models with several clips, each on the same batches."""

    def site(rows: Array, labels: Array, weights: Array, key: Array) -> Array:
        def step(now: Array, key: Array) -> tuple[Array, None]:
            of_rows, of_noise = jax.random.split(key)
            used = (jax.random.uniform(of_rows, weights.shape) < rate) & (weights > 0)
            noise = jax.random.normal(of_noise, now.shape, now.dtype)

            def lane(one: Array, noise: Array, size: Array, clip: Array, spread: Array) -> Array:
                tree = [(one[:-1], one[-1])]
                slope = dense_clipped_sum(model, tree, rows[:, :-1], labels, used, clip, finite=True)
                return one - size * (jnp.concatenate([slope[0][0], slope[0][1][None]]) + spread * noise)

            return jax.vmap(lane)(now, noise, *numbers), None

        end, _ = lax.scan(step, starts, jax.random.split(key, local_steps))
        return end - starts

    return jax.vmap(site)(rows, labels, weights, jax.random.split(key, len(rows))).sum(axis=0)


def ends_of(model: Model, records: Records, plans: Sequence[Plan], rng: np.random.Generator) -> dict[str, Models]:
    """The last models, and their means over the later half of the rounds, by what the server does."""
    first, later = plans[0].rounds // 2, np.float32(0)
    for number, models in rounds_of(model, records, plans, rng):
        if number >= first:
            later = later + models
    return {"mean": models, "averaged": later / np.float32(plans[0].rounds - first)}


def merits(model: Model, models: Models, records: Records) -> NDArray[np.float64]:
    """The accuracy of each model on these rows, or its R² where a number is predicted."""
    rows = np.concatenate([records.features, np.ones((len(records.labels), 1), np.float32)], axis=1)
    outputs = np.einsum("rd,ldk->lrk", rows, models, optimize=True)
    labels = records.labels
    if model.classes:
        return np.asarray((outputs.argmax(axis=2) == labels).mean(axis=1))
    missed = np.square(outputs[..., 0] - labels, dtype=np.float64).sum(axis=1)
    return np.asarray(1 - missed / np.square(labels - labels.mean(), dtype=np.float64).sum())
