"""What rounds of a plan cost a device: a function for each theorem, and the one place that decides which a plan has.

docs/accounting.md has the proofs of the rules. What people read about mechanisms is in `choral.accounting.words`.
"""

import math
from abc import ABC, abstractmethod

from choral.core.errors import PlanError
from choral.core.events import Event, Gaussian, Poisson, Skellam, Zcdp
from choral.core.exposure import Exposure
from choral.core.plan import LEAST_SCALE, OF_GAUSSIANS, Plan, require_number, require_whole

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
    return Gaussian(mu=part.moves * (part.clip / part.noise) * math.sqrt(rounds / noises))


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
    here. Where the codec makes discrete Gaussian noise wider by `SMOOTHING` (`Plan.smoothed`), it counts as the
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
    l2 = part.moves / part.noise_multiplier * scale
    if part.law not in OF_GAUSSIANS and uses:
        # No sum of whole numbers exceeds that of their squares, and no event has a smaller l1 than l2.
        return Skellam(l1=max(l2 * l2, l2), l2=l2, variance=float(noises * scale**2), releases=uses)
    if part.smoothed:
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
    return min(2 * plan.clip / plan.batch * plan.pulled_time, 2 * plan.upload_bound)


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


class Mechanism(ABC):
    """How records are drawn and noise is added: the plans that do it so, and what rounds of them cost.

    A new mechanism is a subclass, an entry in `MECHANISMS` and its words in `choral.accounting.words`.
    """

    rule: str  # by which a device is charged: proved against the server and all other devices together
    rule_of_sums: str  # the one that counts the noise of r_eff devices

    @abstractmethod
    def describes(self, plan: Plan) -> bool:
        """Whether this is the plan's mechanism."""

    @abstractmethod
    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """What these of a device's rounds cost, counted from 0: by its own noise alone, or by that of r_eff devices."""

    def check(self, plan: Plan) -> None:  # noqa: B027 - most mechanisms have nothing to add
        """Nothing, or a PlanError where nothing is proved of such a plan; what a Plan refuses itself is left out."""

    def of_device(self, part: Exposure) -> "Mechanism":  # noqa: ARG002 - some mechanisms look at the device's own rows
        """The mechanism by which this device is charged."""
        return self

    def uncounted(self, part: Exposure) -> str:  # noqa: ARG002 - most mechanisms count them always
        """Why no rule counts the noise of the other devices, or nothing."""
        return ""


class Partition(Mechanism):
    """Gaussian noise in every step; each record is in one batch of a pass, and everybody may know in which."""

    rule, rule_of_sums = "S1", "S2"

    def describes(self, plan: Plan) -> bool:
        """Whether batches are a partition of the rows."""
        return plan.gaussian and plan.partitioned

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """The uses of a record that these rounds add: passes that continue charge for no more than those."""
        return composed(part, part.uses(rounds), noises)

    def uncounted(self, part: Exposure) -> str:
        """Several local steps, of which a plan knows nothing that bounds how far they stretch distances."""
        if part.local_steps == 1:
            return ""
        return "step_size and smoothness are not given, so nothing bounds how local steps carry a record's signal"


class PoissonBatches(Mechanism):
    """Gaussian noise in every step; each record is in a batch by its own secret coin."""

    rule, rule_of_sums = "S5", "S5"

    def describes(self, plan: Plan) -> bool:
        """Whether batches are sampled."""
        return plan.gaussian and not plan.partitioned

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


class ClippedUpdate(Mechanism):
    """`clip` bounds a whole update and `noise` is that of the update: how a device trains does not matter."""

    rule, rule_of_sums = "S4", "S4"

    def describes(self, plan: Plan) -> bool:
        """Whether a whole device is the unit."""
        return plan.protects.clips_update

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """One update for each round."""
        return whole_updates(part, len(rounds), noises)


class IntegerNoise(Mechanism):
    """Noise of whole numbers, added to what is masked: no float carries any of it. A round is one local step."""

    rule, rule_of_sums = "S6", "S6"

    def describes(self, plan: Plan) -> bool:
        """Whether noise of whole numbers is in every step."""
        return not plan.gaussian

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """The uses of a record that these rounds add."""
        return whole_noise(part, part.uses(rounds), noises)


class NoiseOnce(Mechanism):
    """One record moves the upload by at most Δ, and noise is added to the upload.

    The device checks step size, row length and slope itself (`learning.once`), and charges what rounding adds.
    """

    rule, rule_of_sums = "S7", "S7"

    def describes(self, plan: Plan) -> bool:
        """Whether noise is added once."""
        return plan.once

    def event(self, part: Exposure, rounds: range, noises: int = 1) -> Event:
        """One upload for each round."""
        return uploads_of_once(part, len(rounds), noises)


CLIPPED_UPDATE, NOISE_ONCE, POISSON = ClippedUpdate(), NoiseOnce(), PoissonBatches()
PARTITION, INTEGER_NOISE = Partition(), IntegerNoise()
# In the order in which they are asked whether a plan is theirs; a new mechanism is one entry.
MECHANISMS: list[Mechanism] = [CLIPPED_UPDATE, NOISE_ONCE, POISSON, PARTITION, INTEGER_NOISE]


def mechanism_of(plan: Plan) -> Mechanism:
    """The mechanism that a plan asks for, or a PlanError where nothing is proved of it.

    >>> plan = Plan(devices=2, cohort=2, rounds=1, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0)
    >>> mechanism_of(plan).rule
    'S5'
    """
    found = next(mechanism for mechanism in MECHANISMS if mechanism.describes(plan))
    found.check(plan)
    return found


def charging(part: Exposure) -> Mechanism:
    """The mechanism by which a device is charged; its own rows may decide."""
    return mechanism_of(part).of_device(part)


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
