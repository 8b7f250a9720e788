"""What a device lays down about each neighbour: honest ends agree, and every lie is a quarrel or is seen at once."""

import numpy as np
import pytest

from choral.core.errors import TrustError
from choral.core.keys import seal
from choral.core.masks import Stream, add_masks, pair_mask
from choral.core.messages import pack
from choral.core.plan import SecureSum
from choral.core.shares import SHARE_SIZE
from choral.core.terms import Bond, check_words
from choral.server.findings import edge_mask, lanes_hold, left_out, quarrels
from choral.server.round import bonds_of
from tests.protocol.world import World

CONTEXT = bytes(range(32))


@pytest.fixture(scope="module")
def world():
    return World(SecureSum.for_cohort(4))


def mask_of(world, one, other):
    pair = world.identities[one].pair(world.terms.roster.bundles[other], world.terms.roster_digest)
    return pair, pair_mask(pair, CONTEXT)


def bond(world, one, other):
    pair, mask = mask_of(world, one, other)
    return Bond.of(world.terms, pair, mask, CONTEXT, seal(pair, CONTEXT, bytes(SHARE_SIZE)))


@pytest.fixture(scope="module")
def bonds(world):
    """Everybody's honest bonds with everybody else."""
    return {one: {other: bond(world, one, other) for other in range(4) if other != one} for one in range(4)}


def test_honest_ends_of_every_pair_agree(world, bonds):
    assert quarrels(world.terms, bonds) == set()


@pytest.mark.parametrize("field", ["edge", "gives", "takes", "checks"])
def test_whichever_field_one_end_changes_the_pair_quarrels_and_no_other_does(world, bonds, field):
    lie = bytes(byte ^ 1 for byte in getattr(bonds[2][0], field))
    changed = {**bonds, 2: {**bonds[2], 0: bonds[2][0]._replace(**{field: lie})}}
    assert quarrels(world.terms, changed) == {(0, 2)}


def test_the_envelope_is_each_ends_own_and_makes_no_quarrel(world, bonds):
    changed = {**bonds, 2: {**bonds[2], 0: bonds[2][0]._replace(envelope=bytes(len(bonds[2][0].envelope)))}}
    assert quarrels(world.terms, changed) == set()


def test_who_is_not_there_quarrels_with_nobody(world, bonds):
    assert quarrels(world.terms, {0: bonds[0]}) == set()


def test_bonds_are_read_as_they_were_laid_down_and_for_the_neighbours_only(world, bonds):
    data = pack({number: b"".join(one) for number, one in bonds[0].items()})
    assert bonds_of(world.terms, data, {1, 2, 3}) == bonds[0]
    for expected in ({1, 2}, {1, 2, 4}, {0, 1, 2, 3}):
        with pytest.raises(TrustError, match="CH600"):
            bonds_of(world.terms, data, expected)


@pytest.mark.parametrize(("one", "other"), [(0, 3), (3, 0)])
def test_a_revealed_key_gives_the_very_mask_that_was_added(world, one, other):
    _, mask = mask_of(world, one, other)
    assert edge_mask(mask.key, one, other) == mask


def test_check_lanes_hold_with_what_was_laid_down_and_not_with_anything_else(world):
    codec, terms = world.terms.codec, world.terms
    words = codec.encode(world.update(0), Stream.fresh())
    masks = [mask_of(world, 0, other)[1] for other in (1, 2, 3)]
    add_masks(words, masks)
    laid_down = [check_words(terms, mask_of(world, 0, other)[1]).tobytes() for other in (1, 2, 3)]
    assert lanes_hold(terms, words, laid_down)
    assert not lanes_hold(terms, words, laid_down[:-1])
    words[-1] += np.ones(1, words.dtype)[0]
    assert not lanes_hold(terms, words, laid_down)


def test_no_quarrel_is_left_by_whom_is_left_out_and_who_has_the_most_goes_first():
    pairs = {(0, 5), (1, 5), (2, 5), (3, 4)}
    for turn in range(20):
        out = left_out(pairs, bytes([turn]))
        assert 5 in out and len(out) == 2
        assert not [pair for pair in pairs if not out & set(pair)]


def test_of_two_equals_the_lot_of_the_turn_decides_and_not_their_number():
    assert {next(iter(left_out({(0, 1)}, bytes([turn])))) for turn in range(20)} == {0, 1}
    assert left_out({(0, 1)}, b"ctx") == left_out({(0, 1)}, b"ctx")
