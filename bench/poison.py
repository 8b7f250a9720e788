"""Malicious devices with and without probes: `python -m bench.poison [--quick] [--json]`.

UCI Adult over 16 devices, all of them in each of 20 rounds, logistic regression, even data, ε = 2 against everyone
(δ = 1e-5, one record replaced, rule S5). 1 or 3 devices attack; they know all honest updates. Accuracies in percent on
held-out rows, means over seeds; `named` and `wrongly_named` are shares of all attackers and of all honest devices.
`ratio_of_round` is the processor's time of a rehearsed round with probes over that without, all devices in one process.
"""

import argparse
import json
import statistics
import time
from typing import Any

from choral.attack.poison import DEVICES, KINDS, Kind, attacked, study_of
from choral.run.runs import Run

EPSILON = 2.0
ATTACKERS = (1, 3)
SEEDS = 2  # of a quick run; five in full
TIMED = 12  # rounds


def compared(kind: Kind, count: int, seeds: int) -> dict[str, float]:
    """Means over the seeds of the clean run, and of the attacked one with and without probes."""
    found: dict[str, list[float]] = {}

    def note(**values: float | None) -> None:
        for name, value in values.items():
            if value is not None:
                found.setdefault(name, []).append(value)

    bad = list(range(count))
    for seed in range(100, 100 + seeds):
        probed = study_of(epsilon=EPSILON, seed=seed, robust=True)
        names = probed.data.records.names
        plain, guarded = attacked(_unguarded(seed), kind, bad), attacked(probed, kind, bad)
        caught = {names.index(name) for name in guarded.named}
        note(
            clean=100 * attacked(probed, None, ()).accuracy,
            plain=100 * plain.accuracy,
            probes=100 * guarded.accuracy,
            named=len(caught & set(bad)) / count,
            wrongly_named=len(caught - set(bad)) / (DEVICES - count),
            trigger_plain=None if plain.trigger is None else 100 * plain.trigger,
            trigger_probes=None if guarded.trigger is None else 100 * guarded.trigger,
        )
    return {name: round(statistics.fmean(values), 3) for name, values in found.items()}


def _unguarded(seed: int) -> Any:  # noqa: ANN401 - a study
    return study_of(epsilon=EPSILON, seed=seed, robust=False)


def ratio_of_round() -> float:
    """The processor's time of a rehearsed round with probes over one without; the fastest of a few of each."""
    fastest = []
    for robust in (False, True):
        run, times, last = Run("rehearsal", study_of(epsilon=EPSILON, seed=1, robust=robust)), [], time.process_time()
        for line in run.rounds():
            now = time.process_time()
            times.append(now - last)
            last = now
            if line.round == TIMED:
                break
        fastest.append(min(times[1:]))
    return round(fastest[1] / fastest[0], 3)


def main() -> int:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two seeds in place of five")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    seeds = SEEDS if args.quick else 5
    found: dict[str, Any] = {kind: {str(count): compared(kind, count, seeds) for count in ATTACKERS} for kind in KINDS}
    found["ratio_of_round"] = ratio_of_round()
    if args.json:
        print(json.dumps(found))
        return 0
    for kind in KINDS:
        for count, told in found[kind].items():
            print(f"{kind:<16}{count} of {DEVICES}  " + "  ".join(f"{name} {value:g}" for name, value in told.items()))
    print(f"a rehearsed round takes {found['ratio_of_round']} times as long")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
