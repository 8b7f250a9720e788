"""The heavy part of a server's turn: adding uploads, opening self secrets and removing masks. Here, in one process."""

from collections.abc import MutableMapping, Sequence

import numpy as np

from choral.protocol.bonds import SealedSecret
from choral.protocol.messages import Vector
from choral.secagg.masks import Mask, Words, add_masks, ring


class ServerWork:
    """The uploads of one turn: added as they come, and laid aside in `vectors` until none can be taken back.

    >>> work = ServerWork(32)
    >>> work.add(0, np.uint32([1, 2]).data.cast("B")); work.add(1, np.uint32([3, 4]).data.cast("B"))
    >>> work.take_back(0)
    >>> work.unmasked([]).tolist()
    [3, 4]
    """

    def __init__(self, bits: int, vectors: MutableMapping[int, Vector] | None = None) -> None:
        self.vectors: MutableMapping[int, Vector] = {} if vectors is None else vectors
        self._dtype = ring(bits)
        self.total: Words = np.empty(0, self._dtype)  # the first upload becomes it

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        """Add a device's upload, and lay it aside if it may have to be taken back."""
        words = np.frombuffer(vector, self._dtype)
        if len(self.total):
            np.add(self.total, words, out=self.total)
        else:
            self.total = words.copy()  # the vector itself belongs to the transport and to `vectors`
        if keep:
            self.vectors[number] = vector

    def take_back(self, number: int) -> None:
        """Take a device's upload out of the sum again."""
        np.subtract(self.total, np.frombuffer(self.vectors.pop(number), self._dtype), out=self.total)

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        """What each sealed secret holds, or None where its first shares do not give it."""
        return [secret.opened() for secret in secrets]

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum of all uploads with these masks added to it; nothing can be added or taken back afterwards."""
        add_masks(self.total, masks)
        return self.total
