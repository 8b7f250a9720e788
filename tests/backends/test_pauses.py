"""Pauses between tries: random and bounded, so that many who try at once do not come at once."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.backends.connecting import Pauses
from choral.backends.flower import children, node
from choral.deploy import agent

SCHEDULES = [(node.KNOCK, node.LONGEST), (children.PAUSE, children.LONGEST), (agent.SOON, agent.EVERY)]


@given(st.integers(0, 2**32))
def test_a_pause_is_never_longer_than_its_bound_nor_shorter_than_half_of_the_shortest(seed):
    pauses = Pauses(2.0, 30.0, draw=random.Random(seed).uniform)
    drawn = [pauses.next() for _ in range(20)]
    assert all(1.0 <= one <= 30.0 for one in drawn) and min(drawn[5:]) >= 15.0
    pauses.begin()
    assert pauses.next() <= 2.0


@pytest.mark.parametrize(("shortest", "longest"), SCHEDULES)
def test_a_hundred_sites_that_lose_their_server_at_once_do_not_come_back_at_once(shortest, longest):
    """A simulation of who tries when, over an outage of a minute; the server is there again at its end."""
    outage, tries, connected = 60.0, list[float](), list[float]()
    for site in range(100):
        pauses, at = Pauses(shortest, longest, draw=random.Random(site).uniform), 0.0
        while at < outage:
            at += pauses.next()
            tries.append(at)
        connected.append(at)
    busiest = Counter(int(at) for at in connected).most_common(1)[0][1]
    assert busiest <= 100 / (longest / 4)  # with a fixed pause of 2 s all hundred came in one second
    assert max(connected) <= outage + longest
    late = [at for at in tries if at > outage / 2]
    assert len(late) <= 100 * (outage + longest - outage / 2) / (longest / 2)
