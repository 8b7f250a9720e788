"""Runs in groups of about one size, and the order in which groups begin."""

from types import SimpleNamespace

import pytest

from choral_lab.research.sweep import MOST_REPEATS, MOST_RUNS
from choral_lab.research.training_order import in_groups, in_order, work

PLAIN = SimpleNamespace(noise_is_added="every step", rounds=4, cohort=3, local_steps=2, batch=5)


@pytest.mark.parametrize(
    ("runs", "sizes"),
    [(1, [1]), (7, [7]), (8, [4, 4]), (9, [5, 4]), (12, [6, 6]), (15, [5, 5, 5]), (21, [7, 7, 7]), (27, [6] * 4 + [3])],
)
def test_runs_are_in_groups_of_one_size_where_one_divides_them(runs, sizes):
    assert [len(group) for group in in_groups([(PLAIN, 0)] * runs)] == sizes


def test_runs_with_noise_once_are_one_group():
    once = SimpleNamespace(noise_is_added="once")
    assert in_groups([(once, 0)] * 50) == [[(once, 0)] * 50]


def test_runs_of_several_repeats_fill_calls_of_a_fixed_number_of_runs_and_repeats():
    many = [(PLAIN, repeat) for _ in range(20) for repeat in range(4)]  # 20 candidates of 4 repeats
    groups = in_groups(many, mixed=True)
    assert [len(group) for group in groups] == [32, 32, 16]
    assert [sorted({repeat for _, repeat in group}) for group in groups] == [[0, 1], [1, 2, 3], [3]]
    few = [(PLAIN, repeat) for repeat in range(20)]
    assert [len(group) for group in in_groups(few, mixed=True)] == [8, 8, 4]
    assert (MOST_RUNS, MOST_REPEATS) == (32, 8)


def test_the_work_of_a_group_is_the_rows_of_all_its_steps():
    assert work([(PLAIN, 0)] * 6) == 6 * 4 * 3 * 2 * 5


def test_one_group_of_every_form_and_size_begins_before_any_second_one_and_then_the_largest():
    given = [
        (form, [(PLAIN, repeat)] * size)
        for form, size, repeat in [("a", 1, 0), ("a", 1, 1), ("a", 2, 1), ("b", 2, 0), ("b", 2, 2), ("a", 1, 2)]
    ]
    order = [(form, len(group), group[0][1]) for form, group in in_order(given)]
    assert order == [("a", 1, 0), ("a", 2, 1), ("b", 2, 0), ("b", 2, 2), ("a", 1, 1), ("a", 1, 2)]
