"""choral audit ask: rule S8 survives the worst pair, and each planted bug of it is refuted."""

import json

import pytest

from choral.audit.asked import ask_case
from choral.cli import main

TRAININGS = 2**16


def test_the_deployed_noise_survives_and_nearly_all_of_the_claim_is_measured():
    found = ask_case(epsilon=2.0, trainings=TRAININGS).measure()
    assert found.survived
    assert found.share_of_mu > 0.9 and found.lower_bound > 1.5


@pytest.mark.parametrize("planted", [
    {"l2": 1.0},  # the worst pair is √2 apart
    {"honest": 3},  # r_eff is 4: counted too large
    {"company": 200, "factor": 1},  # K left out: noise of 0.3 steps, whose sum is no Gaussian
], ids=["a wrong l2", "r_eff too large", "K left out"])  # fmt: skip
def test_a_planted_bug_is_refuted(planted):
    found = ask_case(epsilon=2.0, trainings=TRAININGS, **planted).measure()
    assert not found.survived and found.share_of_mu > 1


def test_the_verb_says_that_the_claim_survives(capsys):
    assert main(["audit", "ask", "--trainings", "4096", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rule"] == "S8" and told["survived"] and told["adjacency"] == "one record replaced"
