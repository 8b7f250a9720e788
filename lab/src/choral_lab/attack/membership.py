"""Membership inference: was this row in the training data? How often one is right at 1 % false alarms, and could be."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from choral.core.events import Event, Gaussian, epsilon_of

Scores = NDArray[np.floating[Any]]
FALSE_ALARMS = 0.01


def true_positives(members: Scores, strangers: Scores, false_alarms: float = FALSE_ALARMS) -> float:
    """The share of members above the threshold that so many strangers exceed.

    >>> true_positives(np.arange(100.0) + 50, np.arange(100.0), 0.01)
    0.51
    """
    threshold = np.quantile(strangers, 1 - false_alarms, method="higher")
    return float(np.mean(members >= threshold))


def sampling_error(rate: float, members: int, strangers: int) -> float:
    """By how much a small measured rate may be off, with 99 % confidence: threshold and rate are both estimated.

    >>> round(sampling_error(0.01, 1000, 1000), 4)
    0.0115
    """
    rate = max(rate, FALSE_ALARMS)
    return 2.576 * math.sqrt(rate * (1 / members + 1 / strangers))


def most_true_positives(event: Event, false_alarms: float = FALSE_ALARMS) -> float:
    """What no test can exceed: Φ(Φ⁻¹(FPR) + μ) for a Gaussian, the best of e^ε·FPR + δ over δ for anything else.

    >>> round(most_true_positives(Gaussian(mu=1.0)), 4)
    0.0924
    """
    if isinstance(event, Gaussian):
        return min(1.0, float(ndtr(ndtri(false_alarms) + event.mu)) + event.delta)
    deltas = np.geomspace(max(1e-9, 2 * event.delta), 0.1, 25)
    return min(1.0, *(float(np.exp(min(50.0, epsilon_of([event], d)))) * false_alarms + float(d) for d in deltas))
