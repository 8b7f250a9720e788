"""A network that fails by a seeded schedule: loss, delay, repetition, disorder, crashes of any party at any step."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from choral.backends.wire import MemoryTransport
from choral.core.device import Device
from choral.core.messages import Vector

P = ParamSpec("P")
R = TypeVar("R")


class Crash(Exception):
    """The process of a device, or of the server, has ended at this point."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How often each thing goes wrong, as a probability at every opportunity."""

    seed: int
    loss: float = 0.0
    delay: float = 0.0
    repeat: float = 0.0
    disorder: float = 0.0
    crash: float = 0.0
    server_crash: float = 0.0


class FaultyTransport(MemoryTransport):
    """Devices in one process behind a network that fails by a seeded schedule; a crashed device is started again.

    `start(number)` builds a device over what it has on disk; it should pass its durable steps through `crashing`.
    """

    def __init__(self, faults: Faults, numbers: range, start: Callable[[int], Device]) -> None:
        # Not for secrets: the same seed must give the same faults.
        self._dice = random.Random(faults.seed)
        self.faults, self._start = faults, start
        self._late_requests: list[tuple[int, Vector]] = []
        self._late_replies: list[tuple[int, Vector]] = []
        super().__init__(start(number) for number in numbers)

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies that get through, late ones of earlier exchanges among them; may raise Crash for the server."""
        requests, self._late_requests = self._pass([*self._late_requests, *outbox.items()])
        replies = [reply for request in requests for reply in self._deliver(*request)]
        arrived, self._late_replies = self._pass([*self._late_replies, *replies])
        for reply in arrived:
            if self._happens(self.faults.server_crash):
                raise Crash
            yield reply

    def crashing(self, action: Callable[P, R]) -> Callable[P, R]:
        """The action, now and then with a crash right before or right after it."""

        def crashing_action(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._happens(self.faults.crash):
                raise Crash
            result = action(*args, **kwargs)
            if self._happens(self.faults.crash):
                raise Crash
            return result

        return crashing_action

    def _deliver(self, number: int, frame: Vector) -> list[tuple[int, Vector]]:
        try:
            reply = self.crashing(self.devices[number].answer)(frame)
        except Crash:
            self.devices[number] = self._start(number)
            return []
        return [(number, reply)]

    def _pass(self, mail: list[tuple[int, Vector]]) -> tuple[list[tuple[int, Vector]], list[tuple[int, Vector]]]:
        """What arrives now, and what arrives later."""
        now: list[tuple[int, Vector]] = []
        late: list[tuple[int, Vector]] = []
        for item in mail:
            if self._happens(self.faults.loss):
                continue
            (late if self._happens(self.faults.delay) else now).append(item)
            if self._happens(self.faults.repeat):
                (late if self._happens(self.faults.delay) else now).append(item)
        if self._happens(self.faults.disorder):
            self._dice.shuffle(now)
        return now, late

    def _happens(self, probability: float) -> bool:
        return self._dice.random() < probability
