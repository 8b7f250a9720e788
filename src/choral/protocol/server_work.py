"""The heavy part of a server's turn: adding uploads, opening self secrets and removing masks. Here, in one process."""

from collections.abc import MutableMapping, Sequence

import numpy as np

from choral.protocol.bonds import SealedSecret
from choral.protocol.messages import Vector
from choral.secagg.masks import ADDERS, Mask, Words, add_masks, add_vectors, ring


class ServerWork:
    """The uploads of one turn: added as they come, and laid aside in `vectors` until none can be taken back.

    `together` so many wait and are then added at once, by `threads`.

    >>> work = ServerWork(32)
    >>> work.add(0, np.uint32([1, 2]).data.cast("B")); work.add(1, np.uint32([3, 4]).data.cast("B"))
    >>> work.take_back(0)
    >>> work.unmasked([]).tolist()
    [3, 4]
    """

    def __init__(
        self,
        bits: int,
        vectors: MutableMapping[int, Vector] | None = None,
        *,
        together: int = 1,
        threads: int = ADDERS,
    ) -> None:
        self.vectors: MutableMapping[int, Vector] = {} if vectors is None else vectors
        self._dtype, self._together, self._threads = ring(bits), together, threads
        self._total: Words = np.empty(0, self._dtype)  # the first upload becomes it
        self._waiting: list[Words] = []  # uploads that are not in the total yet

    @property
    def total(self) -> Words:
        """The sum of all uploads so far."""
        self._add_those_that_wait()
        return self._total

    def _add_those_that_wait(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and not len(self._total):
            self._total = waiting.pop(0).copy()  # the vector itself belongs to the transport and to `vectors`
        add_vectors(self._total, waiting, threads=self._threads)

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        """Add a device's upload, and lay it aside if it may have to be taken back."""
        self._waiting.append(np.frombuffer(vector, self._dtype))
        if len(self._waiting) >= self._together:
            self._add_those_that_wait()
        if keep:
            self.vectors[number] = vector

    def take_back(self, number: int) -> None:
        """Take a device's upload out of the sum again."""
        total = self.total
        np.subtract(total, np.frombuffer(self.vectors.pop(number), self._dtype), out=total)

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        """What each sealed secret holds, or None where its first shares do not give it."""
        return [secret.opened() for secret in secrets]

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum of all uploads with these masks added to it; nothing can be added or taken back afterwards."""
        total = self.total
        add_masks(total, masks)
        return total
