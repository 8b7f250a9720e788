"""What a device signs at the end of a run: each field of it, and a receipt that only its salt opens."""

import hashlib
from dataclasses import replace

import pytest

from choral.core.errors import TrustError
from choral.core.keys import Identity
from choral.core.signed import SALT_BYTES, Closing, committed, sign_end

OWN, OTHER = Identity.fresh("a"), Identity.fresh("b")
END = {"run": "9f3c", "roster": b"roster", "record": b"record", "model": b"parameters", "paid": 3, "entries": 5}


@pytest.fixture
def end():
    return sign_end(OWN, seal="77aa", **END)


@pytest.mark.parametrize(
    "other",
    [{"run": "9f3d"}, {"roster": b"rosteR"}, {"record": b""}, {"model": b"x"}, {"paid": 2}, {"receipt": bytes(32)}],
    ids=lambda change: next(iter(change)),
)
def test_the_signature_covers(other, end):
    end.closing.check(OWN.bundle, end.signature)
    with pytest.raises(TrustError, match="CH606"):
        replace(end.closing, **other).check(OWN.bundle, end.signature)


def test_nobody_else_can_have_signed_it(end):
    with pytest.raises(TrustError, match="CH606"):
        end.closing.check(OTHER.bundle, end.signature)
    with pytest.raises(TrustError, match="CH606"):
        end.closing.check(OWN.bundle, end.closing.signed_by(OTHER))


def test_a_field_that_ends_where_another_begins_can_not_be_moved_into_it():
    one = Closing(run="ab", roster=b"c", record=b"", model=b"", paid=1, receipt=b"")
    moved = replace(one, run="a", roster=b"bc")
    with pytest.raises(TrustError, match="CH606"):
        moved.check(OWN.bundle, one.signed_by(OWN))


def test_the_model_is_signed_by_its_hash_and_the_ledger_by_a_salted_commitment(end):
    assert end.closing.model == hashlib.sha256(END["model"]).digest()
    assert end.closing.receipt == committed(5, "77aa", end.salt) and len(end.salt) == SALT_BYTES
    assert end.closing.receipt not in {committed(5, "77ab", end.salt), committed(6, "77aa", end.salt)}


def test_the_same_receipt_is_never_committed_to_in_the_same_way(end):
    again = sign_end(OWN, seal="77aa", **END)
    assert again.salt != end.salt and again.closing.receipt != end.closing.receipt
