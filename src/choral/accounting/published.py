"""The paper's own formulas, verbatim, each with whether it is a guarantee here and why (or why not).

`valid` is about truth, not about the paper: it is set only where Rule S1, S2 or S3 proves the published figure.
"""

from dataclasses import dataclass
from typing import ClassVar

from choral.accounting.conversions import convert
from choral.accounting.proofs import lipschitz
from choral.core.exposure import ADJACENCY, Exposure

_NOISE_ONCE = "the formula is about noise in every step; here it is added once, to the upload (Rule {rule})"
_OTHER_NOISE = "the formula is about Gaussian noise in every step; here it is whole numbers on the grid (Rule S6)"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published figure: ρ, whether it holds here, and the condition that decides it."""

    rho: float
    valid: bool
    because: str
    adjacency: ClassVar[str] = ADJACENCY

    def epsilon(self, delta: float) -> float:
        """ε = ρ + 2√(ρ ln 1/δ), as in the paper (Lemma 3)."""
        return convert(rho=self.rho, delta=delta, conversion="paper")


def local_step(part: Exposure) -> float:
    """ρ = 2G²/(γσ)² of one noisy step on a batch that holds the record (Lemma 1, sensitivity 2G/γ)."""
    return 2 / (part.noise_multiplier * part.noise_multiplier)


def theorem_1(part: Exposure) -> Published:
    """Theorem 1: ρ = 2CτG²/(r m γ σ²).

    >>> from choral.accounting.proofs import exposed
    >>> part = exposed(rounds=20, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0,
    ...                 sampling="partition", step_size=0.5, smoothness=0.5, convex=True)
    >>> theorem_1(part).valid
    True
    """
    if once := _once(part, part.cohort):
        return once
    rho = _passes(part) * local_step(part) / part.cohort
    failed = _failed_hypothesis(part) or _missing_noise(part, part.cohort)
    if failed:
        return Published(rho=rho, valid=False, because=failed)
    return Published(rho=rho, valid=(verdict := _stretching(part))[0], because=verdict[1])


def without_secure_sum(part: Exposure) -> Published:
    """Theorem 1 for r = 1, where the server sees every update: ρ = 2CτG²/(m γ σ²).

    >>> from choral.accounting.proofs import exposed
    >>> part = exposed(rounds=20, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0,
    ...                 sampling="partition")
    >>> without_secure_sum(part).because
    'each record enters 20 noisy steps (Rule S1)'
    """
    if once := _once(part, 1):
        return once
    failed = _failed_hypothesis(part)
    because = failed or f"each record enters {part.uses(range(part.rounds))} noisy steps (Rule S1)"
    return Published(rho=_passes(part) * local_step(part), valid=not failed, because=because)


def dp_sgd_as_printed(part: Exposure) -> Published:
    """The paper's DP-SGD baseline, one step per round, as printed: ρ = 2CG²/(n γ² σ²)."""
    return _dp_sgd(part, part.devices)


def dp_sgd_corrected(part: Exposure) -> Published:
    """The same baseline with the noise that is really there, that of the r devices of a round: ρ = 2CG²/(r γ² σ²)."""
    return _dp_sgd(part, part.cohort)


def _once(part: Exposure, noises: int) -> Published | None:
    """What the paper's reasoning would give of noise on uploads: ρ of one, divided by the noises in the sum."""
    if not part.mechanism.on_upload:
        return None
    because = _NOISE_ONCE.format(rule=part.mechanism.rule)
    return Published(rho=part.rounds * local_step(part) / noises, valid=False, because=because)


def _dp_sgd(part: Exposure, noises: int) -> Published:
    if once := _once(part, noises):
        return once
    failed = _missing_noise(part, noises) if part.gaussian else _OTHER_NOISE
    if part.local_steps > 1:
        failed = f"DP-SGD makes one step a round, this run {part.local_steps}"  # in records
    because = failed or f"one step a round: each sum carries {noises} noises (Rule S2)"  # in records
    return Published(rho=part.rounds * local_step(part) / noises, valid=not failed, because=because)


def _passes(part: Exposure) -> float:
    return part.rounds * part.local_steps * part.batch / part.rows


def _failed_hypothesis(part: Exposure) -> str:
    """The first hypothesis of Theorem 1 about sampling that does not hold, or nothing."""
    batches = part.batches_per_pass
    if not part.gaussian:
        return _OTHER_NOISE
    if part.sampled:
        return "the theorem partitions the records into batches; here they are drawn by Poisson sampling"
    if part.rows % part.batch:
        return f"batch = {part.batch} does not divide rows = {part.rows}"
    if part.local_steps % batches == 0:
        return ""
    if part.local_steps > 1:
        return f"local_steps = {part.local_steps} do not fill whole passes of {batches} batches"
    if not part.passes_continue:
        return f"every round reshuffles, so a record may enter every round, not one in {batches}"
    if part.rounds % batches:
        return f"rounds = {part.rounds} of one step do not fill whole passes of {batches} batches"
    return ""


def _missing_noise(part: Exposure, counted: int) -> str:
    """Why fewer noises than the formula counts are certainly in what the server sees, or nothing."""
    if counted == 1 or part.honest_noises >= counted:
        return ""
    if not part.secure_sum:
        return f"no secure sum: the server sees every update with one noise, the formula counts {counted}"
    if part.probes:
        return f"the server sees {part.probes} probes of every update with one noise, the formula counts {counted}"
    return f"only {part.honest_noises} honest noises are certainly in a sum, the formula counts {counted}"


def _stretching(part: Exposure) -> tuple[bool, str]:
    """Whether several local steps keep the other devices' noise, as Theorem 1 takes for granted."""
    noises, batches = part.cohort, part.batches_per_pass
    if noises == 1:
        return True, "one device a round: plain composition of its steps (Rule S1)"  # in records
    if part.local_steps == 1:
        return True, "one local step a round: the sum carries every device's noise (Rule S2)"  # in records
    passes, stretch = part.local_steps // batches, lipschitz(part)
    if stretch is None:
        return False, (
            "more than one local step, and nothing shows that the steps keep the other devices' noise "
            "(step_size, smoothness and convex would)"
        )
    if stretch <= 1:
        if passes == 1 or noises <= batches:
            return True, "the local steps are non-expansive" + (" and pass once over the records" * (passes == 1))
        return False, (
            f"{passes} passes a round with {noises} devices for {batches} batches: "  # in records
            "a record's repeated signal adds up against the noise of its own device (Rule S3)"  # in records
        )
    if passes > 1:
        return False, f"{passes} passes a round of steps that may stretch distances by {stretch:g}"  # in records
    if stretch * stretch * (noises - 1) <= noises:
        return True, f"one pass a round, and steps that stretch by at most {stretch:g} (c² ≤ r/(r−1))"
    return (
        False,
        f"local steps may stretch distances by {stretch:g}, more than √(r/(r−1)) = {(noises / (noises - 1)) ** 0.5:g}",
    )
