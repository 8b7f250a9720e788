"""Whole noise on the grid of the sum, one local step per round (the strict mode): Rule S6."""

import math
from dataclasses import dataclass, replace

from choral.core.discrete import discrete_gaussian
from choral.core.events import Gaussian, Skellam, Zcdp
from choral.core.exposure import Exposure
from choral.core.plan import LEAST_SCALE, OF_GAUSSIANS
from choral.core.rules import EVERYONE, Loss, Mechanism, one_step, summing_server

WholeNoise = Gaussian | Zcdp | Skellam  # what whole noise may count as

# δ of one release: the chance that it is no function of a Gaussian, 3·10^-77 for each of up to 2^31 numbers.
MISSED = 2.0**-222
_MOST_COORDINATES = 2**24  # of an update with whole noise: the codec refuses more
_RULES = {"S6": "one step per round, whole-number noise on the grid"}
_WHY_BATCHES = "the rows are split into batches: of sampled ones with whole-number noise nothing is proved."


def whole_noise(part: Exposure, uses: int, honest_noises: int = 1) -> WholeNoise:
    """Whole noise on the grid (Rules S4, S6 and S7): no unit moves the integers by more than 2/z of its deviation.

    The codec sees to that, with a deviation of at least `LEAST_SCALE` grid steps, so neither grid nor model matters
    here. Where the codec makes discrete Gaussian noise wider by `SMOOTHING` (`Plan.smoothed`), it counts as the
    Gaussian that it rounds, except for `MISSED`. Other events are those of the least deviation, which cost no less than
    any larger one.

    >>> part = Exposure.of(rounds=4, local_steps=1, cohort=2, devices=2, rows=100, batch=100, noise=0.04, clip=1.0,
    ...                    sampling="partition", law="discrete_gaussian")
    >>> whole_noise(part, 4).mu
    1.0
    >>> whole_noise(replace(part, codec=1), 4)  # as in plans up to 0.2.0
    Zcdp(rho=0.5, delta=0.0)
    """
    scale = LEAST_SCALE[part.law]
    l2 = part.moves / part.noise_multiplier * scale
    if part.law not in OF_GAUSSIANS:
        # No sum of whole numbers exceeds that of their squares, and no event has a smaller l1 than l2.
        return Skellam(l1=max(l2 * l2, l2), l2=l2, variance=float(honest_noises * scale**2), releases=uses)
    if part.smoothed:
        return Gaussian(mu=l2 / scale * math.sqrt(uses / honest_noises), delta=uses * MISSED)
    return _as_zcdp(l2, scale, uses, honest_noises)


def _as_zcdp(l2: float, scale: int, uses: int, honest_noises: int) -> Zcdp:
    l1 = math.sqrt(_MOST_COORDINATES) * l2
    rho = discrete_gaussian(l1=l1, l2=l2, coordinates=_MOST_COORDINATES, noise=scale, honest_noises=honest_noises)
    return Zcdp(rho=uses * rho)


@dataclass(frozen=True, kw_only=True)
class IntegerNoise(Mechanism):
    """Noise of one law of whole numbers, added to what is masked: no float carries any of it."""

    planned: tuple[str, str] = ("S6", "S6")
    exactness: str = " or more, in whole numbers"
    why_batches: str = _WHY_BATCHES

    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> WholeNoise:
        """The uses of a record that this round adds."""
        uses = part.uses_after(rounds_before + 1) - part.uses_after(rounds_before)
        if not uses:
            return Gaussian(mu=0.0, delta=reserved) if part.smoothed else Zcdp(rho=0.0, delta=reserved)
        event = whole_noise(part, uses, noises)
        return replace(event, delta=event.delta + reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S6: any loss function."""
        used = f"no {part.unit} enters more than {part.most_uses} noisy steps"
        certificate = f"{used}, each with {self.noise} on the grid, added before masking"
        return Loss(rule="S6", event=whole_noise(part, part.most_uses), adversary=EVERYONE, certificate=certificate)

    def with_secure_sum(self, part: Exposure) -> Loss:
        """Rule S6 with the noise of r_eff devices; a plan of whole noise has one local step per round."""
        event = whole_noise(part, part.most_uses, part.honest_noises)
        certificate = f"{one_step(part)}, {self.noise} on the grid"
        return Loss(rule="S6", event=event, adversary=summing_server(part), certificate=certificate)


def in_each_law(mechanism: Mechanism) -> tuple[Mechanism, ...]:
    """A mechanism that adds its noise to the upload, once for each law of the noise, with the words of that law.

    >>> from choral.core.mechanisms.clipped_update import CLIPPED_UPDATE
    >>> [each.law for each in in_each_law(CLIPPED_UPDATE)]
    ['gaussian', 'discrete_gaussian', 'skellam']
    """
    whole = (DISCRETE_GAUSSIAN, SKELLAM)
    words = ({name: getattr(of, name) for name in ("law", "noise", "noise_in_full", "exactness")} for of in whole)
    return mechanism, *(replace(mechanism, **each) for each in words)


DISCRETE_GAUSSIAN = IntegerNoise(
    law="discrete_gaussian", noise="discrete Gaussian noise", noise_in_full="discrete Gaussian noise", rules=_RULES
)
SKELLAM = IntegerNoise(law="skellam", noise="Skellam noise", noise_in_full="Skellam noise", rules=_RULES)
