"""Lists as trees: sums are as right as with whole lists, and a device refuses whatever no honest server shows it."""

import msgspec
import pytest

from choral.core.errors import PlanError
from choral.core.messages import Call, Omega, Paths, Turn, decode, encode
from choral.core.vault import Vault
from choral.run.planning import sparse
from choral.trees.lists import Member
from tests.protocol.world import FIRST, TEN, SilentTransport, World

ENROLLED = 17  # the tree of the roster is uneven, and not everybody is in the cohort
CALLED = (0, 2, 3, 5, 6, 9, 11, 12, 15, 16)


@pytest.fixture
def world():
    return World(devices=ENROLLED, trees=True)


def paths_for(world, number, turn=FIRST):
    """The honest message to a device, read, with its members and the model."""
    message, members, model = members_in(world, world.round(turn, CALLED).outbox()[number])
    return message, members, bytes(model)


def refusal_of(world, number, message, members, model):
    shown = msgspec.structs.replace(message, members=msgspec.msgpack.encode(members))
    reply = world.read(world.devices[number].answer(encode(shown, model)))
    return reply.code if hasattr(reply, "code") else None


def changed(member, **fields):
    return msgspec.structs.replace(member, **fields)


def test_a_sum_under_trees_is_the_plain_sum_and_devices_hold_no_list(world):
    assert world.agrees(world.finish(world.round(called=CALLED)))
    device = world.devices[3]
    assert len(device.terms.roster) == ENROLLED and device.terms.roster_digest == world.terms.lists.tree.root
    with pytest.raises(Exception, match="CH601"):
        _ = device.terms.whole


def test_drop_outs_at_every_step_are_survived_under_trees(world):
    total = world.wire(SilentTransport(world, {3: 1, 5: 2})).sum(0, CALLED, world.model)
    assert total.count == 8 and world.agrees(total)


@pytest.fixture(scope="module")
def sparse_world():
    return World(sparse(100), trees=True)


def members_in(world, frame):
    terms = world.terms_of(0)
    message, model = decode(frame, vector_bytes=terms.model_bytes, records_bytes=terms.records_bytes)
    return message, msgspec.msgpack.decode(message.members, type=list[Member]), model


def test_a_sparse_graph_by_positions_gives_the_plain_sum_with_drop_outs(sparse_world):
    world = sparse_world
    total = world.wire(SilentTransport(world, {7: 1, 31: 2})).sum(0, range(100), world.model)
    assert total.count == 98 and world.agrees(total)


def test_a_device_refuses_neighbours_that_the_graph_does_not_give_it(sparse_world):
    outbox = sparse_world.round(Turn(1, 0)).outbox()
    message, members, model = members_in(sparse_world, outbox[0])
    assert len(members) == 1 + sparse_world.terms.secure.neighbours and message.size == 100
    # Those of another device are enrolled and in the cohort, and still not this one's.
    own = next(member for member in members if member.number == 0)
    _, others, _ = members_in(sparse_world, outbox[50])
    chosen = sorted([own, *(one for one in others if one.number)][: len(members)], key=lambda one: one.position)
    assert len(chosen) == len(members) and chosen != members
    assert refusal_of(sparse_world, 0, message, chosen, model) == "CH615"


def test_trees_and_whole_lists_have_different_terms_and_neither_takes_the_others_message(world):
    whole = World(devices=ENROLLED)
    assert whole.terms.digest != world.terms.digest
    message, _, model = paths_for(world, 3)
    omega = encode(Omega(turn=FIRST, terms=world.terms.digest, cohort=b""), model)
    assert world.read(world.devices[3].answer(omega)).code == "CH605"
    whole.devices[3].answer(encode(Call(turn=FIRST)))
    shown = msgspec.structs.replace(message, terms=whole.terms.digest, members=b"")
    assert whole.read(whole.devices[3].answer(encode(shown, model))).code == "CH605"


LIES = {
    "a neighbour at another position": (lambda m: changed(m, position=m.position + 1), "CH615"),
    "a neighbour under another number": (lambda m: changed(m, number=m.number + 1), "CH615"),
    "a neighbour with another nonce": (lambda m: changed(m, nonce=bytes(16)), "CH615"),
    "a neighbour with another agreement key": (lambda m: changed(m, agreement=b"\5" * 32), "CH615"),
    "a longer path into the roster": (lambda m: changed(m, in_roster=m.in_roster + bytes(32)), "CH615"),
    "a shorter path into the cohort": (lambda m: changed(m, in_cohort=m.in_cohort[32:]), "CH615"),
    "a path into another roster": (lambda m: changed(m, in_roster=bytes(32) + m.in_roster[32:]), "CH615"),
    "a path into another cohort": (lambda m: changed(m, in_cohort=bytes(32) + m.in_cohort[32:]), "CH615"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_device_refuses_a_neighbour_that_is_not_where_it_is_said_to_be(world, name):
    lie, code = LIES[name]
    message, members, model = paths_for(world, 6)
    at = 5 if "position" in name else 2
    assert refusal_of(world, 6, message, [*members[:at], lie(members[at]), *members[at + 1 :]], model) == code
    assert world.ledgers[6].charged == []


def test_a_device_refuses_to_count_a_key_twice_or_members_out_of_order(world):
    message, members, model = paths_for(world, 6)
    twin = changed(members[2], identity=members[1].identity)
    assert refusal_of(world, 6, message, [*members[:2], twin, *members[3:]], model) == "CH615"
    message, members, model = paths_for(World(devices=ENROLLED, trees=True), 6)
    fresh = World(devices=ENROLLED, trees=True)
    message, members, model = paths_for(fresh, 6)
    members[1], members[2] = changed(members[2], position=1), changed(members[1], position=2)
    assert refusal_of(fresh, 6, message, members, model) == "CH615"


def test_a_device_refuses_a_cohort_without_itself_too_small_too_large_or_of_a_bad_form(world):
    message, members, model = paths_for(world, 6)
    assert refusal_of(world, 6, message, [m for m in members if m.number != 6], model) == "CH604"
    for size in (TEN.smallest_sum - 1, TEN.cohort + 1):
        fresh = World(devices=ENROLLED, trees=True)
        message, members, model = paths_for(fresh, 6)
        assert refusal_of(fresh, 6, msgspec.structs.replace(message, size=size), members, model) == "CH605"
    fresh = World(devices=ENROLLED, trees=True)
    message, _, model = paths_for(fresh, 6)
    shown = msgspec.structs.replace(message, members=b"\xc1")
    assert fresh.read(fresh.devices[6].answer(encode(shown, model))).code == "CH600"


def test_a_size_that_the_root_is_not_of_is_refused(world):
    message, members, model = paths_for(world, 6)
    assert refusal_of(world, 6, msgspec.structs.replace(message, size=9), members, model) == "CH615"


def test_a_second_root_for_a_turn_is_refused_also_where_the_first_was_not_taken(world):
    message, members, model = paths_for(world, 6)
    assert refusal_of(world, 6, message, members[1:], model) == "CH615"  # it has seen this root
    second, again, model = paths_for(world, 6)  # called again: another ν, and so another root
    assert second.root != message.root
    assert refusal_of(world, 6, second, again, model) == "CH616"
    assert world.ledgers[6].charged == []


def test_roots_of_turns_that_were_paid_for_are_kept_over_a_restart_and_until_other_terms_are_approved(world):
    for turn in (FIRST, Turn(1, 0)):
        world.finish(world.round(turn, CALLED))
    kept = Vault.open(world.stores[6]).memory.roots
    assert [turn for turn, _ in kept] == [FIRST, Turn(1, 0)] and len({root for _, root in kept}) == 2
    assert kept == Vault.open(world.stores[9]).memory.roots and not Vault.open(world.stores[1]).memory.roots
    vault = Vault.open(world.stores[6])
    vault.approve(roster=bytes(32), terms=bytes(32))
    assert vault.memory.roots == ()


def test_a_drop_list_may_name_strangers_but_nobody_who_is_not_enrolled(world):
    round = world.round(called=CALLED)
    world.step(round, silent={0})
    frame = round.outbox()[3]
    message, _ = decode(frame, vector_bytes=0, records_bytes=world.terms.records_bytes)
    too_far = msgspec.structs.replace(message, dropped=message.dropped + (ENROLLED).to_bytes(4, "little"))
    assert world.read(world.devices[3].answer(encode(too_far))).code == "CH605"


@pytest.mark.parametrize("other", [{"hybrid": True}, {"probes": 4}])
def test_what_needs_everybody_to_see_everybody_does_not_go_with_trees(other):
    with pytest.raises(PlanError, match="CH204 lists as trees"):
        World(devices=ENROLLED, trees=True, **other)


def test_a_question_needs_whole_lists(world):
    terms = world.terms
    with pytest.raises(PlanError, match="questions need whole lists"):
        terms.asked(b"{}", secure=terms.secure, codec=terms.codec, length=1)


def test_the_two_roots_are_bound_into_every_mask(world):
    message, _, _ = paths_for(world, 6)
    assert isinstance(message, Paths) and message.terms == world.terms.digest
    reply = world.read(world.devices[6].answer(world.round(Turn(1, 0), CALLED).outbox()[6]))
    other = World(devices=ENROLLED, trees=True)
    again = other.read(other.devices[6].answer(other.round(Turn(1, 0), CALLED).outbox()[6]))
    assert reply.context != again.context  # the same devices, terms and model, and other nonces under the root
