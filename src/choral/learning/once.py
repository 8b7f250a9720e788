"""A device's work in a round of rule S7: many steps without noise, in float64; noise comes once, on what is uploaded.

For a convex loss a step of at most 2/L moves no two models further apart. So one record moves the result by at most
2ηG/γ per step in which it is used, however many steps there are. docs/accounting.md proves it, with the arithmetic
that is done here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.core.errors import PlanError, TrainingError
from choral.core.mechanisms import CONVEX, MARGIN
from choral.core.plan import MOST_ROUNDING, Plan, require_number, require_whole
from choral.learning import streams
from choral.learning.batches import EMPTY, drawer_of
from choral.learning.batches.batch import Source
from choral.learning.models import Link, Model, slopes
from choral.learning.noise import secure_normal
from choral.learning.persons import LABEL, USED
from choral.learning.trainer import require_rows
from choral.tables.records import Labels

LARGEST_MODEL = 1e3  # V: local steps are projected on the ball ‖v‖ ≤ V, so that the rounding of a step is bounded
MOST_STEPS = 2**20
_UNIT = 2.0**-53


@dataclass(frozen=True, kw_only=True)
class LocalWork:
    """The public numbers of the work: local time T, divisor γ, clip G, row length R, upload bound B.

    The local time is the sum of a round's step sizes. A device with more rows takes more and smaller steps, so that
    none is longer than 2γ/(bL); how many depends on its number of rows alone, and is never below `least_steps`.

    >>> from choral.learning.models import logistic
    >>> work = LocalWork(local_time=30.0, divisor=2441, clip=1.2, row_length=4.0, upload_bound=10.0)
    >>> work.steps(logistic(104), 2441)
    127
    """

    local_time: float
    divisor: int
    clip: float
    row_length: float
    upload_bound: float
    least_steps: int = 1
    pull: float = 0.0
    parts: int = 1
    noises: int = 1  # that are in a sum at most
    fewest: int = 1  # places for rows that any device has

    def __post_init__(self) -> None:
        require_number("local_time", self.local_time)
        require_whole("divisor", self.divisor)
        for name in ("clip", "row_length", "upload_bound"):
            require_number(name, getattr(self, name), above=2.0**-32, below=2.0**32)

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The work that a plan with noise once describes."""
        return cls(
            local_time=plan.local_time,
            divisor=plan.batch,
            clip=plan.clip,
            upload_bound=plan.mechanism.upload_bound(plan),
            least_steps=plan.local_steps,
            **{name: plan.mechanism.own[name] for name in ("row_length", "pull", "parts")},
            noises=plan.cohort,
            fewest=places_of(plan, plan.rows),
        )

    def steps(self, model: Model, rows: int) -> int:
        """K, the steps of a device with so many rows; none of them is longer than 2/(rows·L/γ + 2/κ)."""
        stiffness = self.smoothness(model) * self.covered(rows) / self.divisor + (2 / self.pull if self.pull else 0)
        steps = max(self.least_steps, math.ceil(self.local_time * stiffness / (2 * MARGIN)))
        return -(-steps // self.parts) * self.parts  # in whole passes over the parts, so that each is used as often

    def numbers(self, steps: int) -> tuple[float, ...]:
        """η/γ, G, R, B and η/κ, as so many compiled steps take them."""
        step_size = self.local_time / steps
        home = step_size / self.pull if self.pull else 0.0
        return step_size * self.parts / self.divisor, self.clip, self.row_length, self.upload_bound, home

    def table(
        self,
        model: Model,
        features: NDArray[np.float32],
        labels: Labels,
        places: int,
        room: Callable[[int], int] | None = None,
    ) -> tuple[Model, NDArray[np.float64], Labels, NDArray[np.float64]]:
        """The model of a row, and rows with an intercept, labels and weights, with room for so many units."""
        size = (room or padded)(-(-places // self.parts)) * self.parts
        if model.of_rows is not None:
            model, size = model.of_rows, size * model.row[0]
            features, labels, own = rows_of_persons(model, features)
        else:
            own = np.ones(len(labels))
        rows, weights, classes = np.zeros((size, model.features + 1)), np.zeros(size), np.zeros(size, labels.dtype)
        rows[: len(labels), :-1], rows[: len(labels), -1] = features, 1
        weights[: len(labels)], classes[: len(labels)] = own, labels
        return model, rows, classes, weights

    def covered(self, rows: int) -> int:
        """The rows of all parts if each were as large as the largest one."""
        return -(-rows // self.parts) * self.parts

    def smoothness(self, model: Model) -> float:
        """L of one row's loss, or CH204 for a model of which nothing is proved."""
        model = model.of_rows or model
        if len(model.widths) != 2:
            raise PlanError(
                "CH204",
                f'noise once with the model "{model.name}".',
                why="Rule S7 is proved for linear models with a convex loss: logistic, binary and linear.",
                fix='Use one of those models, or noise_is_added = "every step".',
            )
        return CONVEX[model.link][0] * self.row_length**2

    def rounding(self, model: Model, rows: int) -> float:
        """e: by what share of Δ the rounding of float64 can move two neighbouring tables further apart.

        After the first step the two worlds stand at different models, so the rounding of every row may differ. Where
        a unit is a person, its rows' weights are rounded, too, and the sum has as many more terms. A squared loss,
        whose slope follows the score fully and not by half, and a record that is drawn or not, which counts for half of
        Δ, each double the share: so 4u is counted for u. A softmax adds up its outputs, and what is updated and
        projected are all numbers of the model, as many as columns times outputs.
        """
        each, (of_rows, k) = (0, (model, 1)) if model.of_rows is None else (2, (model.of_rows, model.row[0]))
        d, outputs, m, v = of_rows.widths[0] + 1, of_rows.widths[-1], self.covered(rows), LARGEST_MODEL
        rate = self.local_time / self.steps(model, rows) / self.divisor  # η/γ
        slope = self.row_length / self.clip * ((d + 4) * self.row_length * v / 2 + 8 + outputs)
        moves = 20 if self.pull else 12  # roundings of vectors as long as the model, in one step
        per_step = m * (slope + m * k + 16 + d + each) + (d * outputs + moves) * v / (rate * self.clip)
        return 4 * _UNIT * per_step

    def widening(self, model: Model, rows: int) -> float:
        """By what factor a device with so many rows widens its noise, for what rounding can add to Δ there.

        That is 1 + e among devices of one size. Smaller ones have a smaller e, so one with more rows makes up for them:
        r noises with its own among them are together as wide as r noises of σ_u(1 + e) would be.
        """
        own, least = ((1 + self.rounding(model, places)) ** 2 for places in (rows, min(rows, self.fewest)))
        return math.sqrt(least + self.noises * (own - least))

    def check(self, model: Model, rows: int) -> None:
        """Nothing, or CH204 where the proof does not reach a device with so many rows."""
        steps = self.steps(model, rows)
        if steps > MOST_STEPS:
            raise PlanError("CH204", f"{steps:,} local steps.", fix="Use a shorter local time or shorter rows.")
        if (wider := self.widening(model, rows) - 1) > MOST_ROUNDING:
            raise PlanError(
                "CH204",
                f"rounding at {rows:,} rows would take {100 * wider:.2g} % more noise; at most "
                f"{100 * MOST_ROUNDING:g} % are added.",
                why="Float64 is then too coarse for rule S7.",
                fix="Use fewer rows per device, a smaller cohort, a longer local time, or a larger clip.",
            )


def local_work(
    model: Model,
    work: LocalWork,
    parameters: NDArray[np.float32],
    features: NDArray[np.float32],
    labels: Labels,
    room: int | None = None,
) -> NDArray[np.float64]:
    """u = θ_i − θ after K steps on these rows, no longer than B, before any noise.

    The steps, and so the time that they take, depend on the number of rows alone, or on the `room` for rows that were
    drawn: never on a value, and never on how many were drawn.
    """
    places = len(labels) if room is None else room
    work.check(model, places)
    require_bounded(parameters)
    steps = work.steps(model, places)
    model, *given = work.table(model, features, labels, places)
    with jax.enable_x64(True):
        start = parameters.astype(np.float64).reshape(model.features + 1, -1)
        update = work_through(model.link, start, *given, np.array(work.numbers(steps)), steps, work.parts)
        return np.asarray(update).ravel()


def require_bounded(parameters: NDArray[np.float32]) -> None:
    """Nothing, or CH700 for a model so long that the rounding of steps from it is not bounded.

    >>> require_bounded(np.float32([3.0, -4.0]))
    """
    if not np.linalg.norm(parameters.astype(np.float64)) <= LARGEST_MODEL:  # so written, NaN fails too
        raise TrainingError(
            "CH700",
            f"a model longer than {LARGEST_MODEL:g} was sent, where rounding is no longer bounded.",
            fix="Use a shorter local time, or features within about ±1.",
        )


def rows_of_persons(
    model: Model, units: NDArray[np.float32]
) -> tuple[NDArray[np.float32], Labels, NDArray[np.float64]]:
    """Features, labels and weights of all rows of these persons: a person's loss is the mean over the used rows.

    Each row's slope is clipped, not that of the person: the mean of convex losses is convex, with the same G and L,
    whereas a person's clipped gradient would be the gradient of no convex loss.
    """
    rows, used = units.reshape(-1, units.shape[-1]), units[..., USED]
    weights = used.astype(np.float64) / used.sum(axis=1, keepdims=True, dtype=np.float64)
    labels = rows[:, LABEL].astype(np.int32 if model.classes else np.float32)
    return rows[:, :LABEL], labels, weights.ravel()


def noisy_upload(
    model: Model,
    plan: Plan,
    parameters: NDArray[np.float32],
    features: NDArray[np.float32],
    labels: Labels,
    noise: NDArray[np.float64],
    key: streams.Words,
    random: Source | None = None,
) -> NDArray[np.floating[Any]]:
    """u with standard Gaussians times σ_u and `LocalWork.widening`: what is rounded from here on carries its noise.

    The noise is wider for what rounding can add to Δ, so that every figure holds as if u were exact. Whole noise is
    left to the codec, and u stays in float64. `key`, or secret words if `random` gives them, chooses the rows where the
    plan draws some of them.
    """
    places = places_of(plan, len(labels))
    if not plan.partitioned:
        drawn = _drawn(plan, len(labels), places, key, random)
        features, labels = features[drawn], labels[drawn]
    clean = local_work(model, LocalWork.of(plan), parameters, features, labels, places)
    return clean if plan.strict else with_noise(model, plan, places, clean, noise)


@lru_cache(maxsize=1024)  # the room of a draw takes a search, and every upload asks for it
def places_of(plan: Plan, rows: int) -> int:
    """The number of rows for which a round has room, on a device of `rows`: all, or what one draw may give."""
    return rows if plan.partitioned else drawer_of(replace(plan, local_steps=1)).room(rows)


def _drawn(plan: Plan, rows: int, room: int, key: streams.Words, random: Source | None) -> NDArray[np.int32]:
    """The rows of the one draw of a round, each by its own coin."""
    drawer = drawer_of(replace(plan, local_steps=1))
    batch = drawer.draw(np.array([rows]), np.array([0]), key, random, room)
    places: NDArray[np.int32] = batch.rows[0, 0, : batch.counts[0, 0]]
    return np.extract(places != EMPTY, places)


def with_noise(
    model: Model, plan: Plan, rows: int, clean: NDArray[np.float64], noise: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Uploads of a device with so many rows with standard Gaussians of their shape, scaled and added."""
    factor = LocalWork.of(plan).widening(model, rows)
    return (clean + plan.noise * factor * noise).astype(np.float32)


class OnceTraining:
    """One device's records and its uploads, with noise that nobody can predict; what `LocalTraining` is for steps."""

    def __init__(
        self, *, model: Model, plan: Plan, features: NDArray[np.float32], labels: Labels, rounds: int = 0
    ) -> None:
        require_rows(model, plan, features, labels)
        LocalWork.of(plan).check(model, places_of(plan, len(labels)))
        self.model, self.plan, self.rows, self.rounds = model, plan, len(labels), rounds
        self._records = features, labels

    def __repr__(self) -> str:
        """The model and sizes only: records are secret."""
        return f"OnceTraining({self.model.name}, {self.rows} rows, {self.rounds} rounds)"

    def check(self, parameters: NDArray[np.float32]) -> None:
        """Refuse a model on which nothing is proved; asked before anything is charged."""
        require_bounded(parameters)

    def update(self, parameters: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """The upload of the next round, with its noise unless the codec adds it."""
        self.rounds += 1
        return self._upload(parameters)

    def trial(self, parameters: NDArray[np.float32]) -> None:
        """Train as in the next round and drop the upload: all is compiled and known to work."""
        self._upload(parameters)

    def _upload(self, parameters: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        noise = secure_normal((self.model.size,)).astype(np.float64)
        shape = (1, 1, places_of(self.plan, self.rows))
        secret = streams.secure_words((1,))
        given = (parameters, *self._records, noise, secret, lambda _: streams.secure_words(shape))
        return noisy_upload(self.model, self.plan, *given)


def padded(rows: int) -> int:
    """So many places are computed for a device of this size: few different numbers, so that little is compiled.

    >>> padded(2441), padded(3)
    (3072, 3)
    """
    power = 1 << max(0, rows - 1).bit_length()
    return power * 3 // 4 if power >= 4 and rows <= power * 3 // 4 else power


@partial(jax.jit, static_argnames=("link", "parts"))
def work_through(
    link: Link, start: Array, rows: Array, labels: Array, weights: Array, numbers: Array, steps: Array, parts: int
) -> Array:
    """The steps themselves, compiled: as many and of one size, whatever the rows hold."""
    rate, clip, row_length, bound, home = numbers
    some = shortened(rows, weights, row_length)
    return walk(link, start, some, labels, weights, (rate, clip, bound, home), steps, parts)


class ShortRows(NamedTuple):
    """Rows no longer than R, with an intercept; `used` is False where a place is empty or a row is not finite."""

    rows: Array
    lengths: Array
    used: Array


def shortened(rows: Array, weights: Array, row_length: Array) -> ShortRows:
    """The rows, those that are too long scaled down to R."""
    lengths = _norms(rows)
    # A row that is not finite has no say, as in `learning.local`.
    used = (weights > 0) & jnp.isfinite(lengths)
    scale = jnp.where(used, jnp.minimum(1, row_length / jnp.maximum(lengths, row_length)), 0)
    rows = jnp.where(used[:, None], rows * scale[:, None], 0)
    return ShortRows(rows, jnp.where(used, lengths * scale, 0), used)


def walk(
    link: Link,
    start: Array,
    short: ShortRows,
    labels: Array,
    weights: Array,
    numbers: tuple[Array, Array, Array, Array],
    steps: Array,
    parts: int,
) -> Array:
    """So many steps on rows that are short enough, from a model `start`; `numbers` are η/γ, G, B and η/κ."""
    rate, clip, bound, home = numbers
    # Row i is in part i mod parts: a choice that no value has a say in.
    rows, lengths, used, labels, weights = (one.reshape(-1, parts, *one.shape[1:]) for one in (*short, labels, weights))

    def step(number: int, model: Array) -> Array:
        now = number % parts
        mine = rows[:, now]
        slope = slopes(link, mine @ model, labels[:, now])
        longest = jnp.maximum(lengths[:, now] * pulls(link, slope), clip)
        factor = jnp.where(used[:, now], weights[:, now] * (clip / longest), 0)
        moved = model - rate * (mine.T @ (slope * factor[:, None])) - home * (model - start)
        return _within(LARGEST_MODEL, moved)

    end = lax.fori_loop(0, steps, step, start)
    return _within(bound, end - start)


def pulls(link: Link, slope: Array) -> Array:
    """By what a row's slope is clipped: its length, or √2·(1 − p_y) for a softmax, which is never below its length.

    Three and more classes clipped by the length itself would be the gradient of no convex loss: docs/accounting.md.
    """
    return jnp.sum(jnp.abs(slope), axis=-1) / math.sqrt(2) if link == "softmax" else _norms(slope)


def _norms(rows: Array) -> Array:
    return jnp.sqrt(jnp.sum(rows * rows, axis=-1))


def _within(most: float | Array, vector: Array) -> Array:
    """The nearest point that is no longer than this: a projection, which moves no two points further apart."""
    return vector * (most / jnp.maximum(jnp.sqrt(jnp.sum(vector * vector)), most))
