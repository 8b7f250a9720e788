"""Gaussian noise in every local step, on batches that each device draws in secret: Rule S5."""

import math
from dataclasses import dataclass

from choral.plan import require_number, require_whole
from choral.privacy.events import Poisson
from choral.privacy.exposure import Exposure
from choral.privacy.mechanisms.partition import PARTITION
from choral.privacy.rules import EVERYONE, Loss, Mechanism, noises, one_step, summing_server


def poisson_steps(
    *, steps: int, rows: int, batch: int, noise: float, clip: float, honest_noises: int = 1, overflow: float = 0.0
) -> Poisson:
    """Poisson-sampled steps with the fixed divisor γ (Rule S5); `overflow` is the chance of a full batch in any step.

    >>> poisson_steps(steps=130, rows=2440, batch=244, noise=0.004902, clip=1.0)
    Poisson(noise_multiplier=1.196088, probability=0.1, steps=130, delta=0.0)
    """
    probability = require_whole("batch", batch, most=require_whole("rows", rows)) / rows
    multiplier = require_number("noise", noise) / require_number("clip", clip) * batch
    return Poisson(
        noise_multiplier=multiplier * math.sqrt(noises(honest_noises)),
        probability=probability,
        steps=steps,
        delta=overflow,
    )


@dataclass(frozen=True, kw_only=True)
class PoissonBatches(Mechanism):
    """Each record is in a batch by its own secret coin."""

    def of_device(self, part: Exposure) -> Mechanism:
        """A batch of all rows is no sample of them: that device is charged as if its rows were split into batches."""
        return self if part.sampled else PARTITION

    def event(self, part: Exposure, rounds_before: int, reserved: float) -> Poisson:  # noqa: ARG002 - all rounds are alike
        """The steps of one round."""
        return _sampled(part, part.local_steps, overflow=reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S5: any loss function."""
        certificate = f"each of {part.steps} steps draws its batch by Poisson sampling, kept inside the device"
        return Loss(rule="S5", event=_sampled(part, part.steps), adversary=EVERYONE, certificate=certificate)

    def with_secure_sum(self, part: Exposure) -> Loss | str:
        """Rule S5 with the noise of r_eff devices, for one step a round."""
        if part.local_steps > 1:
            return "with Poisson sampling and several local steps no rule counts the other devices' noise"
        event = _sampled(part, part.steps, honest_noises=part.honest_noises)
        return Loss(rule="S5", event=event, adversary=summing_server(part), certificate=one_step(part))


def _sampled(part: Exposure, steps: int, *, honest_noises: int = 1, overflow: float = 0.0) -> Poisson:
    return poisson_steps(
        steps=steps,
        rows=part.rows,
        batch=part.batch,
        noise=part.noise,
        clip=part.clip,
        honest_noises=honest_noises,
        overflow=overflow,
    )


POISSON = PoissonBatches(
    sampling="poisson",
    planned=("S5", "S5"),
    other_sampling="partition",
    name="Poisson sampling",
    batches="secret Poisson batches",
    size="batches of about {batch:,}, Poisson",
    why_batches="each record is in a batch by its own secret coin, which hides it further.",
    secret_batches=True,
    rules={"S5": "secret Poisson batches inside each device"},
)
