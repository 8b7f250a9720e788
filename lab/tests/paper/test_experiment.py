"""One experiment: what the devices hold, who takes part, and what the noise of every rule is for."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from choral_lab.paper.adult import BOUNDS, ROW_LENGTH, ROWS, SMOOTHNESS, experiment, split
from choral_lab.paper.convergence import BASE, DELTA, PROVED, RAW
from choral_lab.paper.utility import ONCE, ONCE_TRIED, TRADEOFF, UTILITY
from choral_lab.research.sweep_training import balanced_cohorts

SMALL = experiment("logistic", rounds=2, local_steps=1, batch=61, step_size=0.5, looks=2)
LOGISTIC = experiment("logistic", rounds=20, local_steps=10, batch=488, step_size=1.0, clip=1.0)


def gaussian_delta(mu, epsilon):
    """δ(ε) of μ-GDP (Balle and Wang 2018)."""
    return norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def test_every_device_trains_on_2440_rows_and_validates_on_305():
    assert set(split(0).train.sizes.tolist()) == {2440}
    assert set(split(0).validation.sizes.tolist()) == {305}


def test_raw_columns_are_the_numbers_of_the_table():
    rows = split(0, "raw").train.features
    age, weight = rows[:, 0], rows[:, 10]  # the first column, and fnlwgt behind the nine levels of workclass
    assert (age.min(), age.max()) == pytest.approx((17, 90), abs=1e-3)  # UCI's description
    assert np.abs(age - np.round(age)).max() < 1e-3
    assert 1.8e5 < weight.mean() < 2.0e5


def test_narrow_ranges_lie_inside_the_whole_ones_and_bound_the_rows():
    for name, (low, high) in BOUNDS["narrow"].items():
        assert BOUNDS["raw"][name][0] <= low < high <= BOUNDS["raw"][name][1]
    for columns in ("narrow", "wide"):
        longest = (split(0, columns).train.features ** 2).sum(axis=1).max() + 1  # the intercept
        assert longest / 2 <= SMOOTHNESS + 1e-5
        assert longest <= ROW_LENGTH**2 + 1e-5


def cohorts(one, repeat):
    return balanced_cohorts(one.plan(), seed=repeat)


def test_methods_of_one_repeat_meet_the_same_cohorts_and_repeats_others():
    several = replace(SMALL, local_steps=10, batch=488, noise=0.1, clip=1.0, rounds=20)
    one = replace(SMALL, rounds=20)
    assert all(np.array_equal(a, b) for a, b in zip(cohorts(several, 3), cohorts(one, 3), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(cohorts(one, 3), cohorts(one, 4), strict=True))


@pytest.mark.parametrize(("rounds", "most"), [(20, 13), (50, 32)])  # ⌈20·10/16⌉, ⌈50·10/16⌉
def test_nobody_takes_part_more_often_than_the_noise_is_for(rounds, most):
    counts = np.bincount(np.concatenate(cohorts(replace(SMALL, rounds=rounds), 0)))
    assert (counts.max(), counts.min()) == (most, most - 1)


@pytest.mark.parametrize("clip", [1.0, 3.0])
def test_the_noise_of_theorem_1_is_that_of_a_hand_calculation(clip):
    # ε = ρ + 2√(ρ ln 1/δ) at (10, 1e-4): ρ = (√(ln 1e4 + 10) − √(ln 1e4))² = 1.8180; σ² = 2·13·10·G²/(10·2440·488·ρ).
    rho = (np.sqrt(np.log(1e4) + 10) - np.sqrt(np.log(1e4))) ** 2
    noise = replace(LOGISTIC, clip=clip).within("paper", epsilon=10.0, delta=1e-4).noise
    assert noise == pytest.approx(clip * np.sqrt(2 * 13 * 10 / (10 * 2440 * 488 * rho)), rel=1e-6)


def test_a_published_epsilon_comes_with_whether_it_holds_and_what_is_proved():
    ours = experiment("network", rounds=50, local_steps=5, batch=488, step_size=1.0, clip=3.0)
    reported = ours.within("paper", epsilon=10.0, delta=1e-4).privacy("paper", 1e-4)
    assert reported["published"]["epsilon"] == pytest.approx(10.0, rel=1e-6)
    assert reported["published"]["valid"] is False
    assert reported["proved_against_everyone"]["epsilon"] > 30
    assert reported["adjacency"] == "one record replaced"


@pytest.mark.parametrize(("size", "holds"), [(0.25, True), (1.0, False)])  # 2/L = 4/15 lies between
def test_theorem_1_holds_for_small_steps_of_logistic_regression_over_one_pass(size, holds):
    twice = replace(LOGISTIC, local_steps=2, batch=1220, step_size=size).within("paper", epsilon=1.0, delta=1e-4)
    assert twice.privacy("paper", 1e-4)["published"]["valid"] is holds


def test_a_proved_run_stays_below_its_budget_and_pays_for_overflow():
    sampled = replace(LOGISTIC, sampling="poisson", clip=3.0)
    reported = sampled.within("proved", epsilon=2.0, delta=1e-5).privacy("proved", 1e-5)
    assert reported["proved_against_everyone"]["rule"] == "S5"
    assert 1.99 < reported["proved_against_everyone"]["epsilon"] <= 2.0
    assert "published" not in reported


@pytest.mark.parametrize(
    ("steps", "batch", "rule"), [(1, 2440, "S2"), (2, 1220, "S3")]
)  # each record once in each of 13 rounds, and 8 of the 10 noises are honest: μ = 2G√13/(γσ√8) either way
def test_the_gain_of_the_secure_sum_is_that_of_eight_honest_noises(steps, batch, rule):
    one = replace(LOGISTIC, local_steps=steps, batch=batch, step_size=0.25)
    noisy = one.within("with_secure_sum", epsilon=1.0, delta=1e-4)
    reported = noisy.privacy("with_secure_sum", 1e-4)["proved_with_secure_sum"]
    mu = 2 * np.sqrt(13) / (batch * noisy.noise * np.sqrt(8))
    assert reported["rule"] == rule
    assert "2 of the devices" in reported["adversary"]
    assert gaussian_delta(mu, 1.0) == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("steps", ONCE_TRIED["local_steps"])
def test_noise_once_is_that_of_eight_honest_noises_for_any_number_of_local_steps(steps):
    settings = {name: value for name, (value,) in ONCE.items()}
    one = replace(LOGISTIC, local_steps=steps, **settings).within("with_secure_sum", epsilon=1.0, delta=1e-4)
    reported = one.privacy("with_secure_sum", 1e-4)
    mu = 2 * (steps * 0.25) / 2440 * np.sqrt(13) / (one.noise * np.sqrt(8))  # Δ = 2GT/γ, in each of 13 rounds
    assert gaussian_delta(mu, 1.0) == pytest.approx(1e-4, rel=1e-3)
    assert reported["adjacency"] == "one record replaced"
    assert reported["proved_with_secure_sum"]["rule"] == reported["proved_against_everyone"]["rule"] == "S7"
    assert "2 of the devices" in reported["proved_with_secure_sum"]["adversary"]
    assert reported["proved_against_everyone"]["epsilon"] > 3  # μ is √8 times as large


def test_a_whole_device_is_hidden_by_noise_on_its_clipped_update():
    one = replace(LOGISTIC, clip=np.inf, update_clip=0.3).within("clipped_updates", epsilon=10.0, delta=1e-4)
    reported = one.privacy("clipped_updates", 1e-4)
    mu = 2 * 0.3 * np.sqrt(13) / (one.update_noise * np.sqrt(10))
    assert gaussian_delta(mu, 10.0) == pytest.approx(1e-4, rel=1e-3)
    assert reported["adjacency"] == "all records of one device replaced"
    assert one.recipe().update_noise == one.update_noise
    assert one.noise == 0.0


@pytest.mark.parametrize("base", [base for base, _ in (*UTILITY.values(), *TRADEOFF.values())])
def test_the_published_runs_meet_the_hypotheses_of_theorem_1_on_batches(base):
    batches, rest = divmod(ROWS, base.batch)
    assert rest == 0
    assert base.local_steps % batches == 0


@pytest.mark.parametrize("base", [*BASE.values(), RAW], ids=["logistic", "network", "raw"])
def test_the_proved_line_of_a_convergence_figure_is_its_base_with_poisson_batches_and_the_noise_of_its_budget(base):
    kind = base.task.name.split(",")[0]
    proved = replace(base, sampling="poisson").within("proved", epsilon=PROVED[kind], delta=DELTA)
    assert replace(proved, noise=0.0, sampling="partition") == base
    reported = proved.privacy("proved", DELTA)["proved_against_everyone"]
    assert reported["rule"] == "S5"
    assert 0.99 * PROVED[kind] < reported["epsilon"] <= PROVED[kind]


def test_who_chooses_sees_no_test_row():
    class Sealed:
        train, validation = split(0).train, split(0).validation

        @property
        def test(self):
            raise AssertionError("test rows were read")

    sealed = replace(SMALL, task=replace(SMALL.task, split=lambda _: Sealed()))
    assert set(sealed.curve(0, "validation")) == {"round", "validation_accuracy", "validation_loss"}
    with pytest.raises(AssertionError, match="test rows"):
        sealed.curve(0, "test")
