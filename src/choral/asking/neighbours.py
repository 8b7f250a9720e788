"""Events per bin, with what neighbouring bins say: noise hides single bins, and hazards hardly jump between bins.

The events of a bin are its hazard times its rows at risk, give or take their own chance, and the answer adds noise of a
known deviation. Hazards are taken to walk at random from bin to bin, by steps that the answer itself finds likely. What
is expected of a bin's events then leans on the answer where it is clear, and on the neighbours where noise prevails.
Without noise nothing is changed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

JUMPS = (0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0)  # of hazards from bin to bin, in parts of the mean hazard
_SETTLED = 2  # times that chances are worked out from the hazards found before
_LEAST = 0.1  # of the mean hazard: a hazard of 0 would make its bin certain


class Leaning(NamedTuple):
    """Expected events are `weights` times the noisy ones; `missed` is the covariance of what hazards that jump add."""

    weights: Matrix
    missed: Matrix


def leaning(at_risk: Vector, events: Vector, deviation: float) -> Leaning:
    """How far each bin leans on the others, by its rows at risk and the deviation of its noise.

    >>> steady = leaning(np.full(3, 1000.0), np.array([10.0, 40.0, 10.0]), deviation=20.0)
    >>> np.round(steady.weights @ np.array([10.0, 40.0, 10.0]), 1).tolist()
    [18.5, 22.9, 18.5]
    >>> leaning(np.full(2, 1000.0), np.array([10.0, 40.0]), deviation=0.0).weights.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    bins = len(at_risk)
    if deviation == 0 or bins < 2:
        return Leaning(np.eye(bins), np.zeros((bins, bins)))
    usual = max(float(events.sum()), deviation) / float(at_risk.sum())
    steps, hazards = usual * np.array(JUMPS), np.full(bins, usual)
    for _ in range(_SETTLED):
        shares = np.clip(hazards, _LEAST * usual, 1 - 1e-6)
        chance = at_risk * shares * (1 - shares)
        smooth, likely = _smooth(at_risk, events, chance + deviation**2, steps)
        hazards = smooth @ events
    own = chance / (chance + deviation**2)  # of a bin's distance from its smooth hazard, the part that is no noise
    weights = np.diag(own) + ((1 - own) * at_risk)[:, None] * smooth
    lost = weights * at_risk - np.diag(at_risk)
    spread = float(likely @ steps**2) * np.linalg.pinv(_roughness(bins))  # of hazards, around their mean
    return Leaning(weights, lost @ spread @ lost.T)


def _smooth(at_risk: Vector, events: Vector, variance: Vector, steps: Vector) -> tuple[Matrix, Vector]:
    """Smooth hazards as a linear function of events of this variance, over walks by such steps; how likely each is."""
    precision = _roughness(len(at_risk)) / steps[:, None, None] ** 2 + np.diag(at_risk**2 / variance)
    hazards = np.linalg.solve(precision, np.diag(at_risk / variance))
    explained = (events * at_risk / variance) @ hazards @ events
    likelihood = (explained - np.linalg.slogdet(precision)[1]) / 2 - (len(at_risk) - 1) * np.log(steps)
    likely = np.exp(likelihood - likelihood.max())
    likely /= likely.sum()
    return np.asarray(np.einsum("w,wij->ij", likely, hazards)), likely


def _roughness(bins: int) -> Matrix:
    """The matrix of Σ (h_j+1 − h_j)²."""
    apart = np.diff(np.eye(bins), axis=0)
    return np.asarray(apart.T @ apart)
