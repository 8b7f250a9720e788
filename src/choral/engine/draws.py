"""What a round draws: batches, and the keys of noise and dither. The host draws them, or the processors that train."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.engine.processors import Feed, Rows
from choral.engine.programs import BY_CALL, CALLS, EVERYWHERE, Drawn, Where
from choral.learning import noise, streams
from choral.learning.batches import EMPTY, Batches, Drawer
from choral.learning.batches.compiled_drawing import CompiledDrawer, Tables, compiled_drawer, keys, split, words

DRAWN_TOGETHER = 128  # devices whose batches are drawn in one piece: larger ones leave the cache, and delay the start
MOST_ROUNDS = 64  # in one call of rounds that stay on the processors
MOST_BYTES = 2**30  # of what is drawn for such a call
PURPOSES: tuple[streams.Purpose, ...] = ("batches", "noise", "dither")

Devices = NDArray[np.int64]
Included = NDArray[np.bool_]
Turn = tuple[int, Devices, Included | None]  # the number of a round, its cohort, and who of it does not drop out
Before = NDArray[np.int64]  # in how many rounds each device of a cohort took part already
Group = Sequence[tuple[Turn, Before]]


class CompiledCall(NamedTuple):
    """What one compiled call is given: its lanes' devices, all that they draw, and which processor it is for."""

    devices: Devices
    drawn: Drawn
    at: int


def included_of(turn: Turn) -> int:
    """How many devices of a round are in its sum."""
    _, cohort, included = turn
    return len(cohort) if included is None else int(np.sum(included))


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing:
    """Draws on the host for a plan from a seed, in calls of so many lanes, each batch with so much room."""

    drawer: Drawer
    plan: Plan
    seed: int
    feed: Feed
    lanes: int
    room: int

    def rounds(self, turns: Sequence[Turn], take_part: Callable[[Devices], Before]) -> Iterator[list[CompiledCall]]:
        """Each round's calls, drawn for some rounds at a time, while the processor trains on those before.

        Where a device stands, `take_part` says when its round comes into such a group.
        """
        for group in _groups(turns, DRAWN_TOGETHER):
            yield from self._together(group, np.concatenate([take_part(cohort) for _, cohort, _ in group]))

    def batches(self, turns: Sequence[Turn], before: Before) -> Batches:
        """The batches of these rounds, one after the other."""
        first = [(0, cohort, included) for _, cohort, included in turns] if self.drawer.one_order else turns
        sizes = self.feed.records.sizes[np.concatenate([cohort for _, cohort, _ in turns])]
        return self.drawer.draw(sizes, before, self._keys("batches", first), None, self.room)

    def _keys(self, purpose: streams.Purpose, turns: Sequence[Turn]) -> streams.Words:
        """The keys of all devices of these rounds, one round after the other."""
        return np.concatenate([streams.keys(self.seed, purpose, number, cohort) for number, cohort, _ in turns])

    def _together(self, turns: Sequence[Turn], before: Before) -> list[list[CompiledCall]]:
        """The calls of each of these rounds; all that they draw is drawn in one go, since every little step costs."""
        batches, steps = self.batches(turns, before), np.arange(self.plan.local_steps + 1)
        devices = np.concatenate([cohort for _, cohort, _ in turns])
        given = Drawn(
            rows=self.feed.places(devices, batches.rows) if self.feed.resident else batches.rows,
            counts=batches.counts,
            noise=noise.split(streams.words(self._keys("noise", turns)[:, None], steps)),
            dither=noise.split(self._keys("dither", turns)),
            keep=np.concatenate([np.broadcast_to(True if one is None else one, len(all_)) for _, all_, one in turns]),
        )
        ends = [0, *np.cumsum([len(cohort) for _, cohort, _ in turns])]
        each = pairwise(ends)
        return [self._calls(devices[at:end], Drawn(*(one[at:end] for one in given))) for at, end in each]

    def _calls(self, cohort: Devices, given: Drawn) -> list[CompiledCall]:
        """A round as calls of so many devices as there are lanes, their inputs on the way to the processors."""
        calls: list[CompiledCall] = []
        for start in range(0, len(cohort), self.lanes):
            at, missing = len(calls) % len(self.feed.processors), max(0, start + self.lanes - len(cohort))
            devices, *own = (one[start : start + self.lanes] for one in (cohort, *given))
            if missing:  # what repeats the last device is padding
                devices, *own = (np.concatenate([one, one[-1:].repeat(missing, 0)]) for one in (devices, *own))
                own[-1][-missing:] = False
            first = 0 if self.feed.resident else 1  # rows that are not there yet are read when the call is made
            drawn = Drawn(*own[:first], *self.feed.put(tuple(own[first:]), at))
            calls.append(CompiledCall(devices, drawn, at))
        return calls


class WhoTrains(NamedTuple):
    """What the host says of some rounds: who takes part, by (round, call, lane), and what everything is drawn from."""

    devices: Any  # integers, on the host or on the processors; so are the others
    before: Any
    keep: Any
    seeds: Any  # of each round, for batches, noise and dither


class DeviceDrawing:
    """Draws where the rounds stay: the host says who takes part, and everything else is drawn and added there.

    A cohort's calls are spread over all processors, those of this process and those of others that `jax.distributed`
    joined to it. Sums are integers, so neither the number of processors nor that of processes changes a bit.
    """

    def __init__(self, drawing: Drawing, drawer: CompiledDrawer, tables: Tables) -> None:
        self.drawing, self.drawer, feed = drawing, drawer, drawing.feed
        everybody = jax.devices(feed.processors[0].platform)  # of all processes, where there are several
        self.width = len(everybody)
        self.mesh = Mesh(np.array(everybody), (CALLS,)) if self.width > 1 else None
        with jax.enable_x64(True):
            self.tables = self.put(tables, EVERYWHERE)
            (self.first,) = self.put((feed.records.offsets[:-1].astype(np.int32),), EVERYWHERE)
        self.rows: Rows = feed.held[0] if self.mesh is None else self._joined(feed.held)

    @classmethod
    def of(cls, drawing: Drawing) -> "DeviceDrawing | None":
        """What draws as the host does, or None where the host has to draw or to read rows."""
        if not drawing.feed.resident:
            return None
        found = compiled_drawer(drawing.drawer, drawing.feed.records.sizes, drawing.room)
        return None if found is None else cls(drawing, *found)

    def groups(self, turns: Sequence[Turn]) -> Iterator[slice]:
        """The rounds in groups of one size, except for the last one, each for one call."""
        steps, room = self.drawing.plan.local_steps, self.drawing.room
        lanes = self._calls(turns) * self.drawing.lanes // self.width
        most = MOST_BYTES // (lanes * (32 * self.drawer.cells + 8 * steps * room + 16 * steps))
        groups = -(-len(turns) // max(1, min(MOST_ROUNDS, most)))
        size = -(-len(turns) // groups)
        return (slice(start, start + size) for start in range(0, len(turns), size))

    def draw(self, who: WhoTrains) -> Drawn:
        """All that these rounds draw."""
        with jax.enable_x64(True):
            given = WhoTrains(*self.put(who[:3], BY_CALL), *self.put(who[3:], EVERYWHERE))
            how = (self.drawer, self.drawing.plan.local_steps, self.mesh)
            drawn: Drawn = _draw_rounds(*how, self.tables, self.first, given)
            return drawn

    def _calls(self, turns: Sequence[Turn]) -> int:
        """How many calls the largest cohort takes, as many on each processor."""
        largest = max(self.drawing.plan.cohort, *(len(cohort) for _, cohort, _ in turns))
        return -(-largest // (self.drawing.lanes * self.width)) * self.width

    def who(self, group: Group, size: int) -> WhoTrains:
        """The rounds in arrays of one shape, for `size` of them, so that a last group with fewer compiles nothing.

        Lanes without a device repeat the last one and are not kept.
        """
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

    def put(self, arrays: tuple[Any, ...], spec: Where) -> tuple[Array, ...]:
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


@partial(jax.jit, static_argnums=(0, 1, 2))
def _draw_rounds(
    drawer: CompiledDrawer, steps: int, mesh: Mesh | None, tables: tuple[Array, ...], first: Array, who: WhoTrains
) -> Drawn:
    """All that some rounds draw, drawn where it is needed; traced with 64-bit integers on."""

    def draw(tables: tuple[Array, ...], first: Array, who: WhoTrains) -> Drawn:
        of_batches, of_noise, of_dither = (keys(who.seeds[:, None, None, which], who.devices) for which in range(3))
        rows, counts = drawer.draw(tables, who.devices, who.before, of_batches)
        places = jnp.where(rows < 0, EMPTY, first[who.devices][..., None, None] + rows)
        step_keys = split(words(of_noise[..., None], jnp.arange(steps + 1)))
        return Drawn(rows=places, counts=counts, noise=step_keys, dither=split(of_dither), keep=who.keep)

    if mesh is None:
        return draw(tables, first, who)
    specs = (EVERYWHERE, EVERYWHERE, WhoTrains(BY_CALL, BY_CALL, BY_CALL, EVERYWHERE))
    return jax.shard_map(draw, mesh=mesh, in_specs=specs, out_specs=BY_CALL, check_vma=False)(tables, first, who)


_uniform = jax.jit(noise.uniform, static_argnums=1)  # op by op it would take as long as an update


def dither_of(seed: int, round_number: int, device: int, size: int) -> NDArray[np.float32]:
    """The dither that a simulated device's update of this size is rounded with.

    >>> dither_of(1, 0, 5, 3).shape
    (3,)
    """
    key = noise.split(streams.keys(seed, "dither", round_number, np.array([device])))[0]
    return np.asarray(_uniform(key, (size,)))


def whole_noise_of(seed: int, round_number: int, device: int) -> Stream:
    """The keystream of the whole noise that a simulated device adds to its integers, in the strict mode.

    >>> whole_noise_of(1, 0, 5).words(1, 64).shape
    (1,)
    """
    text = f"choral/1|{seed}|whole noise|{round_number}|{device}"
    return Stream(hashlib.sha256(text.encode()).digest())


def _groups(rounds: Sequence[Turn], most: int) -> Iterator[Sequence[Turn]]:
    """The rounds in their order, in groups of about so many devices; small ones first, so that training can begin."""
    start, largest = 0, max(1, most // max(1, *(len(cohort) for _, cohort, _ in rounds)))
    while start < len(rounds):
        size = min(largest, start // 2 + 1)
        yield rounds[start : start + size]
        start += size
