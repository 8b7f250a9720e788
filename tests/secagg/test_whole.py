"""Whole numbers as words: the factor and the noise are added here, the last number stays exact, and nothing wraps."""

import numpy as np
import pytest

from choral.core.codec import MOST_ROWS, WholeCodec
from choral.core.errors import PlanError, SumError
from choral.core.masks import Stream
from choral.core.plan import SecureSum

SECURE = SecureSum.for_cohort(10, modulus_bits=64)
CODEC = WholeCodec.of(SECURE, factor=32, largest=1, scale=1024, tail=16)


def test_what_is_decoded_is_what_was_made_noisy():
    whole = np.array([7, 0, 12, 500])
    noisy = CODEC.noisy(whole, Stream(bytes(32)))
    assert noisy[-1] == 500  # the number of rows has neither factor nor noise
    assert noisy[:3].tolist() == (32 * whole[:3] + CODEC.whole_noise(3, Stream(bytes(32)))).tolist()
    words = CODEC.encode_whole(whole, Stream(bytes(32)))
    assert CODEC.decode(words + words, 4, count=2).tolist() == (2 * noisy).tolist()
    assert whole.tolist() == [7, 0, 12, 500]  # the caller's own numbers stay as they are


def test_as_many_rows_as_there_is_room_for_are_answered_and_more_are_refused():
    CODEC.noisy(np.array([MOST_ROWS, MOST_ROWS]), Stream(bytes(32)))
    with pytest.raises(SumError, match="CH501 an answer leaves the proved range"):
        CODEC.noisy(np.array([MOST_ROWS + 1000, 1]), Stream(bytes(32)))
    with pytest.raises(SumError, match="CH501"):
        CODEC.noisy(np.array([2**60, 1]), Stream(bytes(32)))  # times the factor it would wrap


def test_answers_that_do_not_fit_a_word_are_refused_before_anything_is_asked():
    with pytest.raises(PlanError, match="CH204 10 answers"):
        WholeCodec.of(SECURE, factor=2**20, largest=2**20, scale=1024, tail=16)
