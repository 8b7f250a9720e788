"""Vectors of whole numbers as ring words: for sums that are whole from the start, so that nothing is ever rounded."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from choral.core.codec import Codec
from choral.core.errors import PlanError, SumError
from choral.core.masks import Stream, Words
from choral.core.plan import SecureSum

MOST_ROWS = 2**24  # of one device, for which the words have room


@dataclass(frozen=True, kw_only=True)
class WholeCodec(Codec):
    """How a device's whole numbers become words of 64 bits; all but the last `exact` of them get noise here.

    >>> codec = WholeCodec.of(SecureSum.for_cohort(2, modulus_bits=64), factor=8, largest=1, scale=1024, tail=16)
    >>> words = codec.encode_whole(np.array([3, 100]), Stream.fresh())
    >>> int(codec.decode(words, 2, count=1)[1])  # the last one is exact, and neither multiplied nor noisy
    100
    """

    factor: int = 1
    exact: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.largest < 2**62 // self.cohort:
            raise PlanError(
                "CH204",
                f"{self.cohort:,} answers of up to {self.largest:,} do not fit words of 64 bits.",
                fix="Ask for fewer cells or coarser bins.",
            )

    @classmethod
    def of(cls, secure: SecureSum, *, factor: int, largest: int, scale: int, tail: int) -> Self:
        """The codec for sums over at most `MOST_ROWS` rows of a device, none of which adds more than `largest`.

        Whole numbers are multiplied by `factor`; their noise has the deviation `scale` and room for `tail` deviations.
        """
        return cls(
            grid=1.0,
            largest=MOST_ROWS * factor * max(largest, 1) + tail * scale,
            cohort=secure.cohort,
            word_bits=64,
            noise_in_grid=float(scale),
            law="discrete_gaussian",
            factor=factor,
        )

    def noisy(self, whole: NDArray[np.int64], noise: Stream) -> NDArray[np.int64]:
        """The numbers with their factor and noise, or CH501 where they leave the room of the words."""
        split = len(whole) - self.exact
        if len(whole) and np.abs(whole).max() > self.largest // self.factor:
            raise self._beyond()
        total = whole.copy()
        total[:split] *= self.factor
        total[:split] += self.whole_noise(split, noise)
        if len(total) and np.abs(total).max() > self.largest:
            raise self._beyond()
        return total

    def _beyond(self) -> SumError:
        return SumError(
            "CH501",
            f"an answer leaves the proved range of {self.largest:,}.",
            why="Beyond it a sum could wrap. Nothing was sent.",
            fix=f"A device answers for at most {MOST_ROWS:,} rows.",
        )

    def encode_whole(self, whole: NDArray[np.int64], noise: Stream, out: Words | None = None) -> Words:
        """The words of a device's numbers with their noise: each raised by `largest`, then the two check lanes."""
        total = self.noisy(whole, noise)
        words = np.empty(self.length(len(total)), "<u8") if out is None else out
        self._require_shape(words, len(total))
        words[: len(total)] = (total + self.largest).astype(np.uint64)
        words[len(total) :] = (1, 0)
        return words
