"""What is to be planned: the user's numbers, checked, and what its public shape tells of the loss."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack

from choral.accounting.conversions import rho_for
from choral.accounting.proofs import rounds_each
from choral.accounting.reserves import spendable
from choral.core.errors import PlanError
from choral.core.exposure import Crowd, Exposure, crowd_of, in_crowd, noises_against
from choral.core.mechanisms import PoissonBatches
from choral.core.plan import (
    AGAINST,
    NOISE_IS_ADDED,
    Against,
    Budget,
    Law,
    NoiseIsAdded,
    Plan,
    Sampling,
    SecureSum,
    Unit,
    UnitName,
    plain_number,
    require_keywords,
    require_number,
    require_one_of,
    require_whole,
    usual_sampling,
)
from choral.planner.numbers import Convergence, theorem_2

ModelKind = Literal["logistic", "linear", "mlp"]
MODELS: tuple[ModelKind, ...] = ("logistic", "linear", "mlp")
# The losses of models that are convex, by the names that rule S7 has for them.
CONVEX_LINKS: dict[ModelKind, str] = {"logistic": "softmax", "linear": "squared"}

# Settings that describe noisy local steps; whoever gives one of them has noise in every step.
OF_EVERY_STEP = frozenset(("batch", "local_steps", "step_size", "clip", "sampling", "noise"))
# Weights of three and more classes: with more of them noise in every step was 2 to 7 points ahead on made-up tables.
MOST_WEIGHTS_ONCE = 150
_SCREENED = 0.99  # of δ: closed forms only choose by it, and it stays as it was so that proposed plans do
_MOST_BATCHES = 50


class _Wishes(TypedDict, total=False):
    delta: float | None
    classes: int
    model: ModelKind
    cohort: int | None
    rounds: int | None
    local_steps: int | None
    batch: int | None
    clip: float | None
    step_size: float | None
    noise: float | None
    sampling: Sampling | None
    law: Law
    colluders: int | None
    dropouts: int | None
    row_length: float | None
    against: Against
    noise_is_added: NoiseIsAdded | None
    unit: UnitName
    rows_per_person: int


class Wanted(_Wishes):
    """What a plan is made for: what is left out, or None, is proposed or has its usual value."""

    epsilon: float
    devices: int
    rows: int
    features: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the bounds need to know of a loss, guessed from public numbers: no record is looked at."""

    length: float  # R, of a typical row
    smoothness: float  # L
    dimension: int  # tr H ÷ L, the directions in which noise hurts
    gradient: float  # length of a record's gradient while the model knows nothing; also β
    gap: float  # f(θ⁰) − f*

    @classmethod
    def of(cls, *, features: int, classes: int, row_length: float | None) -> "Shape":
        """The shape of softmax regression on rows of this length, or of least squares without classes.

        Both also guide networks.

        >>> round(Shape.of(features=104, classes=2, row_length=4.0).gradient, 3)
        2.828
        """
        # One-hot rows have a few ones, dense rows are long: the cube root lies between, and hits common tables well.
        length = features ** (1 / 3) if row_length is None else row_length
        if not classes:
            # (x·w − y)²/2 has the Hessian xxᵀ; labels are scaled to −1…1 and, for all we know, spread evenly.
            unsure = 1 / 3
            return cls(
                length=length,
                smoothness=length**2,
                dimension=1,
                gradient=math.sqrt(unsure) * length,
                gap=unsure / 2,
            )
        unsure = 1 - 1 / classes  # ‖p − e_y‖² while all classes are equally likely
        return cls(
            length=length,
            smoothness=length**2 / 4,
            dimension=math.ceil(4 * unsure - 1e-9),
            gradient=math.sqrt(unsure) * length,
            gap=math.log(classes) / 2,
        )

    @property
    def standstill(self) -> float:
        """2L(f(θ⁰) − f*), the most that a squared gradient can be at the start: a bound above it says nothing."""
        return 2 * self.smoothness * self.gap


@dataclass(frozen=True, kw_only=True)
class PlanningTask:
    """The user's numbers, checked: `draft` is a plan that holds those that are `given`, and stopgaps for the others."""

    budget: Budget
    model: ModelKind
    classes: int
    features: int
    shape: Shape
    draft: Plan
    colluders: int
    dropouts: int
    against: Against
    once: bool  # whether noise is to be added once, by rule S7
    left_once: str  # which settings it is because of that it is not, in words; empty where there are none
    noise: float | None
    given: frozenset[str]

    @property
    def trusts_sum(self) -> bool:
        """Whether the budget is about the figure with the secure sum."""
        return self.against != "everyone"

    def fixed(self, name: str) -> Any:  # noqa: ANN401 - any number of a plan
        """A number of the plan as the user gave it, or None where the planner may choose."""
        return getattr(self.draft, name) if name in self.given else None

    @property
    def many(self) -> bool:
        """Whether many weights get their own numbers: nobody has described the local steps or chosen another sampler.

        Whole-number noise and whole devices keep the guide's numbers.
        """
        draft, described = self.draft, (OF_EVERY_STEP - {"sampling"}) & self.given
        usual = draft.sampling == usual_sampling(draft.law) and not draft.strict and not draft.protects.clips_update
        many = many_weights(features=self.features, classes=self.classes, against=self.against)
        return many and usual and not described and self.model in CONVEX_LINKS

    @property
    def spendable(self) -> Budget:
        """The budget that noise may use up."""
        return spendable(self.budget)

    @cached_property
    def mu(self) -> float:
        """The μ of Gaussian privacy that fills the budget, to choose by."""
        delta = self.budget.delta * _SCREENED
        return math.sqrt(2 * rho_for(epsilon=self.budget.epsilon, delta=delta, conversion="exact"))

    @property
    def honest_noises(self) -> int:
        """r_eff of the secure sum."""
        return self.draft.cohort - self.colluders - self.dropouts

    def rounds_each(self, rounds: int) -> int:
        """C: in how many of the rounds a device takes part when all take turns."""
        return rounds_each(replace(self.draft, rounds=rounds))

    def exposure(self, plan: Plan) -> Exposure:
        """What a device with just the plan's rows is exposed to when all take turns."""
        return in_crowd(
            plan, rows=plan.rows, rounds=rounds_each(plan), colluders=self.colluders, dropouts=self.dropouts
        )

    def screened_noise(self, rounds: int, local_steps: int, against: Against) -> float:
        """The noise of full batches in closed form, which sampled batches come near to."""
        uses = self.rounds_each(rounds) * local_steps / noises_against(against, self.honest_noises)
        return 2 * self.draft.clip * math.sqrt(uses) / (self.draft.rows * self.mu)

    def fitting_batch(self, rounds: int, local_steps: int, noise: float) -> int:
        """The smallest batch whose own luck stays below the noise and whose sampling still hides a record well."""
        rows, batch = self.draft.rows, self.fixed("batch")
        if batch is not None:
            return int(batch)
        if not isinstance(self.draft.mechanism, PoissonBatches):
            return rows  # without amplification a batch of a tenth needs √10 times the noise
        # z = σγ/G from about 1.2 on: below, sampling hides less than its share (sinh(1/z²) grows faster than 1/z²).
        hidden = 0.6 * self.mu * rows / math.sqrt(self.rounds_each(rounds) * local_steps)
        least = max(self.shape.smoothness / noise**2, hidden, 1.0)
        return rows // min(_MOST_BATCHES, max(1, math.floor(rows / least)))

    def fitting_step_size(self, rounds: int, local_steps: int, batch: int, noise: float) -> float:
        """The step size that balances start against variance in the bound, at most at the edge of stability, 2/L."""
        if "step_size" in self.given:
            return self.draft.step_size
        shape, steps = self.shape, rounds * local_steps
        variance = (shape.gradient**2 / batch + shape.dimension * noise**2) / self.draft.cohort
        balanced = math.sqrt(2 * shape.gap / (steps * shape.smoothness * variance))
        return float(f"{min(2 / shape.smoothness, balanced):.2g}")

    def guide(self, rounds: int, local_steps: int, batch: int, noise: float, step_size: float) -> Convergence:
        """The corrected Theorem 2 without drift; devices draw apart, so their batches count together."""
        return self.bound(rounds * local_steps, 1, batch, noise, step_size)

    def drowned(self, rounds: int, local_steps: int, noise: float) -> bool:
        """Whether the noise alone leaves a bound that says no more than standing still."""
        shape, steps = self.shape, rounds * local_steps
        pull = shape.smoothness * shape.dimension * noise**2 / self.draft.cohort
        if "step_size" in self.given:
            return self.draft.step_size * pull >= shape.standstill
        eta = min(2 / shape.smoothness, math.sqrt(2 * shape.gap / (steps * pull)))
        return 2 * shape.gap / (eta * steps) + eta * pull >= shape.standstill

    def bound(self, steps: int, local_steps: int, batch: int, noise: float, step_size: float) -> Convergence:
        """The corrected Theorem 2 with the guessed shape."""
        shape = self.shape
        return theorem_2(
            initial_gap=shape.gap, step_size=step_size, smoothness=shape.smoothness, steps=steps,
            noise=noise, dimension=shape.dimension, cohort=self.draft.cohort, batch=batch * self.draft.cohort,
            local_steps=local_steps, gradient_deviation=shape.gradient,
        )  # fmt: skip


def usual_cohort(devices: int) -> int:
    """How many of so many devices take part per round where nobody says it.

    >>> usual_cohort(16), usual_cohort(1000)
    (10, 79)
    """
    return min(devices, max(10, min(100, round(2.5 * math.sqrt(devices)))))


def task_of(**numbers: Unpack[Wanted]) -> PlanningTask:
    """The user's numbers, each checked by its name, with the simple defaults filled in."""
    require_keywords(numbers, Wanted)
    given: dict[str, Any] = {name: plain_number(value) for name, value in numbers.items() if value is not None}
    given = {"classes": 2, "model": "logistic", "law": "gaussian", "against": "everyone", **given}
    devices, rows, features = (require_whole(name, given.get(name)) for name in ("devices", "rows", "features"))
    model, law = given["model"], given["law"]
    require_one_of("against", given["against"], AGAINST)
    classes = 0 if require_one_of("model", model, MODELS) == "linear" else given["classes"]
    if classes or model == "logistic":  # a network without classes learns numbers
        require_whole("classes", classes, least=2)
    for name in ("noise", "row_length"):
        if name in given:
            require_number(name, given[name])
    shape = Shape.of(features=features, classes=classes, row_length=given.get("row_length"))
    # As many as hide one well; more would not help: every device would take part, and pay, more often.
    cohort = given.get("cohort", usual_cohort(devices))
    stopgaps = {"rounds": 1, "batch": rows, "step_size": 1.0, "clip": float(f"{shape.gradient:.2g}")}
    planned = {name: given[name] for name in (*stopgaps, "local_steps") if name in given}
    sampling = given.get("sampling", usual_sampling(law))
    draft = Plan(
        devices=devices, cohort=cohort, rows=rows, noise=1.0, sampling=sampling, law=law,
        **(stopgaps | planned | {name: given[name] for name in ("unit", "rows_per_person") if name in given}),
    )  # fmt: skip
    crowd = _crowd(cohort, given.get("colluders"), given.get("dropouts"))
    if crowd["colluders"] + crowd["dropouts"] >= cohort:
        raise PlanError(
            "CH204",
            f"{crowd['colluders']} colluders and {crowd['dropouts']} drop-outs leave none of {cohort} in the cohort.",
            fix="Together they must be fewer than the cohort.",
        )
    return PlanningTask(
        budget=Budget(epsilon=numbers["epsilon"], delta=_delta(given.get("delta"), devices, rows)),
        model=model,
        classes=classes,
        features=features,
        shape=shape,
        draft=draft,
        against=given["against"],
        **_noise_once(model, draft.protects, features, given),
        noise=given.get("noise"),
        given=frozenset(given),
        **crowd,
    )


def adds_noise_once(said: NoiseIsAdded | None, *, convex: bool, many: bool, settings: Iterable[str]) -> bool:
    """Whether noise is added once: as is said, else for convex models whose local steps nobody has described.

    With `many` weights of three and more classes noise in every step does better, unless the secure sum is to count.

    >>> [adds_noise_once(None, convex=True, many=False, settings=[name]) for name in ("cohort", "batch")]
    [True, False]
    """
    if said is not None:
        return said == "once"
    return convex and not many and not OF_EVERY_STEP.intersection(settings)


def left_noise_once(said: NoiseIsAdded | None, *, convex: bool, many: bool, settings: Iterable[str]) -> str:
    """What to say where noise is in every step only because of settings that describe such steps; else nothing.

    >>> left_noise_once(None, convex=True, many=False, settings=["batch", "cohort"])
    'noise is added in every step because of batch; to add it once, leave that out or set noise_is_added = "once"'
    """
    if said is not None or not adds_noise_once(None, convex=convex, many=many, settings=()):
        return ""
    names = sorted(OF_EVERY_STEP.intersection(settings))
    if not names:
        return ""
    them = "that" if len(names) == 1 else "them"
    because = " and ".join(", ".join(names).rsplit(", ", 1))
    cure = f'to add it once, leave {them} out or set noise_is_added = "once"'
    return f"noise is added in every step because of {because}; {cure}"


def many_weights(*, features: int, classes: int, against: Against) -> bool:
    """Whether noise in every step does better than noise once: on made-up tables it did so from here on.

    >>> [many_weights(features=400, classes=classes, against="everyone") for classes in (2, 10)]
    [False, True]
    """
    return against == "everyone" and classes > 2 and (features + 1) * (classes - 1) > MOST_WEIGHTS_ONCE


class _NoiseOnce(TypedDict):
    once: bool
    left_once: str


def _noise_once(model: ModelKind, unit: Unit, features: int, given: Mapping[str, Any]) -> _NoiseOnce:
    said, convex = given.get("noise_is_added"), model in CONVEX_LINKS
    if said is not None:
        require_one_of("noise_is_added", said, NOISE_IS_ADDED)
    if said == "once" and not convex:
        raise PlanError(
            "CH204",
            f'noise_is_added = "once" with model = "{model}".',
            why="Rule S7 needs a convex loss.",
            fix=f'Use one of the models {", ".join(CONVEX_LINKS)}, or noise_is_added = "every step".',
        )
    many = many_weights(features=features, classes=given["classes"], against=given["against"])
    convex = convex and not unit.clips_update
    return {
        "once": adds_noise_once(said, convex=convex, many=many, settings=given),
        "left_once": left_noise_once(said, convex=convex, many=many, settings=given),
    }


def _crowd(cohort: int, colluders: int | None, dropouts: int | None) -> Crowd:
    """Who of a cohort adds no noise that counts: as is said, else as the secure sum of a run counts it."""
    given = {"colluders": colluders, "dropouts": dropouts}
    for name, value in given.items():
        if value is not None:
            require_whole(name, value, least=0)
    usual: Crowd = {"colluders": 0, "dropouts": 0}
    if colluders is not None and colluders > cohort - 2:
        usual["dropouts"] = 1  # no secure sum withstands so many
    elif cohort > 1:
        usual = crowd_of(SecureSum.for_cohort(cohort, colluders=colluders))
    return {
        "colluders": usual["colluders"] if colluders is None else colluders,
        "dropouts": usual["dropouts"] if dropouts is None else dropouts,
    }


def _delta(delta: float | None, devices: int, rows: int) -> float:
    if delta is None:
        return min(1e-5, 10.0 ** -math.ceil(math.log10(devices * rows)))
    require_number("delta", delta, below=1.0)
    if delta > 1 / rows:
        raise PlanError(
            "CH200", f"delta = {delta:g} is above 1/rows = {1 / rows:.2g}.",
            why="With that much δ, publishing one record in the clear would count as private.",
            fix=f"Use at most {_delta(None, devices, rows):g}, or leave it out.",
        )  # fmt: skip
    return delta
