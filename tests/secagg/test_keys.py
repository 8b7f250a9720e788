"""Identities, rosters and pair secrets. Exact bytes are held by tests/vectors; here is how they relate."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.errors import TrustError
from choral.secagg.keys import Bundle, Identity, Roster, digest, envelope_key, framed, safety_number, seal, unseal

fields = st.lists(st.binary(max_size=20), max_size=5)


def pairs(session=b"session"):
    a, b = Identity.fresh("a"), Identity.fresh("b")
    return a.pair(b.bundle, session), b.pair(a.bundle, session)


@given(fields, fields)
def test_different_fields_never_read_the_same(one, other):
    assert (framed("x", *one) == framed("x", *other)) == (one == other)


@given(fields)
def test_a_label_is_no_field(parts):
    assert framed("x", *parts) != framed("", b"x", *parts)


def test_both_sides_of_a_pair_hold_the_same_secrets_crosswise():
    a, b = pairs()
    assert (a.rising, a.falling, a.seals, a.opens) == (b.rising, b.falling, b.opens, b.seals)


def test_the_secrets_of_a_pair_are_all_different():
    a, _ = pairs()
    assert len({a.rising, a.falling, a.seals, a.opens}) == 4


def test_the_session_and_the_names_are_in_every_pair_secret():
    a, b, other = Identity.fresh("a"), Identity.fresh("b"), Identity.fresh("c")
    renamed = dataclasses.replace(b.bundle, id="bb")
    seeds = {
        a.pair(b.bundle, b"1").rising,
        a.pair(b.bundle, b"2").rising,
        a.pair(renamed, b"1").rising,
        a.pair(other.bundle, b"1").rising,
    }
    assert len(seeds) == 4


def test_a_device_does_not_agree_with_itself():
    a = Identity.fresh("a")
    with pytest.raises(TrustError, match="CH605"):
        a.pair(a.bundle, b"")


def test_a_signature_covers_id_and_both_keys():
    a, b = Identity.fresh("a").bundle, Identity.fresh("b").bundle
    a.verify()
    for name in ("id", "identity", "agreement", "signature"):
        with pytest.raises(TrustError, match="CH606"):
            dataclasses.replace(a, **{name: getattr(b, name)}).verify()


@pytest.mark.parametrize("id", ["", "x" * 65, "two\nlines", "\x00"])
def test_ids_are_short_and_printable(id):
    with pytest.raises(TrustError, match="CH600"):
        Identity.fresh(id).bundle.verify()


@pytest.mark.parametrize("name", ["identity", "agreement", "signature"])
def test_keys_of_the_wrong_size_are_refused(name):
    bundle = Identity.fresh("a").bundle
    with pytest.raises(TrustError, match="CH600"):
        dataclasses.replace(bundle, **{name: b"short"}).verify()


def test_an_identity_secret_of_the_wrong_size_is_refused():
    with pytest.raises(TrustError, match="CH600"):
        Identity("a", bytes(63))


def test_a_roster_is_sorted_and_whole():
    bundles = [Identity.fresh(name).bundle for name in ("c", "a", "b")]
    roster = Roster.of(bundles)
    assert [bundle.id for bundle in roster] == ["a", "b", "c"]
    assert len(roster) == 3
    assert roster["b"] == bundles[2]
    with pytest.raises(TrustError, match="CH600"):
        Roster(bundles=tuple(bundles))
    with pytest.raises(TrustError, match="CH605"):
        roster["d"]


def test_a_rosters_digest_changes_with_any_bundle():
    bundles = [Identity.fresh(name).bundle for name in ("a", "b")]
    other = [bundles[0], Identity.fresh("b").bundle]
    assert Roster.of(bundles).digest != Roster.of(other).digest != Roster.of(bundles[:1]).digest


def test_one_agreement_key_under_two_identities_is_refused():
    a, b = Identity.fresh("a"), Identity.fresh("b")
    stolen = Identity("b", b.to_bytes()[:32] + a.to_bytes()[32:])
    with pytest.raises(TrustError, match="CH606"):
        Roster.of([a.bundle, stolen.bundle])


def test_safety_numbers_are_twelve_groups_of_five_digits():
    groups = Identity.fresh("a").bundle.safety_number.split(" ")
    assert [len(group) for group in groups] == [5] * 12
    assert all(group.isdigit() for group in groups)
    assert safety_number(b"1") != safety_number(b"2")


def test_an_envelope_opens_in_its_round_and_direction_only():
    a, b = pairs()
    envelope = seal(a, b"ctx", b"share")
    key, other = envelope_key(b.opens, b"ctx"), envelope_key(b.opens, b"other")
    assert unseal(key, b"ctx", a.own, b.own, envelope) == b"share"
    for wrong in (
        lambda: unseal(other, b"ctx", a.own, b.own, envelope),
        lambda: unseal(other, b"other", a.own, b.own, envelope),
        lambda: unseal(key, b"other", a.own, b.own, envelope),
        lambda: unseal(key, b"ctx", b.own, a.own, envelope),
        lambda: unseal(envelope_key(b.seals, b"ctx"), b"ctx", a.own, b.own, envelope),
    ):
        with pytest.raises(TrustError, match="CH606"):
            wrong()


@given(st.binary(max_size=80))
def test_bytes_that_are_no_envelope_are_refused_and_never_crash(data):
    with pytest.raises(TrustError, match="CH606"):
        unseal(envelope_key(PAIR.opens, b"ctx"), b"ctx", PAIR.peer, PAIR.own, data)


PAIR = pairs()[0]


def test_nothing_secret_is_printed():
    a = Identity.fresh("a")
    pair = a.pair(Identity.fresh("b").bundle, b"")
    for secret, text in ((a.to_bytes(), repr(a)), (pair.rising, repr(pair)), (pair.seals, f"{pair}")):
        assert secret.hex()[:8] not in text
        assert str(secret)[2:8] not in text
    assert repr(pair) == "PairSecret('a', 'b')"


def test_labels_are_versioned():
    assert b"choral/1 bundle" in Bundle(id="a", identity=b"", agreement=b"", signature=b"").signed
    assert digest("a") != digest("b")
