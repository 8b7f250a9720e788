"""The work that every contender does: the shapes of a round, the rows, and the batches. Needs NumPy only."""

import mmap
from dataclasses import asdict, dataclass, replace
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

IN_MEMORY = 2**30  # bytes of features at most; a larger table is an empty file, mapped: its rows read as zeros


@dataclass(frozen=True, kw_only=True)
class Work:
    """One round of Algorithm 1: who takes part, how each device trains, and on what shapes."""

    devices: int
    fewest_rows: int
    most_rows: int
    layers: tuple[int, ...]
    cohort: int
    steps: int = 10
    batch: int = 64
    step_size: float = 0.1
    clip: float = 1.0
    noise: float = 0.01

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(**{**values, "layers": tuple(values["layers"])})

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def but(self, **changes: Any) -> "Work":  # noqa: ANN401
        return replace(self, **changes)

    @property
    def parameters(self) -> int:
        """d, weights and biases together."""
        return sum((a + 1) * b for a, b in zip(self.layers, self.layers[1:], strict=False))

    @property
    def flops(self) -> int:
        """Multiplications and additions of a round's matrix products: forward, backward, and the clipped sum."""
        products = [a * b for a, b in zip(self.layers, self.layers[1:], strict=False)]
        return self.cohort * self.steps * self.batch * (6 * sum(products) - 2 * products[0])


ADULT_MLP = Work(devices=16, fewest_rows=2441, most_rows=2441, layers=(104, 64, 32, 2), cohort=10)
ADULT_LOGISTIC = ADULT_MLP.but(layers=(104, 2))
ADULT_WIDE = ADULT_MLP.but(layers=(104, 256, 256, 2))
CROSS_DEVICE = Work(devices=10_000, fewest_rows=50, most_rows=500, layers=(784, 200, 200, 10), cohort=100, batch=32)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All devices' rows in one flat table; device i holds rows offsets[i] to offsets[i + 1]."""

    features: NDArray[np.float32]
    labels: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def of(self, device: int) -> slice:
        return slice(int(self.offsets[device]), int(self.offsets[device + 1]))


def rows_of(work: Work) -> Rows:
    """Made-up rows of the work's shapes. Time does not depend on their values, so those of a huge table are zeros."""
    rng = np.random.default_rng(1)
    counts = rng.integers(work.fewest_rows, work.most_rows + 1, work.devices)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    shape = (int(offsets[-1]), work.layers[0])
    if 4 * shape[0] * shape[1] <= IN_MEMORY:
        features = rng.random(shape, dtype=np.float32)
        features -= 0.5
    else:
        features = np.frombuffer(_empty_file(4 * shape[0] * shape[1]), np.float32).reshape(shape)
    return Rows(features=features, labels=rng.integers(0, work.layers[-1], shape[0], dtype=np.int32), offsets=offsets)


def _empty_file(size: int) -> mmap.mmap:
    """So many zeros that are nowhere until they are read; rows are read here and there, so none are read ahead."""
    with TemporaryFile() as file:
        file.truncate(size)
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def cohort_of(work: Work, number: int) -> NDArray[np.int64]:
    """The devices of a round, without repeats, the same for every contender."""
    return np.sort(np.random.default_rng([2, number]).choice(work.devices, work.cohort, replace=False))


def batches_of(work: Work, rows: Rows, number: int) -> NDArray[np.int64]:
    """Row numbers of a round's batches, as [cohort, steps, batch]: disjoint within a pass, the same for everyone."""
    rng = np.random.default_rng([3, number])
    chosen = np.empty((work.cohort, work.steps, work.batch), np.int64)
    for place, device in enumerate(cohort_of(work, number)):
        own = rows.of(device)
        count = own.stop - own.start
        a_pass = max(1, count // work.batch)
        for step in range(work.steps):
            if step % a_pass == 0:
                order = rng.permutation(count)
            at = step % a_pass * work.batch
            chosen[place, step] = own.start + order[at : at + work.batch]
    return chosen


def first_weights(work: Work) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """The model before round 0, as (weights [in, out], biases) of each layer; He's scale."""
    rng = np.random.default_rng(4)
    pairs = zip(work.layers, work.layers[1:], strict=False)
    return [
        ((rng.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32), np.zeros(b, np.float32)) for a, b in pairs
    ]
