"""Identities, rosters and pair secrets. Exact bytes are held by tests/vectors; here is how they relate."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity, Roster, digest, envelope_key, framed, safety_number, seal
from choral.server.secrets import unseal

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


P = 2**255 - 19
# The five canonical ones of Curve25519 and its twist, as libsodium lists them; the two long ones are of order 8.
SMALL = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
# The same points, and others, written a second way: not reduced, or with the bit set that X25519 leaves out.
SECOND = [(P + k).to_bytes(32, "little").hex() for k in (0, 1, 2, 18)]
SECOND += [(int.from_bytes(bytes.fromhex(one), "little") | 2**255).to_bytes(32, "little").hex() for one in SMALL]
# Points of order 1, 2, 4 and 8 on Ed25519, by which anybody can sign.
WEAK = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]


def with_agreement(identity, agreement):
    """A bundle that a device has signed itself, whatever its agreement key is."""
    unsigned = dataclasses.replace(identity.bundle, agreement=agreement)
    fields = unsigned.id.encode(), unsigned.identity, unsigned.agreement
    return dataclasses.replace(unsigned, signature=identity.sign("bundle", *fields))


@pytest.mark.parametrize("point", SMALL + SECOND)
def test_an_agreement_key_of_small_order_or_written_a_second_way_is_no_key_though_its_device_signed_it(point):
    a, b = Identity.fresh("a"), Identity.fresh("b")
    bundle = with_agreement(a, bytes.fromhex(point))
    code = "CH606" if point in SMALL else "CH600"
    for use in (bundle.verify, lambda: Roster.of([bundle, b.bundle])):
        with pytest.raises(TrustError, match=code):
            use()


@pytest.mark.parametrize("point", WEAK)
def test_an_identity_key_of_small_order_under_which_anybody_can_sign_is_no_key(point):
    bundle = dataclasses.replace(Identity.fresh("a").bundle, identity=bytes.fromhex(point))
    signature = WEAK[0] + "00" * 32  # R = the neutral element, S = 0
    with pytest.raises(TrustError, match='CH606 device "a" shows an identity key of small order'):
        dataclasses.replace(bundle, signature=bytes.fromhex(signature)).verify()


def test_an_identity_key_that_is_not_reduced_is_no_key():
    bundle = dataclasses.replace(Identity.fresh("a").bundle, identity=(P + 1).to_bytes(32, "little"))
    with pytest.raises(TrustError, match="CH600"):
        bundle.verify()


def test_every_key_that_a_device_makes_is_taken():
    for _ in range(20):
        Identity.fresh("a").bundle.verify()
