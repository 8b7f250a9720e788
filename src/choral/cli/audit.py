"""A lower bound on ε, measured: what an adversary can really tell, with its confidence, beside what is claimed.

  choral audit --case theorem-1-convex     the published Theorem 1 claims less than is measured, for a convex loss
  choral audit --case theorem-1-network    the same for a network

N, threshold and confidence are fixed, and printed, before the first training.
"""

import argparse
import json
import sys
from typing import Any

from choral.audit.cases import CASES, arrange, measure


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--case", choices=tuple(CASES), help="a documented worst case")
    parser.add_argument("--epsilon", type=float, default=1.0, help="what the published formula claims (default: 1)")
    parser.add_argument("--trainings", type=int, help="trainings of each world (default: what a minute allows)")
    parser.add_argument("--confidence", type=float, default=0.99, help="of the lower bound (default: 0.99)")
    parser.add_argument("--seed", type=int, default=0, help="of the simulated noise (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the bound beside the claims."""
    case = arrange(
        args.case, epsilon=args.epsilon, trainings=args.trainings, confidence=args.confidence, seed=args.seed
    )
    plan = case.construction.plan
    print(
        f"{case.name}: {plan.cohort} of {plan.devices} devices a round, {plan.rounds} rounds, {plan.local_steps} local"
        f" steps, batches of {plan.batch:,} of {plan.rows:,}\n"
        f"fixed beforehand: {case.trainings:,} trainings of each world, threshold {case.threshold:.6g},"
        f" confidence {case.confidence:g}, seed {case.seed}",
        file=sys.stderr if args.json else sys.stdout,
        flush=True,
    )
    told = measure(case).as_dict()
    print(json.dumps(told) if args.json else _shown(told))
    return 0


def _shown(told: dict[str, Any]) -> str:
    above = told["lower_bound"] > told["published_epsilon"]
    verdict = "NOT A GUARANTEE: more was measured" if above else "not refuted by this audit"
    return "\n".join(
        [
            f"counted: {told['false_alarms']:,} false alarms and {told['hits']:,} hits",
            f"all ε at δ = {told['delta']:g}, {told['adjacency']}",
            "",
            f"  MEASURED   ε ≥ {told['lower_bound']:.3f}   with confidence {told['confidence']:g}, by a server that"
            " sees only sums",
            f"  PUBLISHED  ε ≤ {told['published_epsilon']:.3f}   Theorem 1; {verdict}",
            f"  PROVED     ε ≤ {told['proved_epsilon']:.3f}   rule {told['proved_rule']}, against {told['adversary']}",
            "",
            f"Theorem 1 does not hold here: {told['published_because']}." if above else "",
        ]
    ).rstrip()
