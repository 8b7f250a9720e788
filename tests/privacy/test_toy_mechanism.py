"""A new mechanism is one value with its words, and an entry in each of two lists: everything else asks them."""

import numpy as np
import pytest

import choral
from choral.accounting.calibrate import calibrated, smallest_noise
from choral.accounting.costs import Costs
from choral.accounting.proofs import rules_charged
from choral.accounting.reserves import spendable
from choral.accounting.words import WORDS, Words, rule_in_words
from choral.core.errors import PlanError
from choral.core.events import Zcdp, epsilon_of
from choral.core.mechanisms import MECHANISMS, Mechanism
from choral.core.plan import Budget, Plan, SecureSum
from choral.run.statement import privacy_statement, releases

NUMBERS = {"rounds": 4, "local_steps": 1, "cohort": 3, "devices": 3, "rows": 20, "batch": 20, "clip": 1.0}
BUDGET = Budget(epsilon=2.0, delta=1e-5)


class Toy(Mechanism):
    """Plans with a clip of 7 tell a record from another by ρ = (7/σ)²/2 per round, by decree."""

    rule, rule_of_sums = "T1", "T1"

    def describes(self, plan, noise_is_added):  # noqa: ARG002
        return plan.clip == 7.0

    def check(self, plan):
        if plan.local_steps > 3:
            raise PlanError("CH204", "a toy with more than 3 local steps.", fix="Use fewer.")

    def event(self, part, rounds, noises=1):  # noqa: ARG002
        return Zcdp(rho=len(rounds) * 24.5 / part.noise**2)

    def uncounted(self, part):  # noqa: ARG002
        return "a toy shares no noise"


class OfToys(Words):
    def certificate(self, part, noises, *, summed):  # noqa: ARG002
        return "by decree"

    def protection(self, plan):
        return f"toy noise {plan.noise:g}"


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    value = Toy()
    monkeypatch.setitem(WORDS, Toy, OfToys(rules={"T1": "a decree"}))
    monkeypatch.setattr("choral.core.mechanisms.MECHANISMS", [value, *MECHANISMS])
    return value


def plan(**other):
    return Plan(**{**NUMBERS, "step_size": 0.5, "noise": 50.0, "clip": 7.0, **other})


def test_a_toy_mechanism_is_accounted_for_by_its_own_rule():
    reported = choral.account(**{**NUMBERS, "clip": 7.0}, noise=50.0, delta=1e-5).proved
    assert (reported.against_everyone.rule, reported.against_everyone.rho) == ("T1", 4 * 24.5 / 2500)
    assert reported.against_everyone.epsilon == epsilon_of([Zcdp(rho=4 * 24.5 / 2500)], 1e-5)
    assert (reported.with_secure_sum, reported.no_certificate) == (None, "a toy shares no noise")
    assert rule_in_words("T1") == "T1: a decree"


def test_a_toy_mechanism_is_calibrated_and_proposed(toy):
    found = calibrated(plan(noise=0.0), BUDGET)
    reported = choral.account(**{**NUMBERS, "clip": 7.0}, noise=found.noise, delta=spendable(BUDGET).delta)
    assert 0.999 * 2.0 <= reported.proved.against_everyone.epsilon <= 2.0
    proposed = choral.plan_for(epsilon=2.0, devices=3, rows=10**6, features=2, clip=7.0, local_steps=1, delta=1e-7)
    assert (proposed.chosen.rule, proposed.plan.mechanism) == ("T1", toy)
    assert proposed.alternatives == ()  # nothing is proved of its sums, and it draws batches in one way
    with pytest.raises(PlanError, match="a toy shares no noise"):
        smallest_noise(costs().of(0).exposure(4), BUDGET, "with_secure_sum")


def costs():
    return Costs(plan=plan(), secure=SecureSum.for_cohort(3), rows=np.array([20, 20, 50]), limits=(BUDGET,) * 3,
                 names=("a", "b", "c"))  # fmt: skip


def test_a_toy_mechanism_is_charged_stated_and_named_in_the_releases():
    charge = costs().of(0).charge(0, run="run", round_number=1, attempt=0)
    assert (charge.rule, charge.event) == ("T1", Zcdp(rho=24.5 / 2500, delta=costs().charged_delta(1)))
    assert rules_charged(plan(), [20, 50]) == ("T1",)
    reported = privacy_statement(costs(), np.full(3, 4))
    assert reported.against_everyone.rule == "T1"
    assert reported.no_certificate == "a toy shares no noise"
    assert "toy noise 50" in releases(plan(), 4, compare=False)[0].protected_by


def test_what_a_mechanism_does_not_allow_is_refused_by_its_own_words():
    with pytest.raises(PlanError, match="CH204 a toy with more than 3 local steps"):
        rules_charged(plan(local_steps=4), [20])
