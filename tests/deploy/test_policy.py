"""A site's policy wins over what a server proposes: each weakness is refused with what only the owner can say."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from choral.config.settings import PrivacySettings
from choral.core.errors import TrustError
from choral.core.plan import Budget, Plan, SecureSum
from choral.deploy.home import Policy

PLAN = Plan(devices=14, cohort=10, rounds=3, rows=100, batch=20, step_size=0.5, clip=1.0, noise=1.0)
PROBED = replace(PLAN, probes=32, opened_turns=2)
LYING = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2)  # 7 + 8 − 10 − 2 + 1 = 4 honest devices
CURIOUS = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2, adversary="curious")


def study(*, kind="logistic", plan=PLAN, secure=LYING, against="everyone"):
    """All that a policy asks of a study."""
    privacy, data = PrivacySettings(against=against), SimpleNamespace(encoder=None)
    job = SimpleNamespace(model_kind=kind, privacy=privacy, data=data)
    return SimpleNamespace(job=job, plan=plan, secure=secure)


def test_a_study_within_the_policy_is_not_refused():
    assert Policy(epsilon=2.0, crowd=4, colluders=2).check(study()) is None
    assert Policy(epsilon=2.0, curious=True).check(study(secure=CURIOUS)) is None
    assert Policy(epsilon=2.0, epsilon_sum=1.0).check(study(against="server and colluders")) is None
    assert Policy(epsilon=2.0, probes=True).check(study(plan=PROBED)) is None
    assert Policy(epsilon=2.0, delta=1e-6).budget == Budget(epsilon=2.0, delta=1e-6)


@pytest.mark.parametrize(
    ("own", "proposed", "what", "way_out"),
    [
        ({"crowd": 5}, {}, "among 4 honest ones only, the policy wants 5", "--smallest-crowd 4"),
        ({"colluders": 3}, {}, "it counts 2 devices as helping its server, the policy wants 3", "--colluders 2"),
        ({}, {"secure": CURIOUS}, "only a server that follows the protocol", "--allow-curious"),
        ({}, {"kind": "theirs:model"}, 'it runs the code of "theirs:model" here', "--trust-model theirs:model=FILE"),
        ({}, {"plan": PROBED}, "32 projections of this device's own noisy update", "--allow-probes"),
        ({}, {"plan": Plan(**{**PLAN.to_dict(), "noise": 0.0})}, "it adds no noise", "a study with epsilon"),
    ],
)
def test_a_weaker_study_is_refused_with_the_one_thing_that_would_allow_it(own, proposed, what, way_out):
    with pytest.raises(TrustError, match="CH603 the study is weaker than this site's policy") as raised:
        Policy(epsilon=2.0, **own).check(study(**proposed))
    assert what in str(raised.value) and way_out in raised.value.fix


def test_code_of_others_is_run_only_where_the_owner_has_named_it():
    trusting = Policy(epsilon=2.0, models=["theirs:model=/home/me/model.py"])
    assert trusting.check(study(kind="theirs:model")) is None
    with pytest.raises(TrustError, match="CH603"):
        trusting.check(study(kind="theirs:other"))
    assert trusting.code_of(study()) is None  # a model of choral's own is nobody's code
