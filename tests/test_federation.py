"""The loop over rounds: who is called, what is applied, and what happens when a round fails or budgets end."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.errors import SumError
from choral.core.plan import Plan
from choral.federation import MOST_ATTEMPTS, cohort_of, draw_cohort, rounds

GRID = 2.0**-10


def plan_of(*, devices=6, cohort=3, rounds=4):
    return Plan(
        devices=devices, cohort=cohort, rounds=rounds, rows=9, batch=3, step_size=0.5, clip=1.0, noise=1.0
    )  # fmt: skip


@dataclass(frozen=True)
class Opened:
    total: np.ndarray
    included: tuple[int, ...]


class Place:
    """A backend in which device i always sends (i + 1) grid steps; some drop out, and some turns fail."""

    def __init__(self, *, lost=(), failing=()):
        self.lost, self.failing, self.calls = set(lost), set(failing), []

    def may_join(self):
        return np.ones(6, bool)

    def round(self, parameters, cohort, *, round_number, attempt):
        self.calls.append((round_number, attempt, tuple(cohort), parameters.copy()))
        if (round_number, attempt) in self.failing:
            raise SumError("CH503", "too few answered.")
        included = tuple(device for device in cohort if device not in self.lost)
        return Opened(total=np.full(2, sum(device + 1 for device in included), np.int64), included=included)


def run(plan, place, *, may_join=None, **options):
    place.may_join = may_join or (lambda: np.ones(plan.devices, bool))
    return list(rounds(plan, place, np.zeros(2, np.float32), **({"grid": GRID, "seed": 7} | options)))


# Drawing

HOW = st.sampled_from(["uniform", "balanced"])


@given(
    devices=st.integers(1, 40),
    size=st.integers(1, 50),
    seed=st.integers(0, 2**62),
    how=HOW,
    unwilling=st.integers(0, 9),
)
def test_a_cohort_is_sorted_names_nobody_twice_and_only_the_willing(devices, size, seed, how, unwilling):
    willing = np.arange(devices)[unwilling:]
    counts = np.random.default_rng(seed).integers(0, 5, devices)
    cohort = draw_cohort(willing, counts, size, np.random.default_rng(seed), how)
    assert list(cohort) == sorted(set(cohort))
    assert set(cohort) <= set(willing.tolist())
    assert len(cohort) == min(size, len(willing))


@given(devices=st.integers(2, 30), seed=st.integers(0, 2**62), data=st.data())
def test_a_balanced_cohort_leaves_out_nobody_who_took_part_less(devices, seed, data):
    counts = np.array(data.draw(st.lists(st.integers(0, 4), min_size=devices, max_size=devices)))
    size = data.draw(st.integers(1, devices - 1))
    cohort = draw_cohort(np.arange(devices), counts, size, np.random.default_rng(seed), "balanced")
    left_out = np.setdiff1d(np.arange(devices), cohort)
    assert counts[list(cohort)].max() <= counts[left_out].min()


def chi_squared(counts, expected):
    return float(((np.array(list(counts)) - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("how", ["uniform", "balanced"])
def test_every_pair_of_devices_is_equally_likely_over_many_seeds(how):
    # 3,000 cohorts of 2 of 6: 15 pairs, 200 times each. Chi-squared with 14 degrees is above 71.5 once in 1e9
    # (scipy.stats.chi2.isf); the seeds are fixed, so the answer is the same every time.
    plan = plan_of(devices=6, cohort=2)
    everyone, nothing = np.arange(6), np.zeros(6, np.int64)
    drawn = Counter(
        cohort_of(plan, everyone, nothing, seed=seed, round_number=1, attempt=0, participation=how)
        for seed in range(3000)
    )
    assert len(drawn) == 15
    assert chi_squared(drawn.values(), 200) < 71.5


def test_every_device_is_equally_likely_in_the_rounds_and_attempts_of_one_seed():
    # 500 rounds and 2 attempts, 3 of 6 each: 500 times each; chi-squared with 5 degrees, once in 1e9: 50.6.
    plan = plan_of(devices=6, cohort=3, rounds=500)
    everyone, nothing = np.arange(6), np.zeros(6, np.int64)
    turns = [(round, attempt) for round in range(1, 501) for attempt in range(2)]
    cohorts = [
        cohort_of(plan, everyone, nothing, seed=3, round_number=round, attempt=attempt, participation="uniform")
        for round, attempt in turns
    ]
    assert chi_squared(Counter(device for cohort in cohorts for device in cohort).values(), 500) < 50.6
    again = sum(first == second for first, second in zip(cohorts[::2], cohorts[1::2], strict=True))
    assert 5 < again < 60  # the second attempt draws again: of 20 cohorts the same one 25 times in 500


# What is applied


def test_the_mean_of_the_included_updates_is_applied_and_not_that_of_the_cohort():
    place = Place(lost={4})
    steps = run(plan_of(devices=6, cohort=6, rounds=2), place)
    assert [step.included for step in steps] == [(0, 1, 2, 3, 5)] * 2
    mean = (1 + 2 + 3 + 4 + 6) / 5 * GRID
    assert steps[0].parameters.tolist() == pytest.approx([mean, mean])
    assert steps[1].parameters.tolist() == pytest.approx([2 * mean, 2 * mean])


def test_a_round_starts_from_the_parameters_that_the_one_before_it_left():
    place = Place()
    steps = run(plan_of(), place)
    assert [call[3].tolist() for call in place.calls[1:]] == [step.parameters.tolist() for step in steps[:-1]]
    assert len({step.parameters.tobytes() for step in steps}) == 4  # a step's parameters are its own, not a buffer


def test_who_dropped_out_took_no_part_and_so_stays_first_in_line():
    # Device 0 never answers. By balance it is called in every round, and the other three share the second place.
    steps = run(plan_of(devices=4, cohort=2, rounds=6), Place(lost={0}), participation="balanced")
    assert all(0 in step.cohort and 0 not in step.included for step in steps)
    assert Counter(device for step in steps for device in step.included) == {1: 2, 2: 2, 3: 2}


# Who refuses


@given(refusing=st.sets(st.integers(0, 5), max_size=5), seed=st.integers(0, 2**62))
def test_who_may_not_join_is_never_called(refusing, seed):
    place, willing = Place(), np.array([device not in refusing for device in range(6)])
    run(plan_of(), place, may_join=lambda: willing, seed=seed)
    assert place.calls
    assert not refusing & {device for _, _, cohort, _ in place.calls for device in cohort}


def test_rounds_end_without_an_error_when_fewer_than_the_smallest_cohort_have_budget_left():
    budgets = np.array([1, 2, 2, 3])
    place = Place()

    def spent():
        return np.bincount([device for call in place.calls for device in call[2]], minlength=4)

    steps = run(
        plan_of(devices=4, cohort=2, rounds=9), place, may_join=lambda: spent() < budgets, smallest_cohort=2
    )  # fmt: skip
    assert 1 <= len(steps) <= 4  # 8 charges in all, 2 per round
    assert (spent() <= budgets).all() and ((budgets - spent()) > 0).sum() < 2
    assert [step.round for step in steps] == list(range(1, len(steps) + 1))


def test_with_nobody_willing_nothing_is_asked():
    place = Place()
    assert run(plan_of(), place, may_join=lambda: np.zeros(6, bool)) == []
    assert place.calls == []


# Rounds that fail


def test_a_round_that_loses_too_many_is_tried_again_and_says_so():
    place = Place(failing={(2, 0)})
    steps = run(plan_of(), place)
    assert [(call[0], call[1]) for call in place.calls] == [(1, 0), (2, 0), (2, 1), (3, 0), (4, 0)]
    assert steps[1].note == "attempt 1: CH503 too few answered."
    assert [step.note for step in steps if step.round != 2] == ["", "", ""]
    for call in place.calls[1:3]:  # every attempt starts from the same model
        assert call[3].tolist() == steps[0].parameters.tolist()


def test_a_round_that_fails_too_often_ends_the_run_and_keeps_what_was_done():
    place, done = Place(failing={(3, attempt) for attempt in range(MOST_ATTEMPTS)}), []
    with pytest.raises(SumError, match=f"CH503 round 3 failed {MOST_ATTEMPTS} times") as raised:
        for step in rounds(plan_of(), place, np.zeros(2, np.float32), grid=GRID, seed=7):
            done.append(step.round)
    assert done == [1, 2] and "resume" in raised.value.fix
    assert len(place.calls) == 2 + MOST_ATTEMPTS


def test_who_may_join_is_asked_again_before_every_attempt():
    # A failed attempt costs those who uploaded: whoever could pay for the first may be unable to pay for the second.
    place = Place(failing={(1, 0)})
    run(plan_of(rounds=1), place, may_join=lambda: np.arange(6) >= 3 * len(place.calls))  # then only 3, 4 and 5
    assert place.calls[1][2] == (3, 4, 5)


def test_an_error_that_is_no_failed_sum_is_not_tried_again():
    class Broken(Place):
        def round(self, parameters, cohort, *, round_number, attempt):
            super().round(parameters, cohort, round_number=round_number, attempt=attempt)
            raise ValueError("a bug")

    place = Broken()
    with pytest.raises(ValueError, match="a bug"):
        run(plan_of(), place)
    assert len(place.calls) == 1


# Going on after a crash


@given(stop=st.integers(1, 5), seed=st.integers(0, 2**62), how=HOW)
def test_a_run_that_goes_on_draws_the_cohorts_and_reaches_the_model_of_one_that_never_stopped(stop, seed, how):
    plan = plan_of(rounds=6)
    whole = run(plan, Place(lost={2}), participation=how, seed=seed)
    counts = np.bincount([device for step in whole[:stop] for device in step.included], minlength=6)
    rest = list(
        rounds(
            plan, Place(lost={2}), whole[stop - 1].parameters, grid=GRID, seed=seed,
            participation=how, first=stop + 1, counts=counts,
        )
    )  # fmt: skip
    assert [step.cohort for step in rest] == [step.cohort for step in whole[stop:]]
    assert rest[-1].parameters.tobytes() == whole[-1].parameters.tobytes()


def test_a_run_that_goes_on_uses_no_attempt_of_its_first_round_twice():
    place = Place(failing={(2, 2)})
    run(plan_of(), place, first=2, first_attempt=2)
    assert [(call[0], call[1]) for call in place.calls] == [(2, 2), (2, 3), (3, 0), (4, 0)]


def test_the_counts_that_are_given_are_not_changed():
    counts = np.zeros(6, np.int64)
    run(plan_of(), Place(), counts=counts)
    assert not counts.any()
