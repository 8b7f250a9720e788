"""Theorem 2 beside what is measured, on a loss whose minimum and constants are known."""

import numpy as np
import pytest

from choral_lab.convergence_bounds import convergence
from choral_lab.research import (
    SO_FAR,
    Experiment,
    Measurements,
    Records,
    Task,
    bounded,
    logistic,
    logistic_constants,
    regularised,
    theorem_2,
)

L2 = 0.5
ROWS = np.random.default_rng(0).uniform(-1, 1, size=(500, 2)).astype(np.float32)
RECORDS = Records.of([(name, ROWS, ROWS[:, 0] > 0) for name in ("a", "b")])
TASK = Task.of("signs", RECORDS, lambda features: regularised(logistic(features), L2))
EVERY_ROUND = Experiment(
    task=TASK, cohort=2, rounds=4, local_steps=2, batch=40, step_size=0.1, clip=10.0, noise=0.2,
    sampling="poisson", looks=4, also=("train_loss", "squared_gradient_norm"),
)  # fmt: skip


def test_a_regularised_model_adds_half_of_l2_times_the_squared_norm_and_is_the_same_object_always():
    plain, model = logistic(2), regularised(logistic(2), L2)
    flat = np.float32([1, -2, 3, 0, 0.5, 1])
    losses = [one.loss(one.unravel(flat), ROWS[0], np.int32(1)) for one in (model, plain)]
    assert float(losses[0] - losses[1]) == pytest.approx(0.5 * L2 * 15.25, rel=1e-5)  # 1 + 4 + 9 + 0 + 1/4 + 1
    assert model is regularised(logistic(2), L2)
    assert model.widths == ()


def test_theorem_2_is_reported_next_to_the_mean_of_the_gradients_at_the_starts_of_the_rounds(tmp_path):
    measurements = Measurements(tmp_path, 2)
    known = logistic_constants(np.hstack([ROWS, np.ones((500, 1))]), RECORDS.labels[:500], l2=L2)
    reported, lines = theorem_2(measurements, EVERY_ROUND, known, start_loss=float(np.log(2)))
    seen = measurements.curves(EVERY_ROUND)
    # By hand: round 1 starts where the run does, round 4 where round 3 ended.
    norms = [EVERY_ROUND.gradient_at_start(0), *seen[0]["squared_gradient_norm"][:3]]
    assert lines["measured"][0][SO_FAR] == pytest.approx([np.mean(norms[:n]) for n in (1, 2, 3, 4)])
    # By strong convexity no minimum lies below f − ‖∇f‖²/(2λ); of two runs the one that says less is believed.
    least = [max(np.array(one["train_loss"]) - np.array(one["squared_gradient_norm"]) / (2 * L2)) for one in seen]
    assert 0 < min(least) < min(seen[0]["train_loss"])
    assert reported["initial_gap"] == pytest.approx(np.log(2) - min(least))
    bound = convergence(
        kind="non_convex", version="corrected", initial_gap=reported["initial_gap"], step_size=0.1, noise=0.2, steps=8,
        smoothness=known.smoothness, dimension=6, cohort=2, batch=40, local_steps=2,
        gradient_deviation=known.gradient_deviation,
    )  # fmt: skip
    assert reported["Theorem 2, corrected"]["mean"] == pytest.approx(bound.bound, abs=1e-6)
    assert bounded(reported)[0].endswith("holds here, in every repeat; in general only the corrected one does")


def test_a_bound_holds_only_if_no_repeat_is_above_it():
    found = {"measured": {"mean": 1.0, "each": [0.9, 1.1]}}
    for published, corrected, verdict in (
        (1.2, 2.0, "published and corrected: holds"),
        (1.0, 2.0, "corrected: holds"),
        (1.0, 1.05, "does not hold"),
    ):
        ends = {"Theorem 2, published": {"mean": published}, "Theorem 2, corrected": {"mean": corrected}}
        assert bounded({**found, **ends})[0].startswith(verdict)
