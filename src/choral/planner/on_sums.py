"""Whether a model on sums is worth asking for in place of training, from public numbers alone (docs/asking.md)."""

import math

from choral.plan import Against, SecureSum
from choral.planner.task import PlanningTask
from choral.privacy.zcdp import gdp_mu

CELLS = 24  # of a number in an additive model
TYPICAL = 0.7  # the length of a typical row's gradient, where it is cut to 1
WORTH = 0.02  # κ up to which cells have paid where effects are curved, on the tables that were tried


def noise_of_a_cell(task: PlanningTask, against: Against) -> float:
    """κ: the noise in the effect of one cell of an additive model on sums, if all of ε goes into it."""
    devices, delta = task.draft.devices, task.spendable.delta
    secure = SecureSum.for_cohort(devices) if devices > 1 else None
    honest = 1 if against == "everyone" or secure is None else secure.honest_noises(secure.adversary)
    mu, rows = gdp_mu(task.spendable.epsilon, delta), devices * task.draft.rows
    return 2 * TYPICAL * task.shape.length * CELLS * math.sqrt(devices / honest) / (mu * rows)


def advice_on_sums(task: PlanningTask, against: Against) -> tuple[str, ...]:
    """Which of training and a model on sums is proposed, and why; nothing where the label has no two classes."""
    if task.model != "logistic" or task.classes != 2:
        return ()
    kappa = noise_of_a_cell(task, against)
    if kappa <= WORTH:
        return (
            f"A model on sums may learn more: the noise of a cell is κ = {kappa:.3g}, at most {WORTH:g}. choral ask … "
            "additive can show curved effects, which this plan can't; where effects are straight it gains nothing.",
        )
    return (
        f"Training is proposed, and no model on sums: the noise of a cell would be κ = {kappa:.3g}, above {WORTH:g}, "
        "and cost more than curved effects give.",
    )
