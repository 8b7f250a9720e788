"""What people read about mechanisms: what each rule counts, how records are protected, and why a rule holds."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from choral.core.exposure import EVERYONE, SUMS, Exposure, exposure_of
from choral.core.mechanisms import (
    ClippedUpdate,
    IntegerNoise,
    Mechanism,
    NoiseOnce,
    Partition,
    PoissonBatches,
    movement,
)
from choral.core.plan import Against, AnyLaw, Plan, SecureSum

_EACH_ROUND = re.compile(r"\b(step|device|pass|passes) a round\b")
_LAWS: dict[AnyLaw, str] = {"discrete_gaussian": "discrete Gaussian noise", "skellam": "Skellam noise"}


def in_plain_words(recorded: str | None) -> str:
    """A reason that records contain, in the words of today; the record keeps the words that its signatures cover.

    >>> in_plain_words("one local step a round: each sum carries the noise of 3 honest devices")  # in records
    'one local step per round: each sum carries the noise of 3 honest devices'
    """
    return _EACH_ROUND.sub(r"\1 per round", recorded or "")


def up(value: float, digits: int = 2) -> str:
    """The number with so many decimals, rounded up.

    >>> up(1.981), up(2.0), up(0.1 + 0.2, 1), up(math.inf)
    ('1.99', '2.00', '0.3', 'inf')
    """
    if math.isinf(value):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(value * scale - 1e-9) / scale:.{digits}f}"


def noise_of(plan: Plan) -> str:
    """The noise as it is named before its size; the usual law needs no word."""
    return _LAWS.get(plan.law, "noise")


def summing_server(part: Exposure) -> str:
    """The adversary of every rule that counts on the secure sum."""
    return SUMS + (f", helped by {part.colluders} of the devices" if part.colluders else "")


def seen_by(plan: Plan, secure: SecureSum, against: Against) -> str:
    """Whom the limits of a run hold against, in words.

    >>> plan = Plan(devices=16, cohort=10, rounds=8, rows=100, batch=100, step_size=0.5, clip=1.0, noise=0.1)
    >>> seen_by(plan, SecureSum.for_cohort(10), "server and colluders")
    'a server that sees only sums, helped by 2 of the devices'
    """
    return EVERYONE if against == "everyone" else summing_server(exposure_of(plan, secure, rows=plan.rows, rounds=1))


def one_step(part: Exposure) -> str:
    """Why the noise of all honest devices counts where a round is one local step."""
    return f"one local step a round: each sum carries the noise of {part.honest_noises} honest devices"  # in records


def _uses(part: Exposure) -> str:
    return f"no {part.unit} enters more than {part.uses(range(part.rounds))} noisy steps"


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words for a mechanism; those of Gaussian noise in every step, on batches of a partition."""

    rules: Mapping[str, str]  # the name of each rule -> what it counts
    noise_on: str = "the averaged gradient"  # what the noise is added to
    batches: str = "batches of a shuffled partition"
    size: str = "batches of {batch:,}"
    name: str = "A partition of the rows"
    why_batches: str = "the rows are split into batches, each record in one of them."

    def certificate(self, part: Exposure, noises: int, *, summed: bool) -> str:  # noqa: ARG002 - others name them
        """Why the rule holds for an exposure, with so many noises in what is seen."""
        return one_step(part) if summed else _uses(part)

    def described(self, plan: Plan) -> str:
        """How the mechanism protects a unit, for the report."""
        return (
            f"Gradients clipped to {plan.clip:g} per {plan.unit}, {self.batches}, {_in_full(plan)} of standard "
            f"deviation {plan.noise:.4g}{_exactness(plan)} on the device"
        )

    def protection(self, plan: Plan) -> str:
        """What is done to an update before it leaves, for the list of releases."""
        return f"clipping to {plan.clip:g}, {noise_of(plan)} {plan.noise:.4g}"

    def sized(self, plan: Plan) -> str:
        """The batches with their size, for people who start a run."""
        return self.size.format(batch=plan.batch)


def _in_full(plan: Plan) -> str:
    return _LAWS.get(plan.law, "Gaussian noise")


def _exactness(plan: Plan) -> str:
    return "" if plan.gaussian else " or more, in whole numbers"


class _OfPoisson(Words):
    def certificate(self, part: Exposure, noises: int, *, summed: bool) -> str:  # noqa: ARG002 - they are in the sum
        if summed:
            return one_step(part)
        steps = part.rounds * part.local_steps
        return f"each of {steps} steps draws its batch by Poisson sampling, kept inside the device"


class _OfWholeNumbers(Words):
    def certificate(self, part: Exposure, noises: int, *, summed: bool) -> str:  # noqa: ARG002 - they are in the sum
        on_grid = f"{noise_of(part)} on the grid"
        return f"{one_step(part)}, {on_grid}" if summed else f"{_uses(part)}, each with {on_grid}, added before masking"


class _OfWholeUpdates(Words):
    def certificate(self, part: Exposure, noises: int, *, summed: bool) -> str:  # noqa: ARG002 - the count says it
        clipped = "clipped and counted in one vector" if part.mechanism.adaptive else "clipped as a whole"
        return f"each update is {clipped}; what is seen carries the noise of {noises} honest devices"

    def described(self, plan: Plan) -> str:
        at_first, following = _followed(plan)
        return (
            f"Each device's whole update clipped to {plan.clip:.3g}{at_first}; {_in_full(plan)} of standard deviation "
            f"{plan.noise:.4g}{_exactness(plan)} once, on the update{following}"
        )

    def protection(self, plan: Plan) -> str:
        at_first, following = _followed(plan)
        whole = f"the whole update clipped to {plan.clip:.3g}{at_first}"
        return f"{whole}, {noise_of(plan)} {plan.noise:.4g} once{following}"


def _followed(plan: Plan) -> tuple[str, str]:
    """What else is said of the clip, and of the noise, where both follow the updates."""
    if not (quantile := plan.mechanism.own.get("clip_quantile")):
        return "", ""
    followed = f"clip and noise follow the {quantile:g} quantile of the updates' lengths"
    return " at first", f"; {followed}, by a count with the same noise"


class _OfNoiseOnce(Words):
    def certificate(self, part: Exposure, noises: int, *, summed: bool) -> str:  # noqa: ARG002 - the count says it
        carried = "its own noise" if noises == 1 else f"the noise of {noises} honest devices"
        return (
            f"convex loss, steps below 2/L: one {part.unit} moves an upload by at most {movement(part):.4g}; "
            f"what is seen carries {carried}{'; one secret Poisson draw per round' * part.sampled}"
        )

    def described(self, plan: Plan) -> str:
        rows = "all rows" if plan.partitioned else "the rows of one secret draw per round"
        length = plan.mechanism.own["row_length"]
        return (
            f"Training on {rows} without noise, rows at most {length:.3g} long, gradients clipped to "
            f"{plan.clip:.3g} per {plan.unit}; {_in_full(plan)} of standard deviation {plan.noise:.4g} once, on "
            f"the upload, before masking. One {plan.unit} can move an upload by at most {movement(plan):.3g}, whatever "
            f"its rows say: the loss is convex, and steps are shorter than 2/L"
        )

    def protection(self, plan: Plan) -> str:
        return f"clipping to {plan.clip:.3g} per {plan.unit}, {noise_of(plan)} {plan.noise:.4g} once"


WORDS: dict[type[Mechanism], Words] = {
    Partition: Words(
        rules={
            "S1": "every noisy step counted on its own",
            "S2": "one step per round, noise summed over the honest devices",
            "S3": "in exact arithmetic: steps that do not expand, last noise summed over the honest devices",
        },
    ),
    PoissonBatches: _OfPoisson(
        name="Poisson sampling",
        batches="secret Poisson batches",
        size="batches of about {batch:,}, Poisson",
        why_batches="each record is in a batch by its own secret coin, which hides it further.",
        rules={"S5": "secret Poisson batches inside each device"},
    ),
    ClippedUpdate: _OfWholeUpdates(
        noise_on="the update",
        batches="batches that are no part of the proof",
        size="batches of about {batch:,}",
        name="Clipped updates",
        why_batches="how a device draws its batches does not matter, since its whole update is clipped.",
        rules={"S4": "whole updates clipped, noise summed over the honest devices"},
    ),
    IntegerNoise: _OfWholeNumbers(
        why_batches="the rows are split into batches: of sampled ones with whole-number noise nothing is proved.",
        rules={"S6": "one step per round, whole-number noise on the grid"},
    ),
    NoiseOnce: _OfNoiseOnce(
        noise_on="the upload",
        batches="all rows of a device in every step",
        size="all rows",
        name="All rows",
        why_batches="every step uses all rows of a device, and nothing is hidden by drawing some of them.",
        rules={"S7": "noise once, on the upload; one record moves it by a known amount however many steps there are"},
    ),
}
_SUMS = {"S8": "one sum over records, whole-number noise"}


def words_of(plan: Plan) -> Words:
    """The words for the mechanism of a plan.

    >>> words_of(Plan(devices=2, cohort=2, rounds=1, rows=8, batch=4, step_size=0.5, clip=1.0, noise=1.0)).name
    'Poisson sampling'
    """
    return WORDS[type(plan.mechanism)]


def rule_in_words(rule: str) -> str:
    """The rule with what it counts, where it is one of choral's own.

    >>> rule_in_words("S1")
    'S1: every noisy step counted on its own'
    """
    known = {name: counted for words in WORDS.values() for name, counted in words.rules.items()} | _SUMS
    return f"{rule}: {known[rule]}" if rule in known else rule
