"""A server that shows two groups of devices two roots of one turn: no sum opens over both, and sites can find out."""

import pytest

from choral.core.errors import SumError
from choral.core.vault import Vault
from choral.deploy.root_log import RootLog
from choral.server.round import Round
from choral.trees.lists import Announcements
from tests.protocol.world import FIRST, World

ENROLLED, CALLED, COLLUDER = 12, range(10), 9


def split_round(group):
    """A world and its round, in which these devices were shown another ν of the colluder, and so another root."""
    world = World(devices=ENROLLED, trees=True)
    readiness = world.readiness(FIRST, CALLED)
    round, model = Round(readiness, world.model.tobytes()), world.model.tobytes()
    other = Announcements(world.terms, FIRST, {**readiness.nonces, COLLUDER: bytes(16)}, model, world.terms.lists.tree)
    for number, frame in round.outbox().items():
        shown = other[number] if number in group else frame
        round.receive(number, world.devices[number].answer(shown))
    return world, round


def test_no_sum_opens_over_two_roots_and_the_smaller_group_is_left_out():
    world, round = split_round({0, 1})
    round.advance()
    assert {n: code for n, code in round.findings.refusals.items() if n in (0, 1)} == {0: "CH604", 1: "CH604"}
    total = world.finish(round)
    assert total.count == 8 and world.agrees(total)
    world, round = split_round({0, 1, 2})
    with pytest.raises(SumError, match="CH503"):
        round.advance()


def test_two_sites_that_compare_what_they_were_shown_name_the_turn():
    world, _ = split_round({0, 1, 2})
    one, other, same = (RootLog.of(world.terms, Vault.open(world.stores[n]).memory) for n in (0, 5, 6))
    for log in (other, same):
        log.check(one)
    assert other.differs_from(one) == (FIRST,) and other.differs_from(same) == ()
