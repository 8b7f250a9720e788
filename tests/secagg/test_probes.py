"""Probes: their law, their exactness, and the numbers behind the proof that a coalition can't send long updates."""

import math

import numpy as np
import pytest

from choral.probes.projections import (
    adds_up,
    answers_of,
    probe_rows,
    probe_seed,
    upload_digest,
    watched_of,
)
from choral.probes.rules import VARIANCE


def test_the_numbers_of_a_probe_are_odd_and_have_the_variance_that_lengths_are_divided_by() -> None:
    rows = np.array(list(probe_rows(bytes(range(32)), 16, 4096)))

    assert set(np.unique(rows)) == set(range(-255, 256, 2))
    assert np.mean(np.arange(-255, 256, 2) ** 2) == VARIANCE  # (256² − 1)/3
    assert abs(rows.mean()) < 4 * math.sqrt(VARIANCE / rows.size)


@pytest.mark.parametrize("parameters", [1, 2, 7, 218])
def test_the_answers_of_all_devices_add_up_to_those_of_the_sum(parameters: int) -> None:
    rng = np.random.default_rng(parameters)
    updates = rng.integers(-(2**23), 2**23, (5, parameters))
    watched = watched_of(rng.integers(-128, 128, (2, parameters), dtype=np.int8).tobytes(), parameters)
    seed = rng.bytes(32)
    answers = {number: answers_of(seed, 9, update, watched) for number, update in enumerate(updates)}
    expected = answers_of(seed, 9, updates.sum(axis=0), watched)

    assert adds_up(answers, expected)
    answers[3][10] += 1
    assert not adds_up(answers, expected)


def test_answers_that_agree_only_modulo_two_to_the_64_do_not_add_up() -> None:
    answers = {number: np.array([2**62]) for number in range(4)}

    assert not adds_up(answers, np.array([0]))


def test_the_largest_answers_of_the_largest_model_fit_eight_bytes() -> None:
    assert 2**23 * 255 * 2**32 < 2**63  # |x| below 2^23, |p| at most 255, d at most 2^32


def test_the_seed_depends_on_every_digest_on_who_it_belongs_to_and_on_what_is_watched() -> None:
    digests = {number: upload_digest(b"ctx", f"site-{number}", b"words") for number in range(3)}
    changed = {**digests, 1: upload_digest(b"ctx", "site-1", b"other")}
    moved = {0: digests[0], 1: digests[1], 3: digests[2]}
    seeds = [
        probe_seed(b"ctx", digests),
        probe_seed(b"ctx", changed),
        probe_seed(b"ctx", moved),
        probe_seed(b"ctx", {0: digests[0], 1: digests[1]}),
        probe_seed(b"other", digests),
        probe_seed(b"ctx", digests, b"\x01"),
    ]

    assert len(set(seeds)) == len(seeds)
    assert upload_digest(b"ctx", "a", b"") != upload_digest(b"ctx", "b", b"")


# docs/secure-sum.md, "a coalition can't send long updates": E[exp(−λY²)] for Y = ⟨p, z⟩/(s‖z‖) is at most the larger
# of F over the coordinates of z/‖z‖ (Hölder), and at most D of the largest of them (the others only shift it).
ODD = np.arange(-255, 256, 2) / math.sqrt(VARIANCE)
SHARES = np.concatenate([[1e-3], np.linspace(0.02, 1.0, 50)])  # |z_k|/‖z‖
NORMAL = np.linspace(-9, 9, 601)
WEIGHT = np.exp(-(NORMAL**2) / 2) / np.exp(-(NORMAL**2) / 2).sum()


def transform(tilt: float) -> float:
    """The most that E[exp(−λY²)] can be, for any vector."""
    at = math.sqrt(2 * tilt) / math.sqrt(VARIANCE) * SHARES[:, None] * NORMAL
    each = np.abs(np.prod([np.cos(2**bit * at) for bit in range(8)], axis=0))
    by_hoelder = (WEIGHT * each ** (1 / SHARES[:, None] ** 2)).sum(axis=1)
    by_largest = np.exp(-tilt * (SHARES[:, None] * ODD) ** 2).mean(axis=1) + 2 / 256
    return float(np.minimum(np.maximum.accumulate(by_hoelder), by_largest).max())


def passing(probes: int, accepted: float, factor: float) -> float:
    """The most that the chance can be with which a coalition's contribution of F lengths a member is accepted."""
    share = accepted / factor**2
    return min(
        (math.exp(tilt * share) * transform(tilt)) ** probes for tilt in np.geomspace(0.1 / share, share**-1, 12)
    )


@pytest.mark.parametrize(("factor", "printed"), [(2.0, 0.16), (3.0, 6.6e-5), (4.0, 4.1e-8), (10.0, 7.0e-20)])
def test_the_chances_that_the_documentation_prints_bound_every_vector(factor: float, printed: float) -> None:
    assert 0.9 * printed < passing(32, 2.35, factor) < printed


@pytest.mark.parametrize("vector", [[1.0], [1.0, 1.0], [5.0, 1.0, 1.0], [1.0] * 40])
def test_the_transform_of_single_vectors_stays_below_the_bound_for_all(vector: list[float]) -> None:
    z = np.array(vector) / np.linalg.norm(vector)
    drawn = np.random.default_rng(0).choice(ODD, (40_000, len(z))) @ z
    for tilt in (0.5, 2.0, 8.0):
        mean = np.exp(-tilt * drawn**2)
        assert mean.mean() - 4 * mean.std() / math.sqrt(len(mean)) < transform(tilt)


def test_a_sum_of_weighted_signs_is_the_law_of_a_probe_s_number() -> None:
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1)

    assert sorted(2 ** np.arange(8) @ signs) == list(range(-255, 256, 2))
