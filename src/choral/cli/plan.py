"""Propose a plan for a budget, with the reason for every number.

Give ε, the devices, the rows of the smallest device and the features of the
model; every other flag fixes a number that would otherwise be proposed. No record is
read: everything follows from these public numbers. Nothing is written.

Or give a choral.toml: its data is read for the rows of each device and the
shape of the model, and the answer is the plan that `choral simulate` of that
file would follow, to the digest.
"""

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from choral.accounting.account import several_rows
from choral.accounting.groups import EXAMPLE
from choral.accounting.proofs import against_everyone
from choral.accounting.words import noise_of
from choral.cli import terminal
from choral.core.exposure import EVERYONE, adjacency_of
from choral.core.plan import AGAINST, LAWS, NOISE_IS_ADDED, SAMPLINGS
from choral.core.printable import count, figures_up
from choral.planner import Proposal, plan_for
from choral.planner.options import Option
from choral.planner.task import MODELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from choral.record import Statement
    from choral.run.study import Study

EPILOG = """\
examples:
  choral plan --epsilon 1 --devices 16 --rows 2440 --features 104
  choral plan --epsilon 0.3 --devices 16 --rows 2440 --features 104 \\
              --against "server and colluders"
  choral plan --epsilon 2 --devices 100 --rows 500 --features 30 --json
  choral plan choral.toml"""

_NEEDED = {
    "epsilon": (float, "X", "ε that no device may pass"),
    "devices": (int, "N", "devices enrolled"),
    "rows": (int, "N", "records of the smallest device"),
    "features": (int, "N", "inputs of the model, with one per level of a category"),
}
_WORDS: dict[str, tuple[Sequence[str], str]] = {
    "model": (MODELS, "what is trained (logistic)"),
    "sampling": (SAMPLINGS, "how batches are drawn (poisson; partition if strict)"),
    "law": (LAWS, "law of the noise (gaussian); the others are the strict mode"),
    "against": (AGAINST, "against whom ε must hold (everyone)"),
    "noise_is_added": (NOISE_IS_ADDED, "where noise goes (once for convex models)"),
}

_WHOLE = {
    "classes": "classes of the label (2); 0 for an mlp that learns a number",
    "cohort": "devices per round",
    "rounds": "rounds of the whole run",
    "local_steps": "steps on a device between two sums",
    "batch": "rows per step",
    "colluders": "devices of a cohort that may help the server (a fifth)",
    "dropouts": "devices of a cohort that may drop out (a fifth)",
}
_NUMBERS = {
    "delta": "δ (1e-5, or less for many rows)",
    "clip": "longest gradient of one record",
    "step_size": "step size of the local steps",
    "noise": "standard deviation on a device's averaged gradient",
    "row_length": "how long a row of features is, from public knowledge",
}
_WIDTH = 80


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the file and the task's flags; those left out are proposed."""
    parser.add_argument("job", nargs="?", metavar="choral.toml", help="plan for this file and its data, without flags")
    need = parser.add_argument_group("the task, without a file")
    for name, (kind, mark, line) in _NEEDED.items():
        need.add_argument(f"--{name}", type=kind, metavar=mark, help=line)
    for name, (choices, line) in _WORDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=choices, help=line)
    for kind, mark, flags in ((int, "N", _WHOLE), (float, "X", _NUMBERS)):
        for name, line in flags.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=mark, help=line)
    parser.set_defaults(refuse=parser.error)


def run(args: argparse.Namespace) -> int:
    """Print the proposal, or the plan of a file, as a page or as JSON."""
    names = (*_NEEDED, *_WORDS, *_WHOLE, *_NUMBERS)
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.job is not None:
        if given:
            args.refuse(f"--{next(iter(given)).replace('_', '-')} is not used with a file: {args.job} has its numbers")
        return _of_file(args)
    if missing := [f"--{name}" for name in _NEEDED if name not in given]:
        args.refuse(f"the following arguments are required: {', '.join(missing)}")
    with terminal.stages("PLAN", 4, show=not args.json) as done:
        proposal = plan_for(**given, reached=done)
    if args.json:
        print(json.dumps(proposal.to_dict()))
    else:
        plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
        print("\n".join(_page(proposal, plain=plain)), file=terminal.unfiltered(sys.stdout))
    return 0


def _of_file(args: argparse.Namespace) -> int:
    """Settle the file as a simulation would, and print what it would do."""
    from choral import config
    from choral.cli.training import plan_of_sums, proposed

    job = proposed(config.read(args.job), show=not args.json)
    if job.on_sums:
        return plan_of_sums(job, args)
    with terminal.stages("PLAN", 4, show=not args.json) as done:  # imports, data, plan, limits
        from choral.run.planning import settle

        done()
        study = settle(job, guess=True, reached=done)
    if args.json:
        print(json.dumps(_as_object(args.job, study)))
    else:
        terminal.say(*_file_lines(args.job, study))
    return 0


def _as_object(file: str, study: "Study") -> dict[str, object]:
    from choral.accounting.proofs import rounds_each
    from choral.run.planning import left_open, prospect_of
    from choral.run.statement import planned_statement

    plan, rows = study.plan, study.split.train.sizes
    planned, prospect = planned_statement(study.costs), prospect_of(study)
    return {
        "file": file,
        "plan": plan.to_dict() | {"digest": plan.digest},
        "proposed": list(left_open(study.job)),
        "rounds_each": rounds_each(plan),
        "allowed_rounds": _range(study.costs.allowed_rounds),
        "rows": _range(rows) | {"all": int(rows.sum())},
        "server and colluders": study.secure.described,
        "privacy": None if planned is None else planned.to_dict(),
        "verdict": None if prospect is None else prospect.to_dict(),
        "robust": _probes_weighed(study, planned),
    }


def _file_lines(file: str, study: "Study") -> Iterator[str]:
    from choral.accounting.proofs import rounds_each
    from choral.cli.training import claims, plan_lines
    from choral.run.modelling import advice
    from choral.run.planning import left_open
    from choral.run.statement import planned_statement

    rows, proposed = study.split.train.sizes, ", ".join(left_open(study.job))
    allowed = _in_words(study.costs.allowed_rounds)
    yield (
        f"FILE   {file} · {study.source}: {int(rows.sum()):,} {study.plan.protects.trained_on} to train on, "
        f"{_in_words(rows)} on each of {study.plan.devices:,} devices"
    )
    yield from plan_lines(study)
    yield f"       a device takes part in about {rounds_each(study.plan)} rounds; its limit pays for {allowed}"
    yield f"       the planner proposed {proposed}" if proposed else "       the file gives every number but the noise"
    yield from _smaller_federation(study)
    planned = planned_statement(study.costs)
    if weighed := _probes_weighed(study, planned):
        yield f"ROBUST {weighed}"
    yield from (f"SUMS   {line}" for line in advice(study))
    yield f"DIGEST {study.plan.digest}"
    if planned:
        yield ""
        yield "At most, for a device that takes part as often as plan and limit allow:"
        yield from claims(planned).splitlines()
    yield f"NEXT       choral simulate {file}"


def _probes_weighed(study: "Study", planned: "Statement | None") -> str | None:
    """What probes would cost this plan, where its cohorts are large enough to propose them."""
    from choral.probes.rules import LEAST_COHORT

    plan = study.plan
    if planned is None or plan.probes or plan.weighed or plan.cohort < LEAST_COHORT:
        return None
    if planned.with_secure_sum is None:
        return "proposed: with robust = true no device can shout, and no figure of this plan is lost"
    return (
        "not proposed: with robust = true no device can shout, but the figure against "
        f"{planned.with_secure_sum.adversary} would no longer be claimed"
    )


_WORTH_SAYING = 0.1  # of the noise, below which leaving sites out is not worth a line


def _smaller_federation(study: "Study") -> Iterator[str]:
    """Whether the model would have less noise without the smallest sites, with the figures."""
    from choral.planner.prospect import leaving_out

    rows = study.split.train.sizes
    left, share = leaving_out(rows.tolist())
    if study.plan.once and share >= _WORTH_SAYING:
        least, kept = sorted(rows.tolist())[left], len(rows) - left
        yield (
            f"SITES  without the {left} smallest the noise on the model falls by {share:.0%}: rows = {least} in "
            f"[federation] leaves {kept} of {len(rows)} sites. All of them together have {int(rows.sum()):,} rows, "
            f"those {int(rows[rows >= least].sum()):,}"
        )


def _range(numbers: "NDArray[np.integer[Any]]") -> dict[str, int]:
    return {"least": int(numbers.min()), "most": int(numbers.max())}


def _in_words(numbers: "NDArray[np.integer[Any]]") -> str:
    return " to ".join(f"{one:,}" for one in dict.fromkeys(_range(numbers).values()))


def _page(proposal: Proposal, *, plain: bool) -> Iterator[str]:
    plan, chosen = proposal.plan, proposal.chosen
    yield from _wrapped(
        "PLAN",
        f"ε ≤ {figures_up(proposal.budget.epsilon, 6)} (δ = {proposal.budget.delta:g}, {adjacency_of(plan)}, "
        f"rule {chosen.rule}, against {chosen.adversary}): {plan.rounds} rounds · {plan.cohort} of {plan.devices} "
        f"devices per round · local steps {plan.local_steps} · batch {plan.batch:,}, {plan.sampling} · "
        f"clip {plan.clip:g} · step size {plan.step_size:g} · {noise_of(plan)} {figures_up(plan.noise, 5)}",
        plain,
    )
    if plan.protects.one_row:
        here, twice = several_rows(chosen.part, proposal.budget.delta)
        yield from _wrapped(
            "ROWS",
            f"{EXAMPLE} rows of one person cost ε = {figures_up(here)}, one row at each of two such sites "
            f"ε = {figures_up(twice)} (δ as above, rule {against_everyone(chosen.part).rule}, against {EVERYONE})",
            plain,
        )
    if proposal.prospect:
        yield from _wrapped("VERDICT", proposal.prospect.sentence, plain, hang=9)
    yield ""
    yield _head("WHY", plain)
    for line in proposal.explanation:
        yield from _wrapped("", line, plain, hang=4)
    yield ""
    yield _head("ALTERNATIVES", plain) + "   guide: smaller learns better"
    yield from _table((chosen, *proposal.alternatives))
    yield ""
    yield _head("ε AGAINST ROUNDS", plain) + f"   of one device; {chosen.rule}, against {_short(chosen)}"
    yield from _chart(proposal.epsilon_by_round, "rounds", proposal.budget.epsilon)
    yield ""
    if proposal.epsilon_by_colluders:
        yield _head("ε AGAINST COLLUDERS", plain) + "   of the option that trusts the secure sum"
        yield from _chart(proposal.epsilon_by_colluders, "colluders", proposal.budget.epsilon)
        yield ""
    for line in proposal.advice:
        yield from _wrapped("NOTE", line, plain)


def _head(text: str, plain: bool) -> str:
    return text if plain else f"\033[1m{text}\033[0m"


def _wrapped(head: str, text: str, plain: bool, hang: int = 6) -> Iterator[str]:
    first, *rest = textwrap.wrap(text, _WIDTH - hang, break_long_words=False) or [""]
    label = _head(head, plain) + " " * (hang - len(head)) if head else " " * (hang - 2)
    yield label + first
    yield from (" " * hang + line for line in rest)


def _table(options: Sequence[Option]) -> Iterator[str]:
    yield f"    {'':<36}{'rounds':>6} {'steps':>5} {'batch':>7} {'noise':>9} {'guide':>7}"
    for number, option in enumerate(options):
        plan, mark = option.plan, "→" if number == 0 else " "
        noise = figures_up(plan.noise, 5)
        numbers = f"{plan.rounds:>6} {plan.local_steps:>5} {plan.batch:>7,} {noise:>9} {option.guide:>7.2g}"
        yield f"  {mark} {option.name:<36}{numbers}"
        everyone = f"; {figures_up(option.epsilon_against_everyone)} against everyone" if option.trusts_sum else ""
        yield f"      {option.rule}: ε = {figures_up(option.epsilon)} against {_short(option)}{everyone}"


def _short(option: Option) -> str:
    return f"the server and {count(option.part.colluders, 'colluder') if option.trusts_sum else 'all other devices'}"


def _chart(points: Sequence[tuple[int, float]], unit: str, limit: float) -> Iterator[str]:
    top = max(limit, *(value for _, value in points))
    room = _WIDTH - 31
    for at, value in points:
        bar = "█" * max(1, round(room * value / top))
        over = "  over" if value > limit * (1 + 1e-9) else ""
        yield f"  {at:>5} {unit:<9} {bar} {figures_up(value)}{over}"
