"""The statement of a ledger: figures by hand, and what is left out where there is no limit for sums."""

import math

import pytest
from scipy.stats import norm

from choral.accounting.ledger_statement import statement_of
from choral.core.events import Gaussian
from choral.core.ledger import Charge, Ledger
from choral.core.plan import Budget


def test_a_statement_has_the_limit_the_charges_and_the_seal_of_the_last_entry(tmp_path):
    with Ledger.open(tmp_path / "a.ledger", device="hill", limit=Budget(epsilon=2.0, delta=1e-5)) as ledger:
        for number in (1, 2):
            ledger.charge(Charge(rule="S1", plan="9f3c", round=number, event=Gaussian(mu=0.1)))
        statement, seal = statement_of(ledger), ledger.receipt
    assert (statement.device, statement.limit.epsilon, statement.limit.delta) == ("hill", 2.0, 1e-5)
    assert (statement.charges, statement.spent.rules, statement.torn_bytes) == (2, ("S1",), 0)
    # Two Gaussians with μ = 0.1 are one with μ = √2·0.1, whose δ is Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2): by SciPy.
    epsilon, mu = statement.spent.epsilon, math.sqrt(2) * 0.1
    delta = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert statement.spent.delta == 1e-5
    assert delta == pytest.approx(1e-5 * 15 / 16, rel=1e-6)  # a sixteenth is kept for the leaks of later studies
    assert (statement.receipt.entries, statement.receipt.seal) == (seal.entries, seal.seal)
    assert seal.entries == 1 + len(statement.entries) == 3  # the first line is the ledger's own
    assert "with_secure_sum" not in statement.to_dict()
