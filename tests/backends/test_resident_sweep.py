"""Runs of several repeats in one call: each is the run that it is alone, whichever others are trained with it."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from choral.backends import resident_sweep
from choral.backends.resident import Resident
from choral.backends.resident_sweep import RepeatOfSweep, RunOfSweep, go_together, runs_together
from choral.backends.vectorised import Vectorised
from choral.errors import TrainingError
from choral.learning.models import logistic, mlp
from choral.learning.recipe import Recipe
from choral.learning.records import Records
from tests.backends.test_sweep import CODEC, PLAN

# Programs for one run and for many round products and sums in other places, which moves an integer by a step or two.
# After five rounds of five devices that is far below this; another batch or another noise is far above it.
NEAR = 20 * CODEC.grid
MODELS = {"logistic": logistic(40), "network": mlp(40, (8,))}


@pytest.fixture(autouse=True)
def eight_runs(monkeypatch):
    """A call that fills faster: an accelerator has room for more."""
    monkeypatch.setattr(resident_sweep, "MOST_RUNS", 8)


def records(repeat, *, rows=300):
    drawn = np.random.default_rng([3, repeat]).normal(size=(7, rows, 40)).astype(np.float32)
    return Records.of([(f"d{number}", rows, rows[:, 0] > 0) for number, rows in enumerate(drawn)])


def cohorts(repeat):
    return [np.array([1, 5, 2, 6, (number + repeat) % 2 * 3]) for number in range(5)]


def engine(model, plan, recipe, repeat, *, stay=True):
    """The engine of a repeat; `stay` makes one processor draw, as an accelerator does."""
    one = Vectorised(model=model, records=records(repeat), plan=plan, codec=CODEC, seed=4 + repeat, recipe=recipe)
    one.resident = Resident.of(one.form, one.drawing, one.traced_codec) if stay else None
    return one


def repeats_of(model, plan, count):
    recipe = Recipe.of(plan)
    return [
        RepeatOfSweep(engine(model, plan, recipe, repeat), model.start(repeat), cohorts(repeat))
        for repeat in range(count)
    ]


def looks_at(model, plan, runs, *, repeats=3, every=2):
    return list(runs_together(repeats_of(model, plan, repeats), runs, first=1, every=every))


def alone(model, plan, run, every=2):
    progress = engine(model, plan, run.recipe, run.repeat, stay=False).rounds(
        model.start(run.repeat), cohorts(run.repeat), first=1, every=every
    )
    return [(one.done, one.parameters) for one in progress]


def varied(plan):
    recipe = Recipe.of(plan)
    return [recipe, replace(recipe, clip=0.3, noise=0.1), replace(recipe, step_size=2.0)]


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        ("logistic", {"sampling": "poisson"}),
        ("network", {}),
        pytest.param("logistic", {"passes": "continue"}, marks=pytest.mark.long),
        pytest.param("network", {"batch": 300, "local_steps": 1}, marks=pytest.mark.long),
    ],
)
def test_runs_of_several_repeats_are_the_runs_that_they_are_alone(model, changed):
    model, plan = MODELS[model], replace(PLAN, **changed)
    runs = [RunOfSweep(repeat, recipe) for repeat in (2, 0) for recipe in varied(plan)]
    looks = looks_at(model, plan, runs)
    assert [done for done, _ in looks] == [2, 4, 5]
    assert [len(models) for _, models in looks] == [6, 6, 6]
    for number, run in enumerate(runs):
        for (done, found), (their_done, theirs) in zip(looks, alone(model, plan, run), strict=True):
            assert done == their_done
            assert np.abs(found[number] - theirs).max() < NEAR
    ends = looks[-1].parameters
    apart = [np.abs(one - other).max() for number, one in enumerate(ends) for other in ends[:number]]
    assert min(apart) > 100 * NEAR


def test_no_bit_of_a_run_depends_on_the_runs_that_are_trained_with_it():
    model, (plain, quiet, fast) = MODELS["network"], varied(PLAN)
    runs = [RunOfSweep(1, quiet), RunOfSweep(0, plain), RunOfSweep(2, fast)]
    (several,) = looks_at(model, PLAN, runs, every=5)
    others = [RunOfSweep(0, fast), RunOfSweep(1, plain), RunOfSweep(1, quiet), RunOfSweep(0, quiet)]
    (found,) = looks_at(model, PLAN, others, repeats=2, every=5)
    assert np.array_equal(several.parameters[0], found.parameters[2])
    (single,) = looks_at(model, PLAN, [RunOfSweep(0, plain)], repeats=1, every=5)
    assert np.array_equal(several.parameters[1], single.parameters[0])


def test_rounds_that_do_not_fit_one_call_are_several_of_one_compiled_program(monkeypatch, caplog):
    model, runs = MODELS["logistic"], [RunOfSweep(repeat, recipe) for repeat in (0, 1) for recipe in varied(PLAN)]
    (whole,) = looks_at(model, PLAN, runs, repeats=2, every=5)
    monkeypatch.setattr(resident_sweep, "MOST_ROUNDS", 2)
    with jax.log_compiles():
        (parts,) = looks_at(model, PLAN, runs, repeats=2, every=5)
    assert all(map(np.array_equal, whole.parameters, parts.parameters))
    assert len([one for one in caplog.messages if one.startswith("Compiling jit(_train)")]) == 1


def test_what_is_drawn_for_a_call_is_within_the_limit(monkeypatch):
    repeats = repeats_of(MODELS["logistic"], PLAN, 2)
    drawn, _ = resident_sweep._drawn(repeats, range(1), 1, 1)
    used = sum(one.nbytes for one in drawn) + 8 * drawn.rows[0].nbytes  # and the batches of each run
    monkeypatch.setattr(resident_sweep, "MOST_BYTES", 3 * used)
    assert 1 <= resident_sweep._rounds_in_a_call(repeats) <= 3


def test_a_run_that_leaves_every_range_is_refused_by_its_own_round_and_step_size():
    steps = [replace(Recipe.of(PLAN), step_size=size) for size in (0.5, 1e9)]
    with pytest.raises(TrainingError, match=r"CH700 round 1: .*step size below 1e\+09"):
        looks_at(MODELS["logistic"], PLAN, [RunOfSweep(1, steps[0]), RunOfSweep(0, steps[1])], repeats=2)


def test_rows_that_are_not_finite_in_one_repeat_are_guarded_in_all():
    model, run = MODELS["network"], RunOfSweep(1, replace(Recipe.of(PLAN), noise=0.0))
    plan, spoilt = replace(PLAN, noise=0.0), records(1)
    spoilt.features[::3, 7] = np.inf
    recipe = run.recipe
    each = [
        Vectorised(model=model, records=rows, plan=plan, codec=CODEC, seed=4 + number, recipe=recipe)
        for number, rows in enumerate([records(0), spoilt])
    ]
    theirs = each[1].rounds(model.start(1), cohorts(1), first=1, every=5)
    for one in each:
        one.resident = Resident.of(one.form, one.drawing, one.traced_codec)
    (expected,) = [one.parameters for one in theirs]
    each[1].rounds_of[:] = 0
    repeats = [RepeatOfSweep(one, model.start(number), cohorts(number)) for number, one in enumerate(each)]
    (found,) = runs_together(repeats, [run], first=1, every=5)
    assert np.isfinite(found.parameters[0]).all()
    assert np.abs(found.parameters[0] - expected).max() < NEAR


def test_runs_go_together_on_one_processor_with_alike_repeats_that_do_not_more_than_fill_it(monkeypatch):
    model, recipe = MODELS["network"], Recipe.of(PLAN)
    here, rows = engine(model, PLAN, recipe, 0), [records(0), records(1)]
    assert go_together(here, rows)
    assert not go_together(engine(model, PLAN, recipe, 0, stay=False), rows)
    assert not go_together(here, [records(0), records(1, rows=301)])
    whole_updates = replace(recipe, clip=np.inf, noise=0.0, update_clip=1.0)
    assert not go_together(engine(model, PLAN, whole_updates, 0), rows)
    with monkeypatch.context() as less:
        less.setattr(resident_sweep, "MOST_BYTES", 2 * rows[0].features.nbytes - 1)
        assert not go_together(here, rows)
        assert go_together(here, rows[:1])
    monkeypatch.setattr(resident_sweep, "LANES_ELSEWHERE", 8 * here.lanes * model.held(here.room) - 1)
    assert not go_together(here, rows)


def test_only_a_lone_accelerator_mixes_repeats(monkeypatch):
    class Processor:
        def __init__(self, platform):
            self.platform = platform

    for platforms, mixed in ((["cpu"], False), (["gpu"], True), (["gpu", "gpu"], False)):
        monkeypatch.setattr(jax, "devices", lambda platforms=platforms: [*map(Processor, platforms)])
        assert resident_sweep.mixes_repeats() is mixed
