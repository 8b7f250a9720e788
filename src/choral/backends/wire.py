"""Rounds over a transport: send, take what comes back, go on without the rest; and the transport within one process."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from choral.core.device import Device, Respondent
from choral.core.errors import TrustError
from choral.core.keys import Bundle
from choral.core.messages import Omega, Turn, Vector, decode
from choral.core.terms import Terms
from choral.server.findings import Findings
from choral.server.key_round import KeyRound
from choral.server.round import Readiness, Round, Sum
from choral.server.speaker import Speaker, answer_in
from choral.server.uploads import RoomForUploads, Uploads, UploadStore


class Transport(Protocol):
    """Carries frames to devices and their replies back, as they come; who is missing has dropped out."""

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterable[tuple[int, Vector]]:
        """The replies, each with the device that the transport knows to have sent it."""


class Present(Protocol):
    """A carrier of frames between machines knows which devices are there."""

    def expect(self, ids: Sequence[str], *, deadline: float) -> None:
        """Say who the devices are, by number, and how long one exchange may take."""

    def announce(self, waits: float | None) -> None:
        """Say to every device that connects from now on for how many seconds the server waits for the others."""

    def gather(self, needed: int, *, patience: float, looked: Callable[[], None]) -> frozenset[int]:
        """The devices that are connected, once there are so many; CH903 if there are not in time.

        `looked` is called after every look, so that whoever waits can say who is there.
        """

    def present(self) -> frozenset[int]:
        """The devices that are connected now."""

    def unproved(self) -> Mapping[str, str]:
        """Names of devices that were claimed by others, and by whom."""

    def reasons(self) -> Mapping[str, str]:
        """Codes that say why devices did not answer when they were last asked, by name."""


class Connected(Transport, Present, Protocol):
    """A transport that knows which devices are there."""


class Carrier(Present, Protocol):
    """The same below the signatures: a frame and its head come to a device as one request, the head first.

    Heads differ from device to device. A frame that a whole cohort is sent is one object, to be carried once.
    """

    def exchange(self, outbox: Mapping[int, Vector], heads: Mapping[int, bytes]) -> Iterable[tuple[int, Vector]]:
        """The replies, each with the device that the carrier takes for its sender."""


class Spoken:
    """A transport over a carrier: the server signs what goes out, and what comes back counts if its device signed it.

    An answer that its device did not sign is missing, and no more: whoever carries it may have made it. `unsigned` says
    whose answers were dropped so, and by which code, until somebody has taken note.
    """

    def __init__(self, carrier: Carrier, speaker: Speaker, bundles: Sequence[Bundle]) -> None:
        self._carrier, self._speaker, self._bundles = carrier, speaker, bundles
        self.unsigned: dict[int, str] = {}
        self.expect, self.announce, self.gather = carrier.expect, carrier.announce, carrier.gather
        self.present, self.unproved, self.reasons = carrier.present, carrier.unproved, carrier.reasons

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The answers as they come, without their signatures."""
        heads = {number: self._speaker.head(number, frame) for number, frame in outbox.items()}
        for number, reply in self._carrier.exchange(outbox, heads):
            try:
                yield number, answer_in(reply, heads[number], self._bundles[number])
            except TrustError as error:
                self.unsigned[number] = error.code


class Wire:
    """Sums over a transport; every attempt at a round has its own masks, noise and charge.

    `findings` are those of the last attempt. A device that was `named` in any attempt, because it broke the protocol,
    is not called again. `memory` is for uploads; the environment says how much, if nobody does.
    """

    def __init__(self, terms: Terms, transport: Transport, memory: RoomForUploads | None = None) -> None:
        self.terms, self.transport = terms, transport
        self._memory = memory or RoomForUploads.of_environment()
        self.findings = Findings(terms=terms)
        self.named: dict[int, str] = {}
        self.uploaded: tuple[int, ...] = ()  # who has sent an update in the last attempt, and was charged for it
        self.agreed: frozenset[int] = frozenset()  # who shares keys since the last agreement, where the terms want one
        self._gathered: Readiness | None = None

    def agree(self, turn: Turn, called: Iterable[int]) -> frozenset[int]:
        """Let the called devices agree on new keys for the rounds from this turn's on; who has agreed may be called.

        Nobody is charged for it. If too few agree, with CH503, nobody may be called: some may have replaced their keys.
        """
        running, self._gathered, self.agreed = KeyRound(self.terms, turn, called), None, frozenset()
        try:
            while running.agreed is None:
                for sender, frame in self.transport.exchange(running.outbox()):
                    running.receive(sender, frame)
                running.advance()
        finally:
            self.findings = running.findings
        self.agreed = running.agreed
        return self.agreed

    def attempt(
        self,
        turn: Turn,
        called: Iterable[int],
        model: NDArray[np.float32] | NDArray[np.float64],
        *,
        following: Iterable[int] | None = None,
        round_of: Callable[..., Round] = Round,
    ) -> Sum:
        """The sum of the called devices' updates to the model in one turn, or a SumError; no turn may be tried twice.

        `following` are the devices of the next round: their READY then rides on this round's FINAL, and a round in
        which nobody is missing takes two exchanges. `round_of` makes the turn where the terms have an
        extension.
        """
        self.uploaded = ()
        readiness = self._readiness(turn, tuple(number for number in called if number not in self.named))
        vector = np.ascontiguousarray(model, self.terms.model_type).view(np.uint8).data
        ahead = None if following is None else Readiness(self.terms, Turn(turn.round + 1, 0), following)
        size = self.terms.upload_bytes
        with UploadStore(self._memory.laid_aside(size)) as store:
            uploads = Uploads(self.terms.codec.word_bits, store, kept=self._memory.kept(size))
            return self._run(round_of(readiness, vector, following=ahead, uploads=uploads))

    def _readiness(self, turn: Turn, called: tuple[int, ...]) -> Readiness:
        gathered, self._gathered = self._gathered, None
        readiness = Readiness(self.terms, turn, called)
        if gathered is not None and (gathered.turn, gathered.called) == (turn, readiness.called):
            readiness = gathered
        if outbox := readiness.outbox():
            for sender, frame in self.transport.exchange(outbox):
                readiness.receive(sender, frame)
        self.findings = readiness.findings
        return readiness

    def _run(self, running: Round) -> Sum:
        try:
            while running.sum is None:
                for sender, frame in self.transport.exchange(running.outbox()):
                    running.receive(sender, frame)
                self.uploaded = running.uploaded
                running.advance()
        finally:
            self.findings.add(running.findings)
            self.named |= running.findings.named
        self._gathered = running.following
        return running.sum


class MemoryTransport:
    """Every device in this process; each frame is answered at once."""

    def __init__(self, devices: Iterable[Device | Respondent]) -> None:
        self.devices = {device.number: device for device in devices}

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies in the order of the outbox."""
        for number, frame in outbox.items():
            yield number, self.devices[number].answer(frame)


class RecordingTransport(MemoryTransport):
    """A transport to devices in this process that keeps the longest message of each device in a round."""

    def __init__(self) -> None:
        super().__init__(())
        self.last: dict[int, Vector] = {}

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies in the order of the outbox."""
        for number, reply in super().exchange(outbox):
            if len(reply) > len(self.last.get(number, b"")):  # an upload is the longest that a device says in a round
                self.last[number] = reply
            yield number, reply


def drops_out(seed: int, rate: float, turn: Turn, number: int) -> bool:
    """Tell whether a device drops out of a turn: the same answer everywhere, so every backend loses the same ones.

    >>> [number for number in range(10) if drops_out(7, 0.2, Turn(0, 0), number)]
    [8]
    """
    text = f"choral/1 drop-out {seed} {turn.round} {turn.attempt} {number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < rate * 2**64


class DroppingTransport:
    """A transport on which a device, now and then, is gone between OMEGA and the end of the turn."""

    def __init__(self, terms: Terms, inner: Transport, *, rate: float, seed: int) -> None:
        self._terms, self._inner, self._rate, self._seed = terms, inner, rate, seed

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies of those who stayed."""
        kept = {number: frame for number, frame in outbox.items() if not self._gone(number, frame)}
        yield from self._inner.exchange(kept)

    def _gone(self, number: int, frame: Vector) -> bool:
        message, _ = decode(frame, vector_bytes=self._terms.model_bytes, records_bytes=self._terms.records_bytes)
        return isinstance(message, Omega) and drops_out(self._seed, self._rate, message.turn, number)
