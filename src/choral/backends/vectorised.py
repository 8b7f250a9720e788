"""A round for a whole cohort in compiled calls, on one machine; masks are left out, since they cancel in the sum.

The sum is taken in the codec's integers, so it equals the secure sum bit for bit. A device's update depends on the
plan, the model, its records, the seed and the round alone: every call has the same shape and the same number of lanes,
fixed by plan and kind of processor, so neither the cohort, nor who drops out, nor the memory, nor the number of
accelerators changes a bit of it.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.backends.compiled import (
    STATES,
    CompiledCall,
    Form,
    Lanes,
    Pending,
    Sum,
    add_lanes_of,
    arrived,
    check_states,
    halves_of,
    joined,
    updates_of,
    whole,
)
from choral.backends.drawing import Before, Devices, Drawing, Included, Turn, dither_of, whole_noise_of
from choral.backends.resident import Resident
from choral.core.codec import Codec, mean, mean_scale
from choral.core.errors import PlanError, TableError
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.learning import fused
from choral.learning.batches import drawer_of
from choral.learning.evaluate import evaluate
from choral.learning.feed import Feed, Rows, devices_in_flight
from choral.learning.fit import check_compiled, check_fit
from choral.learning.local import Shortcuts
from choral.learning.models import Model
from choral.learning.processors import keep_compiled, processors
from choral.learning.recipe import Recipe, TracedNumbers
from choral.tables.records import Records

MOST_DEVICES = 2**15  # in a round: the low halves of so many integers, added, still fit 31 bits
LANES = {"cpu": 2**20}  # parameters in one call: what a core's cache holds
CORES = os.cpu_count() or 1
SHARES = {"cpu": 2}  # calls that a small cohort is divided into, so that two cores have work
IN_FLIGHT = 16  # calls for one sum that are started before the host waits: enough to draw batches meanwhile
LANES_ELSEWHERE = 2**28  # and what fills an accelerator
RARE = 0.05  # how often the tail of a batch's room may be computed; it is skipped where no lane needs it


Parameters = NDArray[np.float32] | Array


class Grid(Protocol):
    """What the engine needs of the codec: the step of the grid, and the most steps of one coordinate of one update."""

    @property
    def grid(self) -> float: ...  # noqa: D102
    @property
    def largest(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedSum:
    """What the server learns of a round: the sum of the included updates in grid steps, and how many there are."""

    total: NDArray[np.int64]
    count: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """Where a run stands: the round just done, how many of how many, θ, and about how long the rest will take."""

    round_number: int
    done: int
    of: int
    parameters: NDArray[np.float32]
    seconds_left: float


class Vectorised:
    """Rounds of Algorithm 1 for whole cohorts; `train` is all that a simulated round needs of it.

    `lanes`, the devices in one compiled call, is part of what fixes the bits; `chunk`, the devices under way before the
    host waits, is not.
    """

    def __init__(
        self,
        *,
        model: Model,
        records: Records,
        plan: Plan,
        codec: Grid,
        seed: int,
        recipe: Recipe | None = None,
        accelerator: str | None = None,
        lanes: int | None = None,
        chunk: int | None = None,
    ) -> None:
        check_compiled(model)
        check_fit(model, records, plan)
        keep_compiled()
        self.model, self.records, self.plan, self.codec = model, records, plan, codec
        self.recipe = recipe or Recipe.of(plan)
        self.processors = processors(accelerator)
        drawer = drawer_of(plan, remembering=True)
        self.room = drawer.room(int(records.sizes.max()))
        most = LANES.get(self.processors[0].platform, LANES_ELSEWHERE)
        self.shares = SHARES.get(self.processors[0].platform, 1)
        fitting = max(1, most // model.held(self.room))
        self.lanes = lanes or min(-(-plan.cohort // self.shares), fitting)
        if lanes is None and self.processors[0].platform != "cpu":  # in calls of one size, so that no lane is idle
            self.lanes = -(-plan.cohort // -(-plan.cohort // self.lanes))
        lengths = bool((model.fixed or model).widths)
        self.feed = Feed(records, self.processors, self.lanes, plan.local_steps * self.room, lengths=lengths)
        flying = self.feed.bytes_in_flight + 4 * model.size
        self.chunk = max(self.lanes, chunk or devices_in_flight(flying, self.lanes))
        self.rounds_of = np.zeros(records.devices, dtype=np.int64)
        self.drawing = Drawing(drawer=drawer, plan=plan, seed=seed, feed=self.feed, lanes=self.lanes, room=self.room)
        self.numbers = TracedNumbers.of(model.fixed or model, self.recipe, self.room)
        if self.recipe.weighed:
            kinds, which = np.unique(records.sizes, return_inverse=True)
            own = [Recipe.of(plan, int(rows)) for rows in kinds]
            each = [[1 / one.batch for one in own], [one.weight for one in own]]
            self._own = np.array(each, dtype=np.float32)[:, which]
        self.usual = drawer.usual(self.room, self.lanes, RARE)
        kernels = fused.runs_on(self.processors[0])
        shortcuts = Shortcuts(usual=self.usual, finite=self.feed.finite, kernels=kernels)
        self.form = Form(model=model, recipe=self.recipe.form, shortcuts=shortcuts)
        self.traced_codec = np.float32(codec.grid), np.int32(codec.largest)
        everybody = jax.devices(self.processors[0].platform)
        alone = self.processors[0].platform == "cpu" and len(everybody) == 1  # whose host draws faster than a sort
        self.resident = None if alone else Resident.of(self.form, self.drawing, self.traced_codec)
        self.cores = CORES if self.processors[0].platform == "cpu" else 1
        nothing = np.zeros((2, model.size), np.int32), np.zeros(len(STATES), np.int32)
        self._nothing: list[Sum] = [jax.device_put(nothing, one) for one in self.processors]
        self._held = [jax.device_put((self.numbers, self.traced_codec), one) for one in self.processors]
        self._zero, self._scales = jax.device_put(np.int32(0), self.processors[0]), dict[int, Array]()
        calls = -(-plan.cohort // self.lanes)
        self._sums = min(calls, self.cores) * len(self.processors)
        self._add = add_lanes_of(self.form)
        self._in_flight: list[deque[Sum]] = [deque() for _ in range(self._sums)]
        self._most_in_flight = min(IN_FLIGHT, self.chunk // (self._sums * self.lanes))
        self._launchers = [ThreadPoolExecutor(1) for _ in range(self._sums - 1)]
        if self.recipe.strict and not (isinstance(codec, Codec) and codec.law == plan.law):
            raise PlanError("CH204", f'the codec does not add law = "{plan.law}".', fix="Use Codec.for_plan.")

    @property
    def seed(self) -> int:
        """What chooses batches, noise and dither; fixed, since what is drawn ahead was drawn from it."""
        return self.drawing.seed

    def train(
        self, parameters: NDArray[np.float32], round_number: int, cohort: Devices, included: Included | None = None
    ) -> SimulatedSum:
        """The sum of the included devices' updates in this round, and their number.

        A round that is tried again needs a new number: the number chooses batches, noise and dither.
        """
        self._check_loss(parameters)
        turn = round_number, cohort, included
        with self._all_or_nothing():
            if self.resident is not None:
                _, total, (states,) = self.resident.run(parameters, [(turn, self._take_part(cohort))], self.numbers, 1)
            else:
                found = self._start(self._still(parameters), self._calls(*turn), turn)
                total, states = joined(found.sums)
            check_states(round_number, np.asarray(states), self.recipe)
        return SimulatedSum(total=whole(total), count=len(cohort) if included is None else int(np.sum(included)))

    def apply(self, parameters: NDArray[np.float32], total: NDArray[np.int64], count: int) -> NDArray[np.float32]:
        """θ plus the mean update, line 12 of Algorithm 1."""
        moved: NDArray[np.float32] = parameters + mean(total, count, self.codec.grid)
        return moved

    def rounds(
        self,
        parameters: NDArray[np.float32],
        cohorts: Sequence[Devices],
        included: Sequence[Included] | None = None,
        *,
        first: int = 0,
        every: int = 1,
    ) -> Iterator[Progress]:
        """Whole rounds one after the other, with the same bits as `train` and `apply`; progress after `every` so many.

        Between two reports nothing waits for the host: it draws the next batches while the processor trains.
        """
        self._check_loss(parameters)
        began = time.monotonic()
        theta: Parameters = parameters
        for start in range(0, len(cohorts), every):
            numbers = range(start, min(start + every, len(cohorts)))
            with self._all_or_nothing():
                turns = [
                    (first + number, cohorts[number], None if included is None else included[number])
                    for number in numbers
                ]
                go_on = self._stay if self.resident else self._come_back
                theta, states = go_on(theta, turns)
                for (number, _, _), found in zip(turns, states, strict=False):
                    check_states(number, found, self.recipe)
            done = numbers[-1] + 1
            yield Progress(
                round_number=first + numbers[-1],
                done=done,
                of=len(cohorts),
                parameters=np.asarray(theta),
                seconds_left=(time.monotonic() - began) / done * (len(cohorts) - done),
            )

    def _stay(self, theta: Parameters, turns: Sequence[Turn]) -> tuple[Parameters, NDArray[np.int32]]:
        """θ after rounds that stay on the processors, in calls of several, and the states of each one's updates."""
        assert self.resident is not None  # noqa: S101 - asked before
        found = []
        for some in self.resident.groups(turns):
            group = [(turn, self._take_part(turn[1])) for turn in turns[some]]
            theta, _, states = self.resident.run(theta, group, self.numbers, some.stop - some.start)
            found.append(states)
        return theta, np.concatenate(jax.device_get(found))  # one wait for all of them

    def _come_back(self, theta: Parameters, turns: Sequence[Turn]) -> tuple[Parameters, NDArray[np.int32]]:
        """The same where the host draws the batches, while the processor trains."""
        pending, found = self._still(theta), []
        for turn, calls in zip(turns, self.drawing.rounds(turns, self._take_part), strict=True):
            pending = self._start(pending, calls, turn)
            found.append([states for _, states in pending.sums])
        return arrived(pending), np.sum(jax.device_get(found), axis=1)

    def updates(self, parameters: NDArray[np.float32], round_number: int, cohort: Devices) -> NDArray[np.float32]:
        """Each device's own update, the very one inside `train`, for a rehearsal, whose devices encode themselves."""
        with self._all_or_nothing():
            held = [jax.device_put(parameters, one) for one in self.processors]
            made = [
                updates_of(self.form, self._numbers_of(call), held[call.at], *self._fed(call))
                for call in self._calls(round_number, cohort, None)
            ]
            return np.concatenate([np.asarray(updates) for updates in made])[: len(cohort)]

    def dither(self, round_number: int, device: int) -> NDArray[np.float32]:
        """The dither that `train` rounds this device's update with."""
        return dither_of(self.seed, round_number, device, self.model.size)

    def noise(self, round_number: int, device: int) -> Stream:
        """The keystream of the whole noise that `train` adds to this device's integers, in the strict mode."""
        return whole_noise_of(self.seed, round_number, device)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A round that fails or is interrupted leaves `rounds_of` as it was: nobody took part in it."""
        before = self.rounds_of.copy()
        try:
            yield
        except BaseException:
            self.rounds_of = before
            raise

    def _calls(self, round_number: int, cohort: Devices, included: Included | None) -> list[CompiledCall]:
        """A round's calls; each device has then taken part in one round more."""
        return self.drawing.calls((round_number, cohort, included), self._take_part(cohort))

    def _whole_noise(self, round_number: int, cohort: Devices, included: Included | None) -> NDArray[np.int32]:
        """The halves of the included devices' whole noise, added up."""
        assert isinstance(self.codec, Codec)  # noqa: S101 - seen to from the start
        total = np.zeros(self.model.size, np.int64)
        for device in cohort if included is None else cohort[included]:
            total += self.codec.whole_noise(self.model.size, self.noise(round_number, int(device)))
        return halves_of(total)

    def _still(self, theta: Parameters) -> Pending:
        """θ that nothing moves."""
        return self._pending(jax.device_put(theta, self.processors[0]), [self._nothing[0]] * self._sums, 0)

    def _pending(self, theta: Array, sums: list[Sum], count: int) -> Pending:
        """θ before a round that has these sums of the updates of so many devices."""
        scale = self._scales.get(count)
        if scale is None:
            wanted = mean_scale(count, self.codec.grid) if count else np.float32(0)
            scale = self._scales[count] = jax.device_put(wanted, self.processors[0])
        return Pending(theta=theta, sums=sums, scale=scale, nothing=self._zero)

    def _start(self, pending: Pending, calls: Sequence[CompiledCall], turn: Turn) -> Pending:
        """A round that is not waited for, from where the one before leaves θ.

        Calls that add to one sum follow each other, so there is a sum for every processor and, on a CPU, for every
        core, each with its own thread: what one thread starts, JAX runs one after the other. The sums are integers:
        how calls are divided among them changes nothing.
        """
        several = len(self.processors) > 1
        held = [jax.device_put(pending, one) for one in self.processors] if several else [pending]
        others = [
            launcher.submit(self._added, number, calls[number :: self._sums], held)
            for number, launcher in enumerate(self._launchers, 1)
        ]
        first, theta = self._added(0, calls[:: self._sums], held)
        sums = [first, *(other.result()[0] for other in others)]
        if several:
            sums = [jax.device_put(one, self.processors[0]) for one in sums]
        _, cohort, included = turn
        if self.recipe.strict:
            sums[0] = joined([sums[0], (self._whole_noise(*turn), self._nothing[0][1])])
        return self._pending(theta, sums, len(cohort) if included is None else int(np.sum(included)))

    def _added(self, number: int, calls: Sequence[CompiledCall], held: Sequence[Pending]) -> tuple[Sum, Array]:
        """The sum of this number, after these calls, and the θ that they began from."""
        total, flying = self._nothing[number % len(self.processors)], self._in_flight[number]
        theta = held[0].theta
        for call in calls:
            rows, lanes = self._fed(call)
            how = self._numbers_of(call), self._held[call.at][1]
            total, theta = self._add(*how, total, held[call.at], rows, lanes, call.dither, call.keep)
            flying.append(total)
            if len(flying) > self._most_in_flight:
                flying.popleft()[0].block_until_ready()
        return total, theta

    def _fed(self, call: CompiledCall) -> tuple[Rows, Lanes]:
        """The rows of a call, and of each lane where its rows are, how many count, and the keys of its noise."""
        rows, where = call.fed or self.feed.rows(call.devices, call.rows, call.at)
        return rows, (where, call.counts, call.noise)

    def _numbers_of(self, call: CompiledCall) -> TracedNumbers:
        """The numbers of a call: where rows weigh, each lane has its device's own divisor and weight."""
        numbers: TracedNumbers = self._held[call.at][0]
        if not self.recipe.weighed:
            return numbers
        share, weight = self._own[:, call.devices]
        return numbers._replace(share=share, weight=weight)

    def _take_part(self, cohort: Devices) -> Before:
        """In how many rounds each device took part before this one, which is counted."""
        self._check_cohort(cohort)
        before = self.rounds_of[cohort]
        self.rounds_of[cohort] += 1
        return before

    def _check_loss(self, parameters: NDArray[np.float32]) -> None:
        """Refuse a user's own model whose loss is not finite at the start: clipping would hide it behind noise."""
        if self.model.widths or self.model.layered or self.rounds_of.any():
            return
        records, some = self.records, slice(0, min(64, len(self.records.labels)))
        rows = Records.of([("", records.features[some], records.labels[some])], classes=records.classes)
        evaluate(self.model, parameters, rows)

    def _check_cohort(self, cohort: Devices) -> None:
        if len(cohort) > MOST_DEVICES:
            raise PlanError("CH200", f"a cohort of {len(cohort):,}.", fix=f"Use at most {MOST_DEVICES:,} per round.")
        known = len(cohort) > 0 and cohort.min() >= 0 and cohort.max() < self.records.devices
        if not known or len(set(cohort.tolist())) != len(cohort):
            raise PlanError(
                "CH204",
                "a cohort is empty, or names an unknown device, or one twice.",
                fix="Draw it without replacement.",
            )
        for device in cohort[self.records.sizes[cohort] < self.plan.least_rows]:
            raise TableError(
                "CH305",
                f"device {self.records.names[device]} has {self.records.sizes[device]:,} rows; the plan is for"
                f" devices of {self.plan.least_rows:,} or more.",
                why="With fewer rows, each record would be used more often than the plan accounts for.",
                fix="Leave it out of the cohort, or plan with fewer rows and a smaller batch.",
            )
