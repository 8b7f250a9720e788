"""Persons as units: which rows are used, and how far one person can move a sum or an upload."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.errors import PlanError
from choral.core.plan import Plan
from choral.learning.local import local_update
from choral.learning.models import Model, binary, linear, logistic, mlp, own
from choral.learning.once import LocalWork, local_work
from choral.learning.persons import LABEL, USED, grouped, grouped_records, model_of_units, rows_of, split_units
from choral.learning.recipe import Recipe
from choral.tables.records import Records

MOST = 3
MODELS = {"two logits": logistic(2), "one logit": binary(2), "squared": linear(2), "three classes": logistic(2, 3)}


def plan_of_persons(**numbers) -> Plan:
    usual = {"devices": 1, "cohort": 1, "rounds": 1, "rows": 4, "batch": 4, "step_size": 1.0, "clip": 1.0, "noise": 0.0}
    return Plan(**usual | {"unit": "person", "rows_per_person": MOST} | numbers)


def table_of(model: Model, rng: np.random.Generator, persons: int):
    """A table of so many persons, each with one to five rows, in a random order of rows."""
    whose = rng.permutation(np.repeat(np.arange(persons), rng.integers(1, 6, persons)))
    features = rng.normal(0, rng.choice([0.1, 1.0, 5.0]), (len(whose), 2)).astype(np.float32)
    classes = model.classes
    labels = rng.integers(0, classes, len(whose)) if classes else rng.uniform(-3, 3, len(whose)).astype(np.float32)
    return features, labels, whose


def with_another_person(model: Model, rng: np.random.Generator, table):
    """The same table, all rows of person 0 replaced by other rows, more or fewer, at other places."""
    others = [part[table[2] != 0] for part in table]
    count = int(rng.integers(1, 6))
    labels = rng.integers(0, model.classes, count) if model.classes else rng.uniform(-3, 3, count).astype(np.float32)
    new = (rng.normal(0, 3, (count, 2)).astype(np.float32), labels, np.zeros(count, np.int64))
    behind = 1 + rng.permutation(len(others[2]) + count - 1)  # the first row stays, so that person 0 is the first unit
    place = np.concatenate([[0], np.sort(behind[: count - 1]), np.sort(behind[count - 1 :])])
    return tuple(np.concatenate([mine, rest])[np.argsort(place)] for mine, rest in zip(new, others, strict=True))


def first_person_first(table):
    """The table with the rows of person 0 in front, so that units have the same numbers in both worlds."""
    order = np.argsort(table[2] != 0, kind="stable")
    return tuple(part[order] for part in table)


def test_of_a_person_the_first_rows_of_the_table_are_used_and_the_others_are_left_out():
    whose = np.array([7, 9, 7, 7, 9, 7])
    units = grouped(np.arange(6, dtype=np.float32)[:, None], np.arange(6) % 2, whose, 3)
    assert units[0, :, 0].tolist() == [0, 2, 3] and units[0, :, USED].tolist() == [1, 1, 1]
    assert units[1, :2, 0].tolist() == [1, 4] and units[1, :, USED].tolist() == [1, 1, 0]
    assert units[..., LABEL].tolist() == [[0, 0, 1], [1, 0, 1]]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_replacing_a_person_changes_no_other_unit(seed):
    rng = np.random.default_rng(seed)
    table = first_person_first(table_of(MODELS["one logit"], rng, 6))
    other = with_another_person(MODELS["one logit"], rng, table)
    one, two = grouped(*table, MOST), grouped(*other, MOST)
    assert len(one) == len(two) and np.array_equal(one[1:], two[1:])


def test_no_person_is_both_trained_on_and_judged_by():
    rng = np.random.default_rng(0)
    features, labels, whose = table_of(MODELS["one logit"], rng, 60)
    features[:, 0] = whose  # so that rows can be distinguished
    records = Records.of([("a", features, labels)])
    split = split_units(records, whose, 5, 1, 0.2, 0.2)
    parts = [set(part.features[:, 0]) for part in (rows_of(split.train), split.validation, split.test)]
    assert sum(map(len, parts)) == 60 and len(set.union(*parts)) == 60
    assert split.train.sizes.tolist() == [36]


def test_a_persons_rows_are_averaged_and_unused_places_count_for_nothing():
    model = binary(2)
    units = grouped(np.float32([[1, 2], [3, 1]]), np.array([0, 1]), np.array([4, 4]), MOST)
    tree = model.unravel(jnp.float32([0.3, -0.2, 0.1]))
    gradient = jax.grad(model_of_units(model, plan_of_persons()).loss)(tree, jnp.asarray(units[0]), jnp.int32(0))
    rows = [jax.grad(model.loss)(tree, units[0, row, :2], units[0, row, LABEL].astype(np.int32)) for row in (0, 1)]
    for whole, one, two in zip(*map(jax.tree.leaves, (gradient, *rows)), strict=True):
        np.testing.assert_allclose(whole, (one + two) / 2, rtol=1e-5)


@pytest.mark.parametrize("model", [logistic(2), mlp(2, (4,), 2)], ids=["logistic", "network"])
def test_one_person_moves_a_sum_by_no_more_than_two_clips_however_many_rows_it_has(model):
    rng, plan = np.random.default_rng(3), plan_of_persons(clip=0.05)
    start, of_persons = model.start(1), model_of_units(model, plan)
    recipe = Recipe(steps=1, batch=1, step_size=1.0, clip=0.05)  # the update is the sum itself
    update = jax.jit(partial(local_update, of_persons, recipe))

    def total(table) -> np.ndarray:
        units = grouped(*table, MOST)
        batch, count = np.arange(len(units))[None], np.array([len(units)])
        labels, keys = np.zeros(len(units), np.int32), np.zeros((2, 2), np.uint32)
        return np.asarray(update(start, units, labels, batch, count, keys))

    moved = []
    for _ in range(10):
        table = first_person_first(table_of(model, rng, 4))
        moved.append(np.linalg.norm(total(table) - total(with_another_person(model, rng, table))))
    assert 0.05 < max(moved) <= 0.1 * (1 + 1e-5)  # clipped row by row it would be up to three times that


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_person_moves_an_upload_with_noise_once_by_no_more_than_the_rule_says(name, seed):
    model, rng = MODELS[name], np.random.default_rng(seed)
    persons, row_length = int(rng.integers(2, 9)), 2.0
    work = LocalWork(local_time=float(rng.choice([0.1, 3.0, 40.0])), divisor=persons, clip=0.2 * row_length,
                     row_length=row_length, upload_bound=1e3)  # fmt: skip
    table = first_person_first(table_of(model, rng, persons))
    start, of_persons = rng.normal(0, 3, model.size).astype(np.float32), model_of_units(model, plan_of_persons())

    def upload(table) -> np.ndarray:
        units = grouped(*table, MOST)
        return local_work(of_persons, work, start, units, np.zeros(len(units), np.int32))

    moved = np.linalg.norm(upload(table) - upload(with_another_person(model, rng, table)))
    assert moved <= 2 * work.clip * work.local_time / work.divisor * (1 + work.rounding(of_persons, persons))


def test_a_person_whose_rows_all_pull_one_way_moves_an_upload_by_all_of_the_bound():
    model = binary(2)
    work = LocalWork(local_time=0.5, divisor=4, clip=0.05, row_length=2.0, upload_bound=10.0)
    of_persons = model_of_units(model, plan_of_persons())

    def upload(label: int) -> np.ndarray:
        features, whose = np.array([[0.8, 0.6]] * 6, np.float32), np.array([0, 0, 0, 1, 2, 3])
        units = grouped(features, np.array([label] * 3 + [0, 1, 1]), whose, MOST)
        return local_work(of_persons, work, np.zeros(model.size, np.float32), units, np.zeros(4, np.int32))

    assert math.isclose(
        np.linalg.norm(upload(1) - upload(0)), 2 * work.clip * work.local_time / work.divisor, rel_tol=1e-6
    )


def test_rows_of_persons_go_back_to_rows():
    rows = Records.of([("a", [[1.0], [2.0]], [0, 1]), ("b", [[3.0]], [1])])
    again = rows_of(grouped_records(rows, np.array(["x", "y", "x"]), 2))
    assert again.features.tolist() == rows.features.tolist() and again.labels.tolist() == rows.labels.tolist()
    assert again.sizes.tolist() == [2, 1]


@pytest.mark.parametrize("unit", [{}, {"unit": "device", "rows_per_person": 0}], ids=["person", "device"])
def test_a_model_that_another_framework_trains_is_refused(unit):
    model = own(lambda _: jnp.zeros(2), lambda w, x, y: x @ w - y, lambda w, rows: rows @ w[:, None], features=2,
                trainer=lambda *_: None)  # fmt: skip
    with pytest.raises(PlanError, match="CH204"):
        model_of_units(model, plan_of_persons(**unit))


def test_a_plan_says_how_many_rows_of_a_person_are_used_and_only_then():
    with pytest.raises(PlanError, match="rows_per_person"):
        plan_of_persons(rows_per_person=0)
    with pytest.raises(PlanError, match="rows_per_person"):
        plan_of_persons(unit="record")
    assert "unit" not in plan_of_persons(unit="record", rows_per_person=0).to_dict()
