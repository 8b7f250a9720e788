"""One experiment: who takes part, what the noise is for, what is chosen by, and what is measured again."""

import json
from dataclasses import replace

import numpy as np
import pytest

from choral.paper import experiment
from choral.paper.experiment import Experiment, Shelf, cohorts, paired, tuned
from choral.paper.utility import UTILITY

SMALL = Experiment(model="logistic", rounds=2, local_steps=1, batch=61, step_size=0.5, looks=2)


def test_methods_of_one_repeat_meet_the_same_cohorts_and_repeats_others():
    several = replace(SMALL, local_steps=10, batch=488, noise=0.1, clip=1.0, rounds=20)
    one = replace(SMALL, rounds=20)
    assert all(np.array_equal(a, b) for a, b in zip(cohorts(several, 3), cohorts(one, 3), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(cohorts(one, 3), cohorts(one, 4), strict=True))


@pytest.mark.parametrize(("rounds", "most"), [(20, 13), (50, 32)])  # ⌈20·10/16⌉, ⌈50·10/16⌉
def test_nobody_takes_part_more_often_than_the_noise_is_for(rounds, most):
    counts = np.bincount(np.concatenate(cohorts(replace(SMALL, rounds=rounds), 0)))
    assert (counts.max(), counts.min()) == (most, most - 1)


def test_the_noise_of_theorem_1_is_that_of_a_hand_calculation():
    ours = Experiment(model="logistic", rounds=20, local_steps=10, batch=488, step_size=1.0, clip=1.0)
    # ε = ρ + 2√(ρ ln 1/δ) at (10, 1e-4): ρ = (√(ln 1e4 + 10) − √(ln 1e4))² = 1.8180; σ² = 2·13·10/(10·2440·488·ρ).
    rho = (np.sqrt(np.log(1e4) + 10) - np.sqrt(np.log(1e4))) ** 2
    noise = ours.within("paper", epsilon=10.0, delta=1e-4).noise
    assert noise == pytest.approx(np.sqrt(2 * 13 * 10 / (10 * 2440 * 488 * rho)), rel=1e-6)


def test_a_published_epsilon_comes_with_whether_it_holds_and_what_is_proved():
    ours = Experiment(model="network", rounds=50, local_steps=5, batch=488, step_size=1.0, clip=3.0)
    told = ours.within("paper", epsilon=10.0, delta=1e-4).privacy("paper", 1e-4)
    assert told["published"]["epsilon"] == pytest.approx(10.0, rel=1e-6)
    assert told["published"]["valid"] is False
    assert told["proved_against_everyone"]["epsilon"] > 30
    assert told["adjacency"] == "one record replaced"


def test_a_proved_run_stays_below_its_budget_and_pays_for_overflow():
    sampled = Experiment(
        model="logistic", rounds=20, local_steps=10, batch=488, step_size=1.0, clip=1.0, sampling="poisson"
    )
    told = sampled.within("proved", epsilon=2.0, delta=1e-5).privacy("proved", 1e-5)
    assert told["proved_against_everyone"]["rule"] == "S5"
    assert 1.99 < told["proved_against_everyone"]["epsilon"] <= 2.0
    assert "published" not in told


def test_a_curve_is_measured_once_and_kept(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(experiment, "curve", lambda *given: calls.append(given) or {"round": [1.0]})
    shelf = Shelf(tmp_path, 2)
    assert shelf.curves(SMALL) == shelf.curves(SMALL) == [{"round": [1.0]}] * 2
    assert calls == [(SMALL, 0), (SMALL, 1)]
    assert Shelf(tmp_path, 3).curves(SMALL) == [{"round": [1.0]}] * 3
    assert calls[2:] == [(SMALL, 2)]
    kept = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert kept["experiment"]["clip"] == "none"
    shelf.curves(replace(SMALL, step_size=0.25))
    assert len(calls) == 5


def test_the_choice_is_by_validation_alone_and_each_repeats_own(monkeypatch, tmp_path):
    # (validation accuracy, validation loss, test accuracy) of three candidates in two repeats
    table = {
        (0.5, 0): (0.850, 0.40, 0.99),
        (1.0, 0): (0.849, 0.33, 0.80),  # within 0.0015 of the best, and a lower loss
        (2.0, 0): (0.840, 0.30, 0.99),
        (0.5, 1): (0.850, 0.40, 0.70),
        (1.0, 1): (0.840, 0.33, 0.99),
        (2.0, 1): (0.840, 0.30, 0.99),
    }

    def measured(one, repeat):
        accuracy, loss, test = table[one.step_size, repeat]
        return {"validation_accuracy": [accuracy], "validation_loss": [loss], "test_accuracy": [test]}

    monkeypatch.setattr(experiment, "curve", measured)
    chosen, curves = tuned(Shelf(tmp_path, 2), [replace(SMALL, step_size=size) for size in (0.5, 1.0, 2.0)])
    assert [one.step_size for one in chosen] == [1.0, 0.5]
    assert [one["test_accuracy"] for one in curves] == [[0.80], [0.70]]


def test_differences_are_taken_repeat_by_repeat():
    told = paired([0.86, 0.80], [0.85, 0.78])
    assert told["each"] == [0.01, 0.02]
    assert told["verdict"] == "above in every repeat"
    assert paired([0.86, 0.80], [0.80, 0.81])["verdict"] == "above on average"
    assert paired([0.80, 0.801], [0.80, 0.80])["verdict"] == "tie"


@pytest.mark.parametrize("setting", UTILITY.values(), ids=UTILITY)
def test_the_published_runs_meet_the_hypotheses_of_theorem_1_on_batches(setting):
    batches, rest = divmod(experiment.ROWS, setting.batch)
    assert rest == 0
    assert setting.local_steps % batches == 0
