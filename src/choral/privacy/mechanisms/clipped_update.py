"""Updates that are clipped as a whole, with Gaussian noise on each: Rule S4, for all records of a device."""

import math
from dataclasses import dataclass, replace

from choral.errors import PlanError
from choral.plan import Plan
from choral.privacy.events import Gaussian
from choral.privacy.exposure import Exposure
from choral.privacy.rules import DEVICE_ADJACENCY, EVERYONE, Loss, Mechanism, summing_server


def whole_update(part: Exposure, rounds: int, honest_noises: int = 1) -> Gaussian:
    """μ = 2S√C/(σ_u√r_eff) of updates clipped to S with noise σ_u each, for all records of a device (Rule S4)."""
    return Gaussian(mu=2 * (part.clip / part.noise) * math.sqrt(rounds / honest_noises))


@dataclass(frozen=True, kw_only=True)
class ClippedUpdate(Mechanism):
    """`clip` bounds a whole update and `noise` is that of the update: how a device trains does not matter.

    No plan asks for it yet, so it describes none: experiments and audits name its rule.
    """

    def describes(self, plan: Plan) -> bool:  # noqa: ARG002 - see above
        """No plan says that it clips updates."""
        return False

    def check(self, plan: Plan) -> None:
        """Nothing, or CH204 for whole-number noise."""
        if plan.strict:
            raise PlanError(
                "CH204",
                f'law = "{plan.law}" with updates clipped as a whole.',
                why="Rule S4 is about Gaussian noise.",
                fix='Use law = "gaussian", or rule = "proved".',
            )

    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> Gaussian:  # noqa: ARG002 - rounds are alike
        """One update."""
        return replace(whole_update(part, 1, noises), delta=reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S4 with the device's own noise alone."""
        return self._loss(part, EVERYONE, 1)

    def with_secure_sum(self, part: Exposure) -> Loss:
        """Rule S4 with the noise of r_eff devices."""
        return self._loss(part, summing_server(part), part.honest_noises)

    def _loss(self, part: Exposure, adversary: str, counted: int) -> Loss:
        event = whole_update(part, part.rounds, counted)
        certificate = f"each update is clipped as a whole; what is seen carries the noise of {counted} honest devices"
        return Loss(rule="S4", event=event, adversary=adversary, certificate=certificate, adjacency=DEVICE_ADJACENCY)


CLIPPED_UPDATE = ClippedUpdate(rules={"S4": "whole updates clipped, noise summed over the honest devices"})
