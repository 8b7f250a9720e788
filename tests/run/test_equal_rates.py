"""Unequal sites with noise in every step: one rate for all, one noise on every sum, and updates that weigh by rows."""

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import choral
from choral import config
from choral.accounting.costs import Costs
from choral.core.codec import Codec
from choral.core.errors import ConfigError, PlanError
from choral.core.plan import Budget, Plan, SecureSum
from choral.engine.compiled import CompiledEngine
from choral.learning.batches import drawer_of
from choral.learning.local import local_update
from choral.learning.models import linear, logistic
from choral.learning.recipe import Recipe
from choral.learning.streams import keys
from choral.learning.trainer import LocalTraining
from choral.report.verify import verify
from choral.run.planning import plan_of, settle, weighed_rows
from choral.run.runs import Run
from choral.tables.records import Records

SIZES = (20, 60, 140, 280, 500)  # of 1000 rows: the shares of 2, 6, 14, 28 and 50 %
RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-1, 1, (1000, 3)).astype(np.float32)
SITES = np.repeat([f"site{number}" for number in range(5)], SIZES)
SETTINGS = {
    "device_column": "site", "epsilon": 4.0, "delta": 1e-4, "seed": 3, "noise_is_added": "every step",
    "rounds": 3, "steps": 2, "step_size": 0.5, "clip": 1.0,
    "columns": {f"x{place}": {"bounds": [-1, 1]} for place in range(3)}, "classes": ["0", "1"],
}  # fmt: skip


def table():
    pandas = pytest.importorskip("pandas")
    columns = {f"x{place}": ROWS[:, place] for place in range(3)}
    return pandas.DataFrame({**columns, "label": (ROWS[:, 0] > 0).astype(int), "site": SITES})


def study(**settings):
    return settle(config.job_of(**(SETTINGS | settings)), table())


def plan(**changes):
    usual = {"devices": 5, "cohort": 5, "rounds": 3, "rows": 200, "batch": 20, "step_size": 0.5, "clip": 1.0,
             "noise": 0.2, "weighing": "rows"}  # fmt: skip
    return Plan(**(usual | changes))


@pytest.mark.parametrize(
    "settings",
    [{}, {"sampling": "partition"}, {"steps": 1}],
    ids=["poisson", "partition", "one step"],
)
def test_a_simulation_and_a_rehearsal_of_unequal_sites_have_the_same_integers(settings):
    settled = study(**settings)
    runs = [Run(kind, settled, drop=0.0) for kind in ("simulation", "rehearsal")]
    for run in runs:
        run.finish()
    assert settled.plan.weighed and settled.plan.rows == 160  # 80 % of 200, the mean
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert np.abs(runs[0].parameters).max() > 0


def test_every_site_spends_its_limit_and_the_run_verifies(tmp_path):
    result = choral.simulate(table(), **SETTINGS, out=tmp_path / "run")
    assert all(0.99 * 4.0 < device.epsilon <= 4.0 for device in result.privacy.devices)
    assert verify(tmp_path / "run").good


def test_weighed_equally_the_largest_site_spends_a_fraction_of_what_the_smallest_does():
    """What happened before, and still happens where somebody asks for it."""
    settled = plan(rows=20, batch=2, weighing="equally", noise=1.0)
    limits = (Budget(epsilon=4.0, delta=1e-4),) * 5
    costs = Costs(plan=settled, secure=SecureSum.for_cohort(5), rows=np.array(SIZES), limits=limits, names=())
    spent = costs.spent_by_all(np.full(5, 3))
    assert spent[-1] < 0.2 * spent[0]


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_every_site_draws_at_one_rate(sampling):
    """Of 400 draws the mean lies within 5 standard errors of q·m; a partition has exactly ⌊m/E⌋."""
    settled = plan(sampling=sampling, local_steps=400, rounds=1)
    drawer, sizes = drawer_of(settled), np.array(SIZES)
    batches = drawer.draw(sizes, np.zeros(5, np.int64), keys(1, "batches", 0, np.arange(5)), None, drawer.room(500))
    found, expected = batches.counts.mean(axis=1), sizes / 10
    error = 5 * np.sqrt(expected / 400) if sampling == "poisson" else 0
    assert (np.abs(found - expected) <= error).all()
    assert (batches.rows < sizes[:, None, None]).all()


def noises(settled, engine):
    """Updates of five sites whose rows have no gradient: each is its noise alone."""
    model = linear(2000)
    tables = [(np.zeros((size, 2000), np.float32), np.zeros(size, np.float32)) for size in SIZES]
    if engine == "deployed":
        ends = (tables[0], tables[-1])
        trainings = [LocalTraining(model=model, plan=settled, features=rows, labels=labels) for rows, labels in ends]
        return np.stack([training.update(np.zeros(model.size, np.float32)) for training in trainings])
    records = Records.of([(str(size), *one) for size, one in zip(SIZES, tables, strict=True)])
    codec = Codec.for_plan(settled, SecureSum.for_cohort(5), model.size)
    simulated = CompiledEngine(model=model, records=records, plan=settled, codec=codec, seed=1)
    return simulated.updates(np.zeros(model.size, np.float32), 0, np.arange(5))


@pytest.mark.parametrize("engine", ["simulated", "deployed"])
@pytest.mark.parametrize("steps", [1, 4])
def test_the_smallest_site_adds_the_noise_that_its_own_figure_needs_and_so_does_every_other(engine, steps):
    """The upload of a site whose rows have no gradient is noise of at least ησ√τ, within 5 errors of a deviation."""
    settled = plan(local_steps=steps)
    wanted, found = 0.5 * 0.2 * math.sqrt(steps), noises(settled, engine).std(axis=1)
    assert (found > wanted * (1 - 5 / math.sqrt(2 * 2001))).all()
    assert (found < wanted * 1.02 * (1 + 5 / math.sqrt(2 * 2001))).all()  # float32's share of the noise is below 2 %


@pytest.mark.parametrize("rows", (SIZES[0], SIZES[-1]))
def test_one_replaced_record_of_any_site_moves_its_upload_by_no_more_than_is_charged_for(rows):
    """The distance between two neighbouring tables in units of the noise, held against μ of the ledger's event."""
    settled = plan(batch=200, sampling="partition", rounds=1)
    model, own = logistic(2, 2), Recipe.of(settled, rows)
    features, labels = np.zeros((2, rows, 2), np.float32), np.zeros((2, rows), np.int32)
    features[:, 0], labels[1, 0] = 1e3, 1  # steep, and turned round in the other table
    batch = np.arange(min(rows, settled.used_rows(rows)), dtype=np.int32)[None]
    given = (batch, np.int32([rows]), np.zeros((2, 4), np.uint32))
    clean = replace(own, noise=0.0)
    start = np.zeros(model.size, np.float32)
    one, other = (
        np.asarray(local_update(model, clean, start, *map(jnp.asarray, (*world, *given))))
        for world in zip(features, labels, strict=True)
    )
    costs = Costs(plan=settled, secure=SecureSum.for_cohort(5), rows=np.array(SIZES), limits=(), names=())
    charged = costs.of(SIZES.index(rows)).event(0).mu
    measured = np.linalg.norm(one - other) / (settled.step_size * settled.noise)
    assert 0.7 * charged < measured <= charged * 1.0001


def test_a_site_with_very_many_rows_uses_and_counts_for_sixteen_typical_ones():
    settled = plan(local_steps=4)
    assert settled.used_rows(10**6) == 16 * 200
    assert Recipe.of(settled, 10**6) == Recipe.of(settled, 3200)
    assert Recipe.of(settled, 10**6).weight == 16


def test_plans_from_before_keep_their_digest_and_rows_weigh_only_where_it_is_proved():
    before = replace(plan(), weighing="equally")
    assert "weighing" not in before.to_dict() and Plan.from_dict(plan().to_dict()) == plan()
    for change in ({"unit": "device"}, {"law": "discrete_gaussian", "sampling": "partition"},
                   {"noise_is_added": "once", "row_length": 2.0}):  # fmt: skip
        with pytest.raises(PlanError, match="CH204"):
            plan(**change)


def test_what_is_said_decides_and_equal_sites_or_a_given_batch_stay_as_they_were():
    unequal = {"epsilon": 4.0, "columns": {"x": {"bounds": [0, 1]}}}

    def weighed(typical, **settings):
        return weighed_rows(config.job_of(**(unequal | settings)), 20, typical)

    assert weighed(40.0) == ("rows", 40) and weighed(39.0) == ("equally", 20)
    assert weighed(40.0, weighing="equally") == weighed(40.0, batch=8) == ("equally", 20)
    assert weighed(None, typical_rows=100) == ("rows", 100) and weighed(None) == ("equally", 20)


def test_rows_that_weigh_without_a_typical_number_of_them_are_refused():
    job = config.job_of(weighing="rows", epsilon=4.0, noise_is_added="every step", columns={"x": {"bounds": [0, 1]}})
    with pytest.raises(ConfigError, match="CH103"):
        plan_of(job, logistic(3), devices=5, rows=100)
