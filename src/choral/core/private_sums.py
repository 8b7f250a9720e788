"""Rule S8, the cost of a private sum: a bounded vector of whole numbers per record, added up, with whole-number noise.

A sum of discrete Gaussians is, except with a chance of 1e-45, a function of a Gaussian that is narrower by a part in
10^5 (docs/accounting.md). So it counts as a Gaussian, in any ledger, next to any other event.
"""

import math
from dataclasses import dataclass

from choral.core.errors import PlanError
from choral.core.events import Gaussian
from choral.core.plan import SMOOTHING, require_number, require_whole

RULE = "S8"
LEAST_SCALE = 2**10  # s: the least deviation of a device's noise, in steps of its whole numbers
MOST_SCALE = 2**20  # what the exact sampler draws
MOST_LENGTH = 2**24  # numbers in one answer
TAIL = 16  # deviations of noise for which an answer's words have room
# δ of one answer: at most MOST_LENGTH·(4·exp(−2π²t²) + 2·exp(−TAIL²/2)) = 9e-49.
FAILURE = 2.0**-150
_ROUNDING = 1 + 1e-12  # what floating point may take from a bound


@dataclass(frozen=True, kw_only=True)
class SumNoise:
    """The noise of one answer: whole numbers are multiplied by `factor` and get noise of deviation `scale`.

    >>> SumNoise(factor=8, scale=1024).deviation
    128.0
    """

    factor: int
    scale: int

    @property
    def deviation(self) -> float:
        """The deviation of one device's noise in units of the question."""
        return self.scale / self.factor


@dataclass(frozen=True, kw_only=True)
class SumPrice:
    """What each private sum of a study costs a device, whatever is asked: μ against everyone, μ/√r_eff with the sum.

    >>> SumPrice(mu=0.5, noises=4).summed.mu
    0.25
    """

    mu: float
    noises: int = 1  # r_eff: honest noises that are certainly in every opened sum
    most: int = 1  # sums that the study may ask for, all of which a device reserves

    def __post_init__(self) -> None:
        require_number("mu", self.mu)
        require_whole("noises", self.noises)
        require_whole("most", self.most)

    @property
    def everyone(self) -> Gaussian:
        """What one answer costs against the server and all other devices together."""
        return Gaussian(mu=self.mu, delta=FAILURE)

    @property
    def summed(self) -> Gaussian | None:
        """What it costs against a server that sees only sums; None where that is no less."""
        return Gaussian(mu=self.mu / math.sqrt(self.noises), delta=FAILURE) if self.noises > 1 else None

    @property
    def reserved(self) -> Gaussian:
        """What all sums together can cost against everyone."""
        return Gaussian(mu=self.mu * math.sqrt(self.most), delta=self.most * FAILURE)

    @property
    def reserved_of_sums(self) -> Gaussian:
        """What all sums together can cost against a server that sees only sums."""
        return Gaussian(mu=self.mu * math.sqrt(self.most / self.noises), delta=self.most * FAILURE)

    def noise_for(self, l2: float) -> SumNoise:
        """The least whole noise at this price, where one record moves the whole numbers by at most l2 in L2.

        Whole numbers are multiplied by a power of two until the noise is at least `LEAST_SCALE` of their steps.

        >>> SumPrice(mu=0.5).noise_for(2**0.5)
        SumNoise(factor=512, scale=1449)
        """
        wanted = require_number("l2", l2) / self.mu
        factor = 2 ** max(0, math.ceil(math.log2(LEAST_SCALE / wanted)))
        scale = max(LEAST_SCALE, math.ceil(math.hypot(factor * wanted, SMOOTHING) * _ROUNDING))
        if scale > MOST_SCALE:
            raise PlanError(
                "CH204",
                f"a question with a sensitivity of {l2:.4g} needs noise of {scale:,}; at most {MOST_SCALE:,} is drawn.",
                fix="Ask for fewer cells or coarser bins, or give questions a larger epsilon.",
            )
        return SumNoise(factor=factor, scale=scale)
