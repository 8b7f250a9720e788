"""Words of a simulation depend on seed, purpose, round, device and place alone; secret ones on nothing."""

import numpy as np
import pytest

from choral.learning.streams import jump, keys, secure_words, words

DEVICES = np.arange(50)


def test_splitmix64_is_the_published_one():
    # The first outputs of the reference implementation (Vigna's splitmix64.c) for the state 1234567.
    drawn = words(np.uint64([1234567]), np.arange(5))
    assert drawn.tolist() == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821
    ]  # fmt: skip


@pytest.mark.parametrize("change", [{"seed": 2}, {"purpose": "dither"}, {"round_": 6}])
def test_another_seed_purpose_or_round_gives_other_keys_to_every_device(change):
    given = {"seed": 1, "purpose": "noise", "round_": 5}
    first, other = keys(**given, devices=DEVICES), keys(**(given | change), devices=DEVICES)
    assert len({*first.tolist(), *other.tolist()}) == 100
    assert (first == keys(**given, devices=DEVICES)).all()


def test_a_device_has_its_key_whoever_is_drawn_with_it():
    every = keys(1, "batches", 0, DEVICES)
    assert keys(1, "batches", 0, DEVICES[[7, 3]]).tolist() == every[[7, 3]].tolist()


def test_a_stream_that_begins_later_goes_on_as_the_first_would():
    key = np.uint64([99])
    assert words(jump(key, np.array([40])), np.arange(3)).tolist() == words(key, np.arange(40, 43)).tolist()


def test_secret_words_never_come_again_and_have_balanced_bits():
    first, second = secure_words((1000,)), secure_words((1000,))
    assert len({*first.tolist(), *second.tolist()}) == 2000
    ones = np.unpackbits(first.view(np.uint8)).sum()
    assert abs(int(ones) - 32_000) < 6 * 126.5  # six deviations of 64,000 coins, √16000 each
