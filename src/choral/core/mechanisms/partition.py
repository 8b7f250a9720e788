"""Gaussian noise in every local step, on batches of a partition: Rules S1, S2 and S3."""

import math
from dataclasses import dataclass, replace

from choral.core.events import Gaussian
from choral.core.exposure import Exposure
from choral.core.rules import EVERYONE, Loss, Mechanism, one_step, summing_server
from choral.core.shifts import worst_cost


def composed(part: Exposure, uses: int, honest_noises: int = 1) -> Gaussian:
    """μ = 2G√N/(γσ√r_eff) of a record in N noisy steps: Rule S1 alone, Rule S2 with one step per round and secure sum.

    >>> part = Exposure.of(rounds=4, local_steps=1, cohort=2, devices=2, rows=100, batch=100, noise=0.04, clip=1.0)
    >>> composed(part, 4).mu
    1.0
    """
    return Gaussian(mu=2 / part.noise_multiplier * math.sqrt(uses / honest_noises))


@dataclass(frozen=True, kw_only=True)
class Partition(Mechanism):
    """Each record is in one batch of a pass, and everybody may know in which."""

    def event(self, part: Exposure, rounds_before: int, reserved: float, noises: int = 1) -> Gaussian:
        """The uses of a record that this round adds: passes that continue charge for no more than those."""
        uses = part.uses_after(rounds_before + 1) - part.uses_after(rounds_before)
        return replace(composed(part, uses, noises) if uses else Gaussian(mu=0.0), delta=reserved)

    def against_everyone(self, part: Exposure) -> Loss:
        """Rule S1: any loss function."""
        certificate = f"no {part.unit} enters more than {part.most_uses} noisy steps"
        return Loss(rule="S1", event=composed(part, part.most_uses), adversary=EVERYONE, certificate=certificate)

    def with_secure_sum(self, part: Exposure) -> Loss | str:
        """Rule S2 for one step per round; Rule S3 for several, if something bounds how far they stretch distances."""
        noises, adversary = part.honest_noises, summing_server(part)
        if part.local_steps == 1:
            event = composed(part, part.most_uses, noises)
            return Loss(rule="S2", event=event, adversary=adversary, certificate=one_step(part))
        if part.lipschitz is None:
            return "step_size and smoothness are not given, so nothing bounds how local steps carry a record's signal"
        if part.continues and part.local_steps % part.batches_per_pass:
            return "passes do not end with the rounds"
        cost = worst_cost(
            steps=part.local_steps,
            batches_per_pass=part.batches_per_pass,
            honest_noises=noises,
            lipschitz=part.lipschitz,
        )
        event = Gaussian(mu=2 / part.noise_multiplier * math.sqrt(part.rounds * cost))
        kind = "non-expansive" if part.lipschitz <= 1 else f"{part.lipschitz:g}-Lipschitz"
        # Rounded steps are not Lipschitz (docs/accounting.md, "Arithmetic"): no run has the smoothness that leads here.
        certificate = (
            f"in exact arithmetic, not claimed for runs: plain SGD with {kind} local steps; "
            f"the last step's sum carries the noise of {noises} honest devices"
        )
        return Loss(rule="S3", event=event, adversary=adversary, certificate=certificate)


PARTITION = Partition(
    planned=("S1", "S2"),
    other_sampling="poisson",
    rules={
        "S1": "every noisy step counted on its own",
        "S2": "one step per round, noise summed over the honest devices",
        "S3": "in exact arithmetic: steps that do not expand, last noise summed over the honest devices",
    },
)
