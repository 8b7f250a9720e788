"""What a device makes of its noisy gradients: momentum, FedProx and a schedule, and where each is allowed."""

import math
from typing import Literal

from choral.core.errors import PlanError
from choral.core.plan.checks import require_number, require_one_of

Schedule = Literal["constant", "linear", "cosine"]
SCHEDULES: tuple[Schedule, ...] = ("constant", "linear", "cosine")

_FORBIDDEN = {
    "S7": "Rule S7 is proved for plain gradient steps of a convex loss, which never drive two models apart.",
    "S6": "Rule S6 is proved for one plain step, whose noise is added to whole numbers.",
}


def scales(schedule: Schedule, steps: int) -> list[float]:
    """What the step size is multiplied by in each of so many steps; 1 in the first one, and never more.

    >>> scales("linear", 4), [round(scale, 2) for scale in scales("cosine", 4)]
    ([1.0, 0.75, 0.5, 0.25], [1.0, 0.85, 0.5, 0.15])
    """
    if schedule == "constant":
        return [1.0] * steps
    gone = [step / steps for step in range(steps)]
    return [1 - part if schedule == "linear" else (1 + math.cos(math.pi * part)) / 2 for part in gone]


def require_optimiser(
    momentum: float,
    proximal: float,
    schedule: Schedule,
    *,
    step_size: float,
    local_steps: int,
    forbidding: str = "",
    probed: bool = False,
) -> None:
    """Nothing, or CH204 for a number that makes no sense, or that the rule which is named forbids.

    >>> require_optimiser(0.9, 0.0, "cosine", step_size=0.1, local_steps=10)
    """
    require_number("momentum", momentum, below=1.0, closed=True)
    require_number("proximal", proximal, closed=True)
    require_one_of("schedule", schedule, SCHEDULES)
    given = [("momentum", momentum, 0), ("proximal", proximal, 0), ("schedule", schedule, "constant")]
    used = [f"{name} = {value!r}".replace("'", '"') for name, value, unused in given if value != unused]
    if not used:
        return
    optimiser = ", ".join(used)
    if forbidding:
        raise PlanError(
            "CH204", f"{optimiser} with rule {forbidding}.", why=_FORBIDDEN[forbidding],
            fix="Leave it out, or add Gaussian noise in every step.",
        )  # fmt: skip
    if probed:
        raise PlanError(
            "CH204", f"{optimiser} with robust = true.",
            why="Answers to probes are judged by the noise of plain steps.",
            fix="Leave one of the two out.",
        )  # fmt: skip
    if local_steps == 1:
        raise PlanError(
            "CH204", f"{optimiser} with one local step.", why="It would change nothing.",
            fix="Leave it out, or use several local steps.",
        )  # fmt: skip
    if proximal * step_size > 1:
        raise PlanError(
            "CH204", f"proximal = {proximal:g} with step_size = {step_size:g}.",
            why="Such a pull overshoots the model that was sent.",
            fix=f"Use a proximal of at most {1 / step_size:g}.",
        )  # fmt: skip
    if len(used) == len(given):
        raise PlanError(
            "CH204", f"{optimiser} together.", why="How far all three can carry a model is not bounded.",
            fix="Use two of them.",
        )  # fmt: skip
