"""Updates and whole numbers as ring integers and back, in a range that is proved, so that no sum wraps."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from choral.core import samplers
from choral.core.errors import PlanError, SumError
from choral.core.masks import Stream, Words, ring
from choral.core.mechanisms import DOUBLE_BITS, FLOAT_BITS
from choral.core.plan import LEAST_SCALE, SMOOTHING, AnyLaw, Plan, SecureSum, require_number

Integers = NDArray[np.signedinteger[Any]]

CHUNK = 32 * 1024  # parameters: few enough that every pass over them stays in the cache
CHECKS = 2  # behind the parameters: a count lane that holds 1 and a zero lane
_SLACK = 1 + 2.0**-20  # dither and fraction are compared in float32; also covers the rounding of what is computed here


def quantise(update: Any, dither: Any, grid: float | np.float32) -> Any:  # noqa: ANN401 - any array namespace: NumPy here, JAX in the engine
    """The update in steps of the grid, rounded up where the dither lies below the fraction; the mean is kept.

    Division by a power of two is exact, so NumPy and a compiled JAX give the same integers.

    >>> quantise(np.float32([0.25, -0.25, 1.0]), np.float32([0.4, 0.4, 0.4]), 0.5).tolist()
    [1, 0, 2]
    """
    xp = update.__array_namespace__()
    scaled = update * xp.asarray(1.0 / grid, dtype=update.dtype)
    whole = xp.floor(scaled)
    scaled -= whole
    return whole.astype(xp.int32) + (dither < scaled)


def _dither(source: Stream | NDArray[np.floating[Any]], start: int, stop: int) -> NDArray[np.floating[Any]]:
    """Uniform in [0, 1): given, or drawn in multiples of 2^-16, which move no mean by more than 2^-16 of the grid."""
    if isinstance(source, Stream):
        return source.uniform(stop - start)
    return source[start:stop]


def sensitivity(plan: Plan, dimensions: int, grid: float) -> float:
    """Tell how far the replacement of one record moves the integers of a strict round, in L2 (rule S6).

    With one and the same dither, rounding adds less than a step to the difference in a coordinate.

    >>> plan = Plan(devices=2, cohort=2, rounds=1, rows=100, batch=100, step_size=0.5, clip=1.0, noise=0.1,
    ...             sampling="partition", law="discrete_gaussian")
    >>> round(sensitivity(plan, 100, 2.0**-10), 2)  # 2ηG/γ in steps, and √d
    20.24
    """
    moved = plan.mechanism.moves * plan.mechanism.longest(plan, dimensions) / (plan.batch * grid)
    return (moved + math.sqrt(dimensions)) * _SLACK


@dataclass(frozen=True, kw_only=True)
class Codec:
    """The way one plan's updates become words: the grid, the largest value in steps of it, and the size of a word.

    `failure` is β, the chance over a whole run that an honest update leaves the range: add it to δ.
    `noise_in_grid` is s = ησ/grid, which rule S6 needs. Where the `law` is not Gaussian, the noise is whole, of this
    deviation, and added here: whoever encodes an update can't leave it out.

    >>> codec = Codec(grid=0.5, largest=10, cohort=2, word_bits=32)
    >>> words = codec.encode(np.float32([0.5, -1.0]), dither=Stream.fresh())
    >>> codec.decode(words + words, 2, count=2).tolist()
    [2, -4]
    """

    grid: float
    largest: int
    cohort: int
    word_bits: int = 32
    failure: float = 0.0
    noise_in_grid: float = 0.0
    law: AnyLaw = "gaussian"

    def __post_init__(self) -> None:
        if not (0 < self.grid < math.inf) or math.frexp(self.grid)[0] != 0.5:
            raise PlanError("CH200", f"grid = {self.grid!r}.", fix="Must be a power of two.")
        if self.word_bits not in (16, 32, 64):
            raise PlanError("CH204", f"words of {self.word_bits} bits.", fix="Use 16, 32 or 64.")
        bits = DOUBLE_BITS if self.whole else FLOAT_BITS
        if not 1 <= self.largest < 2**bits or 2 * self.largest * self.cohort >= 2**self.word_bits:
            raise PlanError(
                "CH204",
                f"{self.cohort} updates of up to {self.largest:,} grid steps do not fit {self.word_bits} bits.",
                fix="Use more bits, a smaller cohort or a coarser grid.",
            )

    @classmethod
    def for_plan(cls, plan: Plan, secure: SecureSum, dimensions: int, *, failure: float = 2.0**-40) -> Self:
        """The codec with the finest grid that the modulus allows; refused if that is coarser than a third of the noise.

        z = √(2 ln(2drT/β)) deviations of noise are counted; `Mechanism.proved_range` has the bound.

        >>> plan = Plan(devices=16, cohort=10, rounds=20, rows=2440, batch=244, local_steps=10,
        ...             step_size=0.5, clip=1.0, noise=0.02)
        >>> Codec.for_plan(plan, SecureSum.for_cohort(10), 210).grid == 2.0**-20
        True
        """
        require_number("failure", failure, below=1.0)
        secure.require_runnable()
        if plan.strict:
            return cls._strict(plan, secure, max(dimensions, 1), failure)
        own = plan.mechanism
        noise = own.update_noise(plan)
        tail = math.sqrt(2 * math.log(2 * max(dimensions, 1) * plan.cohort * plan.rounds / failure))
        bound = own.first_range(plan, tail) if plan.codec == 1 else own.proved_range(plan, tail)
        weight = plan.most_weight if plan.codec == 1 else plan.batch_of(plan.most_weight * plan.rows) / plan.batch
        room = 2 ** min(secure.value_bits - 1, FLOAT_BITS) - 1
        grid = 2.0 ** math.frexp(bound / (room - 1))[1]  # the next power of two above: one step is for rounding up
        if plan.noise > 0 and grid > noise / 3:  # rule S6: real leaks begin where the noise is 0.4 of the grid
            raise PlanError(
                "CH204",
                f"the grid of {grid:g} is coarser than a third of the noise ({noise / 3:g}).",
                why="Rounded to such a grid, the noise would no longer hide what it should.",
                fix="Use a larger modulus, fewer local steps, a smaller clip or more noise.",
            )
        return cls(
            grid=grid,
            largest=math.floor(bound / grid) + 2,
            cohort=secure.cohort,
            word_bits=secure.modulus_bits,
            failure=failure,
            noise_in_grid=noise / weight / grid,  # of a local step, which may count several times
        )

    @classmethod
    def _strict(cls, plan: Plan, secure: SecureSum, dimensions: int, failure: float) -> Self:
        """The codec of whole noise, on the finest grid where clipped updates, the noise and its tail have room.

        The noise is so wide that no record moves the integers by more than 2/z of it, z = σγ/G: rule S6 counts on it.
        Noise that is wider by `SMOOTHING` counts as a Gaussian. Uploads with noise once are float64, on a finer grid.
        """
        own, noise = plan.mechanism, plan.mechanism.update_noise(plan)
        most, multiplier = own.longest_upload(plan, dimensions), own.whole_multiplier(plan)
        # Half of β for the tail, by Bernstein's bound; the other half was that of a sampler that was not exact.
        # P[|noise| > t] ≤ 2 exp(−x) for t = s√(2x) + 2x/3.
        nats = math.log(4 * dimensions * secure.cohort * plan.rounds / failure)
        smoothing, widest = SMOOTHING if own.smooths(plan) else 0, samplers.LARGEST_SCALE[plan.law]
        room = 2 ** min(secure.value_bits - 1, own.float_bits) - 1
        grid = 2.0 ** math.frexp(most / room)[1]
        while grid < 2 * noise:
            needed = math.hypot(multiplier * sensitivity(plan, dimensions, grid) / own.moves, smoothing)
            scale = max(LEAST_SCALE[plan.law], math.ceil(needed))
            largest = math.ceil(most / grid + 2 + scale * math.sqrt(2 * nats) + 2 * nats / 3)
            if largest <= room and scale <= widest and scale * grid <= 2 * noise:
                return cls(
                    grid=grid,
                    largest=largest,
                    cohort=secure.cohort,
                    word_bits=secure.modulus_bits,
                    failure=failure,
                    noise_in_grid=float(scale),
                    law=plan.law,
                )
            grid *= 2
        raise PlanError(
            "CH204",
            f'no grid suits law = "{plan.law}" with {dimensions:,} parameters, {secure.value_bits} bits for a value.',
            why="Rounding would need more than twice the noise of the plan.",
            fix='Use a larger modulus, a smaller model, or law = "gaussian".',
        )

    @property
    def whole(self) -> bool:
        """Tell whether the codec adds the noise itself, in whole numbers."""
        return self.law in LEAST_SCALE

    def whole_noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """Noise for so many parameters, in grid steps, where the law is that of whole noise."""
        return samplers.draw(self.law, int(self.noise_in_grid), count, stream)

    @property
    def largest_parameter(self) -> float:
        """Tell how large a parameter may be: in float32 its spacing is then at most half the noise of a step (rule S6).

        Whole noise is added to the integers and an update is −ηĝ itself, so no float near a parameter carries either.

        >>> Codec(grid=0.5, largest=10, cohort=2, noise_in_grid=2.0).largest_parameter == 2**22
        True
        """
        noise = 0.0 if self.whole else self.noise_in_grid * self.grid
        return noise * 2.0 ** (FLOAT_BITS - 1) if noise > 0 else float(np.finfo(np.float32).max)

    def length(self, dimensions: int) -> int:
        """Tell how many words carry so many parameters and the two checks."""
        return dimensions + CHECKS

    def _require_shape(self, words: Words, dimensions: int) -> None:
        dtype, shape = ring(self.word_bits), (self.length(dimensions),)
        if words.dtype != dtype or words.shape != shape:
            raise SumError("CH500", f"words of {words.dtype} in the shape {words.shape}, not {dtype} in {shape}.")

    def pieces(self, dimensions: int) -> Iterator[slice]:
        """The parameters of each chunk."""
        for start in range(0, dimensions, CHUNK):
            yield slice(start, min(start + CHUNK, dimensions))

    def integers(self, update: NDArray[np.floating[Any]], dither: NDArray[np.floating[Any]]) -> NDArray[np.int32]:
        """The update in grid steps, none beyond `largest`, or a SumError."""
        self._in_range(update, (self.largest - 1) * self.grid)  # the last step is kept for rounding up
        return quantise(update, dither, self.grid)  # type: ignore[no-any-return]

    def _in_range(self, values: NDArray[Any], limit: float) -> None:
        if len(values) and not (-limit <= values.min() and values.max() <= limit):  # so written, NaN fails too
            raise SumError(
                "CH501",
                f"an update leaves the proved range of {self.largest:,} grid steps of {self.grid:g}, or is not finite.",
                why="Beyond it a sum could wrap. Nothing was sent.",
                fix="Check step size, clip and noise of this device against the plan.",
            )

    def encode(
        self,
        update: NDArray[np.floating[Any]],
        dither: Stream | NDArray[np.floating[Any]],
        noise: Stream | None = None,
        out: Words | None = None,
    ) -> Words:
        """The update as words: each integer raised by `largest`, then a count lane of 1 and a zero lane.

        `dither` is a fresh Stream in a deployment, and uniform numbers in [0, 1), one a parameter, in a simulation.
        `noise` is the stream of whole noise, where the law asks for it: a fresh one, unless a simulation gives its own.
        `out` takes the words where they are to be sent from; they are returned as well.
        """
        size = len(update)
        words = np.empty(self.length(size), ring(self.word_bits)) if out is None else out
        self._require_shape(words, size)
        whole = self.whole_noise(size, noise or Stream.fresh()) if self.whole else None
        for which in self.pieces(size):
            integers: NDArray[Any] = self.integers(update[which], _dither(dither, which.start, which.stop))
            if whole is not None:
                integers = integers + whole[which]
                self._in_range(integers, self.largest)
            integers += self.largest
            words[which] = integers
        words[size:] = 1, 0
        return words

    def decode(self, words: Words, dimensions: int, *, count: int, consume: bool = False) -> Integers:
        """The sum of `count` updates in grid steps, or a SumError if the check lanes or the range deny it.

        With `consume` the words are not needed any more, and their memory may become the sum's.
        """
        dtype = ring(self.word_bits)
        self._require_shape(words, dimensions)
        if not 1 <= count <= self.cohort:
            raise SumError("CH500", f"a sum of {count} updates in a cohort of {self.cohort}.")
        if words[dimensions:].tolist() != [count, 0]:
            raise SumError(
                "CH504",
                f"the check lanes do not say that {count} updates were added.",
                why="Masks that do not cancel look like this. The sum is discarded.",
            )
        signed = f"<i{dtype.itemsize}"
        total = words[:dimensions].view(signed) if consume else np.empty(dimensions, signed)
        raised = dtype.type(self.largest * count)
        for which in self.pieces(dimensions):
            if words[which].max() > 2 * raised:
                raise SumError("CH502", f"a sum lies beyond {count} × {self.largest:,} grid steps; it is discarded.")
            np.subtract(words[which], raised, out=total[which].view(dtype))  # modulo 2^bits, read as signed
        return total


MOST_ROWS = 2**24  # of one device, for which the words have room


@dataclass(frozen=True, kw_only=True)
class WholeCodec(Codec):
    """The way of a device's whole numbers into words of 64 bits; all but the last `exact` of them get noise here.

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
