"""Who drops out is drawn from seed, turn and device alone, at the rate that was asked for."""

import pytest

from choral.backends.wire import drops_out
from choral.core.messages import Turn


def test_no_rate_loses_nobody():
    assert not any(drops_out(7, 0.0, Turn(1, 0), device) for device in range(1000))


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.9])
def test_as_many_are_lost_as_the_rate_says(rate):
    lost = sum(drops_out(7, rate, Turn(number, 0), device) for number in range(50) for device in range(100))
    # 5,000 coins: five deviations of a binomial are 5·√(5000·p·(1 − p)).
    assert abs(lost - 5000 * rate) < 5 * (5000 * rate * (1 - rate)) ** 0.5


def test_an_attempt_a_round_a_device_and_a_seed_each_draw_for_themselves():
    def lost(seed, turn):
        return [drops_out(seed, 0.5, turn, device) for device in range(100)]

    first = lost(7, Turn(1, 0))
    assert first == lost(7, Turn(1, 0))
    for other in (lost(7, Turn(1, 1)), lost(7, Turn(2, 0)), lost(8, Turn(1, 0))):
        assert 20 < sum(a != b for a, b in zip(first, other, strict=True)) < 80
