"""Runs of one form that are trained in one call: each has the bits that it has alone."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from choral.backends import sweep
from choral.backends.sweep import rounds_together, sweeps
from choral.backends.vectorised import Vectorised
from choral.core.codec import Codec
from choral.core.errors import TrainingError
from choral.core.plan import Plan
from choral.learning.models import logistic, mlp
from choral.learning.recipe import Recipe
from choral.tables.records import Records

CODEC = Codec(grid=2.0**-18, largest=2**22, cohort=5, word_bits=64)
ROWS = np.random.default_rng(3).normal(size=(7, 300, 40)).astype(np.float32)
RECORDS = Records.of([(f"d{number}", rows, rows[:, 0] > 0) for number, rows in enumerate(ROWS)])
PLAN = Plan(devices=7, cohort=5, rounds=5, rows=300, batch=50, step_size=0.5, clip=1.0, noise=0.01, local_steps=6)
COHORTS = [np.array([1, 5, 2, 6, number % 2 * 3]) for number in range(5)]


def engine(model, plan, recipe):
    return Vectorised(model=model, records=RECORDS, plan=plan, codec=CODEC, seed=4, recipe=recipe)


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
    looks = list(rounds_together(engine(model, plan, each[0]), each, model.start(0), COHORTS, first=1, every=2))
    assert [done for done, _ in looks] == [2, 4, 5]
    for number, recipe in enumerate(each):
        for (done, found), (their_done, theirs) in zip(looks, alone(model, plan, recipe, 2), strict=True):
            assert done == their_done
            assert np.array_equal(found[number], theirs)


def test_rounds_between_two_looks_that_do_not_fit_one_call_are_several(monkeypatch):
    model, each = logistic(40), [Recipe.of(PLAN), replace(Recipe.of(PLAN), step_size=1.0)]
    (whole,) = rounds_together(engine(model, PLAN, each[0]), each, model.start(0), COHORTS, every=5)
    monkeypatch.setattr(sweep, "MOST_BYTES", 2 * 4 * (5 + 3) * 6 * 50)  # two rounds
    (parts,) = rounds_together(engine(model, PLAN, each[0]), each, model.start(0), COHORTS, every=5)
    assert all(map(np.array_equal, whole.parameters, parts.parameters))
    assert not np.array_equal(*parts.parameters)


def test_all_calls_of_a_sweep_are_one_compiled_program(caplog):
    model, each = mlp(40, (3,)), [Recipe.of(PLAN)] * 3
    with jax.log_compiles():
        looks = list(rounds_together(engine(model, PLAN, each[0]), each, model.start(0), COHORTS, every=2))
    compiled = [one for one in caplog.messages if one.startswith("Compiling jit(train_runs)")]
    assert (len(looks), len(compiled)) == (3, 1)


def test_a_compiler_without_an_option_that_saves_time_compiles_without_it(monkeypatch):
    recipe = Recipe.of(PLAN)
    (usual,) = rounds_together(engine(logistic(40), PLAN, recipe), [recipe], logistic(40).start(0), COHORTS, every=5)
    monkeypatch.setattr(sweep, "OLDER_KERNELS", "xla_cpu_no_such_option")
    sweep.compiled_for.cache_clear()
    (found,) = rounds_together(engine(logistic(40), PLAN, recipe), [recipe], logistic(40).start(0), COHORTS, every=5)
    sweep.compiled_for.cache_clear()
    assert np.array_equal(found.parameters, usual.parameters)


def test_a_run_that_leaves_every_range_is_refused_by_its_own_step_size():
    each = [replace(Recipe.of(PLAN), step_size=size) for size in (0.5, 1e9)]
    with pytest.raises(TrainingError, match=r"CH700 round 1: .*step size below 1e\+09"):
        list(rounds_together(engine(logistic(40), PLAN, each[0]), each, logistic(40).start(0), COHORTS, first=1))


def test_what_is_no_dense_stack_or_weighs_its_rows_is_trained_by_itself():
    assert sweeps(engine(logistic(40), PLAN, None))
    assert not sweeps(engine(replace(logistic(40), widths=()), PLAN, None))
    assert not sweeps(engine(logistic(40), PLAN, replace(Recipe.of(PLAN), clip=np.inf, noise=0.0, update_clip=1.0)))


def test_runs_are_one_call_on_one_cpu_alone():
    """Elsewhere the compiler adds in another order for another number of runs, and several processors share a round."""
    here = engine(logistic(40), PLAN, Recipe.of(PLAN))
    (cpu,) = here.processors
    assert sweeps(here)
    here.processors = [SimpleNamespace(platform="gpu")]
    assert not sweeps(here)
    here.processors = [cpu, cpu]
    assert not sweeps(here)
