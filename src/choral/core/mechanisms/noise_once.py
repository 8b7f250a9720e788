"""Training without noise, and Gaussian noise once, on what is uploaded: Rule S7, for convex losses."""

import math
from dataclasses import dataclass, replace

from choral.core.events import Event, Gaussian, Poisson
from choral.core.exposure import Exposure
from choral.core.mechanisms.integer_noise import in_each_law, whole_noise
from choral.core.plan import Plan
from choral.core.rules import EVERYONE, Loss, Mechanism, summing_server

MARGIN = 0.95  # steps stay so far below 2/L, since L is a product of floats too

# The form of a linear model's loss -> (L, G) for rows of length 1: the gradient of a row of length R is
# L·R²-Lipschitz and at most G·R long.
CONVEX: dict[str, tuple[float, float]] = {
    "softmax": (1 / 2, math.sqrt(2)),
    "sigmoid": (1 / 4, 1.0),
    "squared": (1.0, math.inf),
}


def movement(plan: Plan) -> float:
    """Δ: how far one replaced record can move an upload, however many local steps there are.

    That is 2GT/γ; with a pull (2Gκ/γ)(1 − (1 − T/Kκ)^K), which is largest for the fewest steps K, the plan's.

    >>> plan = Plan(devices=16, cohort=10, rounds=8, rows=2440, batch=2440, local_steps=120, step_size=0.25, clip=1.2,
    ...             noise=0.03, sampling="partition", noise_is_added="once", row_length=4.0)
    >>> round(movement(plan), 4)
    0.0295
    """
    return min(2 * plan.clip / plan.batch * plan.pulled_time, 2 * plan.upload_bound)


def _uploads(part: Exposure, count: int, noises: int, reserved: float = 0.0) -> Event:
    """So many uploads with the noise of so many devices each.

    A record that is drawn moves the upload by at most Δ/2 from where it would be without it, so a sampled round is a
    step of rule S5 whose noise is σ_u in units of Δ/2.
    """
    if part.strict:
        event = whole_noise(part, count, noises)
        return replace(event, delta=event.delta + reserved)
    if part.sampled:
        multiplier = 2 * part.noise / movement(part) * math.sqrt(noises)
        return Poisson(noise_multiplier=multiplier, probability=part.batch / part.rows, steps=count, delta=reserved)
    return Gaussian(mu=movement(part) / part.noise * math.sqrt(count / noises), delta=reserved)


@dataclass(frozen=True, kw_only=True)
class NoiseOnce(Mechanism):
    """One record moves the upload by at most Δ, since steps of at most 2/L move no two models further apart.

    The device checks step size, row length and slope itself (`learning.once`), and charges what rounding adds.
    """

    def describes(self, plan: Plan) -> bool:
        """Whether noise of this law is added once."""
        return plan.once and plan.law == self.law

    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> Event:  # noqa: ARG002 - rounds are alike
        """One upload."""
        return _uploads(part, 1, noises, reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S7 with the device's own noise alone."""
        return self._loss(part, EVERYONE, 1)

    def with_secure_sum(self, part: Exposure) -> Loss:
        """Rule S7 with the noise of r_eff devices, for any number of local steps."""
        return self._loss(part, summing_server(part), part.honest_noises)

    def _loss(self, part: Exposure, adversary: str, noises: int) -> Loss:
        event = _uploads(part, part.rounds, noises)
        carried = "its own noise" if noises == 1 else f"the noise of {noises} honest devices"
        certificate = (
            f"convex loss, steps below 2/L: one {part.unit} moves an upload by at most {movement(part):.4g}; "
            f"what is seen carries {carried}{'; one secret Poisson draw per round' * part.sampled}"
        )
        return Loss(rule="S7", event=event, adversary=adversary, certificate=certificate)

    def protection(self, plan: Plan) -> str:
        """What is done to an upload before it leaves, for the list of releases."""
        return f"clipping to {plan.clip:.3g} per {plan.unit}, {self.noise} {plan.noise:.4g} once"

    def described(self, plan: Plan) -> str:
        """How the mechanism protects a unit, for the report."""
        rows = "all rows" if plan.partitioned else "the rows of one secret draw per round"
        return (
            f"Training on {rows} without noise, rows at most {plan.row_length:.3g} long, gradients clipped to "
            f"{plan.clip:.3g} per {plan.unit}; {self.noise_in_full} of standard deviation {plan.noise:.4g} once, on "
            f"the upload, before masking. One {plan.unit} can move an upload by at most {movement(plan):.3g}, whatever "
            f"its rows say: the loss is convex, and steps are shorter than 2/L"
        )


NOISE_ONCE = in_each_law(
    NoiseOnce(
        noise_on="the upload",
        planned=("S7", "S7"),
        batches="all rows of a device in every step",
        size="all rows",
        name="All rows",
        why_batches="every step uses all rows of a device, and nothing is hidden by drawing some of them.",
        rules={"S7": "noise once, on the upload; one record moves it by a known amount however many steps there are"},
    )
)
