"""What a device does in a round, as numbers: the recipe, and the part of it that is no part of what is compiled."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from jax import Array

from choral.core.errors import PlanError
from choral.core.plan import Plan, require_number, require_whole
from choral.learning import rounding
from choral.learning.batches import drawer_of
from choral.learning.models import Model

_MOST_ROWS = 2**31  # of a device: more are refused
TINY = 2.0**-10  # a clip below it has its norms taken with care for squares that vanish
Number = np.float32 | Array | float


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a device trains in a round: τ steps of size η on batches of γ, examples clipped to G, noise σ on their mean.

    `clip = inf` and `noise = 0` is FedAvg; `steps = 1` is DP-SGD; `update_clip` S with `update_noise` σ_u clips the
    whole update instead (DP-FedAvg, rule S4); `strict` leaves the noise to the codec (rule S6).

    >>> Recipe(steps=1, batch=64, step_size=0.1).private
    False
    """

    steps: int
    batch: int
    step_size: float
    clip: float = math.inf
    noise: float = 0.0
    update_clip: float = math.inf
    update_noise: float = 0.0
    strict: bool = False
    adaptive: bool = False  # the update is clipped in units of the clip whose logarithm is the last parameter
    weight: float = 1.0  # what the update is multiplied by, after its noise: what a larger device counts for
    rooms: tuple[int, ...] = ()  # of the batches of other devices, where all noises in a sum have to be alike

    def __post_init__(self) -> None:
        require_whole("local steps", self.steps, most=2**20)
        require_whole("batch", self.batch, most=2**24)
        require_number("step_size", self.step_size)
        require_number("noise", self.noise, closed=True)
        require_number("update_noise", self.update_noise, closed=True)
        for name, clip, sigma in (
            ("clip", self.clip, self.noise),
            ("update_clip", self.update_clip, self.update_noise),
        ):
            if clip != math.inf:
                require_number(name, clip, above=rounding.SMALLEST_CLIP, below=rounding.LARGEST_CLIP)
            elif sigma > 0:
                raise PlanError("CH204", f"noise without {name}.", why="Noise hides only what is bounded.",
                                fix=f"Set {name}.")  # fmt: skip
        plain = self.steps == 1 and self.noise == 0 and self.clip < math.inf == self.update_clip
        whole = self.noise == self.update_noise == 0 and self.update_clip < math.inf == self.clip
        if self.strict and not (plain or whole):
            raise PlanError("CH204", "a strict recipe is one step with a clip, or a clipped update, without noise.",
                            fix="Use Recipe.of(plan).")  # fmt: skip

    @classmethod
    def of(cls, plan: Plan, rows: int | None = None) -> Self:
        """The recipe that the plan describes; where rows weigh, for a device with so many, else for a typical one.

        A device with more rows has a larger divisor and as much less noise on its mean: on the sum over a batch all
        devices have the same. What its update counts for makes up for the divisor. A smaller one keeps γ and counts
        once: it moves its own model by less. One step has the common divisor, so that all noises in a sum are alike.
        """
        noise, mechanism = 0.0 if plan.strict else plan.noise, plan.mechanism
        if plan.protects.clips_update:
            noise = 0.0 if plan.strict else mechanism.update_noise(plan)
            return cls(steps=plan.local_steps, batch=plan.batch, step_size=plan.step_size, strict=plan.strict,
                       update_clip=mechanism.upload_bound(plan), update_noise=noise,
                       adaptive=mechanism.adaptive)  # fmt: skip
        own = plan.batch if rows is None or plan.local_steps == 1 else plan.batch_of(rows)
        batch = max(plan.batch, own)
        return cls(steps=plan.local_steps, batch=batch, step_size=plan.step_size, clip=plan.clip,
                   noise=noise * (plan.batch / batch), strict=plan.strict, weight=batch / plan.batch,
                   rooms=_rooms_of_others(plan))  # fmt: skip

    @property
    def private(self) -> bool:
        """Whether any noise is added."""
        return self.noise > 0 or self.update_noise > 0

    @property
    def usual_clip(self) -> bool:
        """Whether the clip is of the usual size, and so no part of what is compiled."""
        return TINY <= self.clip < math.inf

    @property
    def weighed(self) -> bool:
        """Whether devices differ in what their several local steps count for."""
        return self.steps > 1 and bool(self.rooms)

    @property
    def form(self) -> "Recipe":
        """What has to be compiled for this recipe: the same for all that differ in their `TracedNumbers` only."""
        return replace(
            self,
            batch=1,
            step_size=1.0,
            clip=1.0 if self.usual_clip else self.clip,
            noise=float(self.noise > 0),
            update_clip=1.0 if self.update_clip < math.inf else math.inf,
            update_noise=float(self.update_noise > 0),
            weight=1.0,
            rooms=(1,) if self.weighed else (),
        )


def _rooms_of_others(plan: Plan) -> tuple[int, ...]:
    """Rooms that have the largest error of a sum of any device's batch, where all devices take the noise for it.

    That is where rows weigh, and in one step on drawn rows: the sum then counts the noises of several devices, each of
    which has room for its own number of rows.
    """
    if plan.weighed:
        return drawer_of(plan).room(plan.most_weight * plan.rows), rounding.ONE_PIECE
    if plan.partitioned or plan.local_steps > 1 or plan.noise == 0:
        return ()
    least, most = (drawer_of(plan).room(rows) for rows in (plan.rows, _MOST_ROWS))
    return (least, *rounding.worst_rooms(least, most))


class TracedNumbers(NamedTuple):
    """The numbers of a recipe as compiled steps take them: with others of them nothing is compiled again."""

    step_size: Number  # η
    share: Number  # 1/γ: what one row counts for in the mean of a batch
    clip: Number
    spread: Number  # the deviation of the noise on the sum over a batch
    update_clip: Number
    update_spread: Number
    weight: Number

    @classmethod
    def of(cls, model: Model, recipe: Recipe, room: int) -> Self:
        """The numbers for batches with this room; a clip for which a special form is compiled stays in that form.

        >>> from choral.learning.models import logistic
        >>> numbers = TracedNumbers.of(logistic(104), Recipe(steps=1, batch=64, step_size=0.5), 128)
        >>> float(numbers.step_size), float(numbers.share)
        (0.5, 0.015625)
        """
        clipping = 1 + rounding.in_clipping(model.sizes)
        given = (recipe.step_size, 1 / recipe.batch, recipe.clip, noise_on_sum(model, recipe, room),
                 recipe.update_clip, recipe.update_noise * clipping, recipe.weight)  # fmt: skip
        return cls(*map(np.float32, given))


def noise_on_sum(model: Model, recipe: Recipe, room: int) -> float:
    """The standard deviation of the noise on the sum over a batch with this room: γσ, and what float32 adds to it.

    >>> from choral.learning.models import logistic
    >>> round(noise_on_sum(logistic(104), Recipe(steps=1, batch=64, step_size=0.1, clip=1.0, noise=0.5), 128), 2)
    32.03
    """
    rooms = (room, *recipe.rooms)  # all noises that a sum counts are alike
    return recipe.batch * recipe.noise * max(sensitivity_factor(model, one) for one in rooms)


def sensitivity_factor(model: Model, room: int) -> float:
    """(1 + c)(1 + e): by what factor float32 can make a record count for more than G in a batch with this room.

    The noise is made larger by it, so that every figure holds as if sums were exact.

    >>> from choral.learning.models import logistic
    >>> round(sensitivity_factor(logistic(104), 128), 4)
    1.001
    """
    if model.layered:
        clipping = model.layered.clipping
    else:
        clipping = rounding.of_dense_stack(model.widths) if model.widths else rounding.in_clipping(model.sizes)
    return (1 + clipping) * (1 + rounding.in_sum(room))
