"""Keys that can only be hashed forward: with what is left after a turn, that turn and those before it can't be opened.

Each pair of devices has a chain over rounds, and within a round a chain over its attempts. Both ends find the key of a
turn by themselves, whichever turns they took part in before.
"""

import hmac
from typing import Self

import msgspec

from choral.core.errors import TrustError
from choral.core.keys import KEY_SIZE, PairSecret, framed

MOST_STEPS = 2**14  # that a turn may lie ahead: about a second for a hundred peers

_ROUND, _ATTEMPTS, _ATTEMPT, _TURN = (framed(f"ratchet {step}") for step in ("round", "attempts", "attempt", "turn"))
_SEEDS = [framed("ratchet seed", name) for name in (b"rising", b"falling", b"from low", b"from high")]


def _step(key: bytes, label: bytes) -> bytes:
    return hmac.digest(key, label, "sha256")


class Chains(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a device's chains with its peers stand, all at the same turn; nothing before it follows from them.

    `keys` holds for each peer the key of the round `following`, and that of `attempt` in the round before, behind it.

    >>> Chains.begun({"b": bytes(32)}, following=1)
    Chains(1 peers, before round 1)
    """

    following: int
    attempt: int
    keys: dict[str, bytes]

    def __repr__(self) -> str:
        return f"Chains({len(self.keys)} peers, before round {self.following})"

    @classmethod
    def begun(cls, roots: dict[str, bytes], *, following: int) -> Self:
        """The chains that begin with a round; the round before it has no attempts left."""
        keys = {peer: root + bytes(KEY_SIZE) for peer, root in roots.items()}
        return cls(following=following, attempt=2**32, keys=keys)

    def taken(self, round_number: int, attempt: int) -> tuple[dict[str, bytes], Self]:
        """The key of a turn with each peer, and the chains after it; CH612 for a turn that they have passed.

        >>> keys, after = Chains.begun({"b": bytes(32)}, following=1).taken(3, 0)
        >>> after, keys == Chains.begun({"b": bytes(32)}, following=1).taken(3, 0)[0]
        (Chains(1 peers, before round 4), True)
        """
        rounds = round_number - self.following
        attempts = attempt if rounds >= 0 else attempt - self.attempt
        if rounds < -1 or attempts < 0:
            raise no_keys(f"the keys of round {round_number}, attempt {attempt} are erased here.")
        if max(rounds, 0) + attempts > MOST_STEPS:
            raise no_keys(f"round {round_number}, attempt {attempt} lies {max(rounds, 0) + attempts:,} turns ahead.")
        keys, after = {}, {}
        for peer, kept in self.keys.items():
            round_key, attempt_key = kept[:KEY_SIZE], kept[KEY_SIZE:]
            if rounds >= 0:
                for _ in range(rounds):
                    round_key = _step(round_key, _ROUND)
                round_key, attempt_key = _step(round_key, _ROUND), _step(round_key, _ATTEMPTS)
            for _ in range(attempts):
                attempt_key = _step(attempt_key, _ATTEMPT)
            keys[peer] = _step(attempt_key, _TURN)
            after[peer] = round_key + _step(attempt_key, _ATTEMPT)
        return keys, type(self)(following=max(self.following, round_number + 1), attempt=attempt + 1, keys=after)


def pair_of_turn(own: str, peer: str, key: bytes) -> PairSecret:
    """What two devices share in one turn, by the turn's key.

    >>> pair_of_turn("a", "b", bytes(32)).seals == pair_of_turn("b", "a", bytes(32)).opens
    True
    """
    rising, falling, from_low, from_high = (_step(key, label) for label in _SEEDS)
    seals, opens = (from_low, from_high) if own < peer else (from_high, from_low)
    return PairSecret(own=own, peer=peer, rising=rising, falling=falling, seals=seals, opens=opens)


def no_keys(what: str) -> TrustError:
    """The refusal of a turn for which there are no keys; the next agreement makes new ones.

    >>> no_keys("nothing is agreed.").code
    'CH612'
    """
    return TrustError("CH612", what, fix="The device drops out of this turn; the server asks for an agreement first.")
