"""What both sides agree on: a digest over all of it, sizes that follow, and a context that is each turn's own."""

from dataclasses import replace

import pytest

from choral.core.codec import Codec
from choral.core.errors import PlanError
from choral.core.messages import Turn
from choral.core.plan import SecureSum
from choral.core.terms import Cohort, Terms, context_of
from tests.protocol.world import FIRST, TEN, World, enrolled

MODEL = bytes(20)


@pytest.fixture(scope="module")
def terms():
    return World().terms


def made(**changes):
    secure = changes.pop("secure", TEN)
    codec = Codec(grid=1.0, largest=1000, cohort=secure.cohort, word_bits=secure.modulus_bits)
    given = {"roster": enrolled(10)[1], "secure": secure, "codec": codec, "parameters": 5, "plan": "test"}
    return Terms(**(given | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": "tesT"},
        {"parameters": 6},
        {"secure": replace(TEN, smallest_sum=9)},
        {"secure": replace(TEN, modulus_bits=64)},
        {"roster": enrolled(11)[1]},
        {"codec": Codec(grid=0.5, largest=1000, cohort=10, word_bits=32)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_change_of_any_term_changes_the_digest(changes):
    assert made(**changes).digest != made().digest == made().digest


def test_devices_are_numbered_as_their_ids_are_sorted(terms):
    assert list(terms.ids) == sorted(terms.ids)
    assert [terms.numbers[id] for id in terms.ids] == list(range(10))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"roster": enrolled(7)[1]}, "7 devices are enrolled, but a sum needs 8"),
        ({"codec": Codec(grid=1.0, largest=9, cohort=10, word_bits=64)}, "made for different rings"),
        ({"codec": Codec(grid=1.0, largest=9, cohort=9, word_bits=32)}, "made for different rings"),
    ],
)
def test_terms_that_do_not_go_together_are_refused(changes, what):
    with pytest.raises(PlanError, match=what):
        made(**changes)


def test_the_longest_frame_holds_a_model_an_upload_and_all_bonds(terms):
    assert terms.upload_bytes == 4 * terms.words and terms.model_bytes == 20
    assert terms.frame_bytes > max(terms.upload_bytes, terms.model_bytes) + 10 * terms.bond_bytes
    wide = made(secure=SecureSum.for_cohort(10, modulus_bits=64))
    assert wide.upload_bytes == 2 * made(secure=SecureSum.for_cohort(10)).upload_bytes


def test_the_context_binds_turn_model_and_everybodys_nonce(terms):
    nonces = {number: bytes([number] * 16) for number in range(8)}
    first = context_of(terms, FIRST, MODEL, nonces)
    others = [
        context_of(terms, Turn(0, 1), MODEL, nonces),
        context_of(terms, Turn(1, 0), MODEL, nonces),
        context_of(terms, FIRST, bytes(19) + b"\1", nonces),
        context_of(terms, FIRST, MODEL, {**nonces, 3: bytes(16)}),
        context_of(terms, FIRST, MODEL, {**nonces, 8: bytes(16)}),
        context_of(made(plan="other"), FIRST, MODEL, nonces),
    ]
    assert len({first, *others}) == 7
    assert context_of(terms, FIRST, MODEL, dict(reversed(nonces.items()))) == first


def test_a_cohort_counts_its_shares_from_one_in_the_order_of_its_numbers(terms):
    cohort = Cohort(terms, FIRST, [9, 2, 4], bytes(32))
    assert cohort.numbers == (2, 4, 9) and [cohort.point(number) for number in cohort.numbers] == [1, 2, 3]
    assert cohort.neighbours(4) == (2, 9) and len(cohort) == 3
