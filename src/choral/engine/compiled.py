"""A round for a whole cohort in compiled calls, on one machine.

A device's update depends on the plan, the model, its records, the seed and the round alone: every call has the same
shape and the same number of lanes, fixed by plan and kind of processor, so neither the cohort, nor who drops out, nor
the memory, nor the number of accelerators changes a bit of it.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.core.codec import Codec
from choral.core.errors import PlanError, TableError
from choral.core.masks import Stream
from choral.core.plan import Plan
from choral.engine import Grid, SimulatedSum, check_compiled, check_fit, draws, programs
from choral.engine.draws import Before, CompiledCall, DeviceDrawing, Devices, Drawing, Included, Turn
from choral.engine.processors import Feed, Rows, devices_in_flight, keep_compiled, processors
from choral.engine.programs import Drawn, Form, Pending, Sum
from choral.learning import fused
from choral.learning.batches import drawer_of
from choral.learning.evaluate import check_loss
from choral.learning.local import Shortcuts
from choral.learning.models import Model
from choral.learning.recipe import Recipe, TracedNumbers
from choral.server_step import mean, mean_scale
from choral.tables.records import Records

MOST_DEVICES = 2**15  # in a round: the low halves of so many integers, added, still fit 31 bits
LANES = {"cpu": 2**20}  # parameters in one call: what a core's cache holds
CORES = os.cpu_count() or 1
SHARES = {"cpu": 2}  # calls that a small cohort is divided into, so that two cores have work
IN_FLIGHT = 16  # calls for one sum that are started before the host waits: enough to draw batches meanwhile
LANES_ELSEWHERE = 2**28  # and what fills an accelerator
RARE = 0.05  # how often the tail of a batch's room may be computed; it is skipped where no lane needs it

Parameters = NDArray[np.float32]
Thetas = Parameters | Array  # of each run


@dataclass(frozen=True, kw_only=True, eq=False)
class Progress:
    """Where a run stands: the round just done, how many of how many, θ, and about how long the rest will take."""

    round_number: int
    done: int
    of: int
    models: Sequence[Parameters]  # of each run
    seconds_left: float

    @property
    def parameters(self) -> Parameters:
        """θ of the first run."""
        return self.models[0]


class CompiledEngine:
    """Rounds of Algorithm 1 for whole cohorts; `train` is all that a simulated round needs of it.

    `further` are recipes of the same form, of runs that go through the same rounds in the same calls. `lanes`, the
    devices in one compiled call, is part of what fixes the bits; `chunk`, the devices under way before the host waits,
    is not. `stay` says whether the processors draw, too, so that rounds stay there; by itself, accelerators do.
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
        further: Sequence[Recipe] = (),
        accelerator: str | None = None,
        lanes: int | None = None,
        chunk: int | None = None,
        stay: bool | None = None,
    ) -> None:
        check_compiled(model)
        check_fit(model, records, plan)
        keep_compiled()
        self.model, self.records, self.plan, self.codec = model, records, plan, codec
        self.recipe = recipe or Recipe.of(plan)
        self.recipes = (self.recipe, *further)
        self.processors = processors(accelerator)
        kind, everybody = self.processors[0].platform, jax.devices(self.processors[0].platform)
        drawer = drawer_of(plan, remembering=True)
        self.room = drawer.room(int(records.sizes.max()))
        fitting = max(1, LANES.get(kind, LANES_ELSEWHERE) // model.held(self.room))
        self.lanes = lanes or min(-(-plan.cohort // SHARES.get(kind, 1)), fitting)
        if lanes is None and kind != "cpu":  # in calls of one size, so that no lane is idle
            self.lanes = -(-plan.cohort // -(-plan.cohort // self.lanes))
        lengths = bool((model.fixed or model).widths)
        self.feed = Feed(records, self.processors, self.lanes, plan.local_steps * self.room, lengths=lengths)
        flying = self.feed.bytes_in_flight + 4 * model.size
        self.chunk = max(self.lanes, chunk or devices_in_flight(flying, self.lanes))
        self.rounds_of = np.zeros(records.devices, dtype=np.int64)
        self.drawing = Drawing(drawer=drawer, plan=plan, seed=seed, feed=self.feed, lanes=self.lanes, room=self.room)
        self.numbers = programs.stacked_numbers(model, self.recipes, self.room)
        self._own: NDArray[np.float32] | None = None
        if self.recipe.weighed:
            kinds, which = np.unique(records.sizes, return_inverse=True)
            own = [Recipe.of(plan, int(rows)) for rows in kinds]
            each = [[1 / one.batch for one in own], [one.weight for one in own]]
            self._own = np.array(each, dtype=np.float32)[:, None, which]
        shortcuts = Shortcuts(
            usual=drawer.usual(self.room, self.lanes, RARE),
            finite=self.feed.finite,
            kernels=fused.runs_on(self.processors[0]),
        )
        self.form = Form(model=model, recipe=self.recipe.form, shortcuts=shortcuts)
        self.traced_codec = np.float32(codec.grid), np.int32(codec.largest)
        if stay is None:
            stay = kind != "cpu" or len(everybody) > 1  # one CPU draws faster than it sorts
        stay = stay and not self.recipe.strict and self._own is None  # else the host adds noise, or has to draw
        self.resident = DeviceDrawing.of(self.drawing) if stay else None
        runs, states = len(self.recipes), len(programs.STATES)
        nothing = np.zeros((runs, 2, model.size), np.int32), np.zeros((runs, states), np.int32)
        self._nothing: list[Sum] = [jax.device_put(nothing, one) for one in self.processors]
        self._held = [jax.device_put((self.numbers, self.traced_codec), one) for one in self.processors]
        self._zero, self._scales = jax.device_put(np.int32(0), self.processors[0]), dict[int, Array]()
        self._sums = min(-(-plan.cohort // self.lanes), CORES if kind == "cpu" else 1) * len(self.processors)
        self._add = programs.add_lanes_of(self.form)
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
        self, parameters: Parameters, round_number: int, cohort: Devices, included: Included | None = None
    ) -> SimulatedSum:
        """The sum of the included devices' updates in this round, and their number.

        A round that is tried again needs a new number: the number chooses batches, noise and dither.
        """
        if not (self.model.widths or self.model.layered or self.rounds_of.any()):
            check_loss(self.model, parameters, self.records)
        turn = round_number, cohort, included
        with self._all_or_nothing():
            _, total, states = self._through(parameters[None], [turn])
            programs.check_runs(self.recipes, [round_number], states)
        return SimulatedSum(total=programs.whole(total[0]), count=draws.included_of(turn))

    def apply(self, parameters: Parameters, total: NDArray[np.int64], count: int) -> Parameters:
        """θ plus the mean update, line 12 of Algorithm 1."""
        return np.asarray(parameters + mean(total, count, self.codec.grid))

    def rounds(
        self,
        parameters: Parameters,
        cohorts: Sequence[Devices],
        included: Sequence[Included] | None = None,
        *,
        first: int = 0,
        every: int = 1,
    ) -> Iterator[Progress]:
        """Whole rounds one after the other, with the same bits as `train` and `apply`; progress after `every` so many.

        Between two reports nothing waits for the host: it draws the next batches while the processor trains.
        """
        if not (self.model.widths or self.model.layered or self.rounds_of.any()):
            check_loss(self.model, parameters, self.records)
        began = time.monotonic()
        thetas: Thetas = np.stack([parameters] * len(self.recipes))
        for start in range(0, len(cohorts), every):
            numbers = range(start, min(start + every, len(cohorts)))
            with self._all_or_nothing():
                turns = [(first + at, cohorts[at], None if included is None else included[at]) for at in numbers]
                thetas, _, states = self._through(thetas, turns)
                programs.check_runs(self.recipes, [number for number, _, _ in turns], states)
            done = numbers[-1] + 1
            yield Progress(
                round_number=first + numbers[-1],
                done=done,
                of=len(cohorts),
                models=[one.copy() for one in np.asarray(thetas)],  # who keeps the model of a run keeps no other
                seconds_left=(time.monotonic() - began) / done * (len(cohorts) - done),
            )

    def _through(self, thetas: Thetas, turns: Sequence[Turn]) -> tuple[Thetas, Array, NDArray[np.int32]]:
        """θ of each run after these rounds, the halves of the last sum, and the states of its updates by round."""
        if self.resident is not None:
            return self._stay(self.resident, thetas, turns)
        still, found = jax.device_put(thetas, self.processors[0]), []
        pending = self._pending(still, [self._nothing[0]] * self._sums, 0)
        for turn, calls in zip(turns, self.drawing.rounds(turns, self.take_part), strict=True):
            pending = self._start(pending, calls, turn)
            found.append([states for _, states in pending.sums])
        total, _ = programs.joined(pending.sums)
        return programs.arrived(pending), total, np.sum(jax.device_get(found), axis=1).swapaxes(0, 1)

    def _stay(
        self, drawing: DeviceDrawing, thetas: Thetas, turns: Sequence[Turn]
    ) -> tuple[Thetas, Array, NDArray[np.int32]]:
        """The same where the processors draw, in calls of several rounds."""
        found, how = [], (self.form, drawing.mesh, self.numbers, self.traced_codec, np.int32(0))
        for some in drawing.groups(turns):
            group = [(turn, self.take_part(turn[1])) for turn in turns[some]]
            scales = np.zeros(some.stop - some.start, np.float32)
            scales[: len(group)] = [mean_scale(draws.included_of(turn), self.codec.grid) for turn, _ in group]
            drawn = drawing.draw(drawing.who(group, len(scales)))
            before, factors = drawing.put((thetas, scales), programs.EVERYWHERE)
            thetas, total, states = programs.train_runs(*how, before, drawing.rows, drawn, factors)
            found.append(states)
        return thetas, total, np.concatenate(jax.device_get(found), axis=1)  # one wait for all of them

    def updates(self, parameters: Parameters, round_number: int, cohort: Devices) -> Parameters:
        """Each device's own update, the very one inside `train`, for a rehearsal, whose devices encode themselves."""
        with self._all_or_nothing():
            held = [jax.device_put(parameters[None], one) for one in self.processors]
            (calls,) = self.drawing.rounds([(round_number, cohort, None)], self.take_part)
            made = [
                programs.updates_of(self.form, self._numbers_of(one), held[one.at], *self._fed(one)) for one in calls
            ]
            return np.concatenate([np.asarray(updates)[0] for updates in made])[: len(cohort)]

    def dither(self, round_number: int, device: int) -> Parameters:
        """The dither that `train` rounds this device's update with."""
        return draws.dither_of(self.seed, round_number, device, self.model.size)

    def noise(self, round_number: int, device: int) -> Stream:
        """The keystream of the whole noise that `train` adds to this device's integers, in the strict mode."""
        return draws.whole_noise_of(self.seed, round_number, device)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A round that fails or is interrupted leaves `rounds_of` as it was: nobody took part in it."""
        before = self.rounds_of.copy()
        try:
            yield
        except BaseException:
            self.rounds_of = before
            raise

    def _whole_noise(self, turn: Turn) -> NDArray[np.int32]:
        """The halves of the included devices' whole noise, added up."""
        assert isinstance(self.codec, Codec)  # noqa: S101 - seen to from the start
        (number, cohort, included), total = turn, np.zeros(self.model.size, np.int64)
        for device in cohort if included is None else cohort[included]:
            total += self.codec.whole_noise(self.model.size, self.noise(number, int(device)))
        return programs.halves_of(total)[None]

    def _pending(self, thetas: Array, sums: list[Sum], count: int) -> Pending:
        """θ before a round that has these sums of the updates of so many devices; of nobody, nothing moves it."""
        scale = self._scales.get(count)
        if scale is None:
            wanted = mean_scale(count, self.codec.grid) if count else np.float32(0)
            scale = self._scales[count] = jax.device_put(wanted, self.processors[0])
        return Pending(thetas=thetas, sums=sums, scale=scale, nothing=self._zero)

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
        first, thetas = self._added(0, calls[:: self._sums], held)
        sums = [first, *(other.result()[0] for other in others)]
        if several:
            sums = [jax.device_put(one, self.processors[0]) for one in sums]
        if self.recipe.strict:
            sums[0] = programs.joined([sums[0], (self._whole_noise(turn), self._nothing[0][1])])
        return self._pending(thetas, sums, draws.included_of(turn))

    def _added(self, number: int, calls: Sequence[CompiledCall], held: Sequence[Pending]) -> tuple[Sum, Array]:
        """The sum of this number, after these calls, and the θ that they began from."""
        total, flying = self._nothing[number % len(self.processors)], self._in_flight[number]
        thetas = held[0].thetas
        for call in calls:
            how = self._numbers_of(call), self._held[call.at][1]
            total, thetas = self._add(*how, total, held[call.at], *self._fed(call))
            flying.append(total)
            if len(flying) > self._most_in_flight:
                flying.popleft()[0].block_until_ready()
        return total, thetas

    def _fed(self, call: CompiledCall) -> tuple[Rows, Drawn]:
        """The rows of a call, and what its lanes draw, with where their rows are."""
        if self.feed.resident:
            return self.feed.held[call.at], call.drawn
        rows, where = self.feed.rows(call.devices, call.drawn.rows, call.at)
        return rows, call.drawn._replace(rows=where)

    def _numbers_of(self, call: CompiledCall) -> TracedNumbers:
        """The numbers of a call: where rows weigh, each lane has its device's own divisor and weight."""
        numbers: TracedNumbers = self._held[call.at][0]
        if self._own is None:
            return numbers
        share, weight = self._own[..., call.devices]
        return numbers._replace(share=share, weight=weight)

    def take_part(self, cohort: Devices) -> Before:
        """In how many rounds each device took part before this one, which is counted; CH305 for one with few rows."""
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
        before = self.rounds_of[cohort]
        self.rounds_of[cohort] += 1
        return before
