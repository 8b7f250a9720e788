"""Whether a model on sums is worth asking for in place of training, from public numbers alone (docs/asking.md)."""

import math

from choral.plan import Against, Budget, SecureSum
from choral.planner.task import PlanningTask
from choral.privacy.zcdp import gdp_mu

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


def advice_on_sums(task: PlanningTask, against: Against) -> tuple[str, ...]:
    """Which of training and a model on sums is proposed, and why; nothing where the label has no two classes."""
    if task.model != "logistic" or task.classes != 2:
        return ()
    devices = task.draft.devices
    secure = SecureSum.for_cohort(devices) if devices > 1 else None
    honest = 1 if against == "everyone" or secure is None else secure.honest_noises(secure.adversary)
    rows, length = devices * task.draft.rows, task.shape.length
    kappa = noise_of_a_cell(task.spendable, devices=devices, rows=rows, row_length=length, honest_noises=honest)
    return (instead_of_training(kappa),)


def instead_of_training(kappa: float) -> str:
    """Whether an additive model may learn more than training does, with κ.

    >>> instead_of_training(0.05)
    'Training is proposed, and no model on sums: the noise of a cell would be κ = 0.05, above 0.02, ...
    """
    if kappa <= WORTH:
        return (
            f"A model on sums may learn more: the noise of a cell is κ = {kappa:.3g}, at most {WORTH:g}. "
            'kind = "additive" in [model] can show curved effects, which this plan can\'t; where effects are straight '
            "it gains nothing."
        )
    return (
        f"Training is proposed, and no model on sums: the noise of a cell would be κ = {kappa:.3g}, above {WORTH:g}, "
        "and cost more than curved effects give."
    )


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
