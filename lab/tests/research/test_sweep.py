"""Runs of several repeats in one call: each is the run that it is alone, whichever others are trained with it."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from choral.core.errors import TrainingError
from choral.engine.compiled import CompiledEngine
from choral.engine.draws import DeviceDrawing
from choral.learning import fused
from choral.learning.models import logistic, mlp
from choral.learning.recipe import Recipe
from choral.tables.records import Records
from choral_lab.research import sweep
from choral_lab.research.sweep import RepeatOfSweep, RunOfSweep, go_together, runs_together, sweeps
from tests.engine.test_programs import CODEC, PLAN

# Programs for one run and for many round products and sums in other places, which moves an integer by a step or two.
# After five rounds of five devices that is far below this; another batch or another noise is far above it.
NEAR = 20 * CODEC.grid
MODELS = {"logistic": logistic(40), "network": mlp(40, (8,))}


@pytest.fixture(autouse=True)
def small_calls(monkeypatch):
    """A call that fills faster: an accelerator has room for more."""
    monkeypatch.setattr(sweep, "MOST_RUNS", 8)
    monkeypatch.setattr(sweep, "MOST_REPEATS", 4)


def records(repeat, *, rows=300):
    drawn = np.random.default_rng([3, repeat]).normal(size=(7, rows, 40)).astype(np.float32)
    return Records.of([(f"d{number}", rows, rows[:, 0] > 0) for number, rows in enumerate(drawn)])


def cohorts(repeat):
    return [np.array([1, 5, 2, 6, (number + repeat) % 2 * 3]) for number in range(5)]


def engine(model, plan, recipe, repeat, *, stay=True, rows=None):
    """The engine of a repeat; `stay` makes one processor draw, as an accelerator does."""
    rows = rows or records(repeat, rows=plan.rows)
    return CompiledEngine(model=model, records=rows, plan=plan, codec=CODEC, seed=4 + repeat, recipe=recipe, stay=stay)


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
        ("logistic", {}),
        ("network", {"sampling": "partition"}),
        ("logistic", {"rows": 600, "batch": 280, "local_steps": 3}),  # batches in pieces, with places that are empty
        pytest.param("network", {}, marks=pytest.mark.long),
        pytest.param("logistic", {"sampling": "partition"}, marks=pytest.mark.long),
        pytest.param("network", {"sampling": "partition", "batch": 300, "local_steps": 1}, marks=pytest.mark.long),
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


def compiled(caplog, looks):
    """How many programs of several runs are compiled to look."""
    with jax.log_compiles():
        found = looks()
    return found, len([one for one in caplog.messages if one.startswith("Compiling jit(train_runs)")])


def test_who_keeps_the_model_of_a_run_keeps_no_other():
    (look,) = looks_at(MODELS["logistic"], PLAN, [RunOfSweep(0, Recipe.of(PLAN))] * 2, repeats=1, every=5)
    assert [one.base for one in look.parameters] == [None, None]


def test_one_program_is_compiled_however_many_runs_and_repeats_there_are(caplog):
    model, recipes = MODELS["logistic"], varied(PLAN)[:2]

    def looks():
        for count in (1, 2, 4):
            runs = [RunOfSweep(repeat, one) for repeat in range(count) for one in recipes]
            looks_at(model, PLAN, runs, repeats=count, every=4)  # as in no other test

    assert compiled(caplog, looks) == (None, 1)


def test_rounds_that_do_not_fit_one_call_are_several_of_one_compiled_program(monkeypatch, caplog):
    model, runs = MODELS["logistic"], [RunOfSweep(repeat, recipe) for repeat in (0, 1) for recipe in varied(PLAN)]
    (whole,) = looks_at(model, PLAN, runs, repeats=2, every=5)
    monkeypatch.setattr(sweep, "MOST_ROUNDS", 3)
    (parts,), programs = compiled(caplog, lambda: looks_at(model, PLAN, runs, repeats=2, every=5))
    assert all(map(np.array_equal, whole.parameters, parts.parameters))
    assert programs == 1


@pytest.mark.parametrize("changed", [{}, {"sampling": "partition"}, {"batch": 280, "local_steps": 3}])
def test_what_is_drawn_for_a_round_is_about_what_is_counted(changed):
    """What rows are chosen by is counted, too, and is gone when they are chosen."""
    repeats = repeats_of(MODELS["logistic"], replace(PLAN, **changed), 4)
    drawn, _ = sweep.drawn_together(repeats, range(1), 1, 1)
    used = sum(one.nbytes for one in drawn) + 8 * drawn.rows[0].nbytes  # and the batches of each run
    counted = sweep.drawn_bytes(repeats[0].engine)
    lanes = drawn.keep.size // 4  # of each repeat
    chosen_by = 4 * lanes * 32 * repeats[0].engine.resident.drawer.cells
    assert used <= counted - chosen_by <= 1.3 * used


def test_a_look_takes_calls_of_one_size_within_the_limit(monkeypatch):
    here = engine(MODELS["logistic"], PLAN, Recipe.of(PLAN), 0)
    sizes = {every: sweep.rounds_in_a_call(here, every) for every in (1, 64, 65, 100, 130)}
    assert sizes == {1: 1, 64: 64, 65: 33, 100: 50, 130: 44}
    monkeypatch.setattr(sweep, "MOST_BYTES", 10 * sweep.drawn_bytes(here))
    assert sweep.rounds_in_a_call(here, 64) == 10  # seven calls


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_run_that_leaves_every_range_is_refused_by_its_own_round_and_step_size(bad):
    """All devices fit the start but one, which takes part in the third round. Its six steps change a weight by 25."""
    model, start = MODELS["logistic"], np.zeros(MODELS["logistic"].size, np.float32)
    start[1] = 1000.0  # for the second class, of the first feature
    rows = records(0)
    far = rows.features[4 * 300 : 5 * 300]
    far[:] = 0.0
    far[:, 0], rows.labels[4 * 300 : 5 * 300] = -5.0, 1
    sizes = [0.5, 0.6, 0.7]
    sizes[bad] = 6.0
    one = engine(model, PLAN, Recipe.of(PLAN), 0, rows=rows)
    cohorts = [np.array([1, 5, 2, 6, 4 if number == 2 else 0]) for number in range(5)]
    runs = [RunOfSweep(0, replace(Recipe.of(PLAN), step_size=size)) for size in sizes]
    with pytest.raises(TrainingError, match=r"(?s)CH700 round 3: 1 of 5 .*step size below 6,"):
        list(runs_together([RepeatOfSweep(one, start, cohorts)], runs, first=1, every=5))


def test_rows_that_are_not_finite_in_one_repeat_are_guarded_in_all():
    model, run = MODELS["network"], RunOfSweep(1, replace(Recipe.of(PLAN), noise=0.0))
    plan, spoilt = replace(PLAN, noise=0.0), records(1)
    spoilt.features[::3, 7] = np.inf
    recipe = run.recipe
    each = [
        CompiledEngine(model=model, records=rows, plan=plan, codec=CODEC, seed=4 + number, recipe=recipe)
        for number, rows in enumerate([records(0), spoilt])
    ]
    theirs = each[1].rounds(model.start(1), cohorts(1), first=1, every=5)
    for one in each:
        one.resident = DeviceDrawing.of(one.drawing)
    (expected,) = [one.parameters for one in theirs]
    each[1].rounds_of[:] = 0
    repeats = [RepeatOfSweep(one, model.start(number), cohorts(number)) for number, one in enumerate(each)]
    (found,) = runs_together(repeats, [run], first=1, every=5)
    assert np.isfinite(found.parameters[0]).all()
    assert np.abs(found.parameters[0] - expected).max() < NEAR


def test_runs_go_together_where_a_full_call_does_not_need_more_than_one_processor(monkeypatch):
    model, recipe, rows = MODELS["network"], Recipe.of(PLAN), records(0).features.nbytes
    here = engine(model, PLAN, recipe, 0)
    assert go_together(here)
    assert not go_together(engine(model, PLAN, recipe, 0, stay=False))
    whole_updates = replace(recipe, clip=np.inf, noise=0.0, update_clip=1.0)
    assert not go_together(engine(model, PLAN, whole_updates, 0))
    long_rounds = engine(model, replace(PLAN, local_steps=40), recipe, 0)
    drawn, in_lanes = sweep.drawn_bytes(long_rounds), 8 * here.lanes * model.held(here.room)
    assert drawn > 4 * rows > sweep.drawn_bytes(here)
    limits = [("MOST_BYTES", here, 4 * rows), ("MOST_BYTES", long_rounds, drawn), ("MOST_IN_LANES", here, in_lanes)]
    for name, one, least in limits:
        with monkeypatch.context() as limited:
            limited.setattr(sweep, name, least)
            assert go_together(one)
            limited.setattr(sweep, name, least - 1)
            assert not go_together(one)
    monkeypatch.setattr(here.resident, "mesh", object())  # rounds that are spread over several processors
    assert not go_together(here)


@pytest.mark.parametrize(("runs", "repeats"), [(0, 1), (9, 1), (1, 5)])
def test_a_call_is_for_no_other_number_of_runs_and_repeats(runs, repeats):
    run = RunOfSweep(0, Recipe.of(PLAN))
    with pytest.raises(ValueError, match=f"{runs} runs of {repeats} repeats, of 8 and 4 in a call"):
        looks_at(MODELS["logistic"], PLAN, [run] * runs, repeats=repeats)


def test_repeats_with_other_numbers_of_rounds_are_no_call():
    one, other = repeats_of(MODELS["logistic"], PLAN, 2)
    with pytest.raises(ValueError, match="too many values"):
        next(runs_together([one, other._replace(cohorts=other.cohorts[:3])], [RunOfSweep(0, Recipe.of(PLAN))]))


def test_the_kernel_that_takes_the_lanes_of_one_run_is_not_used_for_several(monkeypatch):
    class UsedError(Exception):
        pass

    def used(*_):
        raise UsedError

    monkeypatch.setattr(fused, "dense_step", used)
    model, plan = mlp(40, (512,)), replace(PLAN, sampling="partition")
    one, recipe = engine(model, plan, Recipe.of(plan), 0), Recipe.of(plan)
    one.form = replace(one.form, shortcuts=replace(one.form.shortcuts, kernels=True))
    with pytest.raises(UsedError):  # as on a GPU, for one run
        next(one.rounds(model.start(0), cohorts(0), first=1))
    one.rounds_of[:] = 0
    begun = RepeatOfSweep(one, model.start(0), cohorts(0)[:1])
    (look,) = runs_together([begun], [RunOfSweep(0, recipe)], first=1)
    assert np.isfinite(look.parameters).all()


def test_only_a_lone_accelerator_mixes_repeats(monkeypatch):
    class Processor:
        def __init__(self, platform):
            self.platform = platform

    for platforms, mixed in ((["cpu"], False), (["gpu"], True), (["gpu", "gpu"], False)):
        monkeypatch.setattr(jax, "devices", lambda platforms=platforms: [*map(Processor, platforms)])
        assert sweep.mixes_repeats() is mixed


def here(model=MODELS["logistic"], recipe=None):
    return engine(model, PLAN, recipe, 0, stay=None)


def test_what_is_no_dense_stack_or_weighs_its_rows_is_trained_by_itself():
    assert sweeps(here())
    assert not sweeps(here(replace(MODELS["logistic"], widths=())))
    assert not sweeps(here(recipe=replace(Recipe.of(PLAN), clip=np.inf, noise=0.0, update_clip=1.0)))


def test_runs_are_one_call_on_one_cpu_alone():
    """Elsewhere the compiler adds in another order for another number of runs, and several processors share a round."""
    one = here()
    (cpu,) = one.processors
    assert sweeps(one)
    one.processors = [SimpleNamespace(platform="gpu")]
    assert not sweeps(one)
    one.processors = [cpu, cpu]
    assert not sweeps(one)
