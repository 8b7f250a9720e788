"""What is proved of a device's part in a run: Rules S1 to S6, each proved in docs/accounting.md."""

import math
from dataclasses import dataclass

from choral.errors import PlanError
from choral.plan import LAWS, LEAST_SCALE, Law, Unit, require_number, require_one_of, require_whole
from choral.privacy.discrete import discrete_gaussian
from choral.privacy.events import Event, Gaussian, Poisson, Skellam, Zcdp, epsilon_of
from choral.privacy.exposure import Exposure
from choral.privacy.shifts import worst_cost

ADJACENT: dict[Unit, str] = {"record": "one record replaced"}  # what neighbours differ in, by the unit of a plan
ADJACENCY = ADJACENT["record"]
DEVICE_ADJACENCY = "all records of one device replaced"
EVERYONE = "the server and all other devices together"
NOISE: dict[Law, str] = {  # as it is named beside its size; the usual law needs no word
    "gaussian": "noise",
    "discrete_gaussian": "discrete Gaussian noise",
    "skellam": "Skellam noise",
}
_MOST_COORDINATES = 2**24  # of an update with whole noise: the codec refuses more


def local_composition(*, uses: int, batch: int, noise: float, clip: float, honest_noises: int = 1) -> Gaussian:
    """μ = 2G√N/(γσ√r_eff) of a record in N noisy steps: Rule S1 alone, Rule S2 with one step a round and a secure sum.

    >>> local_composition(uses=4, batch=100, noise=0.04, clip=1.0).mu
    1.0
    """
    multiplier = require_number("noise", noise) / require_number("clip", clip) * require_whole("batch", batch)
    return Gaussian(mu=2 / multiplier * math.sqrt(require_whole("uses", uses) / _noises(honest_noises)))


def shifted_steps(
    *,
    rounds: int,
    local_steps: int,
    batches_per_pass: int,
    batch: int,
    noise: float,
    clip: float,
    lipschitz: float,
    honest_noises: int,
) -> Gaussian:
    """Rule S3: several local steps of c-Lipschitz maps under a secure sum, rounds that each start with a fresh pass.

    >>> shifted_steps(rounds=4, local_steps=10, batches_per_pass=10, batch=100, noise=0.02, clip=1.0,
    ...               lipschitz=1.0, honest_noises=4).mu
    1.0
    """
    multiplier = require_number("noise", noise) / require_number("clip", clip) * require_whole("batch", batch)
    cost = worst_cost(
        steps=require_whole("local_steps", local_steps),
        batches_per_pass=require_whole("batches_per_pass", batches_per_pass),
        honest_noises=_noises(honest_noises),
        lipschitz=require_number("lipschitz", lipschitz),
    )
    return Gaussian(mu=2 / multiplier * math.sqrt(require_whole("rounds", rounds) * cost))


def whole_update(*, rounds: int, clip: float, noise: float, honest_noises: int = 1) -> Gaussian:
    """μ = 2S√C/(σ_u√r_eff) of updates clipped to S with noise σ_u each, for all records of a device (Rule S4).

    >>> whole_update(rounds=4, clip=1.0, noise=2.0, honest_noises=4).mu
    1.0
    """
    ratio = require_number("clip", clip) / require_number("noise", noise)
    return Gaussian(mu=2 * ratio * math.sqrt(require_whole("rounds", rounds) / _noises(honest_noises)))


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
        noise_multiplier=multiplier * math.sqrt(_noises(honest_noises)),
        probability=probability,
        steps=steps,
        delta=overflow,
    )


def whole_noise(
    *, law: Law, uses: int, batch: int, noise: float, clip: float, honest_noises: int = 1
) -> Zcdp | Skellam:
    """Whole noise on the grid, one step a round (Rule S6): no record moves the integers by more than 2G/(γσ) of it.

    That is what the codec sees to, with a deviation of at least `LEAST_SCALE` grid steps, so neither grid nor model
    matters here: both events are those of the least deviation, which cost no less than any larger one.

    >>> whole_noise(law="discrete_gaussian", uses=4, batch=100, noise=0.04, clip=1.0)
    Zcdp(rho=0.5, delta=0.0)
    """
    require_one_of("law", law, LAWS[1:])
    multiplier = require_number("noise", noise) / require_number("clip", clip) * require_whole("batch", batch)
    uses, noises, scale = require_whole("uses", uses), _noises(honest_noises), LEAST_SCALE[law]
    l2 = 2 / multiplier * scale
    if law == "skellam":
        # No sum of whole numbers exceeds that of their squares, and no event has a smaller l1 than l2.
        return Skellam(l1=max(l2 * l2, l2), l2=l2, variance=float(noises * scale**2), releases=uses)
    l1 = math.sqrt(_MOST_COORDINATES) * l2
    rho = discrete_gaussian(l1=l1, l2=l2, coordinates=_MOST_COORDINATES, noise=scale, honest_noises=noises)
    return Zcdp(rho=uses * rho)


def _noises(honest_noises: int) -> int:
    return require_whole("honest_noises", honest_noises)


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
    """Rule S5 (Poisson), S1 (partition) or S6 (whole noise): any loss, no trust in anybody.

    >>> against_everyone(Exposure(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244,
    ...                           noise=0.004902, clip=1.0, sampling="partition")).rule
    'S1'
    """
    if part.sampled:
        event: Event = _sampled(part, part.steps, 1)
        certificate = f"each of {part.steps} steps draws its batch by Poisson sampling, kept inside the device"
        return Loss(rule="S5", event=event, adversary=EVERYONE, certificate=certificate)
    certificate = f"no record enters more than {part.most_uses} noisy steps"
    if part.law != "gaussian":
        certificate += f", each with {NOISE[part.law]} on the grid, added before masking"
        return Loss(rule="S6", event=_whole(part, 1), adversary=EVERYONE, certificate=certificate)
    event = local_composition(uses=part.most_uses, batch=part.batch, noise=part.noise, clip=part.clip)
    return Loss(rule="S1", event=event, adversary=EVERYONE, certificate=certificate)


def why_no_certificate(part: Exposure) -> str:
    """The reason why nothing more is proved of the secure sum here, or nothing when Rule S2, S3, S5 or S6 applies."""
    if not part.secure_sum:
        return "no secure sum: the server sees every update"
    if part.local_steps == 1:
        return ""
    if part.sampled:
        return "with Poisson sampling and several local steps no rule counts the other devices' noise"
    if part.lipschitz is None:
        return "step_size and smoothness are not given, so nothing bounds how local steps carry a record's signal"
    if part.local_steps % part.batches_per_pass and part.passes == "continue":
        return "passes do not end with the rounds"
    return ""


def with_secure_sum(part: Exposure) -> Loss | None:
    """Rule S2, S3, S5 or S6 with the noise of r_eff devices, or None where `why_no_certificate` says why.

    >>> loss = with_secure_sum(Exposure(rounds=20, local_steps=1, cohort=10, devices=16, rows=100, batch=100,
    ...                                 noise=0.02, clip=1.0, colluders=1))
    >>> loss.rule, loss.event.mu == 2 * 20**0.5 / (100 * 0.02 * 9**0.5)
    ('S2', True)
    """
    if why_no_certificate(part):
        return None
    noises = part.honest_noises
    adversary = _summing_server(part)
    if part.local_steps == 1:
        counted = f"one local step a round: each sum carries the noise of {noises} honest devices"
        if part.sampled:
            return Loss(rule="S5", event=_sampled(part, part.steps, noises), adversary=adversary, certificate=counted)
        if part.law != "gaussian":
            counted += f", {NOISE[part.law]} on the grid"
            return Loss(rule="S6", event=_whole(part, noises), adversary=adversary, certificate=counted)
        event = local_composition(
            uses=part.most_uses, batch=part.batch, noise=part.noise, clip=part.clip, honest_noises=noises
        )
        return Loss(rule="S2", event=event, adversary=adversary, certificate=counted)
    assert part.lipschitz is not None  # noqa: S101 - why_no_certificate has seen to it
    event = shifted_steps(
        rounds=part.rounds,
        local_steps=part.local_steps,
        batches_per_pass=part.batches_per_pass,
        batch=part.batch,
        noise=part.noise,
        clip=part.clip,
        lipschitz=part.lipschitz,
        honest_noises=noises,
    )
    kind = "non-expansive" if part.lipschitz <= 1 else f"{part.lipschitz:g}-Lipschitz"
    # Rounded steps are not Lipschitz (docs/accounting.md, "Arithmetic"): no run has the smoothness that leads here.
    certificate = (
        f"in exact arithmetic, not claimed for runs: plain SGD with {kind} local steps; "
        f"the last step's sum carries the noise of {noises} honest devices"
    )
    return Loss(rule="S3", event=event, adversary=adversary, certificate=certificate)


def of_clipped_updates(part: Exposure) -> Loss:
    """Rule S4, where `clip` bounds a whole update and `noise` is that of the update; training does not matter.

    >>> part = Exposure(rounds=4, local_steps=7, cohort=4, devices=9, rows=10, batch=3, clip=1.0, noise=2.0)
    >>> of_clipped_updates(part).event
    Gaussian(mu=1.0, delta=0.0)
    """
    if part.law != "gaussian":
        raise PlanError(
            "CH204",
            f'law = "{part.law}" with updates clipped as a whole.',
            why="Rule S4 is about Gaussian noise.",
            fix='Use law = "gaussian", or rule = "proved".',
        )
    noises = part.honest_noises
    event = whole_update(rounds=part.rounds, clip=part.clip, noise=part.noise, honest_noises=noises)
    certificate = f"each update is clipped as a whole; what is seen carries the noise of {noises} honest devices"
    adversary = _summing_server(part) if part.secure_sum else EVERYONE
    return Loss(rule="S4", event=event, adversary=adversary, certificate=certificate, adjacency=DEVICE_ADJACENCY)


def _summing_server(part: Exposure) -> str:
    helpers = f", helped by {part.colluders} of the devices" if part.colluders else ""
    return f"a server that sees only sums{helpers}"


def _sampled(part: Exposure, steps: int, noises: int) -> Poisson:
    return poisson_steps(
        steps=steps, rows=part.rows, batch=part.batch, noise=part.noise, clip=part.clip, honest_noises=noises
    )


def _whole(part: Exposure, noises: int) -> Zcdp | Skellam:
    return whole_noise(
        law=part.law, uses=part.most_uses, batch=part.batch, noise=part.noise, clip=part.clip, honest_noises=noises
    )
