"""The device's half of probes: it keeps what it has masked, answers projections of it once, and opens a turn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from choral.core.codec import Integers
from choral.core.masks import Words, pair_mask
from choral.core.messages import DIGEST_BYTES, Open, OpenedKeys, Probe, ProbeAnswer, Turn, malformed, pack, unpack
from choral.core.terms import Cohort, Live, Terms, refused
from choral.core.vault import Vault
from choral.probes.projections import ANSWER_BYTES, MOST_WATCHED, answers_of, probe_seed, upload_digest, watched_of

SeedOf = Callable[[Turn], bytes]  # in place of the digests', for a simulation that must be repeated


@dataclass(frozen=True, eq=False)
class Kept:
    """The integers that a device has masked: in memory from UPLOAD to ANSWER, so that no noise is ever drawn twice."""

    integers: Integers
    upload: bytes  # the digest of the masked words

    def __repr__(self) -> str:
        return f"Kept({len(self.integers)} integers)"


@dataclass(frozen=True, kw_only=True)
class Probed:
    """Rounds in which each device answers so many probes, and shows its pair keys of so many turns at most.

    >>> Probed(probes=8, opened_turns=1).described
    {'probes': 8, 'opened_turns': 1}
    """

    probes: int
    opened_turns: int = 0
    seed_of: SeedOf | None = field(default=None, compare=False)

    @property
    def described(self) -> Mapping[str, int]:
        """Both numbers, as the digest of terms has them."""
        return {"probes": self.probes, "opened_turns": self.opened_turns}

    @property
    def records_bytes(self) -> int:
        """The most that answers to all probes and watched vectors take."""
        return ANSWER_BYTES * (self.probes + MOST_WATCHED)

    @property
    def opens(self) -> bool:
        """Tell whether any turn may be opened."""
        return self.opened_turns > 0

    def seed(self, cohort: Cohort, digests: Mapping[int, bytes], watched: bytes) -> bytes:
        """The seed that the probes of a turn are drawn from."""
        if self.seed_of is not None:
            return self.seed_of(cohort.turn)
        return probe_seed(cohort.context, digests, watched)

    def encoded(self, terms: Terms, words: Words) -> Integers:
        """The integers of the update."""
        return terms.codec.decode(words, terms.parameters, count=1)

    def masked(self, kept: object, cohort: Cohort, id: str, words: memoryview) -> Kept:
        """The same with the digest of the masked words, which fixes the upload."""
        assert isinstance(kept, np.ndarray)  # noqa: S101 - from `encoded`
        return Kept(kept, upload_digest(cohort.context, id, words))

    def answer(self, message: Probe, watched: memoryview, live: Live, number: int) -> ProbeAnswer:
        """A device's answer, or CH605 for a PROBE that no honest server sends."""
        kept, cohort, terms = live.kept, live.cohort, live.cohort.terms
        if not isinstance(kept, Kept):
            raise refused("this turn's probes were answered, or others have dropped out since.")
        digests = unpack(message.digests, DIGEST_BYTES, most=len(cohort))
        if digests.get(number) != kept.upload:
            raise refused("probes that were drawn without this device's upload as it sent it.")
        if not cohort.may_hold(digests.keys()):
            raise refused("probes that were drawn from uploads of devices outside the cohort.")
        if len(digests) < terms.secure.smallest_sum:
            raise refused(
                f"probes of {len(digests)} uploads, the plan opens no sum of fewer than {terms.secure.smallest_sum}."
            )
        if len(watched) % max(terms.parameters, 1) or len(watched) > MOST_WATCHED * terms.parameters:
            raise malformed(f"{len(watched):,} bytes to be watched, for {terms.parameters:,} parameters")
        turn = message.turn
        seed = self.seed(cohort, digests, bytes(watched))
        asked = answers_of(seed, self.probes, kept.integers, watched_of(watched, terms.parameters))
        return ProbeAnswer(turn=turn, device=number, numbers=asked.astype("<i8").tobytes())

    def shown(self, message: Open, live: Live | None, vault: Vault, number: int) -> OpenedKeys:
        """The pair keys of the device's last turn with all neighbours: CH605 if it is another, CH609 after too many."""
        turn = message.turn
        if live is None or live.cohort.turn != turn:
            raise refused(f"round {turn.round}, attempt {turn.attempt} can't be opened any more here.")
        opened = vault.memory.opened
        if opened >= self.opened_turns:
            raise refused(f"no more than {self.opened_turns} turns are opened here.", code="CH609")
        vault.change(opened=opened + 1)  # counted before a key leaves: a crash costs a turn, and shows nothing
        keys = {peer: pair_mask(pair, live.cohort.context).key for peer, pair in live.pairs.items()}
        return OpenedKeys(turn=turn, device=number, keys=pack(keys))
