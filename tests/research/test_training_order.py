"""Runs in groups of about one size, and the order in which groups begin."""

from types import SimpleNamespace

import pytest

from choral.research.training_order import in_groups, in_order, work

PLAIN = SimpleNamespace(noise_is_added="every step", rounds=4, cohort=3, local_steps=2, batch=5)


@pytest.mark.parametrize(
    ("runs", "sizes"),
    [(1, [1]), (7, [7]), (8, [4, 4]), (9, [5, 4]), (12, [6, 6]), (15, [5, 5, 5]), (21, [7, 7, 7]), (27, [6] * 4 + [3])],
)
def test_runs_are_in_groups_of_one_size_where_one_divides_them(runs, sizes):
    assert [len(group) for group in in_groups([PLAIN] * runs)] == sizes


def test_runs_with_noise_once_are_one_group():
    once = SimpleNamespace(noise_is_added="once")
    assert in_groups([once] * 50) == [[once] * 50]


def test_the_work_of_a_group_is_the_rows_of_all_its_steps():
    assert work([PLAIN] * 6) == 6 * 4 * 3 * 2 * 5


def test_one_group_of_every_form_and_size_begins_before_any_second_one_and_then_the_largest():
    small, large = [PLAIN], [PLAIN] * 2
    given = [("a", small, 0), ("a", small, 1), ("a", large, 1), ("b", large, 0), ("b", large, 2), ("a", small, 2)]
    order = [(form, len(group), repeat) for form, group, repeat in in_order(given)]
    assert order == [("a", 1, 0), ("a", 2, 1), ("b", 2, 0), ("b", 2, 2), ("a", 1, 1), ("a", 1, 2)]
