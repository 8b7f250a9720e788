"""Shamir's sharing: any threshold gives the secret back, one fewer tells nothing."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.errors import SumError
from choral.core.shares import LARGEST_POINT, PRIME, commitment, fresh_secret, split
from choral.server.secrets import join, recover

elements = st.integers(0, PRIME - 1).map(lambda value: value.to_bytes(32, "little"))


def test_the_modulus_is_prime():
    """Fermat to 40 bases; that 2^256 − 189 is the largest prime of 256 bits is in the lists of such primes."""
    assert all(pow(base, PRIME - 1, PRIME) == 1 for base in range(2, 42))


@settings(max_examples=60, deadline=None)
@given(elements, st.data())
def test_any_threshold_of_the_shares_gives_the_secret_back(secret, data):
    points = data.draw(st.lists(st.integers(1, LARGEST_POINT), min_size=1, max_size=40, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = dict(zip(points, split(secret, threshold, points), strict=True))
    chosen = data.draw(st.permutations(points))[:threshold]
    assert join({point: shares[point] for point in chosen}, threshold) == secret
    assert join(shares, threshold) == secret


@pytest.mark.parametrize(
    "secret", [bytes(32), bytes(31) + b"\x01", b"\x01" + bytes(31), (PRIME - 1).to_bytes(32, "little")]
)
def test_zeros_at_either_end_of_a_secret_are_kept(secret):
    shares = dict(enumerate(split(secret, 3, range(1, 6)), start=1))
    for chosen in itertools.combinations(shares, 3):
        assert join({point: shares[point] for point in chosen}, 3) == secret


@settings(max_examples=30, deadline=None)
@given(elements, elements, st.integers(2, 6))
def test_one_share_fewer_fits_every_secret_equally(secret, other, threshold):
    """For any other secret there is a polynomial through the same threshold − 1 shares: we find its last share."""
    points = list(range(1, threshold + 1))
    known = dict(zip(points[:-1], split(secret, threshold, points)[:-1], strict=True))
    # join is linear in the last share: solve join(known + x) = other for x.
    at = [int.from_bytes(join(known | {threshold: x.to_bytes(32, "little")}, threshold), "little") for x in (0, 1)]
    slope = (at[1] - at[0]) % PRIME
    last = (int.from_bytes(other, "little") - at[0]) * pow(slope, -1, PRIME) % PRIME
    assert join(known | {threshold: last.to_bytes(32, "little")}, threshold) == other


def test_every_coefficient_is_drawn_afresh():
    drawn = []

    def random(_):
        drawn.append(fresh_secret())
        return drawn[-1]

    split(bytes(32), 5, range(1, 8), random)
    assert len(set(drawn)) == 4
    assert split(bytes(32), 2, [1, 2]) != split(bytes(32), 2, [1, 2])


def test_numbers_beyond_the_field_are_drawn_again():
    draws = iter([b"\xff" * 32, PRIME.to_bytes(32, "little"), bytes(32)])
    assert fresh_secret(lambda _: next(draws)) == bytes(32)


def test_too_few_shares_say_how_many_are_missing():
    with pytest.raises(SumError, match="CH503 1 shares of a self mask are there, 2 are needed"):
        join({1: bytes(32)}, 2)


@pytest.mark.parametrize(
    ("threshold", "points"),
    [(0, [1]), (3, [1, 2]), (1, []), (2, [1, 1]), (1, [0]), (1, [-1]), (1, [LARGEST_POINT + 1])],
)
def test_thresholds_and_points_that_make_no_sharing_are_refused(threshold, points):
    with pytest.raises(SumError, match="CH500"):
        split(bytes(32), threshold, points)


@pytest.mark.parametrize("share", [b"", bytes(31), bytes(33), b"\xff" * 32])
def test_what_is_no_element_is_refused(share):
    with pytest.raises(SumError, match="CH500"):
        join({1: share}, 1)
    with pytest.raises(SumError, match="CH500"):
        split(share, 1, [1])


def test_a_wrong_share_gives_another_secret_which_the_commitment_tells():
    secret = fresh_secret()
    promised = commitment(secret, b"ctx", "a")
    first, second = split(secret, 2, [1, 2])
    wrong = join({1: first, 2: ((int.from_bytes(second, "little") + 1) % PRIME).to_bytes(32, "little")}, 2)
    assert commitment(join({1: first, 2: second}, 2), b"ctx", "a") == promised
    assert (
        len({promised, commitment(wrong, b"ctx", "a"), commitment(secret, b"ctx", "b"), commitment(secret, b"", "a")})
        == 4
    )


@pytest.mark.parametrize("wrong", [{1}, {9}, {1, 2}, {4, 9}])
def test_a_secret_is_recovered_from_nine_shares_of_which_one_or_two_are_wrong(wrong):
    secret = fresh_secret()
    shares = dict(zip(range(1, 10), split(secret, 7, range(1, 10)), strict=True))
    false = {point: fresh_secret() for point in wrong}
    assert recover(shares | false, 7, lambda found: found == secret) == secret


def test_nothing_is_recovered_from_too_few_right_shares_or_from_numbers_outside_the_field():
    secret = fresh_secret()
    shares = dict(zip(range(1, 10), split(secret, 7, range(1, 10)), strict=True))
    for false in (fresh_secret, lambda: b"\xff" * 32):
        assert recover(shares | {point: false() for point in (1, 2, 3)}, 7, lambda found: found == secret) is None
