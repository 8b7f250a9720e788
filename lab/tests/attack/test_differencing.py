"""Two tables that differ by one person: right every time without noise, never above Φ(μ/2) plus 3 sd with it."""

import json
from statistics import NormalDist

import pytest

from choral.cli import main
from choral.core.errors import ConfigError
from choral_lab.attack.differencing import differencing


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_noise_bounds_what_differencing_can_tell(epsilon):
    found = differencing(epsilon=epsilon, trials=4000)
    assert found.without_noise == 1.0
    for one in found.with_noise:
        assert one.bound == NormalDist().cdf(one.mu / 2) < 1
        assert 0.5 - 3 * found.error < one.right <= one.bound + 3 * found.error
    sums, alone = found.with_noise
    assert sums.mu < alone.mu and sums.epsilon < alone.epsilon <= epsilon


def test_the_attack_is_as_good_as_two_noises_allow_so_the_bound_is_no_accident():
    found = differencing(epsilon=40.0, trials=4000)
    for one in found.with_noise:
        # The difference has the noise of both answers, √2·l2/μ₁ with μ = √2·μ₁: Φ(½/(√2/μ₁)) = Φ(μ/4).
        assert one.right == pytest.approx(NormalDist().cdf(one.mu / 4), abs=3 * found.error)
    assert found.with_noise[1].right > 0.9


def test_the_verb_prints_every_figure_with_rule_delta_adjacency_and_adversary(capsys):
    assert main(["attack", "--case", "differencing", "--epsilon", "1"]) == 0
    text = capsys.readouterr().out
    for part in ("100.0%", "rule S8", "δ = 1e-05", "one record replaced", "against the server and all other devices"):
        assert part in text
    assert main(["attack", "--case", "differencing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["without_noise"] == 1.0
    assert main(["attack", "--case", "differencing", "--row", "3"]) == ConfigError.exit_status
