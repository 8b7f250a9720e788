"""The heavy part of a server's turn: adding uploads, opening self secrets and removing masks. Here, in one process."""

from collections.abc import MutableMapping, Sequence

import numpy as np

from choral.core.bonds import SealedSecret
from choral.core.masks import ADDERS, Mask, Words, add_masks, ring
from choral.core.messages import Vector
from choral.server.running_sum import LEAST, KeptVectors, RunningSum


class ServerWork:
    """The uploads of one turn: added as they come, and laid aside in `vectors` until none can be taken back.

    `threads` add them while the next ones are received; `kept` says how many vectors they may keep.

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
        kept: KeptVectors = LEAST,
        threads: int = ADDERS,
    ) -> None:
        self.vectors: MutableMapping[int, Vector] = {} if vectors is None else vectors
        self._dtype = ring(bits)
        self._sum = RunningSum(self._dtype, threads=threads, kept=kept)

    @property
    def total(self) -> Words:
        """The sum of all uploads so far."""
        return self._sum.total()

    def add(self, number: int, vector: Vector, *, keep: bool = True) -> None:
        """Add a device's upload, and lay it aside if it may have to be taken back."""
        self._sum.add(np.frombuffer(vector, self._dtype))
        if keep:
            self.vectors[number] = vector

    def take_back(self, number: int) -> None:
        """Take a device's upload out of the sum again."""
        self._sum.subtract(np.frombuffer(self.vectors.pop(number), self._dtype))

    def opened(self, secrets: Sequence[SealedSecret]) -> list[bytes | None]:
        """What each sealed secret holds, or None where its first shares do not give it."""
        return [secret.opened() for secret in secrets]

    def unmasked(self, masks: Sequence[Mask]) -> Words:
        """The sum of all uploads with these masks added to it; nothing can be added or taken back afterwards."""
        total = self.total
        add_masks(total, masks)
        return total
