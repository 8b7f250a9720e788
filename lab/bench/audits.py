"""Lower bounds on ε by adversaries that see all that a rule grants: `python -m bench.audits --json`.

Each row is one `choral audit --case CASE --epsilon E`, with the trainings that the verb takes by itself.
"""

import contextlib
import io
import json
import sys

from bench.harness import print_figures
from choral.cli import main

CASES = ("s1", "s2", "s4", "s5", "s6", "s7", "s7-sampled", "person", "ask", "reading")
EPSILONS = (1, 2, 4)
KEPT = (
    "sees", "rule", "adversary", "delta", "confidence", "trainings", "seed", "lower_bound", "proved_epsilon",
    "survived", "share_of_epsilon", "share_of_mu", "false_alarms", "hits",
)  # fmt: skip


def audited(case: str, epsilon: int, *options: str) -> dict[str, object]:
    """What the verb prints for machines about one case."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(["audit", "--case", case, "--epsilon", str(epsilon), *options, "--json"])
    found = json.loads(said.getvalue())
    print(f"{case}, ε = {epsilon}: ≥ {found['lower_bound']:.3f}", file=sys.stderr)
    return {name: found[name] for name in KEPT}


def measure(quick: bool) -> dict[str, object]:
    """Every case at every ε."""
    options = ("--trainings", "20000") if quick else ()
    return {case: {str(one): audited(case, one, *options) for one in EPSILONS} for case in CASES}


if __name__ == "__main__":
    print_figures(__doc__, measure, "20,000 trainings of each world in place of those of the verb")
