"""A model on sums over one table, whose sums have ordinary Gaussian noise."""

import numpy as np

from choral.asking.catalogue import summand
from choral.asking.fitting import OpenedSum, driven


def fitted(model, columns, rows, *, noise, seed=0):
    """The model; `noise` gives the deviation of a sum from its l2 and from its share of the loss."""
    chance, share = np.random.default_rng(seed), 1 / model.sums

    def ask(step):
        found = summand(step.question, columns, step.state)
        deviation = noise(found.l2, share)
        drawn = np.rint(chance.normal(0, deviation, found.length)) if deviation else 0
        return OpenedSum(total=found.total(rows) + drawn, rows=rows.rows, deviation=deviation)

    return driven(model.fit(), ask)
