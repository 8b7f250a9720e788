"""What every mechanism shares: its words, its adversaries, and ε of a loss at δ."""

import math

import pytest
from scipy.stats import norm

from choral.accounting.proofs import Loss, exposed
from choral.accounting.words import WORDS, one_step, summing_server
from choral.core.events import Gaussian
from choral.core.exposure import ADJACENCY, EVERYONE
from choral.core.mechanisms import MECHANISMS
from choral.core.plan import Plan

NUMBERS = {
    "rounds": 4, "local_steps": 1, "cohort": 4, "devices": 8, "rows": 100, "batch": 20, "noise": 0.1, "clip": 1.0
}  # fmt: skip


def test_epsilon_of_a_gaussian_loss_is_where_its_delta_is():
    loss = Loss(rule="S1", event=Gaussian(mu=1.0), adversary=EVERYONE, certificate="")
    epsilon = loss.epsilon(1e-5)
    delta = norm.cdf(-epsilon + 0.5) - math.exp(epsilon) * norm.cdf(-epsilon - 0.5)  # Dong, Roth & Su 2022, by SciPy
    assert delta == pytest.approx(1e-5, rel=1e-6) and loss.adjacency == ADJACENCY == "one record replaced"


def test_a_server_of_sums_is_named_with_its_helpers_and_the_certificate_with_the_honest_noises():
    assert summing_server(exposed(**NUMBERS)) == "a server that sees only sums"
    part = exposed(**NUMBERS, colluders=2)
    assert summing_server(part) == "a server that sees only sums, helped by 2 of the devices"
    assert one_step(part).endswith("the noise of 2 honest devices")


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
def test_every_mechanism_says_what_each_rule_counts_and_what_is_done_to_an_update(mechanism):
    plan = Plan(devices=8, cohort=4, rounds=4, rows=100, batch=20, step_size=0.5, clip=1.5, noise=0.25)
    words = WORDS[type(mechanism)]
    assert words.rules.keys() >= {mechanism.rule, mechanism.rule_of_sums} and all(words.rules.values())
    assert "1.5" in words.protection(plan) and "0.25" in words.protection(plan)
    assert "20" in words.sized(plan) or "all" in words.sized(plan)
