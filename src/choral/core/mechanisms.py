"""What rounds of a plan cost a device: a function for each theorem, and the one place that decides which a plan has.

docs/accounting.md has the proofs of the rules. What people read about mechanisms is in `choral.accounting.words`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from choral.core.errors import PlanError
from choral.core.events import Event, Gaussian, Poisson, Skellam, Zcdp
from choral.core.exposure import Exposure
from choral.core.plan import (
    COUNT_LENGTH,
    LEAST_SCALE,
    MOST_ROUNDING,
    NOISE_IS_ADDED,
    OF_GAUSSIANS,
    UPLOAD_ROOM,
    WEIGHINGS,
    NoiseIsAdded,
    Plan,
    Weighing,
    require_law,
    require_number,
    require_one_of,
    require_whole,
    unproved,
)

# The form of a linear model's loss -> (L, G) for rows of length 1: the gradient of a row of length R is
# L·R²-Lipschitz and at most G·R long.
CONVEX: dict[str, tuple[float, float]] = {
    "softmax": (1 / 2, math.sqrt(2)),
    "sigmoid": (1 / 4, 1.0),
    "squared": (1.0, math.inf),
}
MARGIN = 0.95  # steps of noise once stay so far below 2/L, since L is a product of floats too
# δ of one release: the chance that whole noise is no function of a Gaussian, 3·10^-77 for each of up to 2^31 numbers.
MISSED = 2.0**-222
_MOST_COORDINATES = 2**24  # of an update with whole noise: the codec refuses more
FLOAT_BITS = 23  # every integer up to 2^23, and every grid point between, is a float32
DOUBLE_BITS = 30  # of an upload in float64 with whole noise, which `quantise` makes an int32 of
_UNIT = 2.0**-24  # u: what one operation in float32 may be off by, relatively
_LONGER = 1 + 2.0**-10  # by so much clipping and adding in float32 can make a sum of clipped gradients too long
_WIDER = 1 + 2.0**-5  # by so much noise is wider at most, which pays for what float32 adds to one record's part


def composed(part: Exposure, uses: int, noises: int = 1) -> Gaussian:
    """μ = 2G√N/(γσ√r_eff) of a record in N noisy steps: Rule S1 alone, Rule S2 with one step per round and secure sum.

    >>> part = Exposure(rounds=4, local_steps=1, cohort=2, devices=2, rows=100, batch=100, noise=0.04, clip=1.0,
    ...                 step_size=1.0)
    >>> composed(part, 4).mu
    1.0
    """
    return Gaussian(mu=2 / part.noise_multiplier * math.sqrt(uses / noises) if uses else 0.0)


def whole_updates(part: Exposure, rounds: int, noises: int = 1) -> Event:
    """μ = 2S√C/(σ_u√r_eff) of updates clipped to S with noise σ_u each, for all records of a device (Rule S4).

    In whole numbers no device moves the integers by more than 2S/σ_u of their noise (Rule S6). Where the clip is
    adaptive, √(4 + λ²) takes the place of 2: the count moves together with the update.
    """
    if part.strict:
        return whole_noise(part, rounds, noises)
    return Gaussian(mu=part.mechanism.moves * (part.clip / part.noise) * math.sqrt(rounds / noises))


def sampled(part: Exposure, steps: int, noises: int = 1) -> Poisson:
    """Poisson-sampled steps with the fixed divisor γ (Rule S5).

    >>> part = Exposure(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.004902,
    ...                 clip=1.0, step_size=1.0)
    >>> sampled(part, 130)
    Poisson(noise_multiplier=1.196088, probability=0.1, steps=130, delta=0.0)
    """
    multiplier = part.noise_multiplier * math.sqrt(noises)
    return Poisson(noise_multiplier=multiplier, probability=part.batch / part.rows, steps=steps)


def whole_noise(part: Exposure, uses: int, noises: int = 1) -> Gaussian | Zcdp | Skellam:
    """Whole noise on the grid (Rules S4, S6 and S7): no unit moves the integers by more than 2/z of its deviation.

    The codec sees to that, with a deviation of at least `LEAST_SCALE` grid steps, so neither grid nor model matters
    here. Where the codec makes discrete Gaussian noise wider by `SMOOTHING` (`Mechanism.smooths`), it counts as the
    Gaussian that it rounds, except for `MISSED`. Other events are those of the least deviation, which cost no less than
    any larger one.

    >>> part = Exposure(rounds=4, local_steps=1, cohort=2, devices=2, rows=100, batch=100, noise=0.04, clip=1.0,
    ...                 step_size=1.0, sampling="partition", law="discrete_gaussian")
    >>> whole_noise(part, 4).mu
    1.0
    >>> from dataclasses import replace
    >>> whole_noise(replace(part, codec=1), 4)  # as in plans up to 0.2.0
    Zcdp(rho=0.5, delta=0.0)
    """
    scale = LEAST_SCALE[part.law]
    l2 = part.mechanism.moves / part.noise_multiplier * scale
    if part.law not in OF_GAUSSIANS and uses:
        # No sum of whole numbers exceeds that of their squares, and no event has a smaller l1 than l2.
        return Skellam(l1=max(l2 * l2, l2), l2=l2, variance=float(noises * scale**2), releases=uses)
    if part.mechanism.smooths(part):
        return Gaussian(mu=l2 / scale * math.sqrt(uses / noises), delta=uses * MISSED)
    l1 = math.sqrt(_MOST_COORDINATES) * l2
    return Zcdp(rho=uses * discrete_gaussian(l1=l1, l2=l2, coordinates=_MOST_COORDINATES, noise=scale, noises=noises))


def discrete_gaussian(*, l1: float, l2: float, coordinates: int, noise: float, noises: int) -> float:
    """ρ of a sum with discrete Gaussian noise from each device (Kairouz, Liu, Steinke 2021, Proposition 14; Rule S6).

    The deviation of `noise` is in units of the grid; l2 and l1 bound the change of the integer vector.

    >>> round(discrete_gaussian(l1=100.0, l2=10.0, coordinates=1000, noise=5.0, noises=4), 9)
    0.5
    """
    if require_number("noise", noise) < 0.5:
        raise PlanError(
            "CH204", f"discrete noise of {noise:g} grid steps.", fix="Use a grid of at most twice the noise."
        )
    # What sets a sum of discrete Gaussians apart from a discrete Gaussian of the sum's variance.
    gap = 10 * math.fsum(math.exp(-2 * (math.pi * noise) ** 2 * k / (k + 1)) for k in range(1, noises))
    spread = math.sqrt(require_whole("noises", noises)) * noise
    scaled, scaled_l1 = l2 / spread, l1 / spread
    by_l1 = scaled * scaled + 2 * scaled_l1 * gap + coordinates * gap * gap
    by_l2 = (scaled + math.sqrt(coordinates) * gap) ** 2
    return 0.5 * min(by_l1, by_l2)


def movement(plan: Plan) -> float:
    """Δ: how far one replaced record can move an upload, however many local steps there are (Rule S7).

    That is 2GT/γ; with a pull (2Gκ/γ)(1 − (1 − T/Kκ)^K), which is largest for the fewest steps K, the plan's.

    >>> plan = Plan(devices=16, cohort=10, rounds=8, rows=2440, batch=2440, local_steps=120, step_size=0.25, clip=1.2,
    ...             noise=0.03, sampling="partition", noise_is_added="once", row_length=4.0)
    >>> round(movement(plan), 4)
    0.0295
    """
    return min(2 * plan.clip / plan.batch * plan.mechanism.moving_time(plan), 2 * plan.mechanism.upload_bound(plan))


def uploads_of_once(part: Exposure, rounds: int, noises: int = 1) -> Event:
    """So many uploads with noise once, where steps of at most 2/L move no two models further apart (Rule S7).

    A record that is drawn moves the upload by at most Δ/2 from where it would be without it, so a sampled round is a
    step of rule S5 whose noise is σ_u in units of Δ/2.
    """
    if part.strict:
        return whole_noise(part, rounds, noises)
    if part.sampled:
        multiplier = 2 * part.noise / movement(part) * math.sqrt(noises)
        return Poisson(noise_multiplier=multiplier, probability=part.batch / part.rows, steps=rounds)
    return Gaussian(mu=movement(part) / part.noise * math.sqrt(rounds / noises))


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """How records are drawn and noise is added: the plans that do it so, and what rounds of them cost.

    A plan holds its mechanism, with the numbers that no other mechanism has: `OWN` says what they are where nobody
    gives them. A new one is a subclass, an entry in `MECHANISMS` and its words in `choral.accounting.words`.
    """

    rule: ClassVar[str]  # by which a device is charged: proved against the server and all other devices together
    rule_of_sums: ClassVar[str]  # the one that counts the noise of r_eff devices
    OWN: ClassVar[Mapping[str, Any]] = {}
    WHY_OWN: ClassVar[str] = ""  # why these numbers have no meaning elsewhere
    ELSEWHERE: ClassVar[str] = ""  # what a plan has that has another mechanism
    ASKED_BY: ClassVar[str] = ""  # the setting that asks for this one
    noise_is_added: ClassVar[NoiseIsAdded] = "every step"
    float_bits: ClassVar[int] = FLOAT_BITS  # of an upload with whole noise
    on_upload: ClassVar[bool] = False  # noise is added to the upload, and not in every step
    adaptive: ClassVar[bool] = False  # the clip follows the updates' lengths; what is sent is in units of it
    weighed: ClassVar[bool] = False  # a device counts by its rows: a larger one has larger batches
    moves: ClassVar[float] = 2.0  # by how many clips the replacement of one unit moves what is clipped, at most

    @property
    def own(self) -> Mapping[str, Any]:
        """The numbers of a plan that are this mechanism's own, as files have them."""
        return {name: getattr(self, name) for name in self.OWN}

    @abstractmethod
    def describes(self, plan: Plan, noise_is_added: str) -> bool:
        """Whether this is the mechanism of a plan, whose noise is added in every step, or once."""

    @abstractmethod
    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """What these of a device's rounds cost, counted from 0: by its own noise alone, or by that of r_eff devices."""

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Nothing, or a PlanError where nothing is proved of a plan with such numbers."""

    def moving_time(self, plan: Plan) -> float:
        """The time of a round's steps in which a record moves an upload: T."""
        return plan.local_time

    def smooths(self, plan: Plan) -> bool:
        """Whether whole noise is wider by `SMOOTHING`, by which it counts as Gaussian."""
        return plan.law in OF_GAUSSIANS and plan.codec > 1

    def update_noise(self, plan: Plan) -> float:
        """The noise of one step in the units of what is sent."""
        return plan.step_size * plan.noise

    def upload_bound(self, plan: Plan) -> float:
        """B, the longest upload where noise is added to it: more than steps within their clip ever reach."""
        return UPLOAD_ROOM * plan.clip * plan.local_time

    def noises(self, plan: Plan) -> int:
        """How many noises a device draws in a round."""
        return plan.local_steps

    def draws(self, plan: Plan) -> int:
        """How many batches a device draws in a round."""
        return plan.local_steps

    def longest(self, plan: Plan, dimensions: int) -> float:
        """ηG with what float32 may add to it: γ times what one record can add to the update of a strict round.

        A clipped gradient is too long by less than (d + 64)u of G. On its way to the update a number is rounded at most
        2⌈√γ⌉ + 4 times (`learning.local.batch_sum`), each error relative to γ gradients together.

        >>> plan = Plan(devices=2, cohort=2, rounds=1, rows=100, batch=100, step_size=0.5, clip=1.0, noise=0.1,
        ...             sampling="partition", law="discrete_gaussian")
        >>> 0.5 < plan.mechanism.longest(plan, 1000) < 0.5002
        True
        """
        roundings = 2 * (math.isqrt(plan.batch - 1) + 1) + 6
        gradient, sum_ = (dimensions + 64) * _UNIT, plan.batch * roundings * _UNIT
        if max(gradient, sum_) > 1 or not all(2.0**-32 < number < 2.0**32 for number in (plan.clip, plan.step_size)):
            raise PlanError(
                "CH204",
                f"batches of {plan.batch:,} for {dimensions:,} parameters, clip {plan.clip:g}, step size "
                f"{plan.step_size:g}: float32 is too coarse for the strict mode.",
                fix='Use a smaller batch or model, or law = "gaussian".',
            )
        return plan.step_size * plan.clip * (1 + gradient) * (1 + sum_)

    def longest_upload(self, plan: Plan, dimensions: int) -> float:
        """How long an upload of a strict round is at most, before its noise."""
        return self.longest(plan, dimensions)

    def whole_multiplier(self, plan: Plan) -> float:
        """z, as the codec of whole noise keeps to it: no record moves the integers by more than 2/z of their noise."""
        return self.update_noise(plan) * plan.batch / (plan.clip * plan.step_size)

    def proved_range(self, plan: Plan, tail: float) -> float:
        """C: so far no coordinate of an upload goes, whatever is drawn, as no noise passes `tail` deviations.

        A batch may hold all the records that it has room for, each with a gradient of G in one direction; where
        rows weigh, so many records count as in the mean of a typical batch.
        What float32 adds on the way is counted, at parameters up to `Codec.largest_parameter` (docs/accounting.md).

        >>> plan = Plan(devices=16, cohort=10, rounds=20, rows=2440, batch=244, local_steps=10,
        ...             step_size=0.5, clip=1.0, noise=0.02)
        >>> 5 * plan.widest_batch / 244 < plan.mechanism.proved_range(plan, 0.0) < 5.06 * plan.widest_batch / 244
        True
        """
        stretch = min(plan.stretch, plan.local_steps)
        steps = plan.local_steps * stretch
        drift = 32 * _UNIT * steps
        if drift > 0.5:
            raise PlanError(
                "CH204",
                f"local_steps = {plan.local_steps:,}: float32 is too coarse for them.",
                why="How far its rounding can carry an update is not bounded.",
                fix="Use fewer local steps.",
            )
        reach = plan.step_size * plan.clip * plan.widest_batch / plan.batch * steps
        noisy = tail * self.update_noise(plan) * math.sqrt(plan.local_steps) * stretch
        return (reach * _LONGER + noisy * _WIDER + steps * self.update_noise(plan) / 2) / (1 - drift)

    def first_range(self, plan: Plan, tail: float) -> float:
        """C of the codec's first version, for runs that began with it: it counted γ records in a batch."""
        reach = plan.local_time * plan.clip * plan.most_weight * plan.stretch
        return reach + tail * self.update_noise(plan) * math.sqrt(plan.local_steps) * plan.stretch

    def noise_multiplier(self, part: Exposure) -> float:
        """z = σγ/G, the noise of a step in units of what one record adds to it."""
        return part.noise / part.clip * part.batch

    def sampled(self, part: Exposure) -> bool:
        """Whether Poisson sampling hides who is in a batch; a batch of all rows hides nothing."""
        return not part.partitioned and part.batch < part.rows

    def of_device(self, part: Exposure) -> "Mechanism":  # noqa: ARG002 - some mechanisms look at the device's own rows
        """The mechanism by which this device is charged."""
        return self

    def uncounted(self, part: Exposure) -> str:  # noqa: ARG002 - most mechanisms count them always
        """Why no rule counts the noise of the other devices, or nothing."""
        return ""


@dataclass(frozen=True, kw_only=True)
class NoisySteps(Mechanism):
    """Noise in every local step; where devices are weighed by their "rows", all draw at one rate, that of the plan."""

    OWN: ClassVar[Mapping[str, Any]] = {"weighing": "equally"}
    WHY_OWN: ClassVar[str] = "Noise once weighs sites by their rows by itself, and whole devices count as one."
    ELSEWHERE: ClassVar[str] = "noise on the upload"
    ASKED_BY: ClassVar[str] = "noise in every step"
    law_is_gaussian: ClassVar[bool] = True
    partitioned: ClassVar[bool] = True

    weighing: Weighing = "equally"

    @property
    def weighed(self) -> bool:  # type: ignore[override]
        """Whether a device counts by its rows: all draw at one rate, and a larger one has larger batches."""
        return self.weighing == "rows"

    def describes(self, plan: Plan, noise_is_added: str) -> bool:
        """Whether noise of this kind is added in every step, on batches that are drawn in this way."""
        how = (noise_is_added, plan.gaussian, plan.partitioned)
        return how == (self.noise_is_added, self.law_is_gaussian, self.partitioned)

    def check(self, plan: Plan) -> None:
        """Whole noise needs one step on a partition (rule S6), and rows weigh where the noise is Gaussian."""
        require_one_of("weighing", self.weighing, WEIGHINGS)
        require_law(plan.law, local_steps=plan.local_steps, sampling=plan.sampling)
        if self.weighed and not self.law_is_gaussian:
            raise PlanError(
                "CH204",
                f'weighing = "rows" with law = "{plan.law}".',
                why="Equal rates are proved for Gaussian noise in every step on records or persons.",
                fix='Use weighing = "equally".',
            )


class Partition(NoisySteps):
    """Gaussian noise in every step; each record is in one batch of a pass, and everybody may know in which."""

    rule, rule_of_sums = "S1", "S2"

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """The uses of a record that these rounds add: passes that continue charge for no more than those."""
        return composed(part, part.uses(rounds), noises)

    def uncounted(self, part: Exposure) -> str:
        """Several local steps, of which a plan knows nothing that bounds how far they stretch distances."""
        if part.local_steps == 1:
            return ""
        return "step_size and smoothness are not given, so nothing bounds how local steps carry a record's signal"


class PoissonBatches(NoisySteps):
    """Gaussian noise in every step; each record is in a batch by its own secret coin."""

    rule, rule_of_sums = "S5", "S5"
    partitioned = False

    def of_device(self, part: Exposure) -> Mechanism:
        """A batch of all rows is no sample of them: that device is charged as if its rows were split into batches."""
        return self if part.sampled else PARTITION

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """The steps of these rounds, which are all alike."""
        return sampled(part, len(rounds) * part.local_steps, noises)

    def uncounted(self, part: Exposure) -> str:
        """Several local steps."""
        if part.local_steps == 1:
            return ""
        return "with Poisson sampling and several local steps no rule counts the other devices' noise"


class OnUpload(Mechanism):
    """Noise that is added to the upload, and not in every step."""

    on_upload: ClassVar[bool] = True

    def noises(self, plan: Plan) -> int:  # noqa: ARG002 - whatever the steps are
        """One."""
        return 1

    def update_noise(self, plan: Plan) -> float:
        """The noise of the upload."""
        return plan.noise

    def proved_range(self, plan: Plan, tail: float) -> float:
        """The bound of the upload and the tail of its one noise."""
        return self.upload_bound(plan) * _LONGER + tail * self.update_noise(plan) * _WIDER

    def first_range(self, plan: Plan, tail: float) -> float:
        """The same without what float32 adds."""
        return self.upload_bound(plan) + tail * self.update_noise(plan) * plan.stretch


@dataclass(frozen=True, kw_only=True)
class ClippedUpdate(OnUpload):
    """`clip` bounds a whole update and `noise` is that of the update: how a device trains does not matter.

    With a `clip_quantile` they are those of the first round, and follow that quantile of the updates' lengths.
    """

    rule, rule_of_sums = "S4", "S4"
    OWN: ClassVar[Mapping[str, Any]] = {"clip_quantile": 0.0}
    WHY_OWN: ClassVar[str] = "Only the clip of whole updates can follow their lengths (rule S4)."
    ELSEWHERE: ClassVar[str] = 'unit = "{plan.unit}"'
    ASKED_BY: ClassVar[str] = 'unit = "device"'

    clip_quantile: float = 0.0

    @property
    def adaptive(self) -> bool:  # type: ignore[override]
        """Whether the clip follows a quantile of the updates' lengths; what is sent is then in units of the clip."""
        return self.clip_quantile != 0

    @property
    def moves(self) -> float:  # type: ignore[override]
        """A vector turns round, and with an adaptive clip one more number, the count, changes by λ at the same time."""
        return math.hypot(2, COUNT_LENGTH) if self.adaptive else 2.0

    def describes(self, plan: Plan, noise_is_added: str) -> bool:  # noqa: ARG002 - it is added once in any case
        """Whether a whole device is the unit."""
        return plan.protects.clips_update

    def check(self, plan: Plan) -> None:  # noqa: ARG002 - any plan will do
        """The quantile is one."""
        if self.adaptive:
            require_number("clip_quantile", self.clip_quantile, below=1.0)

    def update_noise(self, plan: Plan) -> float:
        """The noise of the upload, in units of the clip where that is adaptive."""
        return plan.noise / plan.clip if self.adaptive else plan.noise

    def upload_bound(self, plan: Plan) -> float:
        """The clip, or 1 where the upload is in units of it."""
        return 1.0 if self.adaptive else plan.clip

    def longest(self, plan: Plan, dimensions: int) -> float:
        """γS with what its norm may be off by; S is 1 where the clip is adaptive."""
        return plan.batch * self.upload_bound(plan) * (1 + (dimensions + 80) * _UNIT)

    def longest_upload(self, plan: Plan, dimensions: int) -> float:
        """S with what its norm may be off by."""
        return self.longest(plan, dimensions) / plan.batch

    def whole_multiplier(self, plan: Plan) -> float:
        """σ_u/S."""
        return plan.noise / plan.clip

    def noise_multiplier(self, part: Exposure) -> float:
        """σ_u/S."""
        return part.noise / part.clip

    def sampled(self, part: Exposure) -> bool:  # noqa: ARG002 - of any part
        """How a device draws its batches hides no device."""
        return False

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """One update for each round."""
        return whole_updates(part, len(rounds), noises)


class IntegerNoise(NoisySteps):
    """Noise of whole numbers, added to what is masked: no float carries any of it. A round is one local step."""

    rule, rule_of_sums = "S6", "S6"
    law_is_gaussian = False

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """The uses of a record that these rounds add."""
        return whole_noise(part, part.uses(rounds), noises)


@dataclass(frozen=True, kw_only=True)
class NoiseOnce(OnUpload):
    """One record moves the upload by at most Δ, and noise is added to the upload.

    The device checks step size, row length and slope itself (`learning.once`), and charges what rounding adds.
    """

    rule, rule_of_sums = "S7", "S7"
    OWN: ClassVar[Mapping[str, Any]] = {"row_length": 0.0, "pull": 0.0, "parts": 1}
    ELSEWHERE: ClassVar[str] = "noise in every step"
    ASKED_BY: ClassVar[str] = 'noise_is_added = "once"'
    noise_is_added: ClassVar[NoiseIsAdded] = "once"
    float_bits: ClassVar[int] = DOUBLE_BITS

    row_length: float = 0.0  # R: rows are at most so long; longer ones are scaled down
    pull: float = 0.0  # κ, by which local steps are drawn back to the model that was sent (0: not at all)
    parts: int = 1  # fixed shares of a device's rows, of which each step uses one

    @property
    def own(self) -> Mapping[str, Any]:
        """The numbers of a plan that are this mechanism's own, and the setting that asks for it."""
        return {"noise_is_added": self.noise_is_added, **super().own}

    def describes(self, plan: Plan, noise_is_added: str) -> bool:  # noqa: ARG002 - of any plan
        """Whether noise is added once."""
        return noise_is_added == self.noise_is_added

    def check(self, plan: Plan) -> None:
        """The numbers of noise once belong together: a row length, and parts of all rows."""
        require_law(plan.law, local_steps=1, sampling=plan.sampling)  # there is one noise, whatever the steps are
        require_number("row_length", self.row_length)
        require_number("pull", self.pull, closed=True)
        require_whole("parts", self.parts, most=plan.rows)
        if self.parts > 1 and (self.pull or not plan.partitioned or not plan.protects.one_row):
            raise PlanError(
                "CH204",
                f'parts = {self.parts} with pull = {self.pull:g}, sampling = "{plan.sampling}", unit = "{plan.unit}".',
                why="Rule S7 is proved for parts of all rows, without a pull, where a unit is one row.",
                fix="Use parts = 1, or leave pull, sampling and unit out.",
            )

    def moving_time(self, plan: Plan) -> float:
        """The local time T, or what a pull leaves of it: κ(1 − (1 − η/κ)^K).

        >>> plan = Plan(devices=2, cohort=2, rounds=1, rows=9, batch=9, local_steps=100, step_size=1.0, clip=1.0,
        ...             noise=1.0, sampling="partition", noise_is_added="once", row_length=1.0, pull=10.0)
        >>> round(plan.mechanism.moving_time(plan), 3)  # nearly the proximal point: κ
        10.0
        """
        if not self.pull or plan.step_size < 1e-9 * self.pull:  # floats could not tell what so weak a pull takes
            return plan.local_time
        if plan.step_size >= self.pull:  # devices take more and shorter steps, which never move a model by more
            return self.pull
        return -self.pull * math.expm1(plan.local_steps * math.log1p(-plan.step_size / self.pull))

    def counted_time(self, plan: Plan) -> float:
        """The time by which a record moves an upload, 2G/γ of it, as the plan's noise counts it."""
        return plan.local_time if plan.strict and plan.codec == 1 else self.moving_time(plan)

    def smooths(self, plan: Plan) -> bool:  # noqa: ARG002 - in plans of every version
        """Whole noise once is wider in plans of every version."""
        return True

    def upload_bound(self, plan: Plan) -> float:
        """B: a pull leaves less to send, and a finer grid for whole noise, where nothing else depends on the bound."""
        return UPLOAD_ROOM * plan.clip * (self.counted_time(plan) if plan.strict else plan.local_time)

    def longest(self, plan: Plan, dimensions: int) -> float:  # noqa: ARG002 - of models of any size
        """GT, or what a pull leaves of it, with the most that rounding may add."""
        return self.counted_time(plan) * plan.clip * (1 + MOST_ROUNDING)

    def longest_upload(self, plan: Plan, dimensions: int) -> float:  # noqa: ARG002 - of models of any size
        """B."""
        return self.upload_bound(plan)

    def draws(self, plan: Plan) -> int:  # noqa: ARG002 - every step uses the rows of the one draw
        """One."""
        return 1

    def whole_multiplier(self, plan: Plan) -> float:
        """σ_uγ/(GT)."""
        return plan.noise * plan.batch / (plan.clip * self.counted_time(plan))

    def noise_multiplier(self, part: Exposure) -> float:
        """σ_uγ/(GT), where a pull takes off T what it takes off the movement of a model."""
        return part.noise / part.clip * part.batch / self.counted_time(part)

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """One upload for each round."""
        return uploads_of_once(part, len(rounds), noises)


CLIPPED_UPDATE, NOISE_ONCE, POISSON = ClippedUpdate(), NoiseOnce(), PoissonBatches()
PARTITION, INTEGER_NOISE = Partition(), IntegerNoise()
# In the order in which they are asked whether a plan is theirs; a new mechanism is one entry.
MECHANISMS: list[Mechanism] = [CLIPPED_UPDATE, NOISE_ONCE, POISSON, PARTITION, INTEGER_NOISE]


def mechanism_for(plan: Plan, own: Mapping[str, Any]) -> Mechanism:
    """The mechanism that a plan asks for with these numbers, which it alone may have; or a PlanError.

    >>> plan = Plan(devices=2, cohort=2, rounds=1, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0)
    >>> mechanism_for(plan, {}).rule, plan.mechanism.rule
    ('S5', 'S5')
    """
    how = require_one_of("noise_is_added", own.get("noise_is_added", "every step"), NOISE_IS_ADDED)
    if plan.protects.clips_update and how == "once":
        raise PlanError(
            "CH204",
            f'noise_is_added = "once" with unit = "{plan.unit}".',
            why="A whole update is clipped there, and noise is added to it once anyway (rule S4).",
            fix="Leave noise_is_added out.",
        )
    found = next((one for one in MECHANISMS if one.describes(plan, how)), None)
    if found is None:
        raise unproved(plan.law, plan.local_steps, plan.sampling)
    for other in MECHANISMS:
        for name, usual in other.OWN.items():
            if name not in found.OWN and own.get(name, usual) != usual:
                raise PlanError(
                    "CH204",
                    f"{name} = {own[name]!r} with {other.ELSEWHERE.format(plan=plan)}.".replace("'", '"'),
                    why=other.WHY_OWN,
                    fix=f"Leave it out, or use {other.ASKED_BY}.",
                )
    return replace(found, **{name: own[name] for name in found.OWN if name in own})


def charging(part: Exposure) -> Mechanism:
    """The mechanism by which a device is charged; its own rows may decide."""
    return part.mechanism.of_device(part)


def sum_uncounted(part: Exposure) -> str:
    """Why no rule counts the noise of r_eff devices for an exposure, or nothing.

    >>> sum_uncounted(Exposure(rounds=2, local_steps=9, cohort=2, devices=2, rows=100, batch=10, noise=0.1, clip=1.0,
    ...                        step_size=1.0))
    "with Poisson sampling and several local steps no rule counts the other devices' noise"
    """
    if not part.secure_sum:
        return "no secure sum: the server sees every update"
    if part.probes:  # docs/accounting.md, "Probes": what would hide in the sum is not proved of rounded updates
        return f"each device answers {part.probes} probes of its update, so the server sees more than sums"
    return charging(part).uncounted(part)
