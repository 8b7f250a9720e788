"""Rounds that stay on the processors: the host says who takes part, and everything else is drawn and added there.

A cohort's calls are spread over all processors, those of this process and those of others that `jax.distributed` joined
to it. Sums are integers, so neither the number of processors nor that of processes changes a bit.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from choral.backends.compiled import Form, TracedCodec
from choral.backends.compiled_rounds import (
    BY_CALL,
    CALLS,
    EVERYWHERE,
    Drawn,
    Where,
    WhoTrains,
    draw_rounds,
    train_rounds,
)
from choral.backends.drawing import Before, Drawing, Turn
from choral.core.codec import mean_scale
from choral.learning import streams
from choral.learning.batches.compiled_drawing import CompiledDrawer, Tables, compiled_drawer
from choral.learning.feed import Rows
from choral.learning.recipe import TracedNumbers

MOST_ROUNDS = 64  # in one call
MOST_BYTES = 2**30  # of what is drawn for one call
PURPOSES: tuple[streams.Purpose, ...] = ("batches", "noise", "dither")

Group = Sequence[tuple[Turn, Before]]  # rounds, and in how many each of their devices took part already


class Resident:
    """Rounds of an engine in compiled calls of several rounds each."""

    def __init__(
        self, form: Form, drawing: Drawing, codec: TracedCodec, drawer: CompiledDrawer, tables: Tables
    ) -> None:
        self.form, self.drawing, self.codec, self.drawer = form, drawing, codec, drawer
        feed = drawing.feed
        everybody = jax.devices(feed.processors[0].platform)  # of all processes, where there are several
        self.width = len(everybody)
        self.mesh = Mesh(np.array(everybody), (CALLS,)) if self.width > 1 else None
        with jax.enable_x64(True):
            self.tables = self._put(tables, EVERYWHERE)
            (self.first,) = self._put((feed.records.offsets[:-1].astype(np.int32),), EVERYWHERE)
        self.rows: Rows = feed.held[0] if self.mesh is None else self._joined(feed.held)

    @classmethod
    def of(cls, form: Form, drawing: Drawing, codec: TracedCodec) -> "Resident | None":
        """For an engine of this form; None where the host has to draw, to add whole noise or to read rows."""
        if form.recipe.strict or form.recipe.weighed or not drawing.feed.resident:
            return None
        found = compiled_drawer(drawing.drawer, drawing.feed.records.sizes, drawing.room)
        return None if found is None else cls(form, drawing, codec, *found)

    def groups(self, turns: Sequence[Turn]) -> Iterator[slice]:
        """The rounds in groups of one size, except for the last one, each for one call."""
        steps, room = self.drawing.plan.local_steps, self.drawing.room
        lanes = self._calls(turns) * self.drawing.lanes // self.width
        most = MOST_BYTES // (lanes * (32 * self.drawer.cells + 8 * steps * room + 16 * steps))
        groups = -(-len(turns) // max(1, min(MOST_ROUNDS, most)))
        size = -(-len(turns) // groups)
        return (slice(start, start + size) for start in range(0, len(turns), size))

    def run(
        self, parameters: NDArray[np.float32] | Array, group: Group, numbers: TracedNumbers, size: int
    ) -> tuple[Array, Array, Array]:
        """θ after these rounds, the halves of the last one's sum, and the states of each one's updates.

        The call is one for `size` rounds, so that a last group with fewer of them compiles nothing.
        """
        drawn, scales = self.draw(self.who(group, size)), np.zeros(size, np.float32)
        for at, ((_, cohort, included), _) in enumerate(group):
            count = len(cohort) if included is None else int(np.sum(included))
            scales[at] = mean_scale(count, float(self.codec[0]))
        theta, factors = self._put((parameters, scales), EVERYWHERE)
        how = (self.form, self.mesh, numbers, self.codec, np.int32(0))
        found: tuple[Array, Array, Array] = train_rounds(*how, theta, self.rows, drawn, factors)
        return found

    def draw(self, who: WhoTrains) -> Drawn:
        """All that these rounds draw."""
        with jax.enable_x64(True):
            given = WhoTrains(*self._put(who[:3], BY_CALL), *self._put(who[3:], EVERYWHERE))
            how = (self.drawer, self.drawing.plan.local_steps, self.mesh)
            drawn: Drawn = draw_rounds(*how, self.tables, self.first, given)
            return drawn

    def _calls(self, turns: Sequence[Turn]) -> int:
        """How many calls the largest cohort takes, as many on each processor."""
        largest = max(self.drawing.plan.cohort, *(len(cohort) for _, cohort, _ in turns))
        return -(-largest // (self.drawing.lanes * self.width)) * self.width

    def who(self, group: Group, size: int) -> WhoTrains:
        """The rounds in arrays of one shape; lanes without a device repeat the last one and are not kept."""
        calls, lanes = self._calls([turn for turn, _ in group]), self.drawing.lanes
        shape = (size, calls * lanes)
        devices, earlier, keep = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
        seeds = np.zeros((size, len(PURPOSES), 2), np.uint64)
        for at, ((number, cohort, included), before) in enumerate(group):
            end = len(cohort)
            devices[at, :end], devices[at, end:] = cohort, cohort[-1]
            earlier[at, :end], earlier[at, end:] = before, before[-1]
            keep[at, :end] = True if included is None else included
            for which, purpose in enumerate(PURPOSES):
                same = purpose == "batches" and self.drawing.drawer.one_order
                seeds[at, which] = streams.seed_words(self.drawing.seed, purpose, 0 if same else number)
        by_call = (size, calls, lanes)
        return WhoTrains(devices.reshape(by_call), earlier.reshape(by_call), keep.reshape(by_call), seeds)

    def _put(self, arrays: tuple[Any, ...], spec: Where) -> tuple[Array, ...]:
        """The arrays on the processors, whole on each or divided by calls."""
        if self.mesh is None:
            return tuple(jax.device_put(arrays, self.drawing.feed.processors[0]))
        where = NamedSharding(self.mesh, spec)

        def put(one: Any) -> Array:  # noqa: ANN401 - an array of either kind
            if isinstance(one, Array) and one.sharding == where:
                return one
            return jax.make_array_from_callback(one.shape, where, np.asarray(one).__getitem__)

        return tuple(map(put, arrays))

    def _joined(self, held: Sequence[Rows]) -> Rows:
        """The rows that every processor holds already, as arrays that are whole on each."""
        assert self.mesh is not None  # noqa: S101 - else there is one
        where = NamedSharding(self.mesh, EVERYWHERE)

        def joined(which: int) -> Array:
            parts: list[Any] = [one[which] for one in held]
            return jax.make_array_from_single_device_arrays(parts[0].shape, where, parts)

        return joined(0), joined(1), None if held[0][2] is None else joined(2)
