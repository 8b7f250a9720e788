"""One small finished run, made once per process, for all tests that read it."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pandas

import choral

COLUMNS = {"age": {"bounds": [0, 100]}, "sex": {"levels": ["F", "M"]}}


def patients(rows=300):
    """Made-up patients of two wards: the older ones are sick."""
    rng = np.random.default_rng(4)
    frame = pandas.DataFrame({
        "age": rng.integers(0, 100, rows), "sex": rng.choice(["F", "M"], rows),
        "ward": rng.choice(["north", "south"], rows), "region": rng.choice(["a", "b", "c"], rows),
    })  # fmt: skip
    frame["sick"] = (frame.age + rng.normal(0, 10, rows) > 50).astype(int)
    return frame


@cache
def run():
    """The result, and the folder that it was written to."""
    folder = Path(mkdtemp()) / "run"
    result = choral.simulate(
        patients(), label="sick", device_column="ward", columns=COLUMNS, epsilon=8.0, delta=1e-4, rounds=2, seed=1,
        test=0.2, out=folder,
    )  # fmt: skip
    return result, folder
