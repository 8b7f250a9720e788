"""The bell between conductor and gate: heard at once, for its user only, and lost without harm."""

import select

from choral.backends.flower import bell


def test_a_ring_is_heard_and_many_are_heard_as_one(tmp_path):
    path = tmp_path / bell.NAME
    with bell.hung(path) as rings:
        assert path.stat().st_mode & 0o177 == 0
        assert not select.select([rings], [], [], 0)[0]
        for _ in range(3):
            bell.ring(path)
        assert select.select([rings], [], [], 5)[0]
        bell.heard(rings)
        assert not select.select([rings], [], [], 0)[0]


def test_a_ring_that_nobody_hears_is_no_error_and_a_dead_bell_is_replaced(tmp_path):
    path = tmp_path / bell.NAME
    bell.ring(path)
    bell.hung(path).close()
    bell.ring(path)
    with bell.hung(path) as rings:
        bell.ring(path)
        assert select.select([rings], [], [], 5)[0]


def test_a_bell_that_is_never_looked_at_holds_up_nobody(tmp_path):
    with bell.hung(tmp_path / bell.NAME):
        for _ in range(5000):
            bell.ring(tmp_path / bell.NAME)
