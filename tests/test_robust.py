"""The rules that leave devices out of a round, and the evidence over rounds, on updates whose law is known."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from choral.probes.rules import Direction, Evidence, Seen, judge, seen_in, widest

DEVICES = tuple(f"site-{number:02}" for number in range(16))
PARAMETERS, PROBES = 218, 32


def look(rng: np.random.Generator, updates: NDArray[np.float64], watched: NDArray[np.float64] | None = None) -> Seen:
    probes = 2 * rng.integers(0, 256, (PARAMETERS, PROBES)) - 255
    along = None if watched is None else updates @ watched / np.linalg.norm(watched)
    return Seen(devices=DEVICES, asked=updates @ probes, along=along, noise=1.0, parameters=PARAMETERS)


def honest(rng: np.random.Generator, signal: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
    return rng.normal(size=(len(DEVICES), PARAMETERS)) + signal


def unit(rng: np.random.Generator) -> NDArray[np.float64]:
    drawn = rng.normal(size=PARAMETERS)
    return drawn / np.linalg.norm(drawn)


def test_hardly_any_honest_device_is_left_out_and_nobody_is_named_in_two_hundred_clean_rounds() -> None:
    rng = np.random.default_rng(1)
    watched, refused = unit(rng), 0
    for _ in range(10):
        evidence = Evidence()
        for number in range(20):
            seen = look(rng, honest(rng, 3 * watched), watched)
            refused += len(judge(seen, most=4).refused)
            evidence.take(seen, round_number=number + 1)
        assert not evidence.named
    assert refused < 10  # of 3,200: 3.5 deviations aside is 4.7e-4 for a normal law, 1.5 of them


def test_a_shouting_device_is_left_out_at_once_and_named_in_round_four() -> None:
    rng, evidence = np.random.default_rng(2), Evidence()
    for number in range(4):
        updates = honest(rng)
        updates[5] *= 10
        seen = look(rng, updates)
        assert judge(seen, most=4).refused == {"site-05": "length"}
        evidence.take(seen, round_number=number + 1)
        assert evidence.named == ({"site-05": 4} if number == 3 else {})


def test_a_coalition_that_pushes_against_the_common_direction_is_left_out_and_named() -> None:
    rng, evidence = np.random.default_rng(3), Evidence()
    watched = unit(rng)
    for number in range(6):
        updates = honest(rng, 3 * watched)
        updates[:3] -= 9 * watched
        seen = look(rng, updates, watched)
        assert {"site-00", "site-01", "site-02"} <= judge(seen, most=4).refused.keys()
        evidence.take(seen, round_number=number + 1)
    assert evidence.named.keys() == {"site-00", "site-01", "site-02"}
    assert {one.rule for one in evidence.suspicions if one.named_in} >= {"direction"}


def test_two_devices_that_send_one_update_are_left_out_as_one() -> None:
    rng = np.random.default_rng(4)
    updates = honest(rng)
    updates[7] = updates[2]

    assert judge(look(rng, updates), most=4).refused == {"site-02": "two as one", "site-07": "two as one"}


def test_devices_with_a_large_common_signal_are_not_taken_for_one() -> None:
    rng = np.random.default_rng(5)

    assert not judge(look(rng, honest(rng, 100 * unit(rng))), most=4).refused


def test_no_more_are_left_out_than_the_sum_can_spare_the_longest_first() -> None:
    rng = np.random.default_rng(6)
    updates = honest(rng)
    updates[1] *= 20
    updates[2] *= 40
    updates[3] *= 30
    found = judge(look(rng, updates), most=2)

    assert found.refused == {"site-02": "length", "site-03": "length"}
    assert found.spared == ("site-01",)


def test_one_loud_round_names_nobody() -> None:
    rng, evidence = np.random.default_rng(7), Evidence()
    for number in range(8):
        updates = honest(rng)
        updates[4] *= 1000 if number == 3 else 1
        evidence.take(look(rng, updates), round_number=number + 1)

    assert not evidence.named


def test_the_same_answers_in_another_order_of_devices_give_the_same_judgement() -> None:
    rng = np.random.default_rng(8)
    updates = honest(rng)
    updates[9] *= 12
    probes = 2 * rng.integers(0, 256, (PARAMETERS, PROBES)) - 255
    answers = {
        device: np.rint(update @ probes).astype(int).tolist() for device, update in zip(DEVICES, updates, strict=True)
    }
    reported = {"probes": PROBES, "watched": [], "noise": 1.0, "parameters": PARAMETERS}

    assert judge(seen_in(answers, **reported), most=4) == judge(
        seen_in(dict(reversed(answers.items())), **reported), most=4
    )


@pytest.mark.parametrize(("probes", "q"), [(8, 4.8), (32, 2.35), (63, 2.35), (64, 1.9), (200, 1.6)])
def test_a_length_is_judged_by_the_law_of_so_many_probes(probes: int, q: float) -> None:
    from scipy.special import chdtrc

    assert widest(probes) == q
    assert chdtrc(probes, q * probes) < 1e-4


def test_the_common_direction_forgets_and_has_the_bytes_of_its_last_state() -> None:
    direction = Direction(bytes_=np.zeros(3, np.int8), scale=0.0).moved(np.array([10, 0, 0]), 1)
    for _ in range(40):
        direction = direction.moved(np.array([0, -20, 0]), 2)

    assert direction.bytes_[1] == -127
    assert abs(direction.bytes_[0]) <= 2  # below that, 0.8 of a byte rounds to the byte itself
    assert direction.bytes_[2] == 0


def test_a_device_that_answers_the_median_itself_is_like_nobody_and_hides_no_others() -> None:
    rng = np.random.default_rng(9)
    updates = honest(rng)[:14]
    updates[7] = updates[2]
    asked = updates @ (2 * rng.integers(0, 256, (PARAMETERS, PROBES)) - 255)
    asked = np.vstack([asked, np.median(asked, axis=0)])
    seen = Seen(devices=DEVICES[:15], asked=asked, along=None, noise=1.0, parameters=PARAMETERS)
    pairs = seen.likeness[~np.eye(15, dtype=bool)]

    assert np.isfinite(pairs).all()
    assert seen.likeness[2, 7] == pairs.max()
    assert (seen.likeness[14, :14] <= 0).all()


def test_two_that_send_one_update_round_after_round_are_named_by_their_likeness() -> None:
    rng, evidence = np.random.default_rng(10), Evidence()
    for number in range(8):
        updates = honest(rng)
        updates[7] = updates[2]
        evidence.take(look(rng, updates), round_number=number + 1)

    assert evidence.named.keys() == {"site-02", "site-07"}
    assert max(evidence.named.values()) <= 6
    assert {one.rule for one in evidence.suspicions if one.named_in} == {"two as one"}


def followed(rng: np.random.Generator, rounds: int, poison: Callable[[NDArray[np.float64]], None]) -> Evidence:
    """The evidence after rounds in which each device's own past is looked at."""
    evidence = Evidence()
    for number in range(rounds):
        updates = honest(rng)
        poison(updates)
        drawn = 2.0 * rng.integers(0, 256, (PROBES, PARAMETERS)) - 255
        seen = Seen(devices=DEVICES, asked=updates @ drawn.T, along=None, noise=1.0, parameters=PARAMETERS)
        evidence.take(seen, round_number=number + 1, drawn=drawn)
    return evidence


@pytest.mark.parametrize("attackers", [1, 3])
def test_a_constant_shift_is_named_by_its_own_past(attackers: int) -> None:
    rng = np.random.default_rng(11)
    signs = rng.choice([-1.0, 1.0], PARAMETERS)

    def shift(updates: NDArray[np.float64]) -> None:
        updates[:attackers] += 2 * signs

    evidence = followed(rng, 12, shift)

    assert evidence.named.keys() == set(DEVICES[:attackers])
    assert {one.rule for one in evidence.suspicions if one.named_in} == {"own past"}


def test_a_push_without_noise_and_no_longer_than_an_honest_update_is_named_by_its_own_past() -> None:
    rng = np.random.default_rng(12)
    pushed = math.sqrt(PARAMETERS) * unit(rng)

    def push(updates: NDArray[np.float64]) -> None:
        updates[6] = pushed

    assert followed(rng, 18, push).named.keys() == {"site-06"}


def watching(rng: np.random.Generator, rounds: int, push: float) -> Evidence:
    """The evidence where three devices push one way each, and the pasts that are followed most are watched."""
    evidence, pushed = Evidence(), np.array([unit(rng) for _ in range(3)])
    for number in range(rounds):
        updates = honest(rng)
        updates[:3] += push * pushed
        drawn = 2.0 * rng.integers(0, 256, (PROBES, PARAMETERS)) - 255
        pasts = {name: updates @ past / np.linalg.norm(past.astype(float)) for name, past in evidence.to_watch(3)}
        seen = Seen(devices=DEVICES, asked=updates @ drawn.T, along=None, noise=1.0, parameters=PARAMETERS, pasts=pasts)
        evidence.take(seen, round_number=number + 1, drawn=drawn)
    return evidence


def test_a_quiet_push_is_named_by_its_watched_past_before_probes_alone_show_it() -> None:
    watched = watching(np.random.default_rng(15), 20, 11.0)
    assert watched.named.keys() == set(DEVICES[:3])
    by = {one.device for one in watched.suspicions if one.named_in and one.rule == "watched past"}
    assert by == set(DEVICES[:3])
    assert not {one.device for one in watched.suspicions if one.named_in and one.rule == "own past"}


def test_nobody_honest_is_named_by_a_watched_past_in_forty_runs() -> None:
    rng, largest = np.random.default_rng(16), 0.0
    for _ in range(40):
        evidence = watching(rng, 20, 0.0)
        assert not evidence.named
        largest = max([largest, *(one.value for one in evidence.suspicions if one.rule == "watched past")])
    assert largest < 6.0  # of 12


def test_honest_devices_have_no_past_that_their_noise_follows() -> None:
    rng, common = np.random.default_rng(13), 3 * unit(np.random.default_rng(13))

    def learn(updates: NDArray[np.float64]) -> None:
        updates += common  # what all devices have in common is nobody's own past

    for _ in range(10):
        evidence = followed(rng, 20, learn)
        assert not evidence.named
        assert not [one for one in evidence.suspicions if one.rule == "own past" and one.value > 5]
