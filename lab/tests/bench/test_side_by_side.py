"""Settings that are trained side by side have the models that a simulation has."""

from dataclasses import replace

import numpy as np
import pytest

from bench.side_by_side import ends_of, groups_of, merits
from choral import config
from choral.accounting.costs import NO_LIMIT
from choral.learning.evaluate import evaluate
from choral.run.planning import settle
from choral.run.runs import Run
from choral.run.study import Study


def study(noise_is_added: str, classes: int) -> Study:
    rng = np.random.default_rng(4)
    rows = rng.uniform(-1, 1, (360, 4)).astype(np.float32)
    score = rows @ [1.0, -0.7, 0.3, 0.0]
    labels = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)) if classes else score / 3
    more = {} if classes else {"label_bounds": [-1, 1]}
    settings = {"devices": 6, "cohort": 6, "epsilon": 4.0, "delta": 1e-4, "seed": 2, "rounds": 4, **more}
    if noise_is_added == "every step":
        settings |= {"local_steps": 3, "batch": 40, "sampling": "partition", "server": "averaged", "server_momentum": 0}
    return settle(config.job_of(**settings, noise_is_added=noise_is_added), (rows, labels))


def without_noise(one: Study, **numbers: float) -> Study:
    """All but without noise, and without a limit that would refuse that."""
    limits = tuple(replace(limit, epsilon=NO_LIMIT) for limit in one.limits)
    return replace(one, plan=replace(one.plan, noise=1e-3, **numbers), limits=limits)


@pytest.mark.parametrize("classes", [2, 0])
def test_noise_once_side_by_side_is_what_a_simulation_computes(classes: int) -> None:
    quiet = without_noise(study("once", classes))
    expected = Run("simulation", quiet).finish()
    lanes = [replace(quiet.plan, clip=quiet.plan.clip / 20), quiet.plan]
    ends = ends_of(quiet.model, quiet.split.train, lanes, np.random.default_rng(0))["averaged"]
    np.testing.assert_allclose(ends[1].ravel(), expected.parameters, atol=2e-3 * np.abs(expected.parameters).max())
    assert np.abs(ends[0] - ends[1]).max() > 1e-2  # the clip of a lane is its own


def test_noise_in_every_step_on_all_rows_is_what_a_simulation_computes() -> None:
    quiet = study("every step", 3)
    quiet = without_noise(quiet, batch=int(quiet.rows.min()))
    expected = Run("simulation", quiet).finish()
    lanes = [quiet.plan, replace(quiet.plan, step_size=quiet.plan.step_size / 2)]
    ends = ends_of(quiet.model, quiet.split.train, lanes, np.random.default_rng(0))["averaged"]
    np.testing.assert_allclose(ends[0].ravel(), expected.parameters, atol=5e-3 * np.abs(expected.parameters).max())


def test_the_noise_of_a_lane_has_its_planned_deviation() -> None:
    loud = study("once", 2)
    plans = [replace(loud.plan, rounds=1, noise=noise) for noise in (1e-9, 0.5, 2.0) for _ in range(200)]
    ends = ends_of(loud.model, loud.split.train, plans, np.random.default_rng(0))["mean"].reshape(3, 200, -1)
    deviations = (ends - ends[0, 0]).std(axis=(1, 2)) * np.sqrt(loud.plan.cohort)
    np.testing.assert_allclose(deviations, [0, 0.5, 2.0], rtol=0.06, atol=1e-3)


def test_merits_are_those_of_evaluate() -> None:
    for classes in (3, 0):
        one = study("once", classes)
        models = np.random.default_rng(1).normal(size=(3, 5, max(1, classes))).astype(np.float32)
        found = [evaluate(one.model, model.ravel(), one.split.test) for model in models]
        expected = [one.accuracy if classes else one.r2 for one in found]
        np.testing.assert_allclose(merits(one.model, models, one.split.test), expected, rtol=1e-4)


def test_every_row_is_in_one_group() -> None:
    records = study("once", 2).split.train
    groups = groups_of(records)
    assert sorted(number for group in groups for number in group.numbers) == list(range(records.devices))
    assert sum(group.weights.sum() for group in groups) == len(records.labels)
