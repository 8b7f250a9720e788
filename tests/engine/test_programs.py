"""Runs of one form that are trained in one call: each has the bits that it has alone."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from choral.core.codec import Codec
from choral.core.errors import TrainingError
from choral.core.plan import Plan
from choral.engine.compiled import CompiledEngine
from choral.learning.models import logistic, mlp
from choral.learning.recipe import Recipe
from choral.tables.records import Records

CODEC = Codec(grid=2.0**-18, largest=2**22, cohort=5, word_bits=64)
ROWS = np.random.default_rng(3).normal(size=(7, 300, 40)).astype(np.float32)
RECORDS = Records.of([(f"d{number}", rows, rows[:, 0] > 0) for number, rows in enumerate(ROWS)])
PLAN = Plan(devices=7, cohort=5, rounds=5, rows=300, batch=50, step_size=0.5, clip=1.0, noise=0.01, local_steps=6)
COHORTS = [np.array([1, 5, 2, 6, number % 2 * 3]) for number in range(5)]


def engine(model, plan, recipe, *further):
    return CompiledEngine(model=model, records=RECORDS, plan=plan, codec=CODEC, seed=4, recipe=recipe, further=further)


def alone(model, plan, recipe, every):
    progress = engine(model, plan, recipe).rounds(model.start(0), COHORTS, first=1, every=every)
    return [(one.done, one.parameters) for one in progress]


@pytest.mark.parametrize(
    ("model", "changed", "recipes"),
    [
        (logistic(40), {"sampling": "poisson"}, [{"noise": 0.2}, {"clip": 3.0}, {"step_size": 2.0}]),
        pytest.param(
            mlp(40, (32, 16)), {}, [{}, {"clip": 0.3, "noise": 0.1}, {"step_size": 2.0}], marks=pytest.mark.long
        ),
        pytest.param(mlp(40, (8,)), {"local_steps": 2}, [{}, {"clip": 0.3, "noise": 0.1}], marks=pytest.mark.long),
        (logistic(40), {"batch": 300, "local_steps": 1}, [{"step_size": 0.1}]),
    ],
    ids=["logistic", "large network", "network", "one run of one step"],
)
def test_runs_that_go_together_have_the_bits_that_they_have_alone(model, changed, recipes):
    plan = replace(PLAN, **changed)
    each = [replace(Recipe.of(plan), **one) for one in recipes]
    looks = list(engine(model, plan, *each).rounds(model.start(0), COHORTS, first=1, every=2))
    assert [look.done for look in looks] == [2, 4, 5]
    for number, recipe in enumerate(each):
        for look, (their_done, theirs) in zip(looks, alone(model, plan, recipe, 2), strict=True):
            assert look.done == their_done
            assert np.array_equal(look.models[number], theirs)


def test_all_calls_of_several_runs_are_one_compiled_program():
    model, each, compiled = mlp(40, (3,)), [Recipe.of(PLAN)] * 3, []
    progress = engine(model, PLAN, *each).rounds(model.start(0), COHORTS, every=2)
    assert next(progress).done == 2
    jax.monitoring.register_event_duration_secs_listener(
        listener := lambda event, seconds, **_: compiled.append(seconds) if "backend_compile" in event else None
    )
    try:
        assert [look.done for look in progress] == [4, 5]
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert not compiled


def test_a_run_that_leaves_every_range_is_refused_by_its_own_step_size():
    each = [replace(Recipe.of(PLAN), step_size=size) for size in (0.5, 1e9)]
    with pytest.raises(TrainingError, match=r"CH700 round 1: .*step size below 1e\+09"):
        list(engine(logistic(40), PLAN, *each).rounds(logistic(40).start(0), COHORTS, first=1))
