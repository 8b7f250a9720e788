"""Updates that are clipped as a whole, with noise on each: Rule S4, for all records of a device."""

import math
from dataclasses import dataclass, replace

from choral.core.errors import PlanError
from choral.core.events import Event, Gaussian
from choral.core.exposure import Exposure
from choral.core.mechanisms.integer_noise import in_each_law, whole_noise
from choral.core.plan import Plan
from choral.core.plan.units import DEVICE
from choral.core.rules import EVERYONE, Loss, Mechanism, summing_server


def whole_updates(part: Exposure, rounds: int, honest_noises: int = 1) -> Event:
    """μ = 2S√C/(σ_u√r_eff) of updates clipped to S with noise σ_u each, for all records of a device (Rule S4).

    In whole numbers no device moves the integers by more than 2S/σ_u of their noise (Rule S6). Where the clip is
    adaptive, √(4 + λ²) takes the place of 2: the count moves together with the update.
    """
    if part.strict:
        return whole_noise(part, rounds, honest_noises)
    return Gaussian(mu=part.moves * (part.clip / part.noise) * math.sqrt(rounds / honest_noises))


@dataclass(frozen=True, kw_only=True)
class ClippedUpdate(Mechanism):
    """`clip` bounds a whole update and `noise` is that of the update: how a device trains does not matter.

    Plans ask for it by their unit; experiments and audits name its rule.
    """

    def describes(self, plan: Plan) -> bool:
        """Whether a whole device is the unit, and noise of this law is added."""
        return plan.protects.clips_update and plan.law == self.law

    def check(self, plan: Plan) -> None:
        """Nothing, or CH204 for whole-number noise where only a rule is named."""
        if plan.strict and not plan.protects.clips_update:
            raise PlanError(
                "CH204",
                f'law = "{plan.law}" with updates clipped as a whole.',
                why="Rule S4 is about Gaussian noise.",
                fix='Use law = "gaussian", or rule = "proved".',
            )

    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> Event:  # noqa: ARG002 - rounds are alike
        """One update."""
        event = whole_updates(part, 1, noises)
        return replace(event, delta=event.delta + reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S4 with the device's own noise alone."""
        return self._loss(part, EVERYONE, 1)

    def with_secure_sum(self, part: Exposure) -> Loss:
        """Rule S4 with the noise of r_eff devices."""
        return self._loss(part, summing_server(part), part.honest_noises)

    def _loss(self, part: Exposure, adversary: str, counted: int) -> Loss:
        event = whole_updates(part, part.rounds, counted)
        clipped = "clipped and counted in one vector" if part.adaptive else "clipped as a whole"
        certificate = f"each update is {clipped}; what is seen carries the noise of {counted} honest devices"
        return Loss(rule="S4", event=event, adversary=adversary, certificate=certificate, adjacency=DEVICE.adjacency)

    def described(self, plan: Plan) -> str:
        """How the mechanism protects a device, for the report."""
        return (
            f"Each device's whole update clipped to {_clip_of(plan)}; {self.noise_in_full} of standard deviation "
            f"{plan.noise:.4g}{self.exactness} once, on the update{_following(plan)}"
        )

    def protection(self, plan: Plan) -> str:
        """What is done to an update before it leaves, for the list of releases."""
        return f"the whole update clipped to {_clip_of(plan)}, {self.noise} {plan.noise:.4g} once{_following(plan)}"


def _clip_of(plan: Plan) -> str:
    return f"{plan.clip:.3g}" + (" at first" if plan.adaptive else "")


def _following(plan: Plan) -> str:
    """What else is said where the clip is adaptive."""
    if not plan.adaptive:
        return ""
    followed = f"clip and noise follow the {plan.clip_quantile:g} quantile of the updates' lengths"
    return f"; {followed}, by a count with the same noise"


CLIPPED_UPDATE = ClippedUpdate(
    noise_on="the update",
    batches="batches that are no part of the proof",
    size="batches of about {batch:,}",
    name="Clipped updates",
    why_batches="how a device draws its batches does not matter, since its whole update is clipped.",
    rules={"S4": "whole updates clipped, noise summed over the honest devices"},
)
CLIPPED_UPDATES = in_each_law(CLIPPED_UPDATE)
