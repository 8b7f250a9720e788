"""Attacks on a claimed sensitivity: φ of single rows as it leaves the summand, and the farthest pair among them."""

import numpy as np

from tests.asking.people import table


def vectors(found, rows):
    """φ of each row, one by one, through the function that adds up whole tables."""
    count = len(next(iter(rows.values())))
    return np.stack(
        [found.total(table(**{name: [cells[row]] for name, cells in rows.items()})) for row in range(count)]
    )


def farthest(found, rows):
    """The largest distance of φ between two of these rows; coordinates stay within their own bound."""
    phi = vectors(found, rows)
    assert phi.dtype == np.int64 and phi.shape[1] == found.length and np.abs(phi).max() <= found.largest
    norms = (phi**2).sum(axis=1)
    apart = norms[:, None] + norms[None, :] - 2 * phi @ phi.T  # whole numbers: exact
    return float(np.sqrt(apart.max()))
