"""The planner: its proposals keep the budget, respect what is given, learn, and say why not when they can't."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.accounting.account import account
from choral.core.errors import LedgerError, PlanError
from choral.core.events import Gaussian, epsilon_of
from choral.core.ledger import Balance, Charge, Reservation
from choral.core.mechanisms import sampled
from choral.core.plan import Budget
from choral.planner import plan_for, proposal_of
from choral.planner.numbers import once_numbers, step_condition
from choral.planner.prospect import advice_on_sums
from choral.planner.task import task_of
from tests.run.small import study

ADULT = {"devices": 16, "rows": 2440, "features": 104, "delta": 1e-5}


def accounted(option, delta):
    """ε by `choral.account`, from the plan's numbers alone."""
    plan, part = option.plan, option.part
    if plan.once:  # rule S7 by hand: Δ = 2GT/γ, μ = Δ√C/(σ_u√r_eff)
        noises = 1 if option.against == "everyone" else plan.cohort - part.colluders - part.dropouts
        moved = 2 * plan.clip * plan.local_steps * plan.step_size / plan.batch
        return epsilon_of([Gaussian(mu=moved * math.sqrt(part.rounds / noises) / plan.noise)], delta)
    reported = account(
        rounds=part.rounds, local_steps=plan.local_steps, cohort=plan.cohort, devices=plan.devices, rows=plan.rows,
        batch=plan.batch, noise=plan.noise, clip=plan.clip, delta=delta, sampling=plan.sampling, passes=plan.passes,
        colluders=part.colluders, dropouts=part.dropouts,
    ).proved  # fmt: skip
    return (reported.against_everyone if option.against == "everyone" else reported.with_secure_sum).epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("against", ["everyone", "server and colluders"])
def test_every_option_fills_the_budget_and_never_passes_it(epsilon, against):
    reported = plan_for(epsilon=epsilon, against=against, **ADULT)
    assert {option.rule for option in (reported.chosen, *reported.alternatives)} > {
        "S7",
        "S2",
    }  # and S5, or S1 of all rows
    for option in (reported.chosen, *reported.alternatives):
        assert 0.998 * epsilon <= option.epsilon <= epsilon
        assert accounted(option, reported.budget.delta) <= epsilon  # at the whole δ there is a little room left
    assert reported.chosen.against == against
    assert reported.chosen.epsilon_against_everyone >= reported.chosen.epsilon


def test_every_round_of_a_proposed_plan_can_be_charged_with_its_overflow_and_no_round_more():
    reported = plan_for(epsilon=1.0, noise_is_added="every step", **ADULT)
    plan, rounds = reported.plan, reported.chosen.part.rounds
    full = (
        plan.overflow + plan.out_of_range
    ) / rounds  # all that is reserved, though a device is charged for its share of all rounds only
    event = replace(sampled(reported.chosen.part, plan.local_steps), delta=full)
    balance = Balance(device="07", limit=reported.budget)
    wanted = Reservation(rule="S5", plan=plan.digest, uploads=(event,) * (rounds + 1))
    with pytest.raises(LedgerError, match="CH401"):
        balance.reserve(wanted)
    assert balance.affordable(wanted) == rounds
    balance.reserve(replace(wanted, uploads=wanted.uploads[:rounds]))
    for number in range(rounds):
        balance.take(Charge(rule="S5", plan=plan.digest, round=number, event=event))
    with pytest.raises(LedgerError, match="CH409"):
        balance.take(Charge(rule="S5", plan=plan.digest, round=rounds, event=event))


def test_just_as_much_of_delta_is_left_as_rounds_are_charged_for_besides():
    reported = plan_for(epsilon=1.0, sampling="partition", **ADULT)
    rounds = reported.chosen.part.rounds
    mu = reported.chosen.loss(reported.chosen.part).event.mu / math.sqrt(rounds)
    balance = Balance(device="07", limit=reported.budget)
    reserved = reported.plan.overflow + reported.plan.out_of_range
    event = Gaussian(mu=mu, delta=reserved / rounds)
    balance.reserve(Reservation(rule="S1", plan=reported.plan.digest, uploads=(event,) * rounds))
    for number in range(rounds):
        balance.take(Charge(rule="S1", plan=reported.plan.digest, round=number, event=event))
    assert balance.epsilon > 0.9999  # and no more than that is left


def test_without_knowing_the_data_the_proposal_is_near_what_worked_on_adult():
    # A reference run on Adult had its best results at 20 rounds of 10 local steps, clip 3, batches of 488 or all rows.
    reported = plan_for(epsilon=1.0, noise_is_added="every step", **ADULT)
    plan = reported.plan
    assert (plan.rounds, plan.local_steps, plan.cohort, plan.batch) == (20, 10, 10, 488)
    assert reported.chosen.part.rounds == 13  # 20·10/16 = 12.5, and nobody takes part in half a round
    assert 2.5 <= plan.clip <= 3.5
    assert 0.2 <= plan.step_size <= 2.0


def test_at_a_small_budget_the_secure_sum_is_advised_and_at_a_large_one_not():
    # From the same runs: one step a round with the secure sum's gain wins at ε ≤ 0.5, and gains nothing near 4.
    small, large = (plan_for(epsilon=epsilon, noise_is_added="every step", **ADULT) for epsilon in (0.3, 4.0))
    assert any("--against" in line for line in small.advice)
    assert not any("--against" in line for line in large.advice)
    assert small.alternatives[0].guide < small.chosen.guide
    assert large.alternatives[0].guide > large.chosen.guide


def test_noise_once_is_proposed_for_convex_models_whose_steps_nobody_described():
    assert plan_for(epsilon=1.0, **ADULT).plan.once
    assert plan_for(epsilon=1.0, model="linear", **ADULT).plan.once
    assert not plan_for(epsilon=1.0, model="mlp", **ADULT).plan.once
    assert not plan_for(epsilon=1.0, batch=244, **ADULT).plan.once


def test_noise_once_is_refused_for_a_network():
    with pytest.raises(PlanError, match="CH204"):
        plan_for(epsilon=1.0, model="mlp", noise_is_added="once", **ADULT)


def test_trust_in_the_secure_sum_buys_longer_rounds_and_is_said_with_its_price():
    # So few rows that neither reaches the most steps that a device should take.
    few = ADULT | {"rows": 80}
    strict, trusting = (plan_for(epsilon=1.0, against=who, **few) for who in ("everyone", "server and colluders"))
    # r_eff = 4 honest noises at c = 2 and 10 devices: twice the total time at one noise.
    assert trusting.plan.local_time == pytest.approx(2 * strict.plan.local_time, rel=1e-9)
    assert trusting.chosen.guide < 0.6 * strict.chosen.guide
    assert any("against everyone should that trust fail" in line for line in strict.advice)
    assert any("Should the secure sum fail, ε is 2.16" in line for line in trusting.advice)


GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "cohort": st.integers(5, 16), "rounds": st.integers(1, 60), "local_steps": st.integers(1, 12),
        "batch": st.integers(100, 2440), "clip": st.floats(0.1, 10), "step_size": st.floats(0.001, 1),
    },
)  # fmt: skip


@given(GIVEN, st.floats(0.2, 20))
@settings(max_examples=15, deadline=None)
def test_what_is_given_is_kept_and_the_rest_still_fits(numbers, epsilon):
    reported = plan_for(epsilon=epsilon, sampling="partition", colluders=1, dropouts=1, **ADULT, **numbers)
    for name, value in numbers.items():
        assert getattr(reported.plan, name) == value
        assert next(choice for choice in reported.choices if choice.name == name).why == "given."
    assert reported.chosen.epsilon <= epsilon
    assert reported.plan.noise > 0


def test_a_given_noise_that_is_enough_is_kept():
    needed = plan_for(epsilon=1.0, sampling="partition", rounds=10, local_steps=1, **ADULT).plan.noise
    reported = plan_for(epsilon=1.0, sampling="partition", rounds=10, local_steps=1, noise=2 * needed, **ADULT)
    assert reported.plan.noise == 2 * needed
    assert reported.chosen.epsilon < 0.6


def test_a_given_noise_that_is_too_small_is_refused_with_changes_that_each_work():
    fixed = {"sampling": "partition", "local_steps": 1, "batch": 2440, **ADULT}
    with pytest.raises(PlanError) as refused:
        plan_for(epsilon=1.0, rounds=20, noise=0.02, **fixed)
    text = str(refused.value)
    assert refused.value.code == "CH201"
    ways = {name: float(value) for name, value in re.findall(r"(noise|rounds|epsilon) = ([\d.]*\d)", refused.value.fix)}
    assert set(ways) == {"noise", "rounds", "epsilon"}, text
    assert plan_for(epsilon=1.0, rounds=20, noise=ways["noise"], **fixed).chosen.epsilon <= 1.0
    assert plan_for(epsilon=1.0, rounds=int(ways["rounds"]), noise=0.02, **fixed).chosen.epsilon <= 1.0
    assert plan_for(epsilon=ways["epsilon"], rounds=20, noise=0.02, **fixed).chosen.epsilon <= ways["epsilon"]


def test_a_budget_whose_noise_would_drown_the_model_is_refused_with_changes_that_each_work():
    few = {"devices": 3, "features": 50, "sampling": "partition"}
    with pytest.raises(PlanError, match="CH201") as refused:
        plan_for(epsilon=0.01, rows=100, **few)
    epsilon = float(re.search(r"epsilon = ([\d.]+)", refused.value.fix)[1])
    rows = int(re.search(r"([\d,]+) rows per device", refused.value.fix)[1].replace(",", ""))
    assert plan_for(epsilon=epsilon, rows=100, **few).chosen.epsilon <= epsilon
    assert plan_for(epsilon=0.01, rows=rows, **few).chosen.epsilon <= 0.01


def test_what_is_proposed_for_a_synthetic_task_does_learn():
    # Plain NumPy, no part of choral's engine: 10 devices × 1,000 rows, noise and clipping as the plan says.
    rng = np.random.default_rng(5)
    rows, truth = rng.normal(size=(10, 1000, 8)), rng.normal(size=8)
    labels = (rows @ truth + rng.normal(size=(10, 1000)) > 0).astype(float)
    reported = plan_for(epsilon=1.0, devices=10, rows=1000, features=8, classes=2, row_length=math.sqrt(8),
                    noise_is_added="every step")  # fmt: skip
    plan, theta = reported.plan, np.zeros(8)
    for _ in range(plan.rounds):
        local = []
        for device in range(plan.cohort):
            mine = theta.copy()
            for _ in range(plan.local_steps):
                drawn = rng.random(1000) < plan.batch / plan.rows
                x, error = rows[device][drawn], 1 / (1 + np.exp(-rows[device][drawn] @ mine)) - labels[device][drawn]
                gradients = error[:, None] * x
                gradients *= np.minimum(1, plan.clip / np.linalg.norm(gradients, axis=1))[:, None]
                mine -= plan.step_size * (gradients.sum(0) / plan.batch + plan.noise * rng.normal(size=8))
            local.append(mine)
        theta = np.mean(local, axis=0)
    best = np.mean((rows @ truth > 0) == labels)  # what the true direction itself reaches
    assert np.mean((rows @ theta > 0) == labels) > best - 0.03


def test_more_budget_or_more_rows_never_need_more_noise():
    fixed = {"sampling": "partition", "rounds": 20, "local_steps": 5, "features": 104, "devices": 16}
    noises = [plan_for(epsilon=epsilon, rows=2440, **fixed).plan.noise for epsilon in (0.5, 1, 2, 4, 8)]
    assert noises == sorted(noises, reverse=True)
    noises = [plan_for(epsilon=1.0, rows=rows, **fixed).plan.noise for rows in (500, 1000, 2000, 4000)]
    assert noises == sorted(noises, reverse=True)


def test_the_curves_rise_and_end_at_the_plan():
    reported = plan_for(epsilon=1.0, **ADULT)
    for curve in (reported.epsilon_by_round, reported.epsilon_by_colluders):
        assert [value for _, value in curve] == sorted(value for _, value in curve)
    assert reported.epsilon_by_round[-1] == (reported.chosen.part.rounds, reported.chosen.epsilon)
    summed = reported.alternatives[0]
    assert dict(reported.epsilon_by_colluders)[summed.part.colluders] == summed.epsilon
    # With all others colluding (two drop-outs counted as well) the sum protects no more than no sum at all.
    assert reported.epsilon_by_colluders[-1][1] == pytest.approx(summed.epsilon_against_everyone, rel=1e-12)


def test_the_certified_bound_fulfils_its_condition_and_is_no_part_of_the_guess():
    reported = plan_for(epsilon=1.0, noise_is_added="every step", **ADULT)
    assert reported.certified.valid
    smoothness = 104 ** (2 / 3) / 4
    condition = step_condition(
        step_size=reported.certified_step_size, smoothness=smoothness, local_steps=reported.plan.local_steps
    )
    assert condition == pytest.approx(1.0, rel=1e-9)


def test_batches_of_all_rows_need_no_other_sampler():
    reported = plan_for(epsilon=1.0, batch=2440, **ADULT)
    assert [option.name for option in reported.alternatives] == ["one step per round, sum trusted"]
    assert reported.chosen.rule == "S1"


def test_poisson_sampling_saves_noise_against_the_same_partition():
    reported = plan_for(epsilon=1.0, noise_is_added="every step", **ADULT)
    assert reported.alternatives[1].plan.sampling == "partition"
    # Large noise: sampled batches need what all rows would, a partition √(rows/batch) = √5 times as much.
    assert reported.alternatives[1].plan.noise / reported.plan.noise == pytest.approx(math.sqrt(5), rel=0.01)


@pytest.mark.parametrize(
    "numbers",
    [
        {"epsilon": 1.0, "devices": 2, "rows": 1, "features": 1},
        {"epsilon": 1e-6, "devices": 2, "rows": 7, "features": 1},
        {"epsilon": 1e4, "devices": 2, "rows": 10**7, "features": 10**6},
        {"epsilon": 0.01, "devices": 10**6, "rows": 10**7, "features": 3},
        {"epsilon": 1.0, "devices": 4, "rows": 100, "features": 5, "step_size": 1e-9},
        {"epsilon": 1.0, "devices": 4, "rows": 100, "features": 5, "step_size": 1e9},
    ],
)  # fmt: skip
def test_extreme_tasks_end_in_a_plan_or_in_ch201_and_never_hang(numbers):
    try:
        reported = plan_for(sampling="partition", **numbers)
    except PlanError as error:
        assert error.code == "CH201"
    else:
        assert reported.chosen.epsilon <= numbers["epsilon"]


def test_a_single_device_has_no_secure_sum_to_trust():
    """Such a task comes from runs without noise only."""
    task = {"epsilon": 1.0, "devices": 1, "rows": 100_000, "features": 5, "classes": 2, "model": "logistic"}
    words = {"sampling": "partition", "law": "gaussian", "against": "everyone"}
    reported = proposal_of(task_of(**task | words))
    assert (reported.alternatives, reported.epsilon_by_colluders) == ((), ())
    assert not any("secure sum" in line for line in reported.advice)


@pytest.mark.parametrize(
    "few", [{"devices": 1}, {"devices": 16, "cohort": 1}, {"devices": 1, "against": "server and colluders"}]
)
def test_no_plan_is_proposed_that_a_run_would_refuse_for_a_cohort_of_one(few):
    with pytest.raises(PlanError) as of_plan:
        plan_for(epsilon=1.0, rows=40, features=4, **few)
    with pytest.raises(PlanError) as of_run:
        study(devices=few["devices"], cohort=few.get("cohort"))
    reported, words = of_plan.value.as_dict(), of_run.value.as_dict()
    assert reported["code"] == "CH204"
    assert {**reported, "where": ""} == {**words, "where": ""}


def test_a_run_of_one_device_without_noise_still_gets_its_numbers_proposed():
    unprotected = study(devices=1, cohort=None, rounds=None, epsilon=None, noise=0.0)
    assert (unprotected.plan.cohort, unprotected.plan.noise) == (1, 0.0)


def test_delta_is_at_most_one_in_all_rows_unless_given():
    assert plan_for(epsilon=1.0, devices=16, rows=2440, features=10, sampling="partition").budget.delta == 1e-5
    assert plan_for(epsilon=1.0, devices=1000, rows=5000, features=10, sampling="partition").budget.delta == 1e-7


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"epsilon": 0.0}, "epsilon"), ({"epsilon": math.nan}, "epsilon"), ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 1.0}, "delta"), ({"delta": 0.0}, "delta"), ({"delta": 0.01}, "1/rows"), ({"devices": 0}, "devices"),
        ({"rows": 0}, "rows"), ({"features": 0}, "features"), ({"classes": 1}, "classes"), ({"cohort": 17}, "cohort"),
        ({"rounds": 0}, "rounds"), ({"local_steps": 0}, "local_steps"), ({"batch": 2441}, "batch"),
        ({"clip": -1.0}, "clip"), ({"step_size": 0.0}, "step_size"), ({"noise": math.nan}, "noise"),
        ({"row_length": 0.0}, "row_length"), ({"model": "forest"}, "model"), ({"sampling": "shuffle"}, "sampling"),
        ({"against": "all"}, "against"), ({"colluders": 10}, "colluders"), ({"dropouts": -1}, "dropouts"),
        ({"against": "server and colluders", "local_steps": 5}, "CH204"),
        ({"against": "server and colluders", "cohort": 1}, "CH204"),
    ],
)  # fmt: skip
def test_bad_numbers_are_refused_by_name(change, word):
    with pytest.raises(PlanError, match=word):
        plan_for(**({"epsilon": 1.0, "sampling": "partition"} | ADULT | change))


def test_a_partition_is_planned_without_loading_a_library():
    script = (
        "import sys; from choral.planner import plan_for\n"
        "plan_for(epsilon=1.0, devices=16, rows=2440, features=104, sampling='partition').to_dict()\n"
        "print([name for name in ('numpy', 'scipy', 'jax', 'dp_accounting') if name in sys.modules])"
    )
    source = str(Path(__file__).parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})\n{script}"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_budget_object_and_explanations_come_with_the_plan():
    reported = plan_for(epsilon=1.0, sampling="partition", model="mlp", **ADULT)
    assert reported.budget == Budget(epsilon=1.0, delta=1e-5)
    assert len(reported.explanation) == len(reported.choices) == 8
    assert {choice.name for choice in reported.choices} <= set(reported.plan.to_dict())
    assert any("networks" in line for line in reported.advice)


def test_a_squared_error_is_trained_for_a_fraction_of_the_time_of_log_odds():
    """Its score is the label itself, within ±1: noise of 6 on it would drown every label."""
    numbers = {"classes": 0, "features": 27, "devices": 139, "cohort": 139, "rows": 12, "row_length": 3.0, "slope": 0.3}
    budget = Budget(epsilon=1.0, delta=1e-4)
    squared, sigmoid = (once_numbers(budget, link=link, **numbers) for link in ("squared", "sigmoid"))
    total = [one.local_steps * one.step_size for one in (squared, sigmoid)]
    # By hand, with the numbers of decision 55: 0.8·(12/1000)^0.35·(20/27)^0.75 = 0.8·0.2127·0.7985 = 0.1359.
    assert squared.clip == sigmoid.clip and total[0] == pytest.approx(total[1] * 0.1359 / 6, rel=2e-3)


def test_a_number_is_trained_further_with_more_budget_until_records_pull_with_a_fifth_of_their_length():
    """Decision 51 found that ε = 4 trained no further than ε = 2 on a table of this shape."""
    shape = {"classes": 0, "features": 26, "devices": 5, "cohort": 5, "rows": 1280, "row_length": 10**0.5}
    one, two, four, most = (
        once_numbers(Budget(epsilon=epsilon, delta=1e-5), link="squared", **shape) for epsilon in (1.0, 2.0, 4.0, 50.0)
    )
    # By hand: 0.8·1.28^0.35·(20/26)^0.75 = 0.716, and 0.716·1280·0.2678·√5/2 = 274 = 0.05·5490 at ε = 1.
    assert one.clip == pytest.approx(0.05 * 10**0.5) and 60 * one.local_steps * one.step_size * 10 == pytest.approx(
        5490, rel=5e-3
    )
    # 4,000 steps of 2/R² are a time of 8,000/R², from which on records pull harder.
    assert [60 * plan.local_steps * plan.step_size * 10 for plan in (two, four, most)] == pytest.approx([8000] * 3)
    assert one.clip < two.clip < four.clip < most.clip == pytest.approx(0.2 * 10**0.5)


@pytest.mark.parametrize("link", ["softmax", "squared"])
def test_with_more_budget_records_pull_longer_and_nothing_jumps_where_data_are_scarce(link):
    shape = {"classes": 2, "features": 30, "devices": 5, "cohort": 5, "rows": 90, "row_length": 31**0.5}
    pulls, clips = [], []
    for epsilon in 2.0 ** np.arange(-2, 4.3, 0.25):  # with log odds, ample from about 16 on
        one = once_numbers(Budget(epsilon=float(epsilon), delta=1e-5), link=link, **shape)
        pulls.append(one.clip * one.local_steps * one.step_size)
        clips.append(one.clip)
    # A squared error ends at the longest time and the hardest pull, beyond which more budget only lowers the noise.
    assert np.all(np.diff(pulls) > (0 if link == "softmax" else -1e-12)) and np.all(np.diff(clips) >= 0)
    assert pulls[-1] > 5 * pulls[0]
    assert max(np.diff(np.log(clips))) < 0.4


def test_many_weights_of_several_classes_get_a_quarter_of_a_row_as_clip_and_one_step_per_round():
    shape = {"devices": 5, "rows": 230, "features": 64, "classes": 10, "row_length": 8.0, "delta": 1e-5}
    few, many = (plan_for(epsilon=epsilon, **shape) for epsilon in (1.0, 4.0))
    for told in (few, many):
        plan = told.plan
        assert (plan.rounds, plan.local_steps, plan.clip, plan.batch) == (100, 1, 2.0, 230)
        assert told.chosen.rule == "S1" and 0.99 * told.budget.epsilon < told.chosen.epsilon <= told.budget.epsilon
        assert any("a quarter of the length of a row" in line for line in told.explanation)
    # By hand: μ = 0.2678 at ε = 1; 2·230·0.2678·√5/(2·100·8·2) = 0.086, and μ = 0.924 at ε = 4.
    assert few.plan.step_size == pytest.approx(0.086) and many.plan.step_size == pytest.approx(0.3)


def test_given_rounds_of_many_weights_share_the_same_steps_and_described_steps_keep_the_guide():
    shape = {"epsilon": 2.0, "devices": 5, "rows": 230, "features": 64, "classes": 10, "delta": 1e-5}
    given = plan_for(rounds=30, **shape).plan
    assert (given.rounds, given.local_steps) == (30, 4)
    by_guide = [plan_for(**shape, **one).plan for one in ({"batch": 50}, {"clip": 3.8}, {"sampling": "partition"})]
    assert [plan.rounds == 100 and plan.local_steps == 1 for plan in by_guide] == [False] * 3


def test_rounds_are_many_where_data_are_scarce_and_few_where_they_are_ample():
    shape = {"link": "softmax", "classes": 2, "features": 30, "devices": 5, "cohort": 5, "row_length": 31**0.5}
    rounds = [once_numbers(Budget(epsilon=1.0, delta=1e-5), rows=rows, **shape).rounds for rows in (90, 700, 5000)]
    assert rounds[0] == 60 and 20 < rounds[1] < 60 and rounds[2] == 20


def test_a_model_on_sums_is_mentioned_where_the_noise_of_its_cells_is_small():
    def reported(against, **more):
        given = {"epsilon": 1.0, "delta": 1e-5, "devices": 16, "rows": 2440, "features": 104, "row_length": 3.9, **more}
        return advice_on_sums(task_of(**given), against)

    # By hand: 2·0.7·3.9·24·√(16/5)/(0.2679·16·2440) = 0.0224, where ε = 1 at δ = 1e-5 is μ = 0.2679.
    assert "κ = 0.0224, above 0.02" in reported("server and colluders")[0]
    assert "κ = 0.0112, at most 0.02" in reported("server and colluders", rows=4880)[0]
    assert reported("server and colluders", rows=4880)[0].startswith('Proposed: kind = "additive"')
    assert reported("everyone", rows=4880)[0].startswith("Proposed: a model that is trained")
    assert reported("everyone", classes=3) == () and reported("everyone", model="mlp") == ()


def test_local_steps_that_are_left_open_keep_within_the_batches_that_delta_pays_for():
    """At δ = 1e-9 they are 1,714 of half of the rows; 10,000 are refused, and a number that is given is not changed."""
    given = {"epsilon": 8.0, "delta": 1e-9, "devices": 16, "rows": 2440, "features": 104, "model": "mlp"}
    assert plan_for(**given, rounds=1000).plan.local_steps == 1
    with pytest.raises(PlanError, match="CH204 10,000 Poisson batches"):
        plan_for(**given, rounds=1000, local_steps=10)


@pytest.mark.parametrize("given", [{"local_steps": 5}, {"batch": 100}, {"clip": 1.0, "step_size": 0.1}], ids=str)
def test_settings_because_of_which_noise_is_not_added_once_are_named_with_the_way_back(given):
    reported = plan_for(epsilon=4.0, **ADULT, **given)
    assert not reported.plan.once
    because = " and ".join(sorted(given))
    assert reported.advice[0].startswith(f"Noise is added in every step because of {because}; to add it once, leave ")
    once = plan_for(epsilon=4.0, **ADULT, **given, noise_is_added="once")
    assert once.plan.once and not any("because of" in line for line in once.advice)
    for other in ({"noise_is_added": "every step"}, {"model": "mlp"}, {"unit": "device"}):
        assert not any("because of" in line for line in plan_for(epsilon=4.0, **ADULT, **given, **other).advice)


def test_who_trusts_the_sum_with_several_noisy_steps_is_told_three_ways_out_and_each_works():
    asked = {"epsilon": 4.0, "against": "server and colluders", **ADULT}
    with pytest.raises(PlanError, match="CH204 nothing is proved of the secure sum here") as no:
        plan_for(**asked, local_steps=5)
    assert no.value.fix == 'Use one local step, noise_is_added = "once" with a convex model, or against = "everyone".'
    for way in (
        {"local_steps": 1},
        {"local_steps": 5, "noise_is_added": "once"},
        {"local_steps": 5, "against": "everyone"},
    ):
        assert plan_for(**{**asked, **way}).chosen.epsilon <= 4.0
