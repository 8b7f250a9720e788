import numpy as np
import pytest

from choral.accounting.account import account
from choral.core.errors import ConfigError
from choral.core.plan import Plan
from choral_lab.audit.bounds import false_alarm_rate
from choral_lab.audit.cases import CASES, arrange, measure
from choral_lab.audit.trainings import CHUNK, logistic, mean_clipped, opened_sums, relu_network, scores


def softplus(t):
    return np.logaddexp(0, t)


def test_the_gradients_are_those_of_their_losses_by_differences():
    # Central differences of ln(1 + e^(−margin)) in double precision.
    step = 1e-6
    for x, y, weight in ((4.0, 1.0, 0.3), (-2.0, -1.0, 0.1)):
        slope = (softplus(-y * x * (weight + step)) - softplus(-y * x * (weight - step))) / (2 * step)
        assert logistic(np.array([[weight]]), x, y)[0, 0] == pytest.approx(slope, rel=1e-6)

    def lost(u, v, x, y):
        return softplus(-y * v * max(u * x, 0.0))

    for u, v, x, y in ((0.3, 0.7, 2.0, 1.0), (0.3, 0.7, 2.0, -1.0), (-0.3, 0.7, 2.0, 1.0)):
        found = relu_network(np.array([[u], [v]]), x, y).ravel()
        inner = (lost(u + step, v, x, y) - lost(u - step, v, x, y)) / (2 * step)
        outer = (lost(u, v + step, x, y) - lost(u, v - step, x, y)) / (2 * step)
        assert found == pytest.approx([inner, outer], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_papers_numbers_and_meets_the_hypotheses_of_theorem_1(name):
    case = arrange(name)
    plan = case.construction.plan
    assert (plan.devices, plan.cohort, plan.local_steps, plan.rows, case.account.delta) == (16, 10, 10, 2440, 1e-4)
    assert plan.rows % plan.batch == 0 and plan.local_steps % plan.batches_per_pass == 0
    # Theorem 1 and Lemma 3 by hand: ρ = 2CτG²/(rmγσ²), ε = ρ + 2√(ρ ln 1/δ).
    rho = 2 * plan.rounds * 10 * plan.clip**2 / (10 * 2440 * plan.batch * plan.noise**2)
    assert case.published.epsilon == pytest.approx(rho + 2 * np.sqrt(rho * np.log(1e4)), rel=1e-9)
    assert case.published.epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_every_device_holds_as_many_records_as_the_plan_says(name):
    case = arrange(name).construction
    for world in case.worlds:
        assert sum(rows.count for rows in (*case.device, world)) == case.plan.rows
    assert sum(rows.count for rows in case.others) == case.plan.rows
    assert [world.count for world in case.worlds] == [1, 1]


def test_the_convex_case_stays_within_the_radius_that_its_certificate_assumes():
    # Rule S3 with c = 1 is claimed for ‖x‖ ≤ 4: smoothness 4²/4 = 4 and step size 1/2 = 2/4, the limit.
    case = arrange("theorem-1-convex").construction
    rows = (*case.device, *case.others, *case.worlds)
    assert max(abs(one.x) for one in rows) == 4.0
    assert case.plan.step_size <= 2 / (4.0**2 / 4)


def test_no_record_moves_a_mean_by_more_than_the_clip_over_the_batch():
    for name in CASES:
        case = arrange(name).construction
        parameters = np.random.default_rng(0).normal(0, 0.3, (len(case.start), 500))
        for world in case.worlds:
            alone = mean_clipped(case, (world,), parameters)
            assert np.all(np.sqrt((alone**2).sum(axis=0)) <= case.plan.clip / case.plan.batch * (1 + 1e-6))


def test_without_noise_an_opened_sum_is_the_plain_sum_of_updates_of_all_records_one_by_one():
    # A second computation: every record in a loop, in double precision, no counting of equal ones.
    from dataclasses import replace

    case = arrange("theorem-1-convex").construction
    plan = replace(case.plan, noise=0.0, rows=6, batch=6, rounds=1, cohort=3, local_steps=4)
    device = (replace(case.device[0], count=5),)
    others = tuple(replace(rows, count=3) for rows in case.others)
    small = replace(case, plan=plan, device=device, others=others, start=(0.2,))
    ((_, total),) = opened_sums(small, 1, np.random.default_rng(0), 1)

    def update(records):
        weight = 0.2
        for _ in range(4):
            slopes = [-y * x / (1 + np.exp(y * x * weight)) for x, y in records]
            weight -= plan.step_size * sum(np.clip(slope, -plan.clip, plan.clip) for slope in slopes) / 6
        return weight - 0.2

    x = others[0].x
    expected = update([(0.0, 1)] * 5 + [(4.0, 1)]) + 2 * update([(x, 1)] * 3 + [(x, -1)] * 3)
    assert total[0, 0] == pytest.approx(expected, rel=1e-5)


def test_scores_depend_on_the_seed_and_not_on_the_number_of_trainings_asked_for():
    case = arrange("theorem-1-network").construction
    few, more = (scores(case, 0, trainings=count, seed=3) for count in (CHUNK, CHUNK + 10))
    assert np.array_equal(few, more[:CHUNK])
    assert not np.array_equal(few, scores(case, 0, trainings=CHUNK, seed=4))


def test_the_first_world_raises_as_many_false_alarms_as_were_planned():
    # Planned rate 1e-2 or so; 20,000 trainings, so within 25 % is more than three deviations.
    for name, trainings in (("theorem-1-convex", 20_000), ("theorem-1-network", 40_000)):
        case = arrange(name, trainings=trainings)
        planned = false_alarm_rate(
            {"theorem-1-convex": 0.521, "theorem-1-network": 0.681}[name],  # μ by hand: docs/audit.md
            trainings=trainings,
            delta=1e-4,
            confidence=0.99,
        )
        assert measure(case).tally.false_alarms / trainings == pytest.approx(planned, rel=0.5)


def test_one_command_reproduces_the_violation_for_a_network():
    # N, threshold and confidence are those of arrange; seed 0. 60,000 trainings of each world are enough here.
    finding = measure(arrange("theorem-1-network", trainings=60_000))
    assert finding.lower_bound > finding.case.published.epsilon
    assert finding.lower_bound <= finding.case.proved.epsilon


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_published_figure_is_below_what_is_measured_and_the_proved_one_is_not(name, epsilon):
    finding = measure(arrange(name, epsilon=epsilon))
    assert finding.case.published.epsilon == pytest.approx(epsilon)
    assert epsilon < finding.lower_bound <= finding.case.proved.epsilon


@pytest.mark.parametrize(("name", "curvature"), [
    ("theorem-1-convex", {"smoothness": 4.0, "convex": True}), ("theorem-1-network", {}),
])  # fmt: skip
def test_what_is_proved_of_a_case_is_the_account_of_its_numbers_however_a_plan_is_written_down(
    monkeypatch, name, curvature
):
    """A plan may get fields that no account knows; ‖x‖ ≤ 4 makes the convex loss 4²/4-smooth."""
    described = Plan.to_dict
    monkeypatch.setattr(Plan, "to_dict", lambda plan: described(plan) | {"colour": "green"})
    case = arrange(name)
    plan = case.construction.plan
    reported = account(
        rounds=plan.rounds, local_steps=10, cohort=10, devices=16, rows=2440, batch=2440, noise=plan.noise,
        clip=plan.clip, delta=1e-4, sampling="partition", passes="reshuffle", step_size=plan.step_size, **curvature,
    ).proved  # fmt: skip
    proved = reported.with_secure_sum if curvature else reported.against_everyone
    assert case.proved == proved


def test_a_case_that_is_not_known_is_refused_by_name():
    with pytest.raises(ConfigError, match="theorem-1-convex, theorem-1-network"):
        arrange("theorem-2")


def test_a_finding_tells_every_number_that_was_fixed_beforehand():
    reported = measure(arrange("theorem-1-network", trainings=1000)).as_dict()
    assert reported["trainings"] == 2000 and reported["confidence"] == 0.99 and reported["delta"] == 1e-4
    assert {"lower_bound", "published_epsilon", "proved_epsilon", "threshold", "seed"} <= set(reported)
    assert Plan.from_dict(reported["plan"]).local_steps == 10
