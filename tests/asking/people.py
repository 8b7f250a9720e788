"""A declared table that the tests of this room share, and rows of it, drawn with a seed."""

import numpy as np

from choral.tables.columns import Categorical, Numeric
from choral.tables.reading import Table

COLUMNS = {
    "age": Numeric(name="age", low=0, high=100),
    "cost": Numeric(name="cost", low=0, high=50_000, scale="log"),
    "days": Numeric(name="days", low=0, high=2_000),
    "sex": Categorical(name="sex", levels=("f", "m")),
    "smoker": Categorical(name="smoker", levels=("no", "yes", "unknown"), missing="unknown", other="unknown"),
    "died": Categorical(name="died", levels=("0", "1")),
    "weight": None,
}


def people(count, seed=0):
    chance = np.random.default_rng(seed)
    days = chance.exponential(800, count)
    return table(
        age=chance.normal(55, 15, count).clip(0, 100).tolist(),
        cost=chance.lognormal(7, 1, count).tolist(),
        days=np.minimum(days, 1400).tolist(),
        died=(days < 1400).astype(int).tolist(),
        sex=chance.choice(["f", "m"], count).tolist(),
        smoker=chance.choice(["no", "yes", "unknown"], count, p=[0.6, 0.3, 0.1]).tolist(),
        weight=chance.normal(75, 12, count).tolist(),
    )


def table(**columns):
    return Table(source="people", columns=columns)
