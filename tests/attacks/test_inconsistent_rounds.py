"""A server that shows one device another round than the rest: another model, cohort, ν, plan or roster."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from choral.core import terms as terms_module
from choral.core.errors import SumError, TrustError
from choral.core.keys import Identity, Roster
from choral.core.messages import Omega, encode, pack
from choral.core.plan import SecureSum
from choral.core.terms import Terms
from choral.core.vault import Memory, Vault
from choral.run.folder import MemoryStore
from choral.server import round as round_module
from choral.server.round import Readiness, Round
from tests.attacks.loot import Loot
from tests.protocol.world import FIRST, TEN, World

VICTIM = 3


def shown(
    world: World, *, nonces: dict[int, bytes], digest: bytes | None = None, model: np.ndarray | None = None
) -> bytes:
    omega = Omega(turn=FIRST, terms=digest or world.terms.digest, cohort=pack(nonces))
    return encode(omega, (world.model if model is None else model).tobytes())


def run(world: World, readiness: Readiness, frame_for_victim: bytes, *, forge: bool = False) -> tuple[Loot, Round]:
    """A round in which the victim alone gets another OMEGA, and everything else is honest.

    A forging server writes the others' ctx into the victim's upload, so that its own round takes it in.
    """
    round, loot = Round(readiness, world.model.tobytes()), Loot(world, readiness)
    while round.sum is None:
        for number, frame in round.outbox().items():
            special = round.stage == "upload" and number == VICTIM
            reply = world.devices[number].answer(frame_for_victim if special else frame)
            loot.keep(number, reply)
            round.receive(number, forged(world, loot, reply) if special and forge else reply)
        round.advance()
    return loot, round


def forged(world: World, loot: Loot, reply: bytes) -> bytes:
    upload, vector = world.read_all(reply)
    return encode(msgspec.structs.replace(upload, context=loot.cohort.context), vector)


def another_model(world: World, readiness: Readiness) -> bytes:
    return shown(world, nonces=readiness.nonces, model=world.model + 1)


def another_nonce(world: World, readiness: Readiness) -> bytes:
    return shown(world, nonces=readiness.nonces | {7: bytes(16)})


def another_cohort(world: World, readiness: Readiness) -> bytes:
    return shown(world, nonces={number: nonce for number, nonce in readiness.nonces.items() if number != 7})


@pytest.mark.parametrize("lie", [another_model, another_nonce])
def test_masks_do_not_cancel_for_a_device_that_was_shown_another_round(lie):
    world = World()
    readiness = world.readiness()
    loot, round = run(world, readiness, lie(world, readiness), forge=True)
    # Its keys are those of another round, so it contradicts everybody and is left out, named by nobody.
    assert round.findings.quarrels == {tuple(sorted((VICTIM, other))) for other in range(10) if other != VICTIM}
    assert round.findings.named == {}
    assert round.sum is not None and round.sum.count == 9 and world.agrees(round.sum)
    assert set(loot.openable()) == {frozenset(range(10)) - {VICTIM}}


@pytest.mark.parametrize("lie", [another_model, another_nonce])
def test_a_sum_with_a_device_that_was_shown_another_round_fails_its_checks(lie, monkeypatch):
    # The same with the comparison of keys taken out: then the masks in the sum do not cancel.
    monkeypatch.setattr(round_module, "quarrels", lambda *_: set())
    world = World()
    readiness = world.readiness()
    with pytest.raises(SumError) as failure:
        run(world, readiness, lie(world, readiness), forge=True)
    assert failure.value.code == "CH504"


@pytest.mark.parametrize("lie", [another_model, another_nonce, another_cohort])
def test_a_device_that_was_shown_another_round_is_left_out_of_the_sum_and_stays_masked(lie):
    world = World()
    readiness = world.readiness()
    loot, round = run(world, readiness, lie(world, readiness))
    assert round.sum is not None and round.sum.count == 9 and world.agrees(round.sum)
    assert VICTIM in loot.uploads and VICTIM in round.findings.refusals
    assert set(loot.openable()) == {frozenset(range(10)) - {VICTIM}}


@pytest.mark.parametrize(("lie", "field"), [(another_model, "model"), (another_nonce, "cohort")])
def test_a_context_that_leaves_the_field_out_lets_the_lie_pass(lie, field, monkeypatch):
    # The field that binds the round is blanked for everybody: the sum opens although one device saw another round.
    honest_context = terms_module.round_context
    blank = {"model": b"", "cohort": []}[field]
    monkeypatch.setattr(terms_module, "round_context", lambda **fields: honest_context(**(fields | {field: blank})))
    world = World()
    readiness = world.readiness()
    _, round = run(world, readiness, lie(world, readiness))
    assert round.sum is not None and world.agrees(round.sum)


def test_a_cohort_without_the_devices_own_nonce_is_refused():
    world = World()
    readiness = world.readiness()
    for nonces in (
        readiness.nonces | {VICTIM: bytes(16)},
        {number: nonce for number, nonce in readiness.nonces.items() if number != VICTIM},
    ):
        world.readiness()
        device = world.devices[VICTIM]
        device.answer(shown(world, nonces=nonces))
        assert device.refusal is not None and device.refusal.code == "CH604"


def test_the_server_has_no_say_in_threshold_modulus_or_smallest_sum():
    # The only word about the plan in any message is its digest.
    assert Omega.__struct_fields__ == ("turn", "terms", "cohort")
    world = World()
    readiness = world.readiness()
    for weaker in (
        replace(TEN, smallest_sum=7, threshold=6, colluders=2),
        replace(TEN, modulus_bits=64),
        SecureSum(cohort=10, smallest_sum=8, threshold=3, colluders=2, adversary="curious"),
        SecureSum(cohort=10, smallest_sum=10, threshold=9),
    ):
        codec = replace(world.terms.codec, word_bits=weaker.modulus_bits)
        other = replace(world.terms, secure=weaker, codec=codec)
        assert other.digest != world.terms.digest
        device = world.devices[VICTIM]
        world.readiness()
        device.answer(shown(world, nonces=readiness.nonces, digest=other.digest))
        assert device.refusal is not None and device.refusal.code == "CH603"


@pytest.mark.parametrize("change", ["parameters", "plan", "codec"])
def test_every_agreed_number_is_under_the_digest(change):
    terms = World().terms
    other = {"parameters": 6, "plan": "other", "codec": replace(terms.codec, grid=0.5)}[change]
    assert replace(terms, **{change: other}).digest != terms.digest


def vault_of(identity: Identity) -> Vault:
    return Vault.create(MemoryStore(), Memory(id=identity.id, secret=identity.to_bytes()))


def made_by_the_server(world: World) -> tuple[Terms, list[Identity]]:
    """A roster in which everybody but the victim has keys that the server made."""
    fakes = [
        identity if number == VICTIM else Identity.fresh(identity.id)
        for number, identity in enumerate(world.identities)
    ]
    return replace(world.terms, roster=Roster.of(identity.bundle for identity in fakes)), fakes


def test_server_made_keys_are_refused_where_a_roster_is_pinned_and_open_the_victim_where_none_is():
    world = World()
    terms, fakes = made_by_the_server(world)
    with pytest.raises(TrustError) as refusal:
        type(world.devices[VICTIM])(terms, world.devices[VICTIM].vault, train=lambda *_: None, charge=lambda *_: None)
    assert refusal.value.code == "CH601"

    # A device that accepts the roster without comparing safety numbers is alone among the server's puppets.
    world.terms, world.identities = terms, tuple(fakes)
    for number, identity in enumerate(fakes):
        world.stores[number].data = vault_of(identity).store.read()
        world.devices[number] = world.start(number)
    puppets = frozenset(range(10)) - {VICTIM}
    loot = Loot(world, world.readiness(), puppets)
    loot.ask(VICTIM, shown(world, nonces=loot.readiness.nonces))
    assert loot.openable() == {frozenset({VICTIM}): world.update(VICTIM).tolist()}


def test_a_roster_with_the_devices_own_key_replaced_is_refused():
    world = World()
    fakes = [
        Identity.fresh(identity.id) if number == VICTIM else identity
        for number, identity in enumerate(world.identities)
    ]
    terms = replace(world.terms, roster=Roster.of(identity.bundle for identity in fakes))
    with pytest.raises(TrustError) as refusal:
        type(world.devices[VICTIM])(
            terms, vault_of(world.identities[VICTIM]), train=lambda *_: None, charge=lambda *_: None
        )
    assert refusal.value.code == "CH601"
