"""Batches drawn by a compiled program, where the training runs: row by row those that the drawers draw on the host.

Everything is counted in integers, so every kind of processor draws the same rows. The functions are traced with 64-bit
integers on.
"""

from dataclasses import dataclass
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.learning.batches.batch import EMPTY, Drawer, Rows
from choral.learning.batches.partition import PartitionDrawer
from choral.learning.batches.poisson import PoissonDrawer, thresholds
from choral.learning.rounding import ONE_PIECE

MOST_SLOTS = 2**13  # rows of all passes that a round touches: the host keeps longer orders from round to round
MOST_THRESHOLDS = 2**20  # of all devices together

_GOLDEN = 0x9E3779B97F4A7C15


def mixed(words: Array) -> Array:
    """What `streams` mixes words with, compiled."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> jnp.uint64(shift))) * jnp.uint64(factor)
    found: Array = words ^ (words >> jnp.uint64(31))
    return found


def keys(seeds: Array, devices: Array) -> Array:
    """Each device's key, as `streams.keys` has it; the seeds are those two words of each round."""
    first, second = seeds[..., 0], seeds[..., 1]
    return mixed(mixed(devices.astype(jnp.uint64) * jnp.uint64(_GOLDEN) + first) + second)


def words(key: Array, places: Array) -> Array:
    """The words at these places of each key's stream."""
    return mixed(key + (places.astype(jnp.uint64) + jnp.uint64(1)) * jnp.uint64(_GOLDEN))


def split(key: Array) -> Array:
    """Each key as four 32-bit words, as `noise.split` has them."""
    both = words(key[..., None], jnp.arange(2))
    halves = both.astype(jnp.uint32), (both >> jnp.uint64(32)).astype(jnp.uint32)
    return jnp.stack(halves, axis=-1).reshape(*key.shape, 4)


class CompiledDrawer(Protocol):
    """How a compiled program draws; its numbers are part of what is compiled, the tables of the devices are not."""

    @property
    def cells(self) -> int:
        """How many words one device's draw of a round keeps at a time."""

    def draw(self, tables: tuple[Array, ...], devices: Array, before: Array, key: Array) -> tuple[Array, Array]:
        """Rows (…, steps, room) and counts (…, steps) of these devices that took part in `before` rounds."""


Tables = tuple[NDArray[np.int32] | NDArray[np.uint64], ...]  # indexed by the device


def compiled_drawer(drawer: Drawer, sizes: Rows, room: int) -> tuple[CompiledDrawer, Tables] | None:
    """What draws as this drawer does, on devices of these sizes, or None where the host has to draw."""
    if isinstance(drawer, PartitionDrawer):
        return CompiledPartition.of(drawer, sizes)
    return CompiledPoisson.of(drawer, sizes, room) if isinstance(drawer, PoissonDrawer) else None


@dataclass(frozen=True, kw_only=True)
class CompiledPartition:
    """Draws batches of a partition: the rows of all passes that a round touches are sorted in one go, pass by pass."""

    batch: int
    steps: int
    cells: int
    one_order: bool

    @classmethod
    def of(cls, drawer: PartitionDrawer, sizes: Rows) -> tuple["CompiledPartition", Tables] | None:
        """For devices of these sizes; None where devices differ in their batches or passes are long."""
        batch, steps = drawer.plan.batch, drawer.plan.local_steps
        per_pass = np.maximum(1, sizes // batch)
        latest = per_pass - 1 if drawer.one_order else 0  # where in a pass a round begins
        cells = int((((latest + steps - 1) // per_pass + 1) * sizes).max())
        if drawer.plan.weighed or cells > MOST_SLOTS:
            return None
        form = cls(batch=batch, steps=steps, cells=cells, one_order=drawer.one_order)
        return form, (sizes.astype(np.int32),)

    def draw(self, tables: tuple[Array, ...], devices: Array, before: Array, key: Array) -> tuple[Array, Array]:
        """One round's batches; all counts are γ."""
        (sizes,) = tables
        size = jnp.maximum(sizes[devices], self.batch)[..., None]  # fewer rows are refused; nothing is divided by 0
        per_pass = size // self.batch
        first = before * self.steps if self.one_order else jnp.zeros_like(before)
        step = first[..., None] + jnp.arange(self.steps, dtype=jnp.int32)
        number, place = step // per_pass, step % per_pass
        cell = jnp.arange(self.cells, dtype=jnp.int32)
        ahead, row = cell // size, cell % size
        start = key[..., None] + ((number[..., :1] + ahead).astype(jnp.uint64) << jnp.uint64(32)) * jnp.uint64(_GOLDEN)
        low = (jnp.uint64(1) << (64 - lax.clz((size - 1).astype(jnp.uint64)))) - jnp.uint64(1)  # bits that hold a row
        tags = (words(start, row) & ~low) | row.astype(jnp.uint64)
        _, order = lax.sort((ahead, tags), num_keys=2)
        at = ((number - number[..., :1]) * size + place * self.batch)[..., None] + jnp.arange(self.batch)
        flat = jnp.take_along_axis(order, at.reshape(*devices.shape, -1), axis=-1) & low
        rows = flat.astype(jnp.int32).reshape(*devices.shape, self.steps, self.batch)
        return rows, jnp.full(rows.shape[:-1], self.batch, dtype=jnp.int32)


@dataclass(frozen=True, kw_only=True)
class CompiledPoisson:
    """Draws Poisson batches: each gap is looked up among the thresholds of its device's size."""

    steps: int
    room: int

    @property
    def cells(self) -> int:
        """All words of a round."""
        return self.steps * self.room

    @classmethod
    def of(cls, drawer: PoissonDrawer, sizes: Rows, room: int) -> tuple["CompiledPoisson", Tables] | None:
        """For devices of these sizes; None where devices differ in their rates or the thresholds are too many."""
        kinds, which = np.unique(sizes, return_inverse=True)
        if drawer.plan.weighed or len(kinds) * int(kinds.max()) > MOST_THRESHOLDS:
            return None
        table = np.zeros((len(kinds), int(kinds.max())), dtype=np.uint64)
        for number, size in enumerate(kinds):
            table[number, :size] = thresholds(int(size), drawer.plan.batch)
        return cls(steps=drawer.plan.local_steps, room=room), (sizes.astype(np.int32), which.astype(np.int32), table)

    def draw(self, tables: tuple[Array, ...], devices: Array, before: Array, key: Array) -> tuple[Array, Array]:  # noqa: ARG002
        """One round's batches, scattered over the room where the host does so."""
        sizes, which, table = tables
        place = jnp.arange(self.cells).reshape(self.steps, self.room)
        drawn = words(key[..., None, None], place) >> jnp.uint64(11)
        gaps = self._gaps(table, which[devices][..., None, None], drawn)
        rows = jnp.cumsum(gaps, axis=-1, dtype=jnp.int64) - 1
        inside = rows < sizes[devices][..., None, None]
        rows = jnp.where(inside, rows, 0).astype(jnp.int32)
        counts = jnp.sum(inside, axis=-1, dtype=jnp.int32)
        if self.room <= ONE_PIECE:
            return rows, counts
        order = jnp.argsort(words(key[..., None, None], place + self.cells), axis=-1)
        kept = jnp.where(inside, rows, EMPTY)
        scattered = jnp.put_along_axis(jnp.zeros_like(kept), order, kept, axis=-1, inplace=False)
        return scattered, jnp.full_like(counts, self.room)

    @staticmethod
    def _gaps(table: Array, which: Array, drawn: Array) -> Array:
        """1 + how many thresholds of its row of the table, which falls, lie above each word: by halving."""
        below, above = jnp.zeros(drawn.shape, jnp.int32), jnp.full(drawn.shape, table.shape[1], jnp.int32)
        for _ in range(table.shape[1].bit_length()):
            middle = (below + above) >> 1
            passed = drawn < table[which, jnp.minimum(middle, table.shape[1] - 1)]
            open_ = below < above
            below, above = jnp.where(open_ & passed, middle + 1, below), jnp.where(open_ & ~passed, middle, above)
        return below + 1
