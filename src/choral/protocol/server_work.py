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
        self._total: Words | None = None  # the first upload becomes it

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        """Add a device's upload, and lay it aside if it may have to be taken back."""
        words = np.frombuffer(vector, self._dtype)
        if self._total is None:
            self._total = words.copy()  # the vector itself belongs to the transport and to `vectors`
        else:
            np.add(self._total, words, out=self._total)
        if keep:
            self.vectors[number] = vector

    def take_back(self, number: int) -> None:
        """Take a device's upload out of the sum again."""
        words, total = np.frombuffer(self.vectors.pop(number), self._dtype), self._total
        assert total is not None  # noqa: S101 - an upload was laid aside, so it was added
        np.subtract(total, words, out=total)

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        """What each sealed secret holds, or None where its first shares do not give it."""
        return [secret.opened() for secret in secrets]

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum of all uploads with these masks added to it; nothing can be added or taken back afterwards."""
        total = self._total if self._total is not None else np.empty(0, self._dtype)
        add_masks(total, masks)
        return total
