"""How often intervals hold the truth, counted over seeded samples."""

import numpy as np

from choral.asking.catalogue import estimate, summand


def noisy(vector, deviation, chance):
    return np.rint(vector + chance.normal(0, deviation, len(vector))).astype(np.int64)


def held(asked, columns, draw, truths, *, rows, deviation, samples, seed):
    """Row by row of the answer, the share of samples in which the interval holds the truth.

    `truths` has one number per row of the answer; `draw` makes a table from a generator.
    """
    chance, hits, found = np.random.default_rng(seed), np.zeros(len(truths)), summand(asked, columns)
    for _ in range(samples):
        total = noisy(found.total(draw(chance, rows)), deviation * found.l2, chance)
        answer = estimate(asked, columns, total, rows=rows, deviation=deviation * found.l2)
        hits += [row["low"] <= truth <= row["high"] for row, truth in zip(answer.rows, truths, strict=True)]
    return hits / samples


def fits(shares, samples, *, least=0.95, most=0.95):
    """Whether every share is within three standard errors of what it should be."""
    slack = 3 * np.sqrt(0.95 * 0.05 / samples)
    return bool(np.all((shares >= least - slack) & (shares <= most + slack)))
