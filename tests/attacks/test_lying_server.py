"""A server that tells different devices different things about who has dropped out.

Each test lets the attacker compute what it can open from everything that it got, and shows beside it that one step
below the safe bound, or with the check taken out of the device, the same attack opens the victim alone.
"""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.device import Device
from choral.core.errors import PlanError
from choral.core.messages import Drop, Edges, Final, Opening, Turn
from choral.core.plan import SecureSum
from choral.core.terms import Live
from tests.attacks.loot import Loot, after_upload
from tests.protocol.world import TEN, World

VICTIM = 0


def isolate(world: World, colluders: frozenset[int]) -> Loot:
    """The best split we know: the server lets `few` believe that all is well, and the rest that the victim has gone.

    The few give their shares of the victim's self mask; the rest reveal their pair masks with the victim; and the
    victim itself reveals those with the few, since it believes that they have gone.
    """
    secure = world.terms.secure
    loot = after_upload(world, colluders=colluders)
    cohort = set(loot.cohort.numbers)
    honest = sorted(cohort - colluders - {VICTIM})
    few = honest[: secure.cohort - secure.smallest_sum]
    for number in honest:
        if number in few:
            loot.final(number)
        else:
            loot.drop(number, {VICTIM})
    loot.drop(VICTIM, few)
    return loot


@pytest.mark.parametrize(
    ("cohort", "colluders", "smallest"), [(10, 2, 8), (10, 0, 9), (7, 1, 6), (12, 3, 10), (5, 0, 4)]
)
def test_an_isolating_server_opens_the_victim_one_below_the_bound_and_nothing_at_it(cohort, colluders, smallest):
    crowd = frozenset(range(cohort - colluders, cohort))
    bound = cohort + colluders + 1 - smallest

    safe = SecureSum(cohort=cohort, smallest_sum=smallest, threshold=bound, colluders=colluders)
    assert isolate(World(safe), crowd).openable() == {}

    # A curious server would keep its word at this threshold; a lying one does not.
    below = SecureSum(
        cohort=cohort, smallest_sum=smallest, threshold=bound - 1, colluders=colluders, adversary="curious"
    )
    world = World(below)
    assert isolate(world, crowd).openable() == {frozenset({VICTIM}): world.update(VICTIM).tolist()}


@pytest.mark.parametrize("cohort", range(3, 40))
def test_every_configuration_one_below_the_safe_bound_is_refused(cohort):
    for smallest in range(2, cohort + 1):
        for colluders in range(cohort):
            threshold = cohort + colluders - smallest  # s + u_min = |Ω| + c
            if not 1 <= threshold <= cohort:
                continue
            with pytest.raises(PlanError) as refusal:
                SecureSum(cohort=cohort, smallest_sum=smallest, threshold=threshold, colluders=colluders)
            assert refusal.value.code == "CH205"


def test_a_partitioning_server_opens_neither_half():
    world = World(SecureSum(cohort=10, smallest_sum=6, threshold=5, colluders=0))
    loot = after_upload(world)
    left, right = set(range(6)), set(range(4, 10))
    for number in range(10):
        half = left if number < 5 else right
        loot.drop(number, set(range(10)) - half)
        loot.final(number)
    assert loot.openable() == {}


def test_a_partitioning_server_opens_both_halves_where_only_a_curious_one_was_planned_for():
    world = World(SecureSum(cohort=10, smallest_sum=5, threshold=4, adversary="curious"))
    loot = after_upload(world)
    for half in (set(range(5)), set(range(5, 10))):
        for number in half:
            loot.drop(number, set(range(10)) - half)
            loot.final(number)
    assert set(loot.openable()) == {frozenset(range(5)), frozenset(range(5, 10)), frozenset(range(10))}


SMALL = [
    SecureSum(cohort=6, smallest_sum=5, threshold=4, colluders=1),  # g_min = 3
    SecureSum(cohort=6, smallest_sum=5, threshold=3, colluders=1),  # g_min = 2, the bound itself
    SecureSum(cohort=5, smallest_sum=4, threshold=3, colluders=1),  # g_min = 2, the bound itself
    SecureSum(cohort=5, smallest_sum=4, threshold=2, colluders=0),  # g_min = 2, the bound itself
]


@given(st.sampled_from(SMALL), st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_a_server_says_no_sum_of_fewer_than_g_min_honest_devices_can_be_opened(secure, data):
    world = World(secure, parameters=2)
    cohort = range(secure.cohort)
    colluders = frozenset(list(cohort)[secure.cohort - secure.colluders :])
    loot = after_upload(world, colluders=colluders)
    subsets = st.sets(st.sampled_from(cohort), max_size=secure.cohort - secure.smallest_sum)
    for number in sorted(set(cohort) - colluders):
        dropped = data.draw(subsets) - {number}
        if dropped:
            loot.drop(number, dropped)
        if data.draw(st.booleans()):
            loot.final(number)
    for opened, integers in loot.openable().items():
        assert len(opened) >= secure.honest_noises("lying")
        assert integers == world.expected([world.terms.ids[number] for number in opened], loot.turn)


@given(st.sampled_from(SMALL), st.data())
@settings(max_examples=150, deadline=None)
def test_nor_by_asking_anybody_anything_in_any_order_as_often_as_it_likes(secure, data):
    world = World(secure, parameters=2)
    cohort = range(secure.cohort)
    colluders = frozenset(list(cohort)[secure.cohort - secure.colluders :])
    loot = after_upload(world, colluders=colluders)
    honest = sorted(set(cohort) - colluders)
    some = st.just(set(honest)) | st.sets(st.sampled_from(honest))
    gone = st.just({VICTIM}) | st.sets(st.sampled_from(cohort), max_size=secure.cohort - secure.smallest_sum)
    reported: dict[int, set[int]] = {number: set() for number in honest}
    for _ in range(data.draw(st.integers(1, 4))):
        question = data.draw(st.sampled_from(["more have dropped", "these have dropped", "open", "open all"]))
        asked, dropped = data.draw(some), data.draw(gone)
        for number in sorted(asked - dropped):
            if question in ("more have dropped", "these have dropped"):
                reported[number] = dropped | (reported[number] if question == "more have dropped" else set())
                loot.drop(number, reported[number])
            else:
                loot.final(number)
    for opened, integers in loot.openable().items():
        assert len(opened) >= secure.honest_noises("lying")
        assert integers == world.expected([world.terms.ids[number] for number in opened], loot.turn)


def test_every_small_split_of_a_lying_server_is_tried_and_none_opens_fewer_than_g_min():
    # Exhaustive where the property above is random: each device may hear that one other has gone.
    secure = SMALL[3]
    world, fewest = World(secure, parameters=1), secure.cohort
    lists = combinations([(reported, gone) for reported in range(5) for gone in range(5) if reported != gone], 3)
    for round, lies in enumerate(lists):
        loot = after_upload(world, Turn(round, 0))
        views: dict[int, set[int]] = {number: set() for number in range(5)}
        for reported, gone in lies:
            views[reported] = {gone}
        for number, gone in views.items():
            if gone:
                loot.drop(number, gone)
            if number != 0:
                loot.final(number)
        fewest = min([fewest, *map(len, loot.openable())])
    assert fewest >= secure.honest_noises("lying")


class Forgetful(Device):
    """A device that does not remember whom it has given up."""

    def _reveal(self, message: Drop) -> Edges:
        edges = super()._reveal(message)
        assert self._live is not None
        self._live = Live(self._live.cohort, self._live.pairs)
        return edges


class Talkative(Device):
    """A device that goes on answering after FINAL."""

    def _finish(self, message: Final) -> Opening:
        live = self._live
        opening = super()._finish(message)
        self._live = live
        return opening


def weakened(kind: type[Device]) -> World:
    world = World()
    for device in world.devices:
        device.__class__ = kind
    return world


def both_halves_edges_first(world: World) -> Loot:
    loot = after_upload(world)
    for number in range(1, 10):
        loot.drop(number, {VICTIM})
    for number in range(1, 10):
        loot.final(number)
    return loot


def both_halves_shares_first(world: World) -> Loot:
    loot = after_upload(world)
    for number in range(1, 10):
        loot.final(number)
    for number in range(1, 10):
        loot.drop(number, {VICTIM})
    return loot


@pytest.mark.parametrize(
    ("attack", "weakness", "refusals"),
    # Whose envelopes FINAL opens, each device decides by itself: nobody refuses, and nobody opens the victim's.
    [
        (both_halves_edges_first, Forgetful, {}),
        (both_halves_shares_first, Talkative, dict.fromkeys(range(1, 10), "CH605")),
    ],
)
def test_asking_for_both_halves_of_a_devices_masks_gets_only_one(attack, weakness, refusals):
    loot = attack(World())
    assert loot.refusals == refusals
    assert not (VICTIM in loot.shares and any(VICTIM in edge for edge in loot.edges))
    assert not any(VICTIM in opened and len(opened) < 10 for opened in loot.openable())

    fallen = weakened(weakness)
    assert attack(fallen).openable()[frozenset({VICTIM})] == fallen.update(VICTIM).tolist()


def test_the_defaults_withstand_the_isolating_server():
    assert isolate(World(TEN), frozenset({8, 9})).openable() == {}
    assert TEN.honest_noises("lying") == 4


@pytest.mark.parametrize("cohort", range(4, 11))
def test_no_default_lets_a_server_with_one_device_of_its_own_open_another(cohort):
    secure = SecureSum.for_cohort(cohort)
    helped = frozenset({cohort - 1})
    assert all(len(opened) > 1 for opened in isolate(World(secure), helped).openable())


def test_a_sum_of_four_that_counts_no_colluder_is_opened_with_the_help_of_one():
    world = World(SecureSum(cohort=4, smallest_sum=3, threshold=2, colluders=0))
    assert isolate(world, frozenset({3})).openable() == {frozenset({VICTIM}): world.update(VICTIM).tolist()}
