"""Why each number of a plan is what it is, and what moves if it is changed, in plain words."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from choral.accounting.proofs import Loss, with_secure_sum
from choral.accounting.reserves import spendable
from choral.accounting.words import words_of
from choral.core.plan import Plan
from choral.core.printable import figures_up
from choral.planner.options import Option, other_sampling
from choral.planner.task import PlanningTask

Row = tuple[str, str, str, str]  # the fields of a Choice
_TAKE_IT = ' Take it with --against "server and colluders".'


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One number of a plan: its value, why it was chosen, and what moves if it is changed."""

    name: str
    value: str
    why: str
    moves: str


def choices(task: PlanningTask, chosen: Option, other_sampler: Option | None) -> tuple[Choice, ...]:
    """A Choice for every number of the chosen plan."""
    plan, shape, each = chosen.plan, task.shape, chosen.part.rounds
    share, steps = plan.batch / plan.rows, plan.rounds * plan.local_steps
    if plan.once:
        return _choices_once(task, chosen)
    rows = (
        ("rounds", f"{plan.rounds}",
         f"{steps} steps in all, {plan.local_steps} per round, are enough to arrive; a device is in {each} rounds.",
         "More rounds need more noise, and from here on buy little."),
        _cohort(chosen),
        ("local_steps", f"{plan.local_steps}",
         "of several with whole-number noise nothing is proved." if plan.strict else
         "steps on the device between two sums cost no traffic." if plan.local_steps > 1 else
         "one step per round, so that each sum carries the noise of many devices.",
         "One step per round is what lets the secure sum's noise count; several need fewer rounds."),
        ("sampling", plan.sampling, *_sampling(chosen, other_sampler)),
        ("batch", f"{plan.batch:,} of {plan.rows:,}",
         f"each step sees a share of {share:.3g} of the rows." if share < 1 else "each step sees all rows.",
         "Smaller, and the luck of the draw outweighs the noise; larger costs time and hardly lowers the noise."
         if share < 1 else "Smaller batches save time, but add noise themselves or need more of it."),
        ("clip", f"{plan.clip:g}",
         ("a quarter of the length of a row, since many weights carry much noise; rows have length " if task.many else
          "about the length of one record's gradient while the model knows nothing, for rows of length ")
         + f"{shape.length:.2g}" + (" (given)." if "row_length" in task.given else " (a guess: --row-length)."),
         "Noise goes in proportion: half the clip, half the noise, and longer gradients are cut shorter."),
        ("step_size", f"{plan.step_size:g}",
         "so long that all steps together leave a noise of about 2 on the score of a row." if task.many else
         f"balances progress against noise in the corrected bound, at most 2/L = {2 / shape.smoothness:.2g}.",
         "Privacy does not depend on it. Too large, and noise stays in the model; too small, and it does not arrive."),
        *_server(chosen),
        *_law(plan),
        _noise(task, chosen),
    )  # fmt: skip
    return _explained(task, rows)


def _cohort(chosen: Option) -> Row:
    averaged = "A larger one averages more noise, but each device takes part, and pays, more often: it comes out even."
    summed = "A larger one lets each device add less noise, and costs traffic."
    return (
        "cohort",
        f"{chosen.plan.cohort} of {chosen.plan.devices}",
        "as many as hide one device well in the sum.",
        averaged if chosen.against == "everyone" else summed,
    )


def _noise(task: PlanningTask, chosen: Option, on: str = "") -> Row:
    noise, delta = chosen.plan.noise, spendable(task.budget, chosen.plan).delta
    half, twice = (chosen.loss(replace(chosen.part, noise=noise * by)).epsilon(delta) for by in (0.5, 2.0))
    return ("noise", figures_up(noise, 5),
            f"{on}the smallest for which rule {chosen.rule} proves ε = {figures_up(chosen.epsilon, 4)} "
            f"against {chosen.adversary}.",
            f"Half of it: ε = {figures_up(half)}; twice: ε = {figures_up(twice)}.")  # fmt: skip


def _explained(task: PlanningTask, rows: Iterable[Row]) -> tuple[Choice, ...]:
    return tuple(
        Choice(name=name, value=value, why="given." if name in task.given - {"sampling", "law"} else why, moves=moves)
        for name, value, why, moves in rows
    )


def _choices_once(task: PlanningTask, chosen: Option) -> tuple[Choice, ...]:
    """The same where noise is added once."""
    plan = chosen.plan
    rows = (
        ("rounds", f"{plan.rounds}",
         f"a device is in {chosen.part.rounds} rounds; for one total time the noise is damped between them.",
         "A third of them cost 0.5 points of accuracy on made-up tables whose sites differ, and save traffic."),
        _cohort(chosen),
        ("noise_is_added", "once",
         "the model is convex, so one row moves an upload by a known amount however many steps there are.",
         'With "every step" the secure sum counts for one local step per round only.'),
        ("local_steps", f"{plan.local_steps}",
         f"a round lasts T = {plan.local_time:.3g}, in steps below 2/L; a device with more rows takes more of them.",
         "Longer rounds learn more and need noise in proportion."),
        ("row_length", f"{plan.mechanism.own['row_length']:.3g}",
         "given; longer rows are scaled down." if "row_length" in task.given else
         "a guess (--row-length); a choral.toml takes it from its columns, and longer rows are scaled down.",
         "Shorter rows need less noise, if they are not cut off."),
        ("clip", f"{plan.clip:.3g}",
         "how hard one row may pull: a share of the length of a row, so that the loss stays convex.",
         "Noise goes in proportion: half the clip, half the noise, and probabilities are pulled together."),
        ("step_size", f"{plan.step_size:.3g}",
         "T divided by the steps.",
         "It may not pass 2/L, which each device checks: beyond, nothing is proved."),
        ("server", "averaged", "the model is the mean over the later half of the rounds, where noise evens out.",
         "It sees only what is paid for: no ε depends on it."),
        *_law(plan),
        _noise(task, chosen, on="on an upload: "),
    )  # fmt: skip
    return _explained(task, rows)


def _server(chosen: Option) -> tuple[Row, ...]:
    """What the server does with the means, where that is more than adding them."""
    if not chosen.momentum:
        return ()
    return (("server", f"averaged, momentum {chosen.momentum:.2f}",
             "momentum makes up for rounds of one short step, and noise evens out over the later half of the models.",
             "It sees only what is paid for: no ε depends on it."),)  # fmt: skip


def _law(plan: Plan) -> tuple[Row, ...]:
    """The strict mode, where it was asked for."""
    if not plan.strict:
        return ()
    return (("law", plan.law, "noise of whole numbers on the grid, so that no low bit of a float tells anything.",
             "Gaussian noise may be sampled and made in several local steps, so it needs less."),)  # fmt: skip


def _sampling(chosen: Option, other: Option | None) -> tuple[str, str]:
    words = words_of(chosen.plan)
    if other_sampling(chosen.plan) is None:
        return words.why_batches, "Batches of all rows need the least noise."
    if other is None:
        return (
            "every step uses all rows, so how they are drawn makes no difference.",
            "Smaller batches would make it matter.",
        )
    ratio = other.plan.noise / chosen.plan.noise
    return words.why_batches, f"{words_of(other.plan).name} needs {ratio:.2f} times the noise."


def advice(task: PlanningTask, chosen: Option, summed: Option | None, certified: float) -> tuple[str, ...]:
    """What a careful colleague would add."""
    lines = [task.left_once[0].upper() + task.left_once[1:] + "."] if task.left_once else []
    if chosen.against == "everyone" and summed:
        better = summed.guide < 0.9 * chosen.guide
        lines.append(
            f"What trust in the secure sum buys: {summed.name.removesuffix(', sum trusted')} "
            f"{'should learn better' if better else 'gains little'}: guide {summed.guide:.2g} against "
            f"{chosen.guide:.2g}, and ε = {figures_up(summed.epsilon_against_everyone)} against everyone should that "
            f"trust fail.{_TAKE_IT if better else ''}"
        )
        if (of_sum := with_secure_sum(chosen.part)) and isinstance(of_sum, Loss):
            epsilon = of_sum.epsilon(spendable(task.budget, chosen.plan).delta)
            lines.append(f"As planned, ε is {figures_up(epsilon)} against {of_sum.adversary} (rule {of_sum.rule}).")
    elif summed:
        lines.append(
            f"Should the secure sum fail, ε is {figures_up(chosen.epsilon_against_everyone)} against everyone."
        )
    if task.draft.cohort < task.draft.devices:
        each = chosen.part.rounds
        lines.append(f"Counted for {each} rounds a device, all taking turns; who is drawn more often refuses the rest.")
    if not chosen.plan.once and chosen.plan.step_size > certified:
        lines.append(
            f"The corrected Theorem 2 is proved up to step size {certified:.2g}; beyond, the guide is experience."
        )
    if task.model == "mlp":
        lines.append("No such bound is known for networks: the figures of a model without hidden layers guide them.")
    return tuple(lines)
