"""Lower bounds on ε from counts, each with its confidence: two worlds and a test, or one run with many coins."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from choral.core.errors import PlanError
from choral.core.plan import require_number, require_whole

Scores = NDArray[np.floating[Any]]
MOST_EPSILON = 100.0  # no count that fits a computer proves more


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How often a test that was fixed beforehand said "the second record", in so many trainings of each world.

    >>> Tally(trainings=1000, false_alarms=10, hits=300)
    Tally(trainings=1000, false_alarms=10, hits=300)
    """

    trainings: int
    false_alarms: int
    hits: int

    def __post_init__(self) -> None:
        require_whole("trainings", self.trainings)
        require_whole("false_alarms", self.false_alarms, least=0, most=self.trainings)
        require_whole("hits", self.hits, least=0, most=self.trainings)

    @classmethod
    def of(cls, first: Scores, second: Scores, threshold: float) -> "Tally":
        """The counts of scores above the threshold in each world.

        >>> Tally.of(np.array([0.0, 2.0]), np.array([2.0, 3.0]), 1.0)
        Tally(trainings=2, false_alarms=1, hits=2)
        """
        if first.shape != second.shape or first.ndim != 1:
            raise PlanError(
                "CH200", f"scores of shapes {first.shape} and {second.shape}.", fix="Must be of one length."
            )
        return cls(
            trainings=len(first),
            false_alarms=int(np.count_nonzero(first > threshold)),
            hits=int(np.count_nonzero(second > threshold)),
        )


def clopper_pearson(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """The exact one-sided lower and upper bounds of a chance, each with this confidence (Clopper and Pearson 1934).

    >>> [round(end, 6) for end in clopper_pearson(0, 100, 0.95)]  # the upper end is 1 − 0.05^(1/100)
    [0.0, 0.029513]
    """
    require_whole("trials", trials)
    require_whole("hits", hits, least=0, most=trials)
    miss = 1 - require_number("confidence", confidence, below=1.0)
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, miss))
    high = 1.0 if hits == trials else float(special.betainccinv(hits + 1, trials - hits, miss))
    return low, high


def _rates(tally: Tally, confidence: float) -> tuple[float, float]:
    """The least true positives and the most false alarms, both at once with this confidence."""
    each = 0.5 * (1 + require_number("confidence", confidence, below=1.0))
    return (
        clopper_pearson(tally.hits, tally.trainings, each)[0],
        clopper_pearson(tally.false_alarms, tally.trainings, each)[1],
    )


def least_epsilon(tally: Tally, *, delta: float, confidence: float = 0.99) -> float:
    """ε is at least this at δ, with this confidence, whoever's mechanism gave these counts.

    An (ε, δ)-private mechanism has TPR ≤ e^ε·FPR + δ, and the same of its misses; one pair of intervals serves both.

    >>> round(least_epsilon(Tally(trainings=100_000, false_alarms=100, hits=5_000), delta=1e-4), 2)
    3.62
    """
    require_number("delta", delta, below=1.0)
    hit, alarm = _rates(tally, confidence)
    return max(0.0, _log_ratio(hit - delta, alarm), _log_ratio(1 - alarm - delta, 1 - hit))


def _log_ratio(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else -math.inf


def least_mu(tally: Tally, *, confidence: float = 0.99) -> float:
    """μ of any true claim of μ-Gaussian DP is at least this: TPR ≤ Φ(Φ⁻¹(FPR) + μ).

    It refutes claims of μ, as Rules S1 to S4 make. It says nothing about ε at a δ that you choose: another mechanism
    with this one point on its curve may have a smaller ε there.

    >>> round(least_mu(Tally(trainings=100_000, false_alarms=1_000, hits=10_000)), 2)
    1.0
    """
    hit, alarm = _rates(tally, confidence)
    return max(0.0, float(special.ndtri(hit) - special.ndtri(alarm))) if hit > 0 and alarm < 1 else 0.0


def least_mean_loss(first: Scores, second: Scores, *, most: float, confidence: float = 0.99) -> float:
    """The mean privacy loss KL(second ‖ first) is at least this, whatever mechanism gave these scores.

    Donsker and Varadhan: KL ≥ E₂[h] − ln E₁[e^h] for every bounded h, here a score cut off at ±`most`. It is tight
    where the score is the log-likelihood ratio. Both means get an empirical Bernstein bound (Maurer and Pontil 2009,
    Theorem 4), which needs nothing but the range. ρ-zCDP allows at most ρ, and μ-Gaussian DP at most μ²/2.

    >>> noise = np.random.default_rng(0).standard_normal((2, 100_000))
    >>> 0.45 < least_mean_loss(noise[0] - 0.5, noise[1] + 0.5, most=4.0) < 0.5  # N(−½, 1) against N(½, 1)
    True
    """
    require_number("most", most)
    miss = 0.5 * (1 - require_number("confidence", confidence, below=1.0))
    gain = np.clip(second, -most, most)
    tilted = np.exp(np.clip(first, -most, most))
    low = float(np.mean(gain)) - _bernstein(gain, 2 * most, miss)
    high = float(np.mean(tilted)) + _bernstein(tilted, math.exp(most) - math.exp(-most), miss)
    return max(0.0, low - math.log(high))


def _bernstein(values: Scores, spread: float, miss: float) -> float:
    """How far the mean of independent values from a range of this width may be off, except with this chance."""
    count, nats = len(values), math.log(2 / miss)
    return math.sqrt(2 * float(np.var(values, ddof=1)) * nats / count) + 7 * spread * nats / (3 * (count - 1))


def false_alarm_rate(mu: float, *, trainings: int, delta: float, confidence: float) -> float:
    """The rate at which a test of N(0, 1) against N(μ, 1) is expected to prove most, before anything is trained.

    >>> 1e-4 < false_alarm_rate(0.5, trainings=400_000, delta=1e-4, confidence=0.99) < 1e-2
    True
    """

    def expected(rate: float) -> float:
        power = float(special.ndtr(special.ndtri(rate) + mu))
        tally = Tally(trainings=trainings, false_alarms=round(rate * trainings), hits=round(power * trainings))
        return least_epsilon(tally, delta=delta, confidence=confidence)

    return float(max(np.geomspace(1e-6, 0.5, 200), key=expected))


def best_threshold(first: Scores, second: Scores, *, delta: float, confidence: float = 0.99) -> float:
    """The threshold at which these scores prove most; use it on other trainings only, or the bound is none.

    Two are compared: the one that Gaussians with these means would need, and the best of a few hundred quantiles,
    judged more strictly, so that it is good and not only lucky.

    >>> best_threshold(np.zeros(100), np.ones(100), delta=1e-5) in (0.0, 0.5)
    True
    """

    def proves(threshold: float, confidence: float) -> float:
        return least_epsilon(Tally.of(first, second, threshold), delta=delta, confidence=confidence)

    ordered = np.sort(np.concatenate([first, second]))
    tail = np.geomspace(3 / len(ordered), 0.5, 150)  # dense at both ends, where small δ are decided
    places = np.unique((np.concatenate([tail, 1 - tail]) * (len(ordered) - 1)).astype(int))
    strict = 1 - (1 - confidence) / len(places)
    found = [float(max(ordered[places], key=lambda threshold: proves(float(threshold), strict)))]
    if (spread := float(np.std(first))) > 0:
        distance = abs(float(np.mean(second) - np.mean(first))) / spread
        rate = false_alarm_rate(distance, trainings=len(first), delta=delta, confidence=confidence)
        found.append(float(np.mean(first)) - spread * float(special.ndtri(rate)))
    return max(found, key=lambda threshold: proves(threshold, confidence))


def held_out(first: Scores, second: Scores, *, delta: float, confidence: float = 0.99) -> tuple[float, Tally]:
    """The threshold chosen on the first half of the trainings, and the counts of the second half at it.

    >>> held_out(np.zeros(10), np.ones(10), delta=1e-5)[1].trainings
    5
    """
    half = len(first) // 2
    threshold = best_threshold(first[:half], second[:half], delta=delta, confidence=confidence)
    return threshold, Tally.of(first[half:], second[half:], threshold)


def one_run_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The chance that an (ε, δ)-private run lets so many of one's guesses be right (Steinke, Nasr, Jagielski 2023).

    Each canary's coin is fair and its own; at δ = 0 the guesses are dominated by coins of weight e^ε/(1+e^ε).

    >>> one_run_p_value(canaries=10, guesses=10, correct=10, epsilon=0.0, delta=0.0) == 2.0**-10
    True
    """
    require_whole("canaries", canaries)
    require_whole("guesses", guesses, most=canaries)
    require_whole("correct", correct, least=0, most=guesses)
    weight = special.expit(epsilon)
    tail = float(stats.binom.sf(correct - 1, guesses, weight))
    if delta == 0 or correct == 0:
        return min(1.0, tail)
    # δ can move mass onto "correct or more" at a price that falls with how far below the guesses were.
    below = np.cumsum(stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, weight))
    steepest = float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, tail + 2 * canaries * delta * steepest)


def one_run_epsilon(*, canaries: int, guesses: int, correct: int, delta: float, confidence: float = 0.99) -> float:
    """ε is at least this, with this confidence, from a single run with independent canaries.

    >>> round(one_run_epsilon(canaries=1000, guesses=100, correct=100, delta=0.0, confidence=0.95), 3)  # p¹⁰⁰ = 0.05
    3.493
    """
    miss = 1 - require_number("confidence", confidence, below=1.0)

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta) < miss

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, MOST_EPSILON
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
