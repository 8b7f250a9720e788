"""The bell between conductor and gate: heard at once, for its user only, and lost without harm."""

import select

from choral.backends.flower.api import WAKE_UP, forget_wake_ups, wake_up, wake_up_socket


def test_a_ring_is_heard_and_many_are_heard_as_one(tmp_path):
    path = tmp_path / WAKE_UP
    with wake_up_socket(path) as rings:
        assert path.stat().st_mode & 0o177 == 0
        assert not select.select([rings], [], [], 0)[0]
        for _ in range(3):
            wake_up(path)
        assert select.select([rings], [], [], 5)[0]
        forget_wake_ups(rings)
        assert not select.select([rings], [], [], 0)[0]


def test_a_ring_that_nobody_hears_is_no_error_and_a_dead_bell_is_replaced(tmp_path):
    path = tmp_path / WAKE_UP
    wake_up(path)
    wake_up_socket(path).close()
    wake_up(path)
    with wake_up_socket(path) as rings:
        wake_up(path)
        assert select.select([rings], [], [], 5)[0]


def test_a_bell_that_is_never_looked_at_holds_up_nobody(tmp_path):
    with wake_up_socket(tmp_path / WAKE_UP):
        for _ in range(5000):
            wake_up(tmp_path / WAKE_UP)
