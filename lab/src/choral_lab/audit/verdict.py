"""What a rule claims of two worlds, and what the scores of many trainings say to that.

Two bounds, both fixed before the first training: ε at δ from counts at one threshold, and the mean privacy loss, which
uses every score and so notices much smaller faults. A claim has survived if it lies above both.
"""

import math
from dataclasses import dataclass

from scipy.special import ndtri

from choral.accounting.conversions import rho_for
from choral.accounting.proofs import Loss
from choral.core.errors import PlanError
from choral.core.events import Event, Gaussian, Poisson, Zcdp
from choral.core.plan import require_number, require_whole
from choral.core.poisson import divergence
from choral_lab.audit.bounds import Scores, Tally, false_alarm_rate, least_epsilon, least_mean_loss

_NEAR_ONE = 1.001  # an order whose divergence is at least the mean loss, and at most 0.1 % more than it for a Gaussian


def mean_loss(event: Event) -> float:
    """The most that the mean privacy loss can be where this event is all that is charged.

    >>> mean_loss(Gaussian(mu=2.0)), mean_loss(Zcdp(rho=0.5))
    (2.0, 0.5)
    """
    if isinstance(event, Gaussian):
        return 0.5 * event.mu**2
    if isinstance(event, Zcdp):
        return event.rho
    if isinstance(event, Poisson):
        return divergence({(event.noise_multiplier, event.probability): event.steps}, _NEAR_ONE)
    raise PlanError("CH204", f"the mean loss of a {event.kind} event is not known.", fix="Audit another law.")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """All that is fixed before the first training: the claim, how many trainings, the threshold, the confidence.

    Scores are log-likelihood ratios of the second world over the first.
    """

    loss: Loss
    delta: float
    trainings: int
    confidence: float
    seed: int

    def __post_init__(self) -> None:
        require_whole("trainings", self.trainings, least=2)
        require_whole("seed", self.seed, least=0)
        require_number("confidence", self.confidence, below=1.0)

    @property
    def epsilon(self) -> float:
        """What the rule proves at δ."""
        return self.loss.epsilon(self.delta)

    @property
    def each(self) -> float:
        """The confidence of each of the two bounds, so that both hold at once with the one that was asked for."""
        return 0.5 * (1 + self.confidence)

    @property
    def threshold(self) -> float:
        """Where a Gaussian mechanism with the claimed ε would be expected to prove most by so many trainings.

        Its log-likelihood ratio is N(−μ²/2, μ²) in the first world.
        """
        mu = math.sqrt(2 * rho_for(epsilon=self.epsilon, delta=self.delta, conversion="exact"))
        rate = false_alarm_rate(mu, trainings=self.trainings, delta=self.delta, confidence=self.each)
        return -0.5 * mu * mu - mu * float(ndtri(rate))

    @property
    def most(self) -> float:
        """Where scores are cut off for the mean: four deviations beyond the mean of a Gaussian of this mean loss."""
        claimed = mean_loss(self.loss.event)
        return claimed + 4 * math.sqrt(2 * claimed)

    def judge(self, first: Scores, second: Scores) -> "Finding":
        """What these scores, of trainings in each world, say to the claim."""
        return Finding(
            trial=self,
            tally=Tally.of(first, second, self.threshold),
            mean_loss=least_mean_loss(first, second, most=self.most, confidence=self.each),
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A trial with its outcome; both lower bounds hold at once, with the trial's confidence.

    `as_drawn` is false where the trainings were not what the engine really does, and then nothing survives.
    """

    trial: Trial
    tally: Tally
    mean_loss: float
    as_drawn: bool = True

    @property
    def lower_bound(self) -> float:
        """ε is at least this at the trial's δ."""
        return least_epsilon(self.tally, delta=self.trial.delta, confidence=self.trial.each)

    @property
    def share_of_mu(self) -> float:
        """√(measured over claimed mean loss): for a claim of μ, what share of it is measured."""
        return math.sqrt(self.mean_loss / mean_loss(self.trial.loss.event))

    @property
    def survived(self) -> bool:
        """Whether the claim lies above both bounds."""
        return self.as_drawn and self.lower_bound <= self.trial.epsilon and self.share_of_mu <= 1

    def as_dict(self) -> dict[str, object]:
        """The finding for machines."""
        trial, loss = self.trial, self.trial.loss
        return {
            "lower_bound": self.lower_bound,
            "proved_epsilon": trial.epsilon,
            "published_epsilon": None,
            "survived": self.survived,
            "delta": trial.delta,
            "adjacency": loss.adjacency,
            "adversary": loss.adversary,
            "confidence": trial.confidence,
            "rule": loss.rule,
            "because": loss.certificate,
            "share_of_epsilon": self.lower_bound / trial.epsilon,
            "mean_loss": self.mean_loss,
            "proved_mean_loss": mean_loss(loss.event),
            "share_of_mu": self.share_of_mu,
            "trainings": 2 * trial.trainings,
            "threshold": trial.threshold,
            "false_alarms": self.tally.false_alarms,
            "hits": self.tally.hits,
            "seed": trial.seed,
        }
