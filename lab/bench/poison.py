"""Malicious devices with and without probes.

`python -m bench.poison [--quick] [--json] [--all | --adaptive | --clean N | --time]`

UCI Adult over 16 devices, all of them in each of 20 rounds, logistic regression, even data, ε = 2 against everyone
(δ = 1e-5, one record replaced, rule S5; --epsilon takes another). 1 or 3 devices attack; they know all honest updates.
Accuracies in percent on held-out rows, means over seeds; `named` and `wrongly_named` are shares of all attackers and of
all honest devices. `ratio_of_round` is the time of a rehearsed round with probes over that of one without, by the
clock, all devices in one process, measured in turns.

`--adaptive` has the attackers that know the rules; bench/adaptive.json keeps five seeds of it. `--all` has every
attack, also on skewed labels with --skewed, and the median round in which attackers are named.
`--clean N` runs N fresh seeds in which nobody attacks, with and without probes: how many runs name somebody, how often
updates are left out, and what that costs. On skewed data devices have as many rows as on even data, and the positive
labels are dealt by a Dirichlet(0.5). `--time` prints the ratio of a round by the clock and by processor time.
"""

import argparse
import functools
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from choral.run.runs import Run
from choral.run.study import Study
from choral.tables.records import Records
from choral_lab.attack.poison import ADAPTIVE, DEVICES, KINDS, MORE_KINDS, Kind, attacked, study_of

EPSILON = 2.0
ATTACKERS = (1, 3)
SEEDS = 2  # of a quick run; five in full
FRESH = 1000  # the first seed of clean runs: no rule was chosen by them
SKEW = 0.5
TIMED, WARM = 16, 3  # rounds of each kind that are timed, after so many that are not


def study(epsilon: float, seed: int, *, robust: bool, skewed: bool = False) -> Study:
    """The study of one seed, on even data or on skewed labels."""
    reported = study_of(epsilon=epsilon, seed=seed, robust=robust)
    if not skewed:
        return reported
    train = with_skewed_labels(reported.split.train, seed)
    return replace(reported, split=replace(reported.split, train=train))


def with_skewed_labels(records: Records, seed: int) -> Records:
    """The same rows over devices of the same sizes, the positive ones dealt by a Dirichlet."""
    rng = np.random.default_rng([seed, 0x5E3])
    negative, positive = (rng.permutation(np.flatnonzero(records.labels == label)).tolist() for label in (0, 1))
    sizes, room = records.sizes.tolist(), np.zeros(records.devices, int)
    shares = rng.dirichlet(np.full(records.devices, SKEW))
    for device in rng.choice(records.devices, size=len(positive), p=shares):
        # A full device hands rows on to the next one: all devices keep the size that the plan says.
        room[device if room[device] < sizes[device] else int(np.argmax(sizes - room))] += 1
    dealt = []
    for device, size in enumerate(sizes):
        rows = [positive.pop() for _ in range(room[device])] + [negative.pop() for _ in range(size - room[device])]
        dealt.append((records.names[device], records.features[rows], records.labels[rows]))
    return Records.of(dealt, classes=records.classes)


@functools.cache
def clean_accuracy(epsilon: float, seed: int, skewed: bool) -> float:
    """The accuracy of a run with probes in which nobody attacks."""
    return attacked(study(epsilon, seed, robust=True, skewed=skewed), None, ()).accuracy


def compared(kind: Kind, count: int, seeds: Sequence[int], epsilon: float, *, skewed: bool = False) -> dict[str, float]:
    """Means over the seeds of the clean run, and of the attacked one with and without probes."""
    found: dict[str, list[float]] = {}

    def note(**values: float | None) -> None:
        for name, value in values.items():
            if value is not None:
                found.setdefault(name, []).append(value)

    bad = list(range(count))
    for seed in seeds:
        plain_study, probed = (study(epsilon, seed, robust=robust, skewed=skewed) for robust in (False, True))
        guilty = {probed.data.records.names[device] for device in bad}
        plain, guarded = attacked(plain_study, kind, bad), attacked(probed, kind, bad)
        caught = guarded.named.keys()
        note(
            clean=100 * clean_accuracy(epsilon, seed, skewed),
            plain=100 * plain.accuracy,
            probes=100 * guarded.accuracy,
            named=len(caught & guilty) / count,
            wrongly_named=len(caught - guilty) / (DEVICES - count),
            trigger_plain=None if plain.trigger is None else 100 * plain.trigger,
            trigger_probes=None if guarded.trigger is None else 100 * guarded.trigger,
            **{f"round_of_{name}": number for name, number in guarded.named.items() if name in guilty},
        )
    when = [number for name, rounds in found.items() if name.startswith("round_of_") for number in rounds]
    means = {
        name: round(statistics.fmean(values), 3) for name, values in found.items() if not name.startswith("round_of_")
    }
    return means | ({"named_in_round": statistics.median(when)} if when else {})


def clean_runs(count: int, epsilon: float, *, skewed: bool) -> dict[str, Any]:
    """What probes do where nobody attacks: runs that name somebody, updates left out, and what the model loses."""
    named, left_out, lost = [], 0, []
    for seed in range(FRESH, FRESH + count):
        guarded = attacked(study(epsilon, seed, robust=True, skewed=skewed), None, ())
        plain = guarded  # where nobody is left out, the run without probes has the same sums
        if guarded.left_out:
            plain = attacked(study(epsilon, seed, robust=False, skewed=skewed), None, ())
        lost.append(100 * (plain.accuracy - guarded.accuracy))
        left_out += guarded.left_out
        if guarded.named:
            named.append({"seed": seed, "named": guarded.named})
    return {
        "runs": count,
        "epsilon": epsilon,
        "skewed": skewed,
        "runs_with_a_name": len(named),
        "named": named,
        "left_out_per_run": round(left_out / count, 3),
        "points_lost": round(statistics.fmean(lost), 3),
        "points_lost_in_the_worst_run": round(max(lost), 3),
    }


def ratios_of_round() -> dict[str, float]:
    """The time of a rehearsed round with probes over one without: medians, a round of each kind in turns."""
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    taken: dict[tuple[str, bool], list[float]] = {(clock, robust): [] for clock in clocks for robust in (False, True)}
    runs = {robust: _rounds(study_of(epsilon=EPSILON, seed=1, robust=robust)) for robust in (False, True)}
    for number in range(WARM + TIMED):
        for robust, rounds in runs.items():
            before = {clock: read() for clock, read in clocks.items()}
            next(rounds)
            if number >= WARM:
                for clock, read in clocks.items():
                    taken[clock, robust].append(read() - before[clock])
    return {
        clock: round(statistics.median(taken[clock, True]) / statistics.median(taken[clock, False]), 3)
        for clock in clocks
    }


def _rounds(reported: Study) -> Iterator[object]:
    return iter(Run("rehearsal", reported).rounds())


def table(kinds: Sequence[Kind], seeds: int, epsilon: float, *, skewed: bool = False) -> dict[str, Any]:
    """Every attack by one and by three devices."""
    numbers = range(100, 100 + seeds)
    return {
        kind: {str(count): compared(kind, count, numbers, epsilon, skewed=skewed) for count in ATTACKERS}
        for kind in kinds
    }


def main() -> int:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds in place of five")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="another epsilon than 2")
    parser.add_argument("--skewed", action="store_true", help="skewed labels in place of even data")
    parser.add_argument("--all", action="store_true", help="every attack")
    parser.add_argument("--adaptive", action="store_true", help="the attacks of those who know the rules")
    parser.add_argument("--clean", type=int, metavar="N", help="N runs in which nobody attacks")
    parser.add_argument("--time", action="store_true", help="the ratio of a round only")
    args = parser.parse_args()
    if args.clean or args.time:
        reported = clean_runs(args.clean, args.epsilon, skewed=args.skewed) if args.clean else ratios_of_round()
        print(json.dumps(reported, indent=None if args.json else 1))
        return 0
    kinds = (*KINDS, *MORE_KINDS) if args.all else tuple(ADAPTIVE) if args.adaptive else KINDS
    found = table(kinds, SEEDS if args.quick else 5, args.epsilon, skewed=args.skewed)
    if args.json:
        print(json.dumps({**_without_rounds(found), "ratio_of_round": ratios_of_round()["wall"]}))
        return 0
    for kind in kinds:
        for count, reported in found[kind].items():
            print(
                f"{kind:<16}{count} of {DEVICES}  " + "  ".join(f"{name} {value:g}" for name, value in reported.items())
            )
    return 0


def _without_rounds(found: dict[str, Any]) -> dict[str, Any]:
    """The table without the rounds of naming, which the text form has."""
    return {
        kind: {
            count: {name: value for name, value in reported.items() if name != "named_in_round"}
            for count, reported in rows.items()
        }
        for kind, rows in found.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
