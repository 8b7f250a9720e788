"""Probes: random projections that devices answer; the seam is `choral.core.terms.Extension`."""

from collections.abc import Callable

from choral.core.messages import Turn
from choral.core.plan import Plan
from choral.core.terms import Extension


def extension_of(plan: Plan, seed_of: Callable[[Turn], bytes] | None = None) -> Extension | None:
    """The extension of a plan with probes; only a run that has it loads the rest of this room."""
    if not plan.probes:
        return None
    from choral.probes.device import Probed

    return Probed(probes=plan.probes, opened_turns=plan.opened_turns, seed_of=seed_of)
