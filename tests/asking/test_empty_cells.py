"""Cells without a value: no answer is biased by them, every answer says how many rows have one, and intervals hold."""

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from choral.asking.catalogue import estimate, read_model, summand
from choral.asking.cells import condition
from choral.asking.question import Question
from choral.tables.columns import Categorical, Numeric
from tests.asking.coverage import noisy
from tests.asking.fitting import fitted
from tests.asking.people import table

COLUMNS = {
    "bmi": Numeric(name="bmi", low=10, high=60),
    "risk": Numeric(name="risk", low=-4, high=4),
    "age": Numeric(name="age", low=0, high=100, whole=True),
    "days": Numeric(name="days", low=0, high=1000),
    "died": Categorical(name="died", levels=("0", "1")),
    "sex": Categorical(name="sex", levels=("f", "m")),
    "lab": None,
}
HAZARD = 1 / 700
EMPTY = (0.0, 0.05, 0.2, 0.4)  # of the cells of each column


def drawn(chance, rows, share):
    """Rows of which this share of the cells of each column is empty."""
    risk, died, left = chance.normal(0, 1, rows), chance.exponential(1 / HAZARD, rows), chance.uniform(0, 1500, rows)
    columns = {
        "bmi": 10 + 50 * chance.beta(2, 4, rows),
        "risk": risk,
        "age": chance.binomial(100, 0.5, rows),
        "days": np.minimum(np.minimum(died, left), 1000),
        "died": (died <= np.minimum(left, 1000)).astype(int),
        "sex": np.where(chance.random(rows) < 0.3, "f", "m"),
        "lab": 80 + 5 * (0.6 * risk + 0.8 * chance.normal(0, 1, rows)),
    }
    holes = {name: chance.random(rows) < share for name in columns}
    return table(**{
        name: [None if hole else cell for cell, hole in zip(cells.tolist(), holes[name], strict=True)]
        for name, cells in columns.items()
    })  # fmt: skip


LAB = {**COLUMNS, "lab": Numeric(name="lab", low=50, high=110)}
LIVES = {"time": "days", "event": "died", "until": 1000, "bins": 8}
ALIVE = np.exp(-HAZARD * 125 * np.arange(1, 9))
BMI = beta(2, 4, 10, 50)
BINS = np.linspace(10, 60, 9)[1:]


def ask(name, **parameters):
    return Question(name=name, parameters=parameters)


# A question, what each of its rows should say, and its noise in parts of l2.
ASKED = {
    "mean": (ask("mean", column="bmi"), [BMI.mean(), BMI.var()], 4),
    "mean of some": (ask("mean", column="bmi", where=[condition("sex=f")]), [BMI.mean(), BMI.var()], 4),
    "table": (ask("table", columns=["sex"]), [0.3, 0.7], 10),
    "table of some": (ask("table", columns=["sex"], where=[condition("age>=50")]), [0.3, 0.7], 10),
    "tables": (ask("tables", columns=["sex", "bmi"], bins=2), [0.3, 0.7, BMI.cdf(35), BMI.sf(35)], 5),
    "cdf": (ask("cdf", column="bmi", bins=8), BMI.cdf(BINS), 3),
    "cdf of whole numbers": (ask("cdf", column="age", bins=101), binom(100, 0.5).cdf(np.arange(101)), 1),
    "quantiles": (ask("quantiles", column="bmi", bins=64), BMI.ppf([0.25, 0.5, 0.75]), 3),
    "whole quantiles": (ask("quantiles", column="age"), binom(100, 0.5).ppf([0.25, 0.5, 0.75]), 3),
    "correlation": (ask("moments", columns=["risk", "lab"]), [0.6], 0.5),
    "slopes": (ask("moments", columns=["risk", "lab"], target="lab"), [3, 80], 0.5),
    "km": (ask("km", **LIVES), ALIVE, 6),
    "km of some": (ask("km", **LIVES, where=[condition("sex=m")]), ALIVE, 3),
    "km by arm": (ask("km", **LIVES, by=["sex"]), np.tile(ALIVE, 2), 3),
}


def shares_held(name, share, samples, rows=2000, seed=5):
    """How often intervals hold the truth of rows with a value: those of each quantity, and of how many rows it is."""
    asked, truths, noise = ASKED[name]
    found, chance = summand(asked, LAB), np.random.default_rng(seed)
    hits, counted, counts = np.zeros(len(truths)), 0, 0
    for _ in range(samples):
        people = drawn(chance, rows, share)
        deviation = noise * found.l2
        answer = estimate(asked, LAB, noisy(found.total(people), deviation, chance), rows=rows, deviation=deviation)
        low, high = ("share_low", "share_high") if "share" in answer.rows[0] else ("low", "high")
        hits += [row[low] <= truth <= row[high] for row, truth in zip(answer.rows, truths, strict=True)]
        for line in answer.about:
            counted += line["low"] <= with_value(asked, people, line.get("column")) <= line["high"]
            counts += 1
    return hits / samples, counted / counts


def with_value(asked, people, column):
    """How many rows of a table match and have every value that a question needs, counted in another way."""
    given = asked.parameters
    names = {column} if column else {
        given.get(key) for key in ("column", "time", "event", "target")
    } | {*given.get("columns", ()), *given.get("by", ())}  # fmt: skip
    kept = 0
    for cells in zip(*people.columns.values(), strict=True):
        row = dict(zip(people.columns, cells, strict=True))
        matches = all(
            row[one["column"]] in one["levels"] if "levels" in one
            else row[one["column"]] is not None and row[one["column"]] >= one["at_least"]
            for one in given.get("where", ())
        )  # fmt: skip
        kept += matches and all(row[name] is not None for name in names - {None})
    return kept


def shares_of_percentiles(share, samples, rows=2000):
    """How often the intervals of a column without a declared range hold its quantiles, and the rows with a number."""
    model, chance = read_model(ask("percentiles", column="lab", bins=64), COLUMNS), np.random.default_rng(6)
    truths, hits, counted = norm(80, 5).ppf([0.25, 0.5, 0.75]), np.zeros(3), 0
    for seed in range(samples):
        people = drawn(chance, rows, share)
        answer = fitted(model, COLUMNS, people, noise=lambda l2, _: 4 * l2, seed=seed).effects
        hits += [row["low"] <= truth <= row["high"] for row, truth in zip(answer.rows, truths, strict=True)]
        counted += answer.about[0]["low"] <= with_value(model.question, people, None) <= answer.about[0]["high"]
    return hits / samples, counted / samples


@pytest.mark.parametrize("name", ASKED)
def test_intervals_hold_the_truth_where_a_fifth_of_the_cells_is_empty(name):
    shares, counted = shares_held(name, 0.2, samples=40)
    assert shares.mean() >= 0.93 - 3 * np.sqrt(0.05 * 0.95 / 40)
    assert counted >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 40)


@pytest.mark.long
@pytest.mark.parametrize("share", EMPTY)
@pytest.mark.parametrize("name", ASKED)
def test_intervals_hold_the_truth_in_many_samples(name, share):
    shares, counted = shares_held(name, share, samples=400)
    print(f"{name:<22} {share:>5.0%} empty: {shares.mean():.3f} (least {shares.min():.3f}), rows {counted:.3f}")
    assert shares.min() >= 0.93 - 3 * np.sqrt(0.07 * 0.93 / 400)
    assert counted >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 400)


@pytest.mark.long
@pytest.mark.parametrize("share", EMPTY)
def test_percentiles_hold_the_truth_in_many_samples(share):
    shares, counted = shares_of_percentiles(share, samples=200)
    print(
        f"{'percentiles':<22} {share:>5.0%} empty: {shares.mean():.3f} (least {shares.min():.3f}), rows {counted:.3f}"
    )
    assert shares.min() >= 0.93 - 3 * np.sqrt(0.07 * 0.93 / 200)
    assert counted >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 200)


def test_percentiles_are_those_of_the_rows_with_a_number():
    shares, counted = shares_of_percentiles(0.2, samples=20)
    assert shares.mean() >= 0.93 - 3 * np.sqrt(0.07 * 0.93 / 20) and counted >= 0.8


@pytest.mark.parametrize("share", EMPTY)
def test_a_count_is_of_the_rows_that_have_a_value_and_match(share):
    people = drawn(np.random.default_rng(8), 500, share)
    asked = ask("count", where=[condition("age>=50"), condition("sex=f")])
    answer = estimate(asked, COLUMNS, summand(asked, COLUMNS).total(people), rows=500, deviation=0.0)
    assert answer.rows[0]["estimate"] == with_value(asked, people, None)
    assert answer.sentences[-1] == "A row without a value in a column of the filter does not match."
    # The rows that have a value: those from the lower bound on.
    known = ask("count", where=[condition("age>=0")])
    found = estimate(known, COLUMNS, summand(known, COLUMNS).total(people), rows=500, deviation=0.0)
    assert found.rows[0]["estimate"] == sum(age is not None for age in people.columns["age"])


def test_bounds_are_a_share_of_the_rows_with_a_number():
    people, asked = drawn(np.random.default_rng(9), 3000, 0.4), ask("bounds", columns=["lab"])
    answer = estimate(asked, COLUMNS, summand(asked, COLUMNS).total(people), rows=3000, deviation=2.0)
    assert {row["quantity"]: row["estimate"] for row in answer.rows}["share within"] == pytest.approx(1, abs=0.01)
    assert answer.about[0]["estimate"] == with_value(asked, people, "lab")


MODELS = {
    "logistic": {"columns": ["risk", "bmi"], "target": "died", "rounds": 20},
    "linear": {"columns": ["risk", "bmi"], "target": "lab", "rounds": 20},
    "additive": {"columns": ["risk", "sex"], "target": "died", "rounds": 20, "bins": 4},
    "hazard": {"time": "days", "event": "died", "columns": ["risk", "lab"], "bins": 8},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_empty_cells_is_the_model_of_the_rows_that_have_all_values(name):
    people, asked = drawn(np.random.default_rng(10), 6000, 0.1), ask(name, **MODELS[name])
    names = {*MODELS[name]["columns"], *(MODELS[name].get(key) for key in ("target", "time", "event"))} - {None}
    complete = [place for place, row in enumerate(zip(*(people.columns[one] for one in names), strict=True))
                if None not in row]  # fmt: skip
    others = table(**{one: [cells[place] for place in complete] for one, cells in people.columns.items()})
    model = read_model(asked, LAB)
    found, whole = (fitted(model, LAB, one, noise=lambda *_: 0.0) for one in (people, others))
    rows, effects = ([row["estimate"] for row in one.effects.rows] for one in (found, whole))
    # Cells, curves and whitening are counted over rows that lack other columns, so only the last digits may differ.
    assert rows == pytest.approx(effects, abs=0.05 if name in ("additive", "hazard") else 1e-3)
    assert found.effects.about[0]["estimate"] == pytest.approx(len(complete), rel=1e-3)
