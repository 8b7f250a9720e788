"""What is to be planned: the user's numbers, checked, and what its public shape tells of the loss."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from choral.convergence_bounds import Convergence, convergence
from choral.errors import PlanError
from choral.plan import (
    SAMPLINGS,
    Budget,
    Law,
    Sampling,
    require_law,
    require_number,
    require_one_of,
    require_whole,
    usual_sampling,
)
from choral.privacy.zcdp import rho_for

ModelKind = Literal["logistic", "linear", "mlp"]
Trust = Literal["nobody", "secure_sum"]
MODELS: tuple[ModelKind, ...] = ("logistic", "linear", "mlp")
TRUSTS: tuple[Trust, ...] = ("nobody", "secure_sum")

_RESERVED = 0.01  # of δ, for overflowing batches, ranges and rounding, which a device charges besides
_MOST_BATCHES = 50


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
class Task:
    """The user's numbers, None where the planner may choose."""

    budget: Budget
    devices: int
    rows: int
    model: ModelKind
    shape: Shape
    cohort: int
    colluders: int
    dropouts: int
    sampling: Sampling
    law: Law
    trust: Trust
    clip: float
    rounds: int | None
    local_steps: int | None
    batch: int | None
    step_size: float | None
    noise: float | None
    given: frozenset[str]

    @property
    def calibrated(self) -> Budget:
        """The budget less the part of δ that overflowing batches, ranges and rounding may use up."""
        return Budget(epsilon=self.budget.epsilon, delta=self.budget.delta * (1 - _RESERVED))

    @cached_property
    def mu(self) -> float:
        """The μ of Gaussian privacy that fills the budget."""
        return math.sqrt(2 * rho_for(epsilon=self.budget.epsilon, delta=self.calibrated.delta, conversion="exact"))

    @property
    def honest_noises(self) -> int:
        """r_eff of the secure sum."""
        return self.cohort - self.colluders - self.dropouts

    def rounds_each(self, rounds: int) -> int:
        """C: in how many of the rounds a device takes part when all take turns."""
        return -(-rounds * self.cohort // self.devices)

    def screened_noise(self, rounds: int, local_steps: int, *, summed: bool) -> float:
        """The noise of full batches in closed form, which sampled batches come near to."""
        uses = self.rounds_each(rounds) * local_steps / (self.honest_noises if summed else 1)
        return 2 * self.clip * math.sqrt(uses) / (self.rows * self.mu)

    def fitting_batch(self, rounds: int, local_steps: int, noise: float) -> int:
        """The smallest batch whose own luck stays below the noise and whose sampling still hides a record well."""
        if self.batch is not None:
            return self.batch
        if self.sampling == "partition":
            return self.rows  # without amplification a batch of a tenth needs √10 times the noise
        # z = σγ/G from about 1.2 on: below, sampling hides less than its share (sinh(1/z²) grows faster than 1/z²).
        hidden = 0.6 * self.mu * self.rows / math.sqrt(self.rounds_each(rounds) * local_steps)
        least = max(self.shape.smoothness / noise**2, hidden, 1.0)
        return self.rows // min(_MOST_BATCHES, max(1, math.floor(self.rows / least)))

    def fitting_step_size(self, rounds: int, local_steps: int, batch: int, noise: float) -> float:
        """The step size that balances start against variance in the bound, at most at the edge of stability, 2/L."""
        if self.step_size is not None:
            return self.step_size
        shape, steps = self.shape, rounds * local_steps
        variance = (shape.gradient**2 / batch + shape.dimension * noise**2) / self.cohort
        balanced = math.sqrt(2 * shape.gap / (steps * shape.smoothness * variance))
        return float(f"{min(2 / shape.smoothness, balanced):.2g}")

    def guide(self, rounds: int, local_steps: int, batch: int, noise: float, step_size: float) -> Convergence:
        """The corrected Theorem 2 without drift; devices draw apart, so their batches count together."""
        return self.bound(rounds * local_steps, 1, batch, noise, step_size)

    def drowned(self, rounds: int, local_steps: int, noise: float) -> bool:
        """Whether the noise alone leaves a bound that says no more than standing still."""
        shape, steps = self.shape, rounds * local_steps
        pull = shape.smoothness * shape.dimension * noise**2 / self.cohort
        if self.step_size is not None:
            return self.step_size * pull >= shape.standstill
        eta = min(2 / shape.smoothness, math.sqrt(2 * shape.gap / (steps * pull)))
        return 2 * shape.gap / (eta * steps) + eta * pull >= shape.standstill

    def bound(self, steps: int, local_steps: int, batch: int, noise: float, step_size: float) -> Convergence:
        """The corrected Theorem 2 with the guessed shape."""
        shape = self.shape
        return convergence(
            kind="non_convex", initial_gap=shape.gap, step_size=step_size, smoothness=shape.smoothness, steps=steps,
            noise=noise, dimension=shape.dimension, cohort=self.cohort, batch=batch * self.cohort,
            local_steps=local_steps, gradient_deviation=shape.gradient,
        )  # fmt: skip


def task_of(
    *, epsilon: float, delta: float | None, devices: int, rows: int, features: int, classes: int, model: ModelKind,
    cohort: int | None, rounds: int | None, local_steps: int | None, batch: int | None, clip: float | None,
    step_size: float | None, noise: float | None, sampling: Sampling | None, law: Law, colluders: int | None,
    dropouts: int | None, row_length: float | None, trust: str,
) -> Task:  # fmt: skip
    """The user's numbers, each checked by its name, with the simple defaults filled in."""
    given = frozenset(name for name, value in locals().items() if value is not None)
    require_whole("devices", devices)
    require_whole("rows", rows)
    require_whole("features", features)
    classes = 0 if require_one_of("model", model, MODELS) == "linear" else classes
    if classes or model == "logistic":  # a network without classes learns numbers
        require_whole("classes", classes, least=2)
    for name, value in {"rounds": rounds, "local_steps": local_steps}.items():
        if value is not None:
            require_whole(name, value)
    for name, number in {"clip": clip, "step_size": step_size, "noise": noise, "row_length": row_length}.items():
        if number is not None:
            require_number(name, number)
    if batch is not None:
        require_whole("batch", batch, most=rows)
    sampling = usual_sampling(law) if sampling is None else sampling
    require_one_of("sampling", sampling, SAMPLINGS)
    require_law(law, local_steps=local_steps or 1, sampling=sampling)
    shape = Shape.of(features=features, classes=classes, row_length=row_length)
    # As many as hide one well; more would not help: every device would take part, and pay, more often.
    among = min(devices, max(10, min(100, round(2.5 * math.sqrt(devices))))) if cohort is None else cohort
    require_whole("cohort", among, most=devices)
    colluders = among // 5 if colluders is None else require_whole("colluders", colluders, least=0)
    dropouts = among // 5 if dropouts is None else require_whole("dropouts", dropouts, least=0)
    if colluders + dropouts >= among:
        raise PlanError(
            "CH204", f"{colluders} colluders and {dropouts} drop-outs leave none of {among} in the cohort.",
            fix="Together they must be fewer than the cohort.",
        )  # fmt: skip
    return Task(
        budget=Budget(epsilon=epsilon, delta=_delta(delta, devices, rows)),
        devices=devices,
        rows=rows,
        model=model,
        shape=shape,
        cohort=among,
        colluders=colluders,
        dropouts=dropouts,
        sampling=sampling,
        law=law,
        trust="nobody" if require_one_of("trust", trust, TRUSTS) == "nobody" else "secure_sum",
        clip=float(f"{shape.gradient:.2g}") if clip is None else clip,
        rounds=rounds,
        local_steps=1 if local_steps is None and law != "gaussian" else local_steps,
        batch=batch,
        step_size=step_size,
        noise=noise,
        given=given,
    )


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
