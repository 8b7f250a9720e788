"""A thief with a device's vault, and a server that has kept every message: what they read of past uploads."""

import numpy as np
import pytest

from choral.core.errors import TrustError
from choral.core.keys import Identity, PairSecret, fingerprint, pair_of_turn
from choral.core.masks import add_masks, pair_mask, ring, self_mask
from choral.core.messages import Close, Gather, Omega, Opening, Signed, Turn, Upload, decode, encode, unpack
from choral.core.plan import SecureSum
from choral.core.terms import Bond, Cohort, context_of
from choral.core.vault import Vault
from choral.server.secrets import join, unseal
from tests.protocol.world import World

FOUR = SecureSum(cohort=4, smallest_sum=4, threshold=3, colluders=1)
VICTIM = 1


class Recorder:
    """A curious server's wire: it follows the protocol and keeps all that it sees."""

    def __init__(self, world):
        self.world, self.seen = world, []

    def exchange(self, outbox):
        terms = self.world.terms
        for number, frame in outbox.items():
            reply = self.world.devices[number].answer(frame)
            sizes = {"records_bytes": terms.records_bytes}
            self.seen.append((number, *decode(frame, vector_bytes=terms.model_bytes, **sizes)))
            self.seen.append((number, *decode(reply, vector_bytes=terms.upload_bytes, **sizes)))
            yield number, reply

    def said(self, kind, turn):
        return {
            number: (one, vector) for number, one, vector in self.seen if isinstance(one, kind) and one.turn == turn
        }


def pairs_in(memory, terms, turn):
    """Every way to the pair secrets of a turn that a vault's contents allow: agreed ones, the card's keys, chains."""
    identity, found = Identity(memory.id, memory.secret), {}
    for bundle in terms.roster:
        if bundle.id == memory.id:
            continue
        if bundle.id in memory.pairs:
            found[bundle.id] = [PairSecret.read(memory.id, bundle.id, memory.pairs[bundle.id])]
        else:
            found[bundle.id] = [identity.pair(bundle, terms.roster_digest)]
        for chains in filter(None, (memory.chains, memory.asking)):
            kept = chains.keys[bundle.id]
            found[bundle.id] += [pair_of_turn(memory.id, bundle.id, key) for key in (kept[:32], kept[32:])]
            try:  # the honest way back, if there is one
                keys, _ = chains.taken(turn.round, turn.attempt)
                found[bundle.id].append(pair_of_turn(memory.id, bundle.id, keys[bundle.id]))
            except TrustError:
                pass
    return found


def edge_of(pair, context):
    """What the victim laid down of the pair's mask, if these were its secrets."""
    return fingerprint(pair_mask(pair, context).key, context)


def opened(world, tape, memory, turn):
    """The victim's update of a turn, from the server's tape and a vault, or None."""
    terms = world.terms
    (omega, model), *_ = tape.said(Omega, turn).values()
    nonces = unpack(omega.cohort, 16, most=4)
    cohort = Cohort(terms, turn, nonces, context_of(terms, turn, model, nonces))
    upload, words = tape.said(Upload, turn)[VICTIM]
    # The server knows the self mask: the others opened their envelopes for it.
    bonds = {
        n: Bond(*terms.bond_layout.unpack(one)) for n, one in unpack(upload.bonds, terms.bond_bytes, most=4).items()
    }
    keys = {n: unpack(one.keys, 32, most=4)[VICTIM] for n, (one, _) in tape.said(Opening, turn).items() if n != VICTIM}
    ids = terms.ids
    shares = {
        cohort.point(n): unseal(key, cohort.context, ids[VICTIM], ids[n], bonds[n].envelope) for n, key in keys.items()
    }
    secret = join(shares, terms.secure.threshold)
    masks = [self_mask(secret, cohort.context, ids[VICTIM])]
    for id, ways in pairs_in(memory, terms, turn).items():
        bond = bonds[terms.numbers[id]]
        fits = [pair for pair in ways if edge_of(pair, cohort.context) == bond.edge]
        if not fits:
            return None
        masks.append(pair_mask(fits[0], cohort.context))
    found = np.frombuffer(words, ring(terms.codec.word_bits)).copy()
    add_masks(found, [mask.undone() for mask in masks])
    return terms.codec.decode(found, terms.parameters, count=1)


def recorded(*, hybrid):
    world = World(FOUR, hybrid=hybrid)
    tape = Recorder(world)
    wire = world.wire(tape)
    for round_number in (1, 2, 3):
        assert world.agrees(wire.sum(round_number, range(4), world.model, following=range(4)))
    return world, tape


def stolen(world, number=VICTIM):
    return Vault.open(world.stores[number]).memory


def test_with_the_keys_of_the_cards_a_stolen_vault_opens_every_past_upload():
    world, tape = recorded(hybrid=False)
    for turn in (Turn(1, 0), Turn(2, 0), Turn(3, 0)):
        assert opened(world, tape, stolen(world), turn).tolist() == world.update(VICTIM, turn.round).tolist()


def test_with_keys_that_are_erased_turn_by_turn_it_opens_none():
    world, tape = recorded(hybrid=True)
    for turn in (Turn(1, 0), Turn(2, 0), Turn(3, 0)):
        assert opened(world, tape, stolen(world), turn) is None


def test_the_attack_is_a_fair_one_since_a_vault_from_before_the_turn_does_open_it():
    """The same thief with a copy of the vault that was made before a turn reads that turn, and none before it."""
    world = World(FOUR, hybrid=True)
    tape = Recorder(world)
    wire = world.wire(tape)
    wire.sum(1, range(4), world.model)
    early = stolen(world)
    wire.sum(2, range(4), world.model)
    assert opened(world, tape, early, Turn(2, 0)).tolist() == world.update(VICTIM, 2).tolist()
    assert opened(world, tape, early, Turn(1, 0)) is None


def test_a_new_agreement_locks_a_thief_out_of_the_turns_after_it():
    world = World(FOUR, hybrid=True)
    tape = Recorder(world)
    wire = world.wire(tape)
    wire.sum(1, range(4), world.model)
    early = stolen(world)
    wire.agree(Turn(2, 0), range(4))
    wire.sum(2, range(4), world.model)
    assert opened(world, tape, early, Turn(2, 0)) is None


def test_no_write_of_a_vault_in_a_round_holds_keys_of_a_turn_that_was_sent(monkeypatch):
    """Whatever a crash leaves behind: after the first byte of an upload, no vault on the disk opens it."""
    world, written = World(FOUR, hybrid=True), []
    store = world.devices[VICTIM].vault.store
    monkeypatch.setattr(store, "write", lambda data, write=store.write: (written.append(data), write(data)))
    tape = Recorder(world)
    world.wire(tape).sum(1, range(4), world.model)
    assert len(written) == 1  # with the turn, before anything was sent
    assert opened(world, tape, stolen(world), Turn(1, 0)) is None


class Crash(BaseException):
    """A power cut."""


def crashes(*_args, **_kept):
    raise Crash


@pytest.mark.parametrize(
    ("moment", "charged", "last"), [("charge", [], None), ("write", [(1, 0)], None), ("train", [(1, 0)], Turn(1, 0))]
)
def test_a_crash_at_any_point_before_the_upload_forgets_no_charge_and_the_next_attempt_opens(moment, charged, last):
    world, turn = World(FOUR, hybrid=True), Turn(1, 0)
    if moment != "write":
        world.devices[VICTIM] = world.start(VICTIM, **{moment: crashes})
    frame = world.round(turn).outbox()[VICTIM]
    if moment == "write":
        world.devices[VICTIM].vault.store.write = crashes
    with pytest.raises(Crash):
        world.devices[VICTIM].answer(frame)
    world.stores[VICTIM].__dict__.pop("write", None)
    assert (world.ledgers[VICTIM].charged, stolen(world).turn) == (charged, last)
    world.devices[VICTIM] = world.start(VICTIM)
    assert world.read(world.devices[VICTIM].answer(frame)).code == "CH605"  # it has not said that it is ready since
    assert world.agrees(world.wire(first=Turn(1, 1)).sum(1, range(4), world.model))
    assert stolen(world).chains.following == 2


def test_the_end_of_a_run_erases_what_is_left():
    world = World(FOUR, hybrid=True)
    device = world.start(VICTIM, account=lambda: (0, world.ledgers[VICTIM].charge(0, 0)))
    end = encode(Close(turn=Turn(3, 0), record=bytes(32)), world.model.tobytes())
    assert isinstance(world.read(device.answer(end)), Signed)
    assert stolen(world).chains is None and stolen(world).asking is None
    asked = encode(Gather(turn=Turn(4, 0), terms=world.terms.digest))
    assert world.read(device.answer(asked)).code == "CH605"  # and no new keys come after the end


def test_approving_another_study_erases_the_keys_of_the_one_before():
    world = World(FOUR, hybrid=True)
    Vault.open(world.stores[VICTIM]).approve(roster=world.terms.roster_digest, terms=bytes(32))
    assert stolen(world).chains is None and stolen(world).asking is None and stolen(world).turn is None
