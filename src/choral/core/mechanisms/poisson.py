"""Gaussian noise in every local step, on batches that each device draws in secret: Rule S5."""

import math
from dataclasses import dataclass

from choral.core.events import Poisson
from choral.core.exposure import Exposure
from choral.core.mechanisms.partition import PARTITION
from choral.core.rules import EVERYONE, Loss, Mechanism, one_step, summing_server


def sampled(part: Exposure, steps: int, *, honest_noises: int = 1, overflow: float = 0.0) -> Poisson:
    """Poisson-sampled steps with the fixed divisor γ (Rule S5); `overflow` is the chance of a full batch in any step.

    >>> part = Exposure.of(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.004902,
    ...                    clip=1.0)
    >>> sampled(part, 130)
    Poisson(noise_multiplier=1.196088, probability=0.1, steps=130, delta=0.0)
    """
    multiplier = part.noise_multiplier * math.sqrt(honest_noises)
    return Poisson(noise_multiplier=multiplier, probability=part.batch / part.rows, steps=steps, delta=overflow)


@dataclass(frozen=True, kw_only=True)
class PoissonBatches(Mechanism):
    """Each record is in a batch by its own secret coin."""

    def of_device(self, part: Exposure) -> Mechanism:
        """A batch of all rows is no sample of them: that device is charged as if its rows were split into batches."""
        return self if part.sampled else PARTITION

    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> Poisson:  # noqa: ARG002 - rounds are alike
        """The steps of one round."""
        return sampled(part, part.local_steps, honest_noises=noises, overflow=reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S5: any loss function."""
        certificate = f"each of {part.steps} steps draws its batch by Poisson sampling, kept inside the device"
        return Loss(rule="S5", event=sampled(part, part.steps), adversary=EVERYONE, certificate=certificate)

    def with_secure_sum(self, part: Exposure) -> Loss | str:
        """Rule S5 with the noise of r_eff devices, for one step per round."""
        if part.local_steps > 1:
            return "with Poisson sampling and several local steps no rule counts the other devices' noise"
        event = sampled(part, part.steps, honest_noises=part.honest_noises)
        return Loss(rule="S5", event=event, adversary=summing_server(part), certificate=one_step(part))


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
