"""choral audit --case ask: rule S8 survives the worst pair, and each planted bug of it is refuted."""

import json
import math

import pytest

from choral.asking.gradients import UNIT
from choral.cli import main
from choral_lab.audit.asked import ask_case

TRAININGS = 2**16


def test_the_deployed_noise_survives_and_nearly_all_of_the_claim_is_measured():
    found = ask_case(epsilon=2.0, trainings=TRAININGS).measure()
    assert found.survived
    assert found.share_of_mu > 0.9 and found.lower_bound > 1.5


def test_the_worst_pair_of_an_additive_round_survives_and_is_nearly_all_of_the_claim():
    found = ask_case(epsilon=2.0, trainings=2**14, asks="additive").measure()
    assert found.survived and found.share_of_mu > 0.85


@pytest.mark.parametrize("planted", [
    {"l2": 1.0},  # the worst pair is √2 apart
    {"honest": 3},  # r_eff is 4: counted too large
    {"company": 200, "factor": 1},  # K left out: noise of 0.3 steps, whose sum is no Gaussian
    # As if the cells of two rows never were the same: √(2F) cells of one length, where 2√F is needed.
    {"asks": "additive", "l2": math.sqrt(2) * UNIT, "trainings": 2**14},
], ids=["a wrong l2", "r_eff too large", "K left out", "√(2F) in additive"])  # fmt: skip
def test_a_planted_bug_is_refuted(planted):
    found = ask_case(**{"epsilon": 2.0, "trainings": TRAININGS} | planted).measure()
    assert not found.survived and found.share_of_mu > 1


def test_the_verb_says_that_the_claim_survives(capsys):
    assert main(["audit", "--case", "ask", "--trainings", "4096", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["rule"] == "S8" and reported["survived"] and reported["adjacency"] == "one record replaced"
