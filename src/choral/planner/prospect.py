"""Whether joining is worth it: what public numbers let one expect, and what the figures of a run say.

The expectation compares two guesses at how far a model is from the best one. A site alone is off by D/m, its weights
over its own rows. The joint model is off by D/(nm), and by what noise costs. Training ends where noise and what is not
yet learned weigh the same, so that this cost grows with the noise itself, D/(mμ√n), and not with its square. How the
two weigh, and from where on a difference shows, was fitted on made-up and on real tables, and judged on others
(decision 0046).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from choral.accounting.conversions import gdp_mu, rho_for
from choral.accounting.reserves import spendable
from choral.core.exposure import noises_against
from choral.core.plan import Against, Budget, SecureSum
from choral.core.printable import count
from choral.planner.task import PlanningTask
from choral.record import Baselines, GainOverAlone, Measured, VerdictKind
from choral.record.outcome import merit

# By what is predicted: how much the noise weighs, and the least differences of the two guesses that showed.
_NOISE = {"classes": 2.2, "number": 1.5}
_WORSE, _BETTER = {"classes": 0.2, "number": 0.02}, {"classes": 0.15, "number": 0.035}
# One point, or two standard errors, are no difference; R² has no standard error here, and three points of it are none.
_ON_PAR, _ERRORS = {"accuracy": 0.01, "R²": 0.03, "AUC": 0.01, "loss": 0.01}, 2.0
RARE = 0.3  # the share of the rarest class below which accuracy does not decide
_RANKS: dict[VerdictKind, int] = {"worse": 0, "on par": 1, "better": 2}
_FACTORS = (2, 4, 8, 16, 32)
_WORDS: dict[VerdictKind, str] = {
    "worse": "worse than a site alone",
    "on par": "on par with a site alone",
    "better": "better than a site alone",
}


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """Public numbers of a federation with a linear model; `rows` are those of a site on average.

    `sizes` are the rows of each site, where they are known and differ: what joining is worth to a site follows from its
    own rows, and `kind` is that of the site in the middle.

    `honest_noises` is 1 if ε is to hold against everyone; `trusted_noises` is what the secure sum would count.

    >>> Prospect(budget=Budget(epsilon=1.0, delta=1e-5), devices=5, rows=90, features=30, classes=2).kind
    'worse'
    >>> Prospect(budget=Budget(epsilon=4.0, delta=1e-5), devices=200, rows=195, features=104, classes=2).kind
    'better'
    """

    budget: Budget
    devices: int
    rows: float
    features: int
    classes: int  # 0 where a number is predicted
    honest_noises: int = 1
    trusted_noises: int = 1
    sizes: tuple[int, ...] = ()

    @property
    def weights(self) -> int:
        """D: the weights that have to be learned."""
        return (self.features + 1) * max(1, self.classes - 1)

    @property
    def advantage(self) -> float:
        """The guess for the site in the middle alone less the guess for the joint model."""
        return self._advantage_over(median(self.sizes) if self.sizes else self.rows)

    def _advantage_over(self, alone: float) -> float:
        """The guess for a site with so many rows alone less the guess for the joint model."""
        left = spendable(self.budget)
        mu = math.sqrt(2 * rho_for(epsilon=left.epsilon, delta=left.delta, conversion="exact"))
        noise = _NOISE[self._predicts] * self.weights
        noise /= self.rows * mu * math.sqrt(self.devices * self.honest_noises)
        return self.weights * (1 / alone - 1 / (self.devices * self.rows)) - noise

    @property
    def kind(self) -> VerdictKind:
        """What to expect."""
        return self._kind_of(self.advantage)

    def _kind_of(self, advantage: float) -> VerdictKind:
        better, worse = _BETTER[self._predicts], _WORSE[self._predicts]
        return "better" if advantage > better else "worse" if advantage < -worse else "on par"

    @property
    def _expected(self) -> str:
        """What to expect in words: of each end where the smallest and the largest site may expect different things."""
        ends = [min(self.sizes), max(self.sizes)] if self.sizes else []
        kinds = [self._kind_of(self._advantage_over(rows)) for rows in ends]
        if len(set(kinds)) < 2:
            return f"{_WORDS[self.kind]} (guessed from {self.devices:,} sites of about {count(self.rows, 'row')}"
        small, large = (f"{_WORDS[kind]} for one of {rows:,} rows" for kind, rows in zip(kinds, ends, strict=True))
        return f"{small} and {large} (guessed from {self.devices:,} sites with {sum(self.sizes):,} rows"

    @property
    def _predicts(self) -> str:
        return "classes" if self.classes else "number"

    @property
    def sentence(self) -> str:
        """What to expect, from which numbers, and what would change it."""
        expectation = (
            f"If sites are alike, expect a model {self._expected}, {self.weights:,} weights and "
            f"epsilon = {self.budget.epsilon:g})"
        )
        at_home = "personal models, which each site makes of the shared one, lose least (--personal)"
        changes = [] if self.kind == "better" else [*self._changes(), at_home]
        return f"{expectation}{'; ' if changes else '.'}{'; '.join(changes)}{'.' if changes else ''}"

    def to_dict(self) -> dict[str, str]:
        """What to expect as plain values."""
        return {"kind": self.kind, "sentence": self.sentence}

    def _changes(self) -> Iterator[str]:
        """What would lift the expectation, each by itself."""
        if self.honest_noises < self.trusted_noises:
            trusting = replace(self, honest_noises=self.trusted_noises)
            if _RANKS[trusting.kind] > _RANKS[self.kind]:
                yield f'{trusting.kind} if the secure sum is trusted (against = "server and colluders")'
        for factor in _FACTORS:
            more = replace(self, devices=self.devices * factor)
            if _RANKS[more.kind] > _RANKS[self.kind]:
                yield f"{more.kind} with about {more.devices:,} such sites"
                break
        for factor in _FACTORS:
            larger = replace(self, budget=replace(self.budget, epsilon=self.budget.epsilon * factor))
            if _RANKS[larger.kind] > _RANKS[self.kind]:
                yield f"{larger.kind} with epsilon = {larger.budget.epsilon:g}"
                break


def leaving_out(rows: Sequence[int]) -> tuple[int, float]:
    """How many of the smallest sites to leave out for the least noise with noise once, and what share of it goes.

    Every site adds the same noise, and moves the model in proportion to its rows: the noise goes with √n over all rows.

    >>> leaving_out([3149, 1764, 881, 378, 125])
    (3, 0.189...)
    >>> leaving_out([100, 100, 100])
    (0, 0.0)
    """
    largest = sorted(rows, reverse=True)
    noises = {len(rows) - n: math.sqrt(n) / sum(largest[:n]) for n in range(len(rows), 1, -1)}
    best = min(noises, key=lambda left: (noises[left], left), default=0)
    return best, 1 - noises[best] / noises[0] if noises else 0.0


def happened(test: dict[str, float], measured: Measured | None, baselines: Baselines) -> GainOverAlone | None:
    """The run's figure of merit less that of a site alone, or None where either was not measured.

    Both are judged on the same rows and right on mostly the same ones, so that the error of the difference is about
    that of one of them. Where a class is rare, whoever never names it is right nearly always: there log loss and AUC
    decide in place of the accuracy.

    >>> happened({"accuracy": 0.86}, Measured(rows=400, error=0.017), Baselines(without_privacy=0.9, alone=0.8)).kind
    'better'
    """
    if baselines.alone is None or not {"accuracy", "r2"} & test.keys():
        return None
    name, figure = merit(test)
    gain, error = figure - baselines.alone, None if measured is None else measured.error
    rare = measured is not None and measured.rarest is not None and measured.rarest < RARE
    loss, auc = _of_rare(test, measured, baselines) if measured is not None and rare else (None, None)
    decide = [one for one in (loss, auc) if one is not None]
    return GainOverAlone(
        kind=_kind_of(decide or [(gain, max(_ON_PAR[name], _ERRORS * (error or 0.0)))]),
        gain=gain,
        error=error,
        less_loss=None if loss is None else loss[0],
        more_auc=None if auc is None else auc[0],
        same_answer=measured is not None and measured.same_answer,
    )


def _kind_of(gains: Sequence[tuple[float, float]]) -> VerdictKind:
    """Worse if one figure is, better if one is and none is worse; each with the least difference that counts."""
    if any(gain < -least for gain, least in gains):
        return "worse"
    return "better" if any(gain > least for gain, least in gains) else "on par"


def _of_rare(
    test: dict[str, float], measured: Measured, baselines: Baselines
) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
    """What the run has over a site alone in log loss and in AUC, where both were measured, with what counts."""
    loss, auc = None, None
    if baselines.alone_loss is not None and "loss" in test:
        loss = (baselines.alone_loss - test["loss"], max(_ON_PAR["loss"], _ERRORS * (measured.loss_error or 0.0)))
    if baselines.alone_auc is not None and "auc" in test:
        error = _auc_error(test["auc"], measured.rows, measured.rarest or 0.0)
        auc = (test["auc"] - baselines.alone_auc, max(_ON_PAR["AUC"], _ERRORS * error))
    return loss, auc


def _auc_error(area: float, rows: int, rarest: float) -> float:
    """The standard error of an area under the ROC curve (Hanley and McNeil, 1982).

    >>> round(_auc_error(0.75, 200, 0.25), 3)
    0.043
    """
    few, many = max(rarest * rows, 1.0), max((1 - rarest) * rows, 1.0)
    both, none = area / (2 - area) - area**2, 2 * area**2 / (1 + area) - area**2
    return math.sqrt(max(area * (1 - area) + (few - 1) * both + (many - 1) * none, 0.0) / (few * many))


def in_words(verdict: GainOverAlone) -> str:
    """What happened, by which figures and, unless it was better, what would change it.

    >>> in_words(GainOverAlone(kind="better", gain=0.06, error=0.017))
    'Better than a site alone by 6.0 points ± 1.7.'
    >>> in_words(GainOverAlone(kind="better", gain=0.0, less_loss=0.02, more_auc=0.05))
    'Better than a site alone (AUC +0.050, log loss -0.020; accuracy +0.0 points, which says little: a class is rare).'
    """
    how, better = _WORDS[verdict.kind].capitalize(), verdict.kind == "better"
    points = f"{100 * verdict.gain:+.1f} points" + ("" if verdict.error is None else f" ± {100 * verdict.error:.1f}")
    rare = [] if verdict.more_auc is None else [f"AUC {verdict.more_auc:+.3f}"]
    rare += [] if verdict.less_loss is None else [f"log loss {-verdict.less_loss:+.3f}"]
    if rare:
        said = f"{how} ({', '.join(rare)}; accuracy {points}, which says little: a class is rare)."
    elif better:
        said = f"{how} by {points.removeprefix('+')}."
    else:
        said = f"{how} ({points})."
    if not better:
        said += (
            " What would change it: more sites, a larger ε, trust in the secure sum "
            '(against = "server and colluders"), or personal models (--personal).'
        )
    return said + " The model gives always the same answer." * verdict.same_answer


CELLS = 24  # of a number in an additive model
TYPICAL = 0.7  # the length of a typical row's gradient, where it is cut to 1
WORTH = 0.02  # κ up to which cells have paid where effects are curved, on the tables that were tried


def noise_of_a_cell(
    budget: Budget, *, devices: int, rows: int, row_length: float, honest_noises: int, cells: int = CELLS
) -> float:
    """κ: the noise in the effect of one cell of an additive model on sums of so many rows, if all of ε goes into it.

    By hand, for Adult: 2·0.7·3.9·24·√(16/5)/(0.2679·16·2440).

    >>> adult = {"devices": 16, "rows": 16 * 2440, "row_length": 3.9, "honest_noises": 5}
    >>> round(noise_of_a_cell(Budget(epsilon=1.0, delta=1e-5), **adult), 4)
    0.0224
    """
    mu = gdp_mu(budget.epsilon, budget.delta)
    return 2 * TYPICAL * row_length * cells * math.sqrt(devices / honest_noises) / (mu * rows)


@dataclass(frozen=True, kw_only=True)
class ModelProposal:
    """The kind of model that is proposed and why, and what there is instead; no kind means one that is trained."""

    kind: str | None
    because: str
    instead: str

    @property
    def sentence(self) -> str:
        """The proposal next to its alternative."""
        what = "a model that is trained" if self.kind is None else f'kind = "{self.kind}" in [model], made from sums'
        return f"Proposed: {what}, because {self.because} Instead: {self.instead}"


def of_lives(time: str) -> ModelProposal:
    """What is proposed where a column says how long each row was watched.

    >>> of_lives("days").kind
    'hazard'
    """
    return ModelProposal(
        kind="hazard",
        because=f'"{time}" says how long each row was watched, and a row whose end was not seen counts for that long.',
        instead="a model that is trained on the label alone, which takes rows that were watched briefly for survivors.",
    )


def of_effects(kappa: float) -> ModelProposal:
    """What is proposed for two classes where the noise of a cell of an additive model would be κ.

    >>> of_effects(0.05).sentence
    'Proposed: a model that is trained, because the noise of a cell of an additive model would be κ = 0.05, above ...
    """
    if kappa <= WORTH:
        return ModelProposal(
            kind="additive",
            because=f"the noise of a cell is κ = {kappa:.3g}, at most {WORTH:g}, so that curved effects can be seen.",
            instead="a model that is trained: it has straight effects only, and is as good where effects are straight.",
        )
    return ModelProposal(
        kind=None,
        because=f"the noise of a cell of an additive model would be κ = {kappa:.3g}, above {WORTH:g}, and would cost "
        "more than curved effects give.",
        instead='kind = "additive", which shows the shape of every effect.',
    )


UNSUITED = ModelProposal(
    kind=None,
    because="models on sums need two declared classes, declared numbers, and an ε that protects one record.",
    instead="study.ask.linear(…) for a label that is a number.",
)

DESCRIBED = ModelProposal(
    kind=None,
    because="the file describes how it is trained.",
    instead='kind = "additive" without settings of training.',
)


def advice_on_sums(task: PlanningTask, against: Against) -> tuple[str, ...]:
    """Which of training and a model on sums is proposed, and why; nothing where the label has no two classes."""
    if task.model != "logistic" or task.classes != 2:
        return ()
    devices = task.draft.devices
    secure = SecureSum.for_cohort(devices) if devices > 1 else None
    honest = 1 if secure is None else noises_against(against, secure.honest_noises(secure.adversary))
    rows, length = devices * task.draft.rows, task.shape.length
    kappa = noise_of_a_cell(task.spendable, devices=devices, rows=rows, row_length=length, honest_noises=honest)
    return (of_effects(kappa).sentence,)


def of_cells(kappa: float) -> str:
    """Whether the cells of an additive model that somebody asks for are worth their noise, with κ.

    >>> of_cells(0.01)
    'The noise of a cell is κ = 0.01, at most 0.02: cells pay where effects are curved.'
    """
    if kappa <= WORTH:
        return f"The noise of a cell is κ = {kappa:.3g}, at most {WORTH:g}: cells pay where effects are curved."
    return (
        f"The noise of a cell is κ = {kappa:.3g}, above {WORTH:g}: it may cost more than curved effects give, and "
        'kind = "logistic" may learn more.'
    )
