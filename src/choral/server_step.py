"""What the server does with the mean of a round's updates: an init/update pair for each rule, as in optax.

A step sees only the mean, which every device has paid for, so no figure for ε depends on it. Its arithmetic is NumPy's
float32, one rounded operation at a time: simulations, rehearsals and resumed runs have the same bits. A new step is a
dataclass with its numbers and the pair, and one line in STEPS.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import PlanError
from choral.core.plan import COUNT_LENGTH, LARGEST_LOG_CLIP

Vector = NDArray[np.float32]
State = dict[str, Vector]  # what a step remembers from round to round, each as long as the parameters


def mean(total: Any, count: int, grid: float, out: NDArray[np.float32] | None = None) -> Any:  # noqa: ANN401 - any array namespace: NumPy here, JAX in the engine
    """The mean update of a sum of so many, as float32; in `out`, if given: new memory costs more than the mean.

    >>> mean(np.int32([2, -4]), 2, 0.5).tolist()
    [0.5, -1.0]
    """
    if out is None:
        update = total.astype(total.__array_namespace__().float32)
    else:
        update = out
        update[:] = total
    update *= mean_scale(count, grid)
    return update


def mean_scale(count: int, grid: float) -> np.float32:
    """The one factor between a sum of so many and its mean: rounded once, so that every processor has the same."""
    return np.float32(grid / count)


class ServerStep(Protocol):
    """A rule that turns means into moves of the parameters: a dataclass whose fields are the numbers it takes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def init(self, parameters: Vector) -> State:
        """What it remembers before the first round."""

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """What is added to the parameters, and what is remembered. The mean's memory is used again: keep a copy."""


@dataclass(frozen=True, kw_only=True)
class Mean:
    """Line 12 of Algorithm 1: the mean itself.

    >>> Mean().update(np.float32([0.5]), {})[0].tolist()
    [0.5]
    """

    def init(self, parameters: Vector) -> State:  # noqa: ARG002 - it remembers nothing
        """Nothing."""
        return {}

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """The mean."""
        return mean, state


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """Heavy-ball momentum over the means (FedAvgM; Hsu, Qi, Brown 2019).

    >>> step = Momentum(step_size=0.5, momentum=0.5)
    >>> first, state = step.update(np.float32([1.0]), step.init(np.zeros(1, np.float32)))
    >>> first.tolist(), step.update(np.float32([1.0]), state)[0].tolist()
    ([0.5], [0.75])
    """

    step_size: float = 1.0
    momentum: float = 0.9

    def init(self, parameters: Vector) -> State:
        """No velocity."""
        return {"velocity": np.zeros_like(parameters)}

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """The velocity times the step size."""
        velocity = self.momentum * state["velocity"] + mean
        return self.step_size * velocity, {"velocity": velocity}


@dataclass(frozen=True, kw_only=True)
class Nesterov(Momentum):
    """Momentum that looks ahead: the move is the one that the velocity would make after one more such mean.

    >>> step = Nesterov(step_size=1.0, momentum=0.5)
    >>> step.update(np.float32([1.0]), step.init(np.zeros(1, np.float32)))[0].tolist()
    [1.5]
    """

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """The mean and what is kept of the new velocity, times the step size."""
        velocity = self.momentum * state["velocity"] + mean
        return self.step_size * (self.momentum * velocity + mean), {"velocity": velocity}


@dataclass(frozen=True, kw_only=True)
class Averaged(Momentum):
    """Momentum whose last move goes to the mean of the later half of all models, over which noise evens out.

    `rounds` is how many there will be; a run that ends earlier keeps its last model.

    >>> step, model = Averaged(momentum=0.0, rounds=4), np.zeros(1, np.float32)
    >>> state = step.init(model)
    >>> for _ in range(4):
    ...     move, state = step.update(np.float32([1.0]), state)
    ...     model = model + move
    >>> model.tolist()  # of 1, 2, 3 and 4 the mean of the last two
    [3.5]
    """

    rounds: int = 1

    def init(self, parameters: Vector) -> State:
        """No velocity, the model itself, and nothing to average yet."""
        nothing = np.zeros_like(parameters)
        return {**super().init(parameters), "model": parameters.copy(), "sum": nothing, "done": nothing.copy()}

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """The velocity times the step size; in the last round, the way to the mean of the models."""
        move, kept = super().update(mean, state)
        model, done = state["model"] + move, state["done"] + 1
        number, first = int(done[0]), self.rounds // 2
        total = state["sum"] + model if number > first else state["sum"]
        if number == self.rounds:
            average: Vector = np.divide(total, np.float32(self.rounds - first))
            move = average - state["model"]
        return move, {**kept, "model": model, "sum": total, "done": done}


@dataclass(frozen=True, kw_only=True)
class Adam:
    """FedAdam: each parameter's mean of means over the root of its mean square (Reddi et al. 2021, Algorithm 2).

    As printed there: nothing is corrected for the start, where the squares are floor².

    >>> step = Adam(step_size=1.0, momentum=0.5, decay=0.5, floor=1.0)
    >>> step.update(np.float32([1.0]), step.init(np.zeros(1, np.float32)))[0].tolist()
    [0.25]
    """

    step_size: float = 0.1
    momentum: float = 0.9  # β₁
    decay: float = 0.99  # β₂
    floor: float = 1e-3  # τ

    def init(self, parameters: Vector) -> State:
        """No velocity, and squares as small as the floor's."""
        return {"velocity": np.zeros_like(parameters), "squares": np.full_like(parameters, self.floor**2)}

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """The velocity over the root of the squares and the floor, times the step size."""
        velocity = self.momentum * state["velocity"] + (1 - self.momentum) * mean
        squares = self.decay * state["squares"] + (1 - self.decay) * (mean * mean)
        move: Vector = np.divide(self.step_size * velocity, np.sqrt(squares) + self.floor)
        return move, {"velocity": velocity, "squares": squares}


@dataclass(frozen=True, kw_only=True)
class AdaptiveClip:
    """The mean in units of the clip S, and S itself, which follows a quantile of the updates' lengths.

    The last parameter is ln S, and the last number of a mean is λ(b − 1/2), b the share of updates that were within S.
    ln S moves by −rate·(b − quantile) (Andrew et al. 2021).

    >>> step = AdaptiveClip(quantile=0.5)
    >>> move, state = step.update(np.float32([0.5, 0.1]), step.init(np.float32([7.0, 0.0])))  # all were within S = 1
    >>> [round(float(number), 4) for number in (*move, *state["log_clip"])]
    [0.5, -0.25, -0.25]
    """

    quantile: float
    rate: float = 0.5

    def init(self, parameters: Vector) -> State:
        """ln S of the first round."""
        return {"log_clip": parameters[-1:].copy()}

    def update(self, mean: Vector, state: State) -> tuple[Vector, State]:
        """S times the mean; ln S falls where more updates than the quantile were within S, and rises where fewer."""
        log_clip = state["log_clip"]
        within = mean[-1:] / np.float32(COUNT_LENGTH) + np.float32(0.5)
        change = np.float32(self.rate) * (np.float32(self.quantile) - within)
        clip = math.exp(min(max(float(log_clip[0]), -LARGEST_LOG_CLIP), LARGEST_LOG_CLIP))  # as devices have it
        move: Vector = np.concatenate([np.float32(clip) * mean[:-1], change])
        return move, {"log_clip": log_clip + change}


StepName = Literal["mean", "momentum", "nesterov", "averaged", "adam"]
STEPS: dict[StepName, type[ServerStep]] = {
    "mean": Mean, "momentum": Momentum, "nesterov": Nesterov, "averaged": Averaged, "adam": Adam,
}  # fmt: skip
_BY_PLAN = {"adaptive clip": AdaptiveClip}  # nobody asks for it by name
DEFAULT: StepName = "mean"
MEAN = Mean()


def step_of(name: StepName, numbers: Mapping[str, float | None], *, where: str = "") -> ServerStep:
    """The step of this name with the numbers that are given, or CH104 for a number that it does not use.

    >>> step_of("momentum", {"momentum": 0.5, "floor": None})
    Momentum(step_size=1.0, momentum=0.5)
    """
    given = {number: value for number, value in numbers.items() if value is not None}
    known = [field.name for field in fields(STEPS[name]) if field.name != "rounds"]  # those are the plan's
    for number in [number for number in given if number not in known]:
        raise PlanError(
            "CH104",
            f'server = "{name}" does not use server_{number}.',
            where=where,
            fix=f"It uses {' and '.join(f'server_{one}' for one in known) or 'no number'}.",
        )
    return STEPS[name](**given)


def over_rounds(step: ServerStep, rounds: int) -> ServerStep:
    """The step for a run of so many rounds, where it asks for their number.

    >>> over_rounds(Averaged(), 20).rounds
    20
    """
    return replace(step, rounds=rounds) if isinstance(step, Averaged) else step


def described(step: ServerStep) -> dict[str, str | float] | None:
    """The step as run.json names it; None for the default, which older runs did not name.

    >>> described(Momentum()), described(Mean())
    ({'step': 'momentum', 'step_size': 1.0, 'momentum': 0.9}, None)
    """
    name = next(name for name, kind in (STEPS | _BY_PLAN).items() if type(step) is kind)
    return None if name == DEFAULT else {"step": name, **asdict(step)}
