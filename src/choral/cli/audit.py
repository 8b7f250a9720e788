"""Measure a lower bound on ε, with its confidence, beside what is claimed.

  choral audit choral.toml               canaries for a plan, as the server, a
                                         colluding server and a reader of the
                                         final model see it
  choral audit --case theorem-1-convex   the published Theorem 1 claims less
                                         than is measured, for a convex loss
  choral audit --case theorem-1-network  the same for a network

What is fixed (N, threshold or how it is chosen, confidence) is printed before
the first training. Exit status 1 if a proved ε is refuted.
"""

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from choral.cli import terminal
from choral.errors import ConfigError

if TYPE_CHECKING:
    from choral.run.watch import Watch


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a choral.toml")
    parser.add_argument("--case", metavar="CASE", help="a documented worst case: theorem-1-convex, theorem-1-network")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of a case: what Theorem 1 claims (default: 1)")
    parser.add_argument("--trainings", type=int, help="trainings of each world (default: what a minute allows)")
    parser.add_argument("--confidence", type=float, default=0.99, help="of the lower bound (default: 0.99)")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated noise (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the bounds beside the claims; 1 if a proved claim is refuted."""
    if (args.plan is None) == (args.case is None):
        raise ConfigError("CH103", "give a choral.toml, or --case.", where="choral audit", fix="See --help.")
    return _case(args) if args.case else _plan(args)


def _say(args: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if args.json else sys.stdout, flush=True)


def _watch(args: argparse.Namespace) -> "Watch":
    return partial(terminal.progress, show=not args.json)


def _case(args: argparse.Namespace) -> int:
    from choral.audit.cases import arrange, measure

    case = arrange(
        args.case, epsilon=args.epsilon, trainings=args.trainings, confidence=args.confidence, seed=args.seed
    )
    plan = case.construction.plan
    rounds = "1 round" if plan.rounds == 1 else f"{plan.rounds} rounds"
    _say(
        args,
        f"{case.name}: {plan.cohort} of {plan.devices} devices a round, {rounds}, {plan.local_steps} local steps,\n"
        f"batches of all {plan.rows:,} records, noise {plan.noise:.6g}, clip {plan.clip:g}\n"
        f"fixed beforehand: {case.trainings:,} trainings of each world, threshold {case.threshold:.6g},\n"
        f"confidence {case.confidence:g}, seed {case.seed}",
    )
    told = measure(case, watch=_watch(args)).as_dict()
    print(json.dumps(told) if args.json else _shown_case(told))
    return int(told["lower_bound"] > told["proved_epsilon"])


def _shown_case(told: dict[str, Any]) -> str:
    above = told["lower_bound"] > told["published_epsilon"]
    lines = [
        f"counted: {told['false_alarms']:,} false alarms, {told['hits']:,} hits",
        "",
        f"ε at δ = {told['delta']:g}, {told['adjacency']}",
        f"  MEASURED   ε ≥ {told['lower_bound']:.3f}   by a server that sees only sums; confidence"
        f" {told['confidence']:g}",
        f"  PUBLISHED  ε ≤ {told['published_epsilon']:.3f}   Theorem 1, against that server: "
        + ("REFUTED" if above else "not refuted by this audit"),
        f"  PROVED     ε ≤ {told['proved_epsilon']:.3f}   rule {told['proved_rule']}, against {told['adversary']}",
    ]
    return "\n".join(lines)


def _plan(args: argparse.Namespace) -> int:
    from choral.audit.canary import TRAININGS, worst_case
    from choral.audit.one_run import CANARIES, data_driven
    from choral.config import read
    from choral.run.study import settle

    with terminal.stages("PLAN", 3, show=not args.json) as done:
        study = settle(read(args.plan), reached=done)
    delta, trainings = study.limits[0].delta, TRAININGS if args.trainings is None else args.trainings
    _say(
        args,
        f"fixed beforehand: {trainings:,} trainings of each world, the threshold chosen on the first half of them;\n"
        f"one run with {CANARIES} coins, of which the clearest half is guessed; confidence {args.confidence:g}, "
        f"seed {args.seed}",
    )
    given = {"delta": delta, "confidence": args.confidence, "seed": args.seed, "watch": _watch(args)}
    views = worst_case(study.plan, study.secure, trainings=trainings, **given) + data_driven(study, **given)
    holds = all(view.holds for view in views)
    told = {
        "delta": delta,
        "adjacency": "one record replaced",
        "confidence": args.confidence,
        "seed": args.seed,
        "holds": holds,
        "views": [view.as_dict() for view in views],
        "plan": study.plan.to_dict(),
    }
    print(json.dumps(told) if args.json else _shown_plan(told))
    return int(not holds)


def _shown_plan(told: dict[str, Any]) -> str:
    lines = [
        "",
        f"ε at δ = {told['delta']:g}, {told['adjacency']}; measured with confidence {told['confidence']:g}",
        f"  {'WHO SEES':<18}{'CANARY':<13}{'MEASURED':>10}   {'PROVED':>8}  RULE",
    ]
    for view in told["views"]:
        lines.append(
            f"  {view['sight']:<18}{view['canary']:<13}   ε ≥ {view['lower_bound']:4.2f}   ε ≤ "
            f"{view['claimed_epsilon']:4.2f}  {view['rule']}{'' if view['holds'] else '   REFUTED'}"
        )
    lines += [
        "",
        "every proved ε survives"
        if told["holds"]
        else "A PROVED ε IS REFUTED: this is a bug in choral or in the plan's engine; please report it",
        "A lower bound shows what these canaries can tell, not what is the most that anybody could.",
    ]
    return "\n".join(lines)
