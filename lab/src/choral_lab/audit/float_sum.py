"""Where float32 sums could break the sensitivity: one record decides how thousands of later rows are rounded.

A record and many rows like it bring a partial sum to half a gradient below a power of two or half a gradient above.
Every later row has a gradient of 0.51 units in the last place below that power: there it is rounded up to a whole unit,
above it is swallowed. In exact arithmetic the record moves the sum by 2G; added up carelessly, by many times that. All
values lie between −1 and 1, as those of every declared table do.
"""

import math
from dataclasses import asdict, dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from choral.accounting.calibrate import smallest_noise
from choral.accounting.proofs import against_everyone
from choral.core.exposure import Exposure, exposure_of
from choral.core.plan import Budget, Plan, SecureSum, require_whole
from choral.learning import noise, streams
from choral.learning.batches import drawer_of
from choral.learning.models import Model, logistic
from choral.learning.recipe import Recipe, TracedNumbers
from choral.learning.trainer import jax_update as deployed_update
from choral.run.folder import Watch, unwatched
from choral_lab.audit.bounds import Scores
from choral_lab.audit.verdict import Finding, Trial

DELTA = 1e-5
ROWS = 65_536  # of a full batch
TRAININGS = 400_000
FEATURES = (2, 104)  # processors add up narrow and wide tables in different ways
LEAST_SPAN = 64  # rows: what few of them can do is far below one gradient
DRAWS = 500  # Poisson batches among which the worst is looked for
CHECKED = 16  # noisy updates of each world by the engine itself
ROUNDED = 1e-3  # of its deviation: by how much the engine's noise may differ from what was drawn, as float32 rounds it

Vector = NDArray[np.float64]
Batch = tuple[NDArray[np.int32], NDArray[np.int32]]  # the rows of one step, and how many of their places count


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the rows are arranged: the first `span` hold the construction, and the rest have no features.

    Whoever adds up `piece` rows at a time, or every `piece`-th row, rounds once for so many: their gradients are
    smaller by that. Pieces between this one and twice as many rows are met as well, since their sum is still between
    half a unit and one. `step` is the feature of the rows that bring the sum to its power of two: of Poisson batches
    more come near enough if these rows are small.
    """

    rows: int
    features: int
    span: int
    piece: int
    step: float = 1.0

    @property
    def like_the_record(self) -> int:
        """How many rows bring the sum to a power of two: the largest power of two up to half the span."""
        return int(2 ** math.floor(math.log2(self.span // 2)))

    @property
    def clip(self) -> float:
        """Just above the norm of the longest gradient, so that nothing is clipped: √½ for the slopes of two classes."""
        return math.sqrt(0.5 * (self.features + 1)) * (1 + 1e-3)

    def power(self, drawn: float = 1.0) -> float:
        """The power of two that the sum is brought to, where about this share of the rows is in the batch."""
        return 2.0 ** round(math.log2(0.5 * self.step * self.like_the_record * drawn))

    def table(self, world: int, *, drawn: float = 1.0) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """The rows of one world, where about this share of them is in the batch.

        At parameters of zero every slope is ½, and a gradient is half its row. Labels alternate, and the rows' signs
        with them, so that the intercepts stay near zero while the weights are driven one way.
        """
        features = np.zeros((self.rows, self.features), dtype=np.float32)
        labels = np.arange(self.rows, dtype=np.int32) % 2
        like = self.like_the_record
        last_place = self.power(drawn) * 2.0**-24
        later = slice(like + 1, self.span)
        features[later] = np.where(labels[later, None] == 1, -1, 1) * (2 * 0.51 * last_place / self.piece)
        features[: like + 1], labels[: like + 1] = self.step, 1
        features[0], labels[0] = 1.0, world
        return features, labels


def layouts(rows: int) -> list[Layout]:
    """All that is tried: every size of a piece up to 1,024 rows, and shorter spans, in which one piece holds it all.

    >>> len({layout.piece for layout in layouts(65_536)}), min(layout.span for layout in layouts(65_536))
    (11, 64)
    """
    require_whole("rows", rows, least=2 * LEAST_SPAN)
    spans = [rows // 2**power for power in range(rows.bit_length()) if rows // 2**power >= LEAST_SPAN]
    shapes = [(rows, 2**power) for power in range(11)] + [(span, 1) for span in spans[1:]]
    return [
        Layout(rows=rows, features=features, span=span, piece=piece) for features in FEATURES for span, piece in shapes
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class OneStepDevice:
    """One device in one world, which takes one step from parameters of zero by the code of a deployed one."""

    plan: Plan
    model: Model
    features: NDArray[np.float32]
    labels: NDArray[np.int32]

    def update(self, batch: Batch, drawn: NDArray[np.float32] | None = None) -> Vector:
        """The step on these rows with this noise, or with none, in units in which a gradient of norm G has length 1."""
        rows, counts = batch
        noises = np.zeros((2, self.model.size), np.float32) if drawn is None else np.stack([drawn, drawn])
        given = (self.model.start(), self.features, self.labels, rows, counts, noises)
        recipe = Recipe.of(self.plan)
        numbers = TracedNumbers.of(self.model.fixed or self.model, recipe, rows.shape[-1])
        with jax.default_matmul_precision("highest"):
            update = deployed_update(self.model, recipe.form, numbers, *map(jnp.asarray, given))
        return -np.asarray(update, np.float64) * self.plan.batch / (self.plan.step_size * self.plan.clip)


def device_of(layout: Layout, world: int | None, plan: Plan) -> OneStepDevice:
    """The device in a world, or with a record that has no say, since it is not finite: as if it were not drawn."""
    features, labels = layout.table(world or 0, drawn=plan.batch / plan.rows)
    if world is None:
        features[0] = np.inf
    return OneStepDevice(plan=plan, model=logistic(layout.features), features=features, labels=labels)


def plan_for(layout: Layout, *, epsilon: float, batch: int) -> Plan:
    """One step on Poisson batches of so many of the layout's rows, with the least noise for which ε is proved."""
    plan = Plan(
        devices=2, cohort=2, rounds=1, rows=layout.rows, batch=batch, step_size=1.0, clip=layout.clip, noise=1.0
    )
    return replace(plan, noise=smallest_noise(_part(plan), Budget(epsilon=epsilon, delta=DELTA)))


def _part(plan: Plan) -> Exposure:
    return exposure_of(plan, SecureSum(cohort=2, smallest_sum=2, threshold=1), rows=plan.rows, rounds=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatSum:
    """The worst layout, found on sums without noise, and what the engine makes of it in both worlds.

    `sums` are the updates of the first and the second world and of a batch without the record, in gradients of norm G.
    `deviation` is the engine's noise in the same unit, and `off` by how much of it an update of the engine differed at
    most from its sum and the noise that was drawn.
    """

    name: str
    trial: Trial
    plan: Plan
    layout: Layout
    sums: tuple[Vector, Vector, Vector]
    deviation: float
    off: float

    @property
    def change(self) -> float:
        """By how many gradients the record's replacement moves the sum: 2 in exact arithmetic."""
        return float(np.linalg.norm(self.sums[1] - self.sums[0]))

    def scores(self, world: int) -> Scores:
        """The log-likelihood ratios of so many noisy sums of one world, to an adversary that knows all but the record.

        The engine's sums are taken as they are. Their noise is drawn for each training, in the plane of the sums: the
        rest of the noise is the same in both worlds and tells nothing.
        """
        rng = np.random.default_rng([self.trial.seed, world])
        probability, count = self.plan.batch / self.plan.rows, self.trial.trainings
        apart = np.stack(self.sums) - self.sums[2]
        means = apart @ np.linalg.qr(apart[:2].T)[0] / self.deviation
        seen = np.where(rng.random(count) < probability, world, 2)
        noisy = means[seen] + rng.standard_normal((count, 2))
        densities = [-0.5 * np.sum((noisy - mean) ** 2, axis=1) for mean in means]
        with np.errstate(divide="ignore"):  # a full batch always holds the record
            here, not_here = np.log([probability, 1 - probability])
        first, second = (np.logaddexp(here + own, not_here + densities[2]) for own in densities[:2])
        return np.asarray(second - first)

    def measure(self, watch: Watch = unwatched) -> Finding:
        """Draw the noise of both worlds, and judge."""
        first, second = (self.scores(world) for world in watch((0, 1), total=2, label="NOISE"))
        # What is drawn here stands for the engine's noise only as long as that is added to the sum as it is.
        return replace(self.trial.judge(first, second), as_drawn=self.off <= ROUNDED)

    def as_dict(self) -> dict[str, object]:
        """What was found before any noise was drawn, for machines."""
        return {
            "case": self.name,
            "change": self.change,
            "exact_change": 2.0,
            "noise": self.deviation,
            "noise_differs_by": self.off,
            "layout": asdict(self.layout),
            "plan": self.plan.to_dict(),
        }


def _worst_full_batch(rows: int, epsilon: float, watch: Watch) -> tuple[Layout, Plan, Batch]:
    """The layout, of those that are tried, whose sum the record moves furthest."""
    batch = (np.arange(rows, dtype=np.int32)[None], np.array([rows], np.int32))
    tried, found = layouts(rows), []
    for layout in watch(tried, total=len(tried), label="LAYOUTS"):
        plan = plan_for(layout, epsilon=epsilon, batch=rows)
        found.append((_change(layout, plan, batch), layout, plan))
    _, layout, plan = max(found, key=lambda one: one[0])
    return layout, plan, batch


def _change(layout: Layout, plan: Plan, batch: Batch) -> float:
    first, second = (device_of(layout, world, plan).update(batch) for world in (0, 1))
    return float(np.linalg.norm(second - first))


def _worst_draw(rows: int, epsilon: float, seed: int, watch: Watch) -> tuple[Layout, Plan, Batch]:
    """The Poisson batch of about half of twice as many rows, of many that are drawn, in which the record moves most.

    Only those are tried that hold the record and so many of its like that it decides on which side of the power of two
    the sum stands. The proof of rule S5 is for every outcome of the other records' coins, and so for this one.
    """
    layout = Layout(rows=2 * rows, features=2, span=2 * rows, piece=1, step=0.25)
    plan = plan_for(layout, epsilon=epsilon, batch=rows)
    power, drawer = layout.power(0.5), drawer_of(plan)
    room = drawer.room(layout.rows)
    found: list[Batch] = []
    for draw in watch(range(DRAWS), total=DRAWS, label="BATCHES"):
        key = streams.keys(seed, "batches", draw, np.array([0]))
        batches = drawer.draw(np.array([layout.rows]), np.array([0]), key, None, room)
        inside = batches.rows[0, 0, : batches.counts[0, 0]]
        like = np.count_nonzero((inside > 0) & (inside <= layout.like_the_record))
        decides = abs(0.5 * layout.step * like - power) < 0.5
        if np.any(inside == 0) and (decides or not found):
            found.append((batches.rows[0], batches.counts[0]))
    return layout, plan, max(found, key=lambda batch: _change(layout, plan, batch))


def _noise_of(device: OneStepDevice, batch: Batch, total: Vector) -> tuple[float, float]:
    """(deviation, largest difference) of the engine's noise from what was drawn, over some noisy updates."""
    drawn = noise.secure_normal((CHECKED, device.model.size))
    added = np.stack([device.update(batch, one) for one in drawn]) - total
    deviation = float(np.sum(added * drawn) / np.sum(drawn * drawn, dtype=np.float64))
    return deviation, float(np.max(np.abs(added - deviation * drawn))) / abs(deviation)


def float_sum(
    name: str = "float-sum",
    *,
    epsilon: float = 1.0,
    rows: int = ROWS,
    trainings: int | None = None,
    confidence: float = 0.99,
    seed: int = 0,
    watch: Watch = unwatched,
) -> FloatSum:
    """The worst that the engine's sums do to one record, with the least noise for which `epsilon` is proved.

    >>> float_sum(rows=256).change < 2.01  # so few rows are harmless
    True
    """
    if name == "float-sum":
        layout, plan, batch = _worst_full_batch(rows, epsilon, watch)
    else:
        layout, plan, batch = _worst_draw(rows, epsilon, seed, watch)
    first, second, absent = (device_of(layout, world, plan).update(batch) for world in (0, 1, None))
    many = TRAININGS if trainings is None else trainings
    loss = against_everyone(_part(plan))
    deviation, off = _noise_of(device_of(layout, 0, plan), batch, first)
    return FloatSum(
        name=name,
        trial=Trial(loss=loss, delta=DELTA, trainings=many, confidence=confidence, seed=seed),
        plan=plan,
        layout=layout,
        sums=(first, second, absent),
        deviation=deviation,
        off=off,
    )
