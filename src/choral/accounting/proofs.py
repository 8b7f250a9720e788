"""What each rule proves of an exposure: the event, against whom, and why it holds; docs/accounting.md has the proofs.

Rule S3 is here alone: no device charges by it. How little of a record's signal must show in a round's sum follows from
shifted iterates. A record's effect may be taken back step by step, each part against its own step's noise; what remains
meets the noise of all honest devices in the last. Costs are in units of (2G/γσ)², so that μ² of a round is cost ×
(2G/γσ)².
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict, Unpack

from choral.accounting.words import WORDS, summing_server
from choral.core.errors import PlanError
from choral.core.events import Event, Gaussian, epsilon_of
from choral.core.exposure import ADJACENCY, EVERYONE, Exposure, adjacency_of, in_crowd
from choral.core.mechanisms import CLIPPED_UPDATE, ClippedUpdate, Partition, charging, sum_uncounted
from choral.core.plan import (
    RETIRED_LAW,
    AnyLaw,
    Passes,
    Plan,
    Sampling,
    UnitName,
    require_keywords,
    require_number,
    require_whole,
)
from choral.core.plan.units import DEVICE


class _Optional(TypedDict, total=False):
    sampling: Sampling
    passes: Passes
    law: AnyLaw
    unit: UnitName
    rows_per_person: int
    clip_quantile: float
    secure_sum: bool
    colluders: int
    dropouts: int
    step_size: float | None
    smoothness: float | None
    convex: bool


class Conditions(_Optional):
    """The public numbers of one device's part in a run, all but its noise."""

    rounds: int
    local_steps: int
    cohort: int
    devices: int
    rows: int
    batch: int
    clip: float


class Exposed(Conditions):
    """Everything that `choral.account` is asked about."""

    noise: float


@dataclass(frozen=True, kw_only=True)
class SmoothExposure(Exposure):
    """An exposure of which it is also said how smooth the loss is, and whether it is convex."""

    smoothness: float | None = None
    convex: bool = False

    def __post_init__(self, *own: Any) -> None:  # noqa: ANN401 - the numbers of a mechanism, as a Plan takes them
        super().__post_init__(*own)
        if self.smoothness is not None:
            require_number("smoothness", self.smoothness)
        if not isinstance(self.convex, bool):
            raise PlanError("CH200", f"convex = {self.convex!r}.", fix="Must be true or false.")


def exposed(**numbers: Unpack[Exposed]) -> Exposure:
    """The exposure that these numbers describe; a step size counts only together with a smoothness.

    >>> exposed(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.02, clip=1.0).sampled
    True
    """
    require_keywords(numbers, Exposed)
    given: dict[str, Any] = dict(numbers)
    if given.get("smoothness") is not None:
        require_number("smoothness", given["smoothness"])
    if given.get("step_size") is None:
        given |= {"step_size": 1.0, "smoothness": None}
    if given.get("law") == RETIRED_LAW:  # of a run of before, whose account anybody may want
        given["retired"] = (("law", RETIRED_LAW),)
    return SmoothExposure(**given)


def smooth(part: Exposure, *, smoothness: float | None, convex: bool = False) -> Exposure:
    """The same exposure of a loss whose gradient is so smooth."""
    known = {field.name: getattr(part, field.name) for field in fields(Exposure)}
    return SmoothExposure(**known, smoothness=smoothness, convex=convex)


def lipschitz(part: Exposure) -> float | None:
    """c, by how much a local step can stretch a distance; None where nothing is known of the loss."""
    if not isinstance(part, SmoothExposure) or part.smoothness is None:
        return None
    stretch = part.step_size * part.smoothness
    return 1.0 if part.convex and stretch <= 2 else 1 + stretch


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one rule proves of an exposure: the event to charge, against whom, and why it holds."""

    rule: str
    event: Event
    adversary: str
    certificate: str
    adjacency: str = ADJACENCY

    def epsilon(self, delta: float) -> float:
        """ε of the whole exposure at δ."""
        return epsilon_of([self.event], delta)


def against_everyone(part: Exposure) -> Loss:
    """What is proved of an exposure with no trust in anybody.

    >>> against_everyone(exposed(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.004902,
    ...                          clip=1.0, sampling="partition")).rule
    'S1'
    """
    mechanism = charging(part)
    event, why = mechanism.event(part, range(part.rounds)), WORDS[type(mechanism)].certificate(part, 1, summed=False)
    return Loss(rule=mechanism.rule, event=event, adversary=EVERYONE, certificate=why, adjacency=adjacency_of(part))


def with_secure_sum(part: Exposure) -> Loss | str:
    """What is proved of an exposure with the noise of r_eff devices, or why nothing more is proved.

    >>> loss = with_secure_sum(exposed(rounds=20, local_steps=1, cohort=10, devices=16, rows=100, batch=100, noise=0.02,
    ...                                clip=1.0, colluders=1))
    >>> loss.rule, loss.event.mu == 2 * 20**0.5 / (100 * 0.02 * 9**0.5)
    ('S2', True)
    """
    mechanism, noises = charging(part), part.honest_noises
    event: Event
    rule, reason = mechanism.rule_of_sums, sum_uncounted(part)
    several = isinstance(mechanism, Partition) and part.local_steps > 1 and reason == mechanism.uncounted(part)
    if several and (stretch := lipschitz(part)) is not None:
        if part.passes_continue and part.local_steps % part.batches_per_pass:
            return "passes do not end with the rounds"
        rule, certificate, event = "S3", _of_stretching(noises, stretch), _of_several_steps(part, stretch)
    elif reason:
        return reason
    else:
        certificate = WORDS[type(mechanism)].certificate(part, noises, summed=True)
        event = mechanism.event(part, range(part.rounds), noises)
    summed = summing_server(part)
    return Loss(rule=rule, event=event, adversary=summed, certificate=certificate, adjacency=adjacency_of(part))


def of_clipped_updates(part: Exposure) -> Loss:
    """Rule S4 for an exposure whose `clip` and `noise` are those of whole updates; experiments and audits name it.

    >>> part = exposed(rounds=4, local_steps=7, cohort=4, devices=9, rows=10, batch=3, clip=1.0, noise=2.0)
    >>> of_clipped_updates(part).event
    Gaussian(mu=1.0, delta=0.0)
    """
    if part.strict and not part.protects.clips_update:
        raise PlanError(
            "CH204",
            f'law = "{part.law}" with updates clipped as a whole.',
            why="Rule S4 is about Gaussian noise.",
            fix='Use law = "gaussian", or rule = "proved".',
        )
    noises = part.honest_noises if part.secure_sum else 1
    return Loss(
        rule="S4",
        event=CLIPPED_UPDATE.event(part, range(part.rounds), noises),
        adversary=summing_server(part) if part.secure_sum else EVERYONE,
        certificate=WORDS[ClippedUpdate].certificate(part, noises, summed=part.secure_sum),
        adjacency=DEVICE.adjacency,
    )


def rounds_each(plan: Plan) -> int:
    """How many rounds a device takes part in when all take part equally often, rounded up."""
    return -(-plan.rounds * plan.cohort // plan.devices)


def rules_charged(plan: Plan, sizes: Iterable[int]) -> tuple[str, ...]:
    """The names of all rules by which devices with so many rows are charged, sorted.

    >>> plan = Plan(devices=3, cohort=3, rounds=4, rows=12, batch=12, step_size=0.5, clip=1.0, noise=0.5)
    >>> rules_charged(plan, [12, 40, 40])
    ('S1', 'S5')
    """
    noisy = replace(plan, noise=1.0)  # how much noise there is does not matter
    parts = (in_crowd(noisy, rows=rows, rounds=1, colluders=0, dropouts=0) for rows in set(sizes))
    return tuple(sorted({charging(part).rule for part in parts}))


def _of_stretching(noises: int, stretch: float) -> str:
    """Rounded steps are not Lipschitz (docs/accounting.md, "Arithmetic"): no run has the smoothness that leads here."""
    kind = "non-expansive" if stretch <= 1 else f"{stretch:g}-Lipschitz"
    return (
        f"in exact arithmetic, not claimed for runs: plain SGD with {kind} local steps; "
        f"the last step's sum carries the noise of {noises} honest devices"
    )


def _of_several_steps(part: Exposure, stretch: float) -> Gaussian:
    cost = worst_cost(
        steps=part.local_steps,
        batches_per_pass=part.batches_per_pass,
        honest_noises=part.honest_noises,
        lipschitz=stretch,
    )
    return Gaussian(mu=2 / part.noise_multiplier * math.sqrt(part.rounds * cost))


def least_cost(used: Collection[int], *, steps: int, honest_noises: float, lipschitz: float = 1.0) -> float:
    """min Σ a_t²/v_t over the shifts of Rule S3, for a record used at these steps (1 to τ).

    In the variables S_t = Σ uses·c^(τ−t) over x_t = Σ v_t·c^(2(τ−t)) the best B ≤ S with B_τ = S_τ is the greatest
    convex minorant: adjacent steps whose slopes fall are pooled.

    >>> least_cost([5, 10], steps=10, honest_noises=10)  # k = 2, E = 5: k²/((k−1)E + r)
    0.26666666666666666
    """
    require_whole("steps", steps)
    require_number("lipschitz", lipschitz)
    if steps * abs(math.log(lipschitz)) > 300:
        raise PlanError(
            "CH204",
            f"{steps} steps that each stretch by {lipschitz:g} leave the range of numbers.",
            fix="Use a smaller step size, or fewer local steps.",
        )
    pools: list[tuple[float, float]] = []  # (signal, width), slopes increasing
    for step in range(1, steps + 1):
        scale = lipschitz ** (steps - step)
        signal = scale if step in used else 0.0
        width = scale * scale * (honest_noises if step == steps else 1.0)
        while pools and pools[-1][0] * width >= signal * pools[-1][1]:
            before = pools.pop()
            signal, width = signal + before[0], width + before[1]
        pools.append((signal, width))
    return math.fsum(signal * signal / width for signal, width in pools)


def worst_cost(*, steps: int, batches_per_pass: int, honest_noises: int, lipschitz: float) -> float:
    """The cost of the worst place that a record can have in each pass of a round that starts with a fresh pass.

    >>> worst_cost(steps=10, batches_per_pass=5, honest_noises=10, lipschitz=1.0)
    0.26666666666666666
    """
    passes, rest = divmod(steps, batches_per_pass)
    uses = passes + (rest > 0)
    if lipschitz <= 1:
        if rest == 0:
            return closed_form(passes, batches_per_pass, honest_noises)
        # The later a use, the fewer steps are left to hide it: the worst record comes last in every pass.
        last = {batches_per_pass * (turn + 1) for turn in range(passes)} | {steps}
        return least_cost(last, steps=steps, honest_noises=honest_noises)
    # An early signal may be amplified: all uses but the last are paid at once, the last one over the steps that follow.
    stretched = lipschitz * lipschitz
    return uses - 1 + 1 / min(honest_noises, stretched / (stretched - 1))


def closed_form(passes: int, batches_per_pass: int, honest_noises: float) -> float:
    """The worst cost of whole passes of non-expansive steps (Rule S3, c ≤ 1).

    >>> closed_form(1, 10, 8), closed_form(2, 4, 8)
    (0.125, 0.3333333333333333)
    """
    if honest_noises >= batches_per_pass:
        return passes * passes / ((passes - 1) * batches_per_pass + honest_noises)
    return (passes - 1) / batches_per_pass + 1 / honest_noises
