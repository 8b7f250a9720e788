"""Which is proposed, a model that is trained or one made from sums, by public numbers alone (docs/asking.md)."""

import math
from dataclasses import dataclass

from choral.accounting.conversions import gdp_mu
from choral.core.plan import Against, Budget, SecureSum
from choral.planner.task import PlanningTask

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
    honest = 1 if against == "everyone" or secure is None else secure.honest_noises(secure.adversary)
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
