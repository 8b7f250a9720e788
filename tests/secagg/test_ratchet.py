"""Chains of keys: both ends agree whatever they missed, no turn has another's key, and there is no way back."""

import pytest

from choral.core.errors import TrustError
from choral.core.keys import MOST_STEPS, Chains, envelope_key, pair_of_turn, seal
from choral.core.masks import pair_mask
from choral.server.secrets import unseal

ROOT = bytes(range(32))


def begun(following=1):
    return Chains.begun({"b": ROOT}, following=following)


def key_after(*turns):
    """The key of the last turn, for a device that took part in these."""
    chains = begun()
    for turn in turns:
        keys, chains = chains.taken(*turn)
    return keys["b"]


def test_devices_that_missed_different_turns_find_the_same_key():
    assert key_after((7, 2)) == key_after((1, 0), (3, 1), (7, 0), (7, 2)) == key_after((7, 1), (7, 2))
    assert key_after((2, 0)) == key_after((1, 4), (2, 0))


def test_every_turn_has_its_own_key():
    turns = [(round_number, attempt) for round_number in range(1, 9) for attempt in range(6)]
    assert len({key_after(turn) for turn in turns}) == len(turns)


def test_a_turn_that_was_taken_or_passed_is_refused():
    _, chains = begun().taken(3, 1)
    for turn in ((3, 1), (3, 0), (2, 9), (1, 0)):
        with pytest.raises(TrustError) as refusal:
            chains.taken(*turn)
        assert refusal.value.code == "CH612"
    with pytest.raises(TrustError):
        begun(following=4).taken(3, 2**32 - 1)  # before the agreement


def test_what_is_kept_after_a_turn_is_none_of_its_keys_nor_of_those_that_lead_to_them():
    chains, seen = begun(), set()
    for turn in ((1, 0), (1, 1), (2, 0), (5, 3)):
        before = {chains.keys["b"][:32], chains.keys["b"][32:]}
        keys, chains = chains.taken(*turn)
        seen |= {keys["b"]} | (before - {bytes(32)})
        kept = {chains.keys["b"][:32], chains.keys["b"][32:]}
        # The round's key stays the same while attempts of one round follow each other: it leads to later rounds only.
        assert not (kept - before) & seen and keys["b"] not in kept
        assert chains.keys["b"][32:] not in before


def test_a_turn_too_far_ahead_is_refused_before_anything_is_hashed():
    for turn in ((1 + MOST_STEPS + 1, 0), (1, MOST_STEPS + 1), (2**31 - 1, 2**32 - 1)):
        with pytest.raises(TrustError) as refusal:
            begun().taken(*turn)
        assert refusal.value.code == "CH612"
    assert begun().taken(1 + MOST_STEPS, 0)


def test_the_secrets_of_a_turn_fit_each_other():
    a, b = pair_of_turn("a", "b", ROOT), pair_of_turn("b", "a", ROOT)
    assert pair_mask(a, b"ctx").key == pair_mask(b, b"ctx").key
    assert unseal(envelope_key(b.opens, b"ctx"), b"ctx", "a", "b", seal(a, b"ctx", b"share")) == b"share"
    assert len({a.rising, a.falling, a.seals, a.opens, ROOT}) == 5


def test_no_repr_shows_a_key():
    assert ROOT.hex()[:8] not in repr(begun()) and "peers" in repr(begun())
