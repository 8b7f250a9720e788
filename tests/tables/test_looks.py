"""What columns look like, from a few made-up ones."""

import numpy as np
import pytest

from choral.tables.cells import OPEN
from choral.tables.columns import looked_at

LOOKS = {
    "measured": ([f"{row * 1.37:.2f}" for row in range(200)], "number"),
    "ages": ([str(20 + row % 60) for row in range(200)], "number"),
    "patient numbers": (
        [str(row * row * 1000) for row in range(200)],
        "identifier",
    ),  # all different, as own-data.md says
    "incomes": ([str(row * row % 97 * 1000) for row in range(200)], "number"),
    "words for no value": (["NA", ".", "?", "nan", *[f"{row / 7:.3f}" for row in range(90)]], "number"),
    "row numbers": ([str(row) for row in range(200)], "identifier"),
    "names": ([f"Zoe {row}" for row in range(200)], "identifier"),
    "a few names": ([f"Zoe {row}" for row in range(9)], "levels"),
    "dates": ([f"{1 + row % 28}.01.2024" for row in range(200)], "date"),
    "wards": (["a", "", "b"] * 60, "levels"),
    "nothing": (["", " ", None], "nothing"),
    "numbers of a frame": ([*np.linspace(0, 1, 90), None], "number"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_column_looks_like_what_it_is(name):
    cells, kind = LOOKS[name]
    assert looked_at([(cells, OPEN)])[0].kind == kind
