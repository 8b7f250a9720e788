"""Drop-outs from a seed: the same devices are gone from the same turns on every backend."""

import hashlib
from collections.abc import Iterator, Mapping

from choral.backends.wire import Transport
from choral.core.messages import Omega, Turn, Vector, decode
from choral.core.terms import Terms


def drops_out(seed: int, rate: float, turn: Turn, number: int) -> bool:
    """Whether a device drops out of a turn: the same answer wherever it is asked, so every backend loses the same ones.

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
