"""Hybrid keys: both ends find the same roots, every bit of the exchange counts, and what is no key is refused."""

import builtins
import json
from pathlib import Path

import pytest

from choral.core import keys as hybrid
from choral.core.errors import TrustError
from choral.core.keys import PUBLIC_SIZE, WRAPPED_SIZE, HybridKey, pair_roots
from tests.vectors import first_hybrid, second_hybrid
from tests.vectors.answers import expected, outcome

A, B = HybridKey(bytes(range(96))), HybridKey(bytes(range(100, 196)))


@pytest.fixture(scope="module")
def exchanged():
    wrapped, inner = A.wrap(B.public)
    seen = {"low": ("a", A.public), "high": ("b", B.public), "wrapped": wrapped, "session": b"trial"}
    return A.shared(B.public), inner, seen


def test_both_ends_find_the_same_two_roots(exchanged):
    shared, inner, seen = exchanged
    assert (len(A.public), len(seen["wrapped"])) == (PUBLIC_SIZE, WRAPPED_SIZE)
    rounds, asking = pair_roots(shared, inner, **seen)
    assert pair_roots(B.shared(A.public), B.unwrap(seen["wrapped"]), **seen) == (rounds, asking)
    assert rounds != asking


def test_the_roots_change_with_everything_that_goes_in(exchanged):
    shared, inner, seen = exchanged
    other = HybridKey.fresh().public
    changes = [
        {"low": ("c", A.public)}, {"low": ("a", other)}, {"high": ("c", B.public)}, {"high": ("b", other)},
        {"wrapped": bytes(WRAPPED_SIZE)}, {"session": b"another"}, {"low": seen["high"], "high": seen["low"]},
    ]  # fmt: skip
    found = {pair_roots(shared, inner, **(seen | change)) for change in changes}
    found |= {pair_roots(bytes(32), inner, **seen), pair_roots(shared, bytes(32), **seen)}
    found |= {pair_roots(shared, inner, **seen)}
    assert len(found) == len(changes) + 3


def test_a_changed_ciphertext_gives_another_secret_and_never_an_error(exchanged):
    _, inner, seen = exchanged
    wrapped = bytearray(seen["wrapped"])
    wrapped[7] ^= 1
    assert len(B.unwrap(bytes(wrapped))) == 32 and B.unwrap(bytes(wrapped)) != inner
    assert A.unwrap(seen["wrapped"]) != inner  # made for another key


@pytest.mark.parametrize("kem", [b"\xff" * 1184, b"", bytes(1183)])
def test_what_is_no_key_of_ml_kem_is_refused(kem):
    with pytest.raises(TrustError) as refusal:
        A.wrap(B.public[:32] + kem)
    assert refusal.value.code == "CH613"


def test_a_point_of_small_order_and_a_short_ciphertext_are_refused():
    for attempt in (lambda: A.shared(bytes(PUBLIC_SIZE)), lambda: A.unwrap(b"short")):
        with pytest.raises(TrustError) as refusal:
            attempt()
        assert refusal.value.code == "CH613"
    with pytest.raises(TrustError) as refusal:
        HybridKey(bytes(95))
    assert refusal.value.code == "CH600"


def test_an_older_cryptography_is_noticed_and_refused_by_code(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.endswith("mlkem"):
            raise ImportError(name)
        return real(name, *rest)

    hybrid.available.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    try:
        assert not hybrid.available()
        with pytest.raises(TrustError) as refusal:
            HybridKey.fresh()
        assert refusal.value.code == "CH611" and "48" in str(refusal.value)
    finally:
        monkeypatch.undo()
        hybrid.available.cache_clear()


def test_no_repr_shows_a_key():
    assert repr(A) == "HybridKey()"


VECTORS = [
    pytest.param(vector, id=f"{vector['kind']}, {vector['name']}")
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "hybrid.json").read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("vector", VECTORS)
def test_choral_and_the_second_implementation_answer_as_the_vector_says(vector):
    assert outcome(first_hybrid, vector) == expected(vector)
    assert outcome(second_hybrid, vector) == expected(vector)


def test_the_vectors_are_good_and_bad_of_many_kinds_and_the_second_implementation_knows_nothing_of_choral():
    vectors = [param.values[0] for param in VECTORS]
    assert len(vectors) >= 50 and sum("refused" in vector for vector in vectors) >= 20
    assert {vector["kind"] for vector in vectors if "refused" in vector} >= {"public", "agreement", "chain", "card"}
    assert "from choral" not in Path(second_hybrid.__file__).read_text(encoding="utf-8")
