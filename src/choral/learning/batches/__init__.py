"""Which records enter which local step (line 6 of Algorithm 1): one drawer for each way of sampling.

A new way is a module with a drawer, and one line in DRAWERS.
"""

from collections.abc import Callable

from choral.core.plan import Plan
from choral.learning.batches.batch import EMPTY, Batches, Drawer, Uses
from choral.learning.batches.partition import PartitionDrawer
from choral.learning.batches.poisson import PoissonDrawer

__all__ = ["DRAWERS", "EMPTY", "Batches", "Drawer", "Uses", "drawer_of"]

DRAWERS: dict[str, Callable[..., Drawer]] = {"poisson": PoissonDrawer, "partition": PartitionDrawer}


def drawer_of(plan: Plan, *, remembering: bool = False) -> Drawer:
    """What draws the batches of a plan; `remembering` keeps what lasts for several rounds, for speed.

    >>> drawer_of(Plan(devices=1, cohort=1, rounds=1, rows=9, batch=3, step_size=1.0, clip=1.0, noise=0.0)).one_order
    False
    """
    return DRAWERS[plan.sampling](plan=plan, remembering=remembering)
