"""For every number of colluders: how many honest devices are left in a sum, in a sentence with all its terms."""

from pathlib import Path

import pytest

from choral.core.plan import SecureSum
from choral.record import read_run
from choral.report.words import by_colluders, honest_devices

RUN = Path(__file__).parents[1] / "vectors" / "present_version" / "rehearsal"


@pytest.mark.parametrize(("colluders", "honest"), [(0, 6), (1, 5), (2, 4), (6, 0), (9, 0)])
def test_every_colluder_takes_one_noise_away(colluders, honest):
    secure = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2)
    assert honest_devices(secure, colluders) == honest


def test_a_sentence_with_an_epsilon_has_delta_adjacency_and_rule_and_one_without_says_why():
    found = by_colluders(read_run(RUN))
    assert [colluders for colluders, _, _ in found] == list(range(len(found)))
    for colluders, epsilon, sentence in found:
        assert sentence.startswith(f"With {colluders} colluder")
        assert "δ = " in sentence and "one record replaced" in sentence and "rule S" in sentence
        assert (epsilon is None) == ("no provable extra protection" in sentence)
