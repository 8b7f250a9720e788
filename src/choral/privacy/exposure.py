"""One device's part in a run as far as its records' privacy goes: every number that a rule may use, checked."""

from dataclasses import dataclass

from choral.errors import PlanError
from choral.plan import (
    PASSES,
    SAMPLINGS,
    Law,
    Passes,
    Sampling,
    require_law,
    require_number,
    require_one_of,
    require_whole,
)


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What one device's records are exposed to; `rounds` is C, the rounds in which this device itself takes part.

    >>> part = Exposure(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0,
    ...                 sampling="partition", colluders=2, dropouts=1)
    >>> part.batches_per_pass, part.most_uses, part.honest_noises
    (10, 13, 7)
    """

    rounds: int
    local_steps: int
    cohort: int
    devices: int
    rows: int
    batch: int
    noise: float
    clip: float
    sampling: Sampling = "poisson"
    passes: Passes = "continue"
    secure_sum: bool = True
    colluders: int = 0
    dropouts: int = 0
    step_size: float | None = None
    smoothness: float | None = None
    convex: bool = False
    law: Law = "gaussian"

    def __post_init__(self) -> None:
        for name in ("rounds", "local_steps", "devices", "rows"):
            require_whole(name, getattr(self, name))
        require_whole("cohort", self.cohort, most=self.devices)
        require_whole("batch", self.batch, most=self.rows)
        for name in ("noise", "clip"):
            require_number(name, getattr(self, name))
        for name in ("step_size", "smoothness"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name))
        require_one_of("sampling", self.sampling, SAMPLINGS)
        require_one_of("passes", self.passes, PASSES)
        require_law(self.law, local_steps=self.local_steps, sampling=self.sampling)
        for name in ("secure_sum", "convex"):
            if not isinstance(getattr(self, name), bool):
                raise PlanError("CH200", f"{name} = {getattr(self, name)!r}.", fix="Must be true or false.")
        for name in ("colluders", "dropouts"):
            require_whole(name, getattr(self, name), least=0)
        if self.colluders + self.dropouts >= self.cohort:
            raise PlanError(
                "CH204",
                f"{self.colluders} colluders and {self.dropouts} drop-outs leave none of {self.cohort} in the cohort.",
                fix="Together they must be fewer than the cohort.",
            )

    @property
    def steps(self) -> int:
        """Cτ, the noisy steps in which this device's records may take part."""
        return self.rounds * self.local_steps

    @property
    def batches_per_pass(self) -> int:
        """E = ⌊m/γ⌋, the batches in one pass over the records."""
        return self.rows // self.batch

    @property
    def sampled(self) -> bool:
        """Whether Poisson sampling hides who is in a batch; a batch of all rows hides nothing."""
        return self.sampling == "poisson" and self.batch < self.rows

    @property
    def uses_per_round(self) -> int:
        """⌈τ/E⌉, how often a record is used in a round that starts with a fresh pass."""
        return -(-self.local_steps // self.batches_per_pass)

    @property
    def most_uses(self) -> int:
        """N, how often the most-used record of a partition enters a noisy step."""
        if self.passes == "continue":
            return -(-self.steps // self.batches_per_pass)
        return self.rounds * self.uses_per_round

    @property
    def honest_noises(self) -> int:
        """r_eff, the honest noises that are certainly in what an adversary sees, the device's own included."""
        return self.cohort - self.dropouts - self.colluders if self.secure_sum else 1

    @property
    def noise_multiplier(self) -> float:
        """z = σγ/G, the noise of a step in units of what one record adds to it."""
        return self.noise / self.clip * self.batch

    @property
    def lipschitz(self) -> float | None:
        """c, by how much a local step can stretch a distance; None where step_size and smoothness don't tell."""
        if self.step_size is None or self.smoothness is None:
            return None
        stretch = self.step_size * self.smoothness
        return 1.0 if self.convex and stretch <= 2 else 1 + stretch
