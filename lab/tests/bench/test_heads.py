"""What the benchmark of heads compares, by hand."""

import pytest

from bench.heads import head_minus_whole_points


def test_the_head_is_compared_with_the_better_network_and_not_with_the_other_baseline():
    found = {
        "head": [0.5, 0.7], "network of 32": [0.4, 0.3], "network of 8": [0.2, 0.6], "logistic on pixels": [0.9, 0.9]
    }  # fmt: skip
    assert head_minus_whole_points(found) == pytest.approx(20.0)  # 60 less the better of 35 and 40
