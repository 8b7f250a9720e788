"""Measure a lower bound on ε, with its confidence, next to what is claimed.

  choral audit choral.toml               canaries for a plan, as the server, a
                                         colluding server and a reader of the
                                         final model see it
  choral audit --case theorem-1-convex   the published Theorem 1 claims less
                                         than is measured, for a convex loss
  choral audit --case theorem-1-network  the same for a network
  choral audit --case s1                 rule S1 against an adversary that sees
                                         every noisy step and knows which of
                                         them use the record
  choral audit --case s2                 rule S2: it sees every opened sum
  choral audit --case s4                 rule S4: the same, of clipped updates
  choral audit --case s5                 rule S5: it sees every noisy step
  choral audit --case s6                 rule S6: it sees a device's integers
  choral audit --case s7                 rule S7: it sees sums with noise once
  choral audit --case s7-sampled         the same with one secret draw of rows
                                         per round
  choral audit --case ask                rule S8: it sees the sums of answers
  choral audit --case reading            rule S7 for two files that differ in
                                         one row, read as a site reads them
  choral audit --case person             rule S7 for a person with five rows
  choral audit --case float-sum          whether one record can steer how the
                                         rows after it are rounded
  choral audit --case float-sum-poisson  the same in a Poisson batch

What is fixed (N, threshold or how it is chosen, confidence) is printed before
the first training. Exit status 1 if a proved ε is refuted.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from choral.cli import terminal
from choral.core.errors import ConfigError
from choral.core.exposure import ADJACENCY

if TYPE_CHECKING:
    from choral.core.plan import Sampling, UnitName
    from choral.run.folder import Watch
    from choral_lab.audit.asked import AskCase
    from choral_lab.audit.canary import View
    from choral_lab.audit.cases import Refutation
    from choral_lab.audit.float_sum import FloatSum
    from choral_lab.audit.once import OnceCase
    from choral_lab.audit.two_files import ReadingCase
    from choral_lab.audit.verdict import Finding
    from choral_lab.audit.white_box import WhiteBox


class Given(TypedDict):
    """What every case is asked with."""

    epsilon: float
    trainings: int | None
    confidence: float
    seed: int


class Once(TypedDict, total=False):
    """What a case of noise once has that is not usual."""

    unit: "UnitName"
    sampling: "Sampling"


_ONCE: dict[str, Once] = {"s7": {}, "s7-sampled": {"sampling": "poisson"}, "person": {"unit": "person"}}
REFUTED = "A PROVED ε IS REFUTED: this is a bug in choral or in the plan's engine; please report it"


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a choral.toml")
    parser.add_argument("--case", metavar="CASE", help=f"a documented worst case: {', '.join(CASES)}")
    parser.add_argument(
        "--epsilon", type=float, default=1.0, help="with --case: what Theorem 1 or the rule claims (default: 1)"
    )
    parser.add_argument("--rows", type=int, help="with float-sum: records in the batch (default: 65536)")
    parser.add_argument("--trainings", type=int, help="trainings of each world (default: what a minute allows)")
    parser.add_argument("--confidence", type=float, default=0.99, help="confidence of the lower bound (default: 0.99)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated noise (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the bounds next to the claims; 1 if a proved claim is refuted."""
    if (args.plan is None) == (args.case is None):
        raise ConfigError("CH103", "give a choral.toml, or --case.", where="choral audit", fix="See --help.")
    return _case(args) if args.case else _plan(args)


def _say(args: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if args.json else sys.stdout, flush=True)


def _watch(args: argparse.Namespace) -> "Watch":
    return partial(terminal.progress, show=not args.json)


def _case(args: argparse.Namespace) -> int:
    if args.case not in CASES:
        raise ConfigError("CH102", f'unknown case "{args.case}".', fix=f"Known: {', '.join(CASES)}.")
    if args.rows is not None and not args.case.startswith("float-sum"):
        raise ConfigError("CH103", f'--rows with the case "{args.case}".', fix="Give it with float-sum only.")
    given = Given(epsilon=args.epsilon, trainings=args.trainings, confidence=args.confidence, seed=args.seed)
    return CASES[args.case](args, given)


def _theorem_1(args: argparse.Namespace, given: Given) -> int:
    from choral_lab.audit.cases import arrange, measure

    case = arrange(args.case, **given)
    plan = case.construction.plan
    rounds = "1 round" if plan.rounds == 1 else f"{plan.rounds} rounds"
    _say(
        args,
        f"{case.name}: {plan.cohort} of {plan.devices} devices per round, {rounds}, {plan.local_steps} local steps,\n"
        f"batches of all {plan.rows:,} records, noise {plan.noise:.6g}, clip {plan.clip:g}\n"
        f"fixed beforehand: {case.trainings:,} trainings of each world, threshold {case.threshold:.6g},\n"
        f"confidence {case.confidence:g}, seed {case.seed}",
    )
    found = measure(case, watch=_watch(args))
    print(json.dumps(found.as_dict()) if args.json else _shown_case(found))
    return int(found.lower_bound > case.proved.epsilon)


def _white_box(args: argparse.Namespace, given: Given) -> int:
    from choral_lab.audit.white_box import white_box

    case = white_box(args.case, **given)
    plan = case.watched.plan
    return _watched(
        args,
        case,
        f"{plan.rounds} rounds, local steps: {plan.local_steps}, batches of {plan.batch} of {plan.rows} records "
        f"({plan.sampling}), the noise of {case.honest}",
    )


def _once(args: argparse.Namespace, given: Given) -> int:
    from choral_lab.audit.once import once_case

    case = once_case(**given, **_ONCE[args.case])
    rows = "all" if case.plan.partitioned else f"about {case.plan.batch} of"
    return _watched(
        args,
        case,
        f"{case.plan.rounds} rounds, local steps: {case.plan.local_steps} over {rows} {case.plan.rows} "
        f"{case.plan.unit}s, the noise of {case.honest}",
    )


def _ask(args: argparse.Namespace, given: Given) -> int:
    from choral_lab.audit.asked import ask_case

    case = ask_case(**given)
    return _watched(
        args,
        case,
        f"one record moves the sum by {case.l2:.4g}; times {case.factor:,}, with noise of {case.scale:,} on each of "
        f"{case.honest} devices",
    )


def _reading(args: argparse.Namespace, given: Given) -> int:
    from choral_lab.audit.two_files import reading_case

    case = reading_case(**given)
    return _watched(
        args,
        case,
        f"{case.pairs} pairs of files of {case.once.plan.rows} rows, {case.refused} of them refused; furthest apart: "
        f"{case.what};\n{case.moved} other rows are read differently",
    )


def _float_sum(args: argparse.Namespace, given: Given) -> int:
    from choral_lab.audit.float_sum import ROWS, float_sum

    rows = ROWS if args.rows is None else args.rows
    case = float_sum(args.case, rows=rows, watch=_watch(args), **given)
    _say(
        args,
        f"{case.name}: one step of logistic regression on batches of {case.plan.batch:,} of {case.plan.rows:,} "
        f"records, {case.layout.features} features;\n"
        f"replacing one record moves the engine's sum by {case.change:.2f} clipped gradients; "
        f"exact sums move by 2",
    )
    return _tried(args, case, "the noisy sum, and knows all but the record")


def _watched(args: argparse.Namespace, case: "WhiteBox | OnceCase | AskCase | ReadingCase", how: str) -> int:
    """Try out a case, after saying what its adversary sees and how it is set up."""
    _say(args, f"{case.name}: the adversary sees {case.sees};\n{how}")
    return _tried(args, case, case.sees)


def _tried(args: argparse.Namespace, case: "WhiteBox | FloatSum | OnceCase | AskCase | ReadingCase", sees: str) -> int:
    """Measure what is left after all else is fixed; 1 if the claim is refuted."""
    trial = case.trial
    _say(
        args,
        f"fixed beforehand: {trial.trainings:,} trainings of each world, threshold {trial.threshold:.6g},\n"
        f"confidence {trial.confidence:g}, seed {trial.seed}",
    )
    found = case.measure(_watch(args))
    print(json.dumps({**case.as_dict(), **found.as_dict()}) if args.json else _shown_finding(found, sees))
    return int(not found.survived)


def _shown_finding(found: "Finding", sees: str) -> str:
    trial, loss = found.trial, found.trial.loss
    lines = [
        f"counted: {found.tally.false_alarms:,} false alarms, {found.tally.hits:,} hits",
        "",
        f"ε at δ = {trial.delta:g}, {loss.adjacency}",
        f"  MEASURED   ε ≥ {found.lower_bound:.3f}   by an adversary that sees {sees}",
        f"  PROVED     ε ≤ {trial.epsilon:.3f}   rule {loss.rule}, against {loss.adversary}",
        f"  the mean privacy loss shows {100 * found.share_of_mu:.1f} % of what is proved, as a share of μ",
        f"  confidence of both bounds together: {trial.confidence:g}",
        "",
        "the proved ε survives" if found.survived else REFUTED,
    ]
    return "\n".join(lines)


def _shown_case(found: "Refutation") -> str:
    case = found.case
    above = found.lower_bound > case.published.epsilon
    lines = [
        f"counted: {found.tally.false_alarms:,} false alarms, {found.tally.hits:,} hits",
        "",
        f"ε at δ = {case.account.delta:g}, {case.account.adjacency}",
        f"  MEASURED   ε ≥ {found.lower_bound:.3f}   by a server that sees only sums; confidence {case.confidence:g}",
        f"  PUBLISHED  ε ≤ {case.published.epsilon:.3f}   Theorem 1, against that server: "
        + ("REFUTED" if above else "not refuted by this audit"),
        f"  PROVED     ε ≤ {case.proved.epsilon:.3f}   rule {case.proved.rule}, against {case.proved.adversary}",
    ]
    return "\n".join(lines)


def _plan(args: argparse.Namespace) -> int:
    from choral.config import read
    from choral.run.planning import settle
    from choral_lab.audit.canary import TRAININGS, worst_case
    from choral_lab.audit.one_run import CANARIES, data_driven

    with terminal.stages("PLAN", 3, show=not args.json) as done:
        study = settle(read(args.plan), guess=True, reached=done)
    if not study.plan.protects.one_row:
        raise ConfigError(
            "CH104",
            f"canaries are single records, and the plan protects a {study.plan.unit}.",
            where=str(args.plan),
            fix="Audit the rule: choral audit --case person, or --case s4 for devices.",
        )
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
    summary = {
        "delta": delta,
        "adjacency": ADJACENCY,
        "confidence": args.confidence,
        "seed": args.seed,
        "holds": holds,
        "views": [view.as_dict() for view in views],
        "plan": study.plan.to_dict(),
    }
    print(json.dumps(summary) if args.json else _shown_plan(views, delta, args.confidence))
    return int(not holds)


def _shown_plan(views: Sequence["View"], delta: float, confidence: float) -> str:
    lines = [
        "",
        f"ε at δ = {delta:g}, {ADJACENCY}; measured with confidence {confidence:g}",
        f"  {'WHO SEES':<18}{'CANARY':<13}{'MEASURED':>10}   {'PROVED':>8}  RULE",
    ]
    for view in views:
        lines.append(
            f"  {view.sight:<18}{view.canary:<13}   ε ≥ {view.lower_bound:4.2f}   ε ≤ "
            f"{view.claimed_epsilon:4.2f}  {view.rule}{'' if view.holds else '   REFUTED'}"
        )
    lines += [
        "",
        "every proved ε survives" if all(view.holds for view in views) else REFUTED,
        "A lower bound shows what these canaries can tell, not what is the most that anybody could.",
    ]
    return "\n".join(lines)


# Name -> how it is measured and shown.
CASES: dict[str, Callable[[argparse.Namespace, Given], int]] = {
    "theorem-1-convex": _theorem_1,
    "theorem-1-network": _theorem_1,
    **dict.fromkeys(("s1", "s2", "s4", "s5", "s6"), _white_box),
    **dict.fromkeys(_ONCE, _once),
    "ask": _ask,
    "reading": _reading,
    **dict.fromkeys(("float-sum", "float-sum-poisson"), _float_sum),
}
