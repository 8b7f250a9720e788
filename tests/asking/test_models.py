"""Models on sums: replayed from their sums, their noise no more than they say, and the concordance by hand."""

import itertools

import numpy as np
import pytest

from choral.asking.catalogue import MODELS, ROUNDS, read_model, state_length, summand
from choral.asking.fitting import MOMENTUM, Descent, concordance, noise_gain, settled
from choral.asking.question import Question
from choral.core.errors import ChoralError
from choral.tables.reading import Table
from tests.asking.fitting import fitted
from tests.asking.pairs import farthest
from tests.asking.people import COLUMNS, people

GIVEN = {"columns": ["age", "smoker"], "target": "died", "rounds": 6}


def model(name="logistic", **more):
    return read_model(Question(name=name, parameters={**GIVEN, **more}), COLUMNS)


def dying(count, seed=0):
    rows = people(count, seed)
    died = [int(age > 55) for age in rows.columns["age"]]
    return Table(source="people", columns={**rows.columns, "died": died})


@pytest.mark.parametrize("momentum", [0.0, MOMENTUM])
@pytest.mark.parametrize("curvature", [0.0, 0.3, 1.0, 2.0])
def test_no_curvature_gains_more_noise_than_none(momentum, curvature):
    # The descent itself on curved and flat losses, with noise of deviation 1 in each of 3,000 independent weights.
    chance, position = np.random.default_rng(1), Descent.start(length=3000, rounds=12, momentum=momentum)
    for _ in range(12):
        noise = chance.normal(size=3000)
        position = position.after(noise - curvature * position.weights, rows=1, steps=np.ones(3000))
    gained = float(position.model.std())
    assert gained <= 1.04 * noise_gain(12, momentum)
    if not curvature:
        assert gained == pytest.approx(noise_gain(12, momentum), rel=0.04)


def test_effects_move_by_no_more_than_the_noise_that_they_name():
    rows = dying(600)
    found = [fitted(model(), COLUMNS, rows, noise=lambda l2, _: 4.0 * l2, seed=seed).effects.rows for seed in range(40)]
    moved = np.std([[row["estimate"] for row in one] for one in found], axis=0)
    named = np.mean([[row["noise_sd"] for row in one] for one in found], axis=0)
    assert np.all(moved <= 1.2 * named) and np.any(moved > 0.2 * named)  # 40 seeds tell a deviation within 11 %


@pytest.mark.parametrize(("noise", "says"), [(0.0, False), (4.0, True)])
def test_a_model_says_where_the_noise_made_its_steps_smaller(noise, says):
    found = fitted(model(), COLUMNS, dying(600), noise=lambda l2, _: noise * l2).effects
    assert any("nearer to 0" in sentence for sentence in found.sentences) == says


def test_the_states_of_a_model_are_the_same_on_machines_that_differ_in_the_last_bits():
    state = np.array([0.1, -3.7, 12345.6])
    assert settled(state * (1 + 2e-16)).tolist() == settled(state).tolist()
    assert np.abs(settled(state) - state).max() <= 2.0**-21


def test_an_additive_effect_is_the_trend_and_the_cell_in_the_middle_of_each_cell():
    found = fitted(model("additive", bins=4), COLUMNS, dying(800), noise=lambda _l2, _share: 0.0)
    cells = [row for row in found.effects.rows if row["column"] == "age"]
    assert [row["value"] for row in cells] == [12.5, 37.5, 62.5, 87.5]
    assert cells[0]["estimate"] < cells[-1]["estimate"] and found.judged(dying(200, 1))["auc"] > 0.95
    weights = found.state
    assert cells[1]["estimate"] == pytest.approx(weights[2] - 0.25 * weights[0])  # 37.5 is −0.25 on the scale of age


WATCHED = {"columns": ["age", "sex"], "time": "days", "event": "died", "bins": 8}
# Of each sum of a model: its parameters, and the share of its claim that some pair of the rows below must reach.
SUMS = {
    "logistic_cells": ({"columns": ["sex", "smoker"], "target": "died"}, 0.98),
    "linear_cells": ({"columns": ["sex", "smoker"], "target": "days"}, 0.98),
    "additive_cells": ({"columns": ["age", "cost", "sex"], "target": "died", "bins": 4}, 0.98),
    "logistic_round": ({"columns": ["age", "cost", "sex"], "target": "died"}, 0.98),
    "linear_round": ({"columns": ["age", "cost", "sex"], "target": "days"}, 0.98),
    "additive_round": ({"columns": ["age", "cost", "sex"], "target": "died", "bins": 4, "clip": 0.7}, 0.98),
    "hazard_table": (WATCHED, 0.98),
    # √2·(R² + a²) is reached where u·v = 0. Corners of two columns come as near as u·v = a² = ½: √(12/12.5) = 0.98.
    "hazard_moments": ({**WATCHED, "take": 2}, 0.97),
    "hazard_round": (WATCHED, 0.98),
    "percentiles_bounds": ({"column": "weight"}, 0.98),
    "percentiles_cells": ({"column": "weight", "low": 0, "high": 200, "bins": 16}, 0.98),
}
ROWS = list(
    itertools.product([0, 100, None], [0, 5e4], [0, 1000, 2000], ["f", "m", "?"], ["no", "yes"], [0, 1], [0, 165, 1e9])
)
TABLE = dict(
    zip(("age", "cost", "days", "sex", "smoker", "died", "weight"), map(list, zip(*ROWS, strict=True)), strict=True)
)


@pytest.mark.parametrize("name", ROUNDS)
def test_no_sum_of_a_model_moves_by_more_than_its_claim_at_any_state_and_some_pair_reaches_it(name):
    parameters, share = SUMS[name]
    question = Question(name=name, parameters=parameters)
    length, farthest_yet = state_length(question, COLUMNS), 0.0
    for state in states(length):
        found = summand(question, COLUMNS, state if length else None)
        farthest_yet = max(farthest_yet, farthest(found, TABLE))
        assert farthest_yet <= found.l2
    assert farthest_yet >= share * found.l2


def states(length):
    """Before the first step, at random, and where each row's hazard, or its score, is as large as it can be."""
    chance = np.random.default_rng(7)
    return [np.zeros(length), chance.normal(0, 1, length), np.full(length, 100.0), chance.normal(0, 1e5, length)]


def test_concordance_counts_comparable_pairs_only():
    # By hand: pairs are (1, 2), (1, 3), (2, 3); who is lost at 2 is compared with nobody later.
    risk, time = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    assert concordance(risk, time, np.array([True, True, False])) == pytest.approx(2 / 3)
    assert concordance(risk, time, np.array([True, False, False])) == 1.0
    assert np.isnan(concordance(risk, time, np.zeros(3, dtype=bool)))


def test_every_model_has_its_sums_in_the_catalogue():
    assert MODELS == ("logistic", "linear", "additive", "hazard", "percentiles")
    with pytest.raises(ChoralError, match="CH102"):
        model(bins=4)
