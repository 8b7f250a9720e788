"""Show what an ordinary federated server reads from one update, and what choral's reads.

The row shown is from the public UCI Adult data that comes with choral; nobody's
own data is read.

With --run the result is also kept in that run's folder and becomes a section of
its report:

    choral attack --run RUN && choral report RUN --open

`choral attack --case differencing` asks for two counts that differ by one person, and
says how often the person's cell is guessed, without noise and with it.

`choral attack --case poison` lets devices of a simulated run attack its model, with and
without probes ([federation] robust).
"""

import argparse
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from choral.accounting.words import up
from choral.cli import terminal
from choral.core.errors import ConfigError

if TYPE_CHECKING:
    from choral_lab.attack.demonstration import Demonstration
    from choral_lab.attack.poison import Kind

CASES = ("row", "differencing", "poison")
POISONS = ("range-flip", "inner-product", "backdoor", "label-flip")
_WIDTH = 16  # five columns of a terminal of 80


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--epsilon", type=float, default=2.0, help="the ε of choral's plan (default: 2)")
    parser.add_argument("--row", type=int, default=0, help="which row of the first device is attacked (default: 0)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated run (default: 0)")
    parser.add_argument("--case", choices=CASES, default="row", help="what is tried (default: row)")
    parser.add_argument("--kind", choices=POISONS, help="with poison: one attack only (default: all of them)")
    parser.add_argument("--attackers", type=int, metavar="N", help="with poison: how many of 16 (default: 1)")
    parser.add_argument("--run", dest="folder", metavar="RUN", help="keep it in this run's folder, and in its report")


def run(args: argparse.Namespace) -> int:
    """Attack, and print what was read."""
    case: str = args.case
    if case != "poison" and (args.attackers is not None or args.kind is not None):
        raise ConfigError("CH104", f"--attackers or --kind with {case}.", fix="Leave it out.")
    if case != "row":
        if args.folder is not None or args.row:
            raise ConfigError("CH104", f"--run or --row with {case}.", fix="Leave it out.")
        return _differencing(args) if case == "differencing" else _poison(args)
    from choral.record import ATTACK, read_run
    from choral.report import write_report
    from choral.run.folder import write_json

    kept = read_run(args.folder).folder if args.folder else None  # refused before the work, not after it
    watch = partial(terminal.progress, show=not args.json)
    with terminal.stages("PLAN", 4, show=not args.json) as done:
        from choral_lab.attack.demonstration import demonstrate

        done()
        found = demonstrate(epsilon=args.epsilon, seed=args.seed, row=args.row, watch=watch, reached=done)
    summary = found.as_dict()
    if kept is not None:
        write_json(kept / ATTACK, summary)
        write_report(kept)
    print(json.dumps(summary) if args.json else _shown(found))
    return 0


def _differencing(args: argparse.Namespace) -> int:
    from choral_lab.attack.differencing import DEVICES, differencing

    found = differencing(epsilon=args.epsilon, seed=args.seed)
    if args.json:
        print(json.dumps(found.as_dict()))
        return 0
    lines = [
        f"choral attack · made-up people on {DEVICES} devices, one of them older than all others: does this one smoke?",
        "Two counts of smokers, with and without the oldest person; the difference is the answer.",
        "",
        f"{'THE ATTACKER SEES':<40}{'right, measured':>20}{'at most':>16}",
        f"  {'the sums without noise':<38}{found.without_noise:>20.1%}{'no limit':>16}",
    ]
    for one in found.with_noise:
        measured = f"{one.right:.1%} ± {found.error:.1%}"
        lines.append(f"  {one.sees:<38}{measured:>20}{up(100 * one.bound, 1) + '%':>16}")
    lines += ["", f"A guess is right half of the time. δ = {found.delta:g}, rule {found.rule}, {found.adjacency}:"]
    lines += [f"  ε ≤ {up(one.epsilon)} of both questions, against {one.adversary}" for one in found.with_noise]
    print("\n".join(lines))
    return 0


def _poison(args: argparse.Namespace) -> int:
    from choral_lab.attack.poison import DEVICES, KINDS, MOST_ATTACKERS, attacked, study_of

    count = 1 if args.attackers is None else args.attackers
    if not 1 <= count <= MOST_ATTACKERS:
        raise ConfigError("CH102", f"--attackers {count}.", fix=f"Must be 1 to {MOST_ATTACKERS}, so many may drop out.")
    plain, probed = (study_of(epsilon=args.epsilon, seed=args.seed, robust=robust) for robust in (False, True))
    bad = set(probed.data.records.names[:count])
    kinds = [kind for kind in KINDS if args.kind in (None, kind.replace("_", "-"))]
    runs: list[tuple[str, Kind | None]] = [("nobody", None), *((kind.replace("_", " "), kind) for kind in kinds)]
    rows: list[dict[str, Any]] = []
    for words, kind in terminal.progress(runs, total=len(runs), label="ATTACK", show=not args.json):
        ends = [attacked(study, kind, range(count) if kind else ()) for study in (plain, probed)]
        guilty, named = bad if kind else set(), set(ends[1].named)
        rows.append({"attack": words, "plain": ends[0].accuracy, "probes": ends[1].accuracy,
                     "named": sorted(named & guilty), "wrongly_named": sorted(named - guilty),
                     "trigger_plain": ends[0].trigger, "trigger_probes": ends[1].trigger})  # fmt: skip
    by = probed.costs.limited_by(0)
    terms = {"epsilon": args.epsilon, "delta": probed.limits[0].delta, "rule": by.rule, "adjacency": by.adjacency}
    if args.json:
        print(json.dumps({**terms, "adversary": by.adversary, "attackers": count, "runs": rows}))
        return 0
    lines = [f"choral attack · {count} of {DEVICES} devices attack a simulated run on UCI Adult (public data)", ""]
    lines.append(f"{'ATTACK':<18}{'accuracy, plain sum':>20}{'with probes':>14}{'named':>8}   trigger works")
    for row in rows:
        works = "" if row["trigger_plain"] is None else f"   {row['trigger_plain']:.0%}, {row['trigger_probes']:.0%}"
        said = f"{len(row['named'])} of {count}" if row["attack"] != "nobody" else ""
        wrongly = f"   and {len(row['wrongly_named'])} honest named" if row["wrongly_named"] else ""
        lines.append(f"{row['attack']:<18}{row['plain']:>20.1%}{row['probes']:>14.1%}{said:>8}{works}{wrongly}")
    lines += [
        "",
        f"ε ≤ {args.epsilon:g} with and without probes (δ = {terms['delta']:g}, rule {by.rule}, {by.adjacency}, "
        f"against {by.adversary}). Simulated: the noise can be predicted.",
    ]
    terminal.say(*lines)
    return 0


def _shown(found: "Demonstration") -> str:
    network = found.ordinary["network"]
    readings = (network, found.masked, found.opened)
    columns = (found.row, *(reading.cells for reading in readings))
    lines = [
        "choral attack · a person's row from UCI Adult (public data, bundled with choral)",
        "",
        _row("", "THE ROW", "AN ORDINARY", "CHORAL'S SERVER", "CHORAL'S SERVER"),
        _row("", "", "SERVER READS", "reads (masked)", "reads (the sum)"),
        *(_row(name, *(cells[name] for cells in columns)) for name in found.shown),
        _row("income", found.label, found.label_read, "", ""),
        _row("cells right", f"{network.of}", *(f"{reading.matched} of {reading.of}" for reading in readings)),
        "",
        f"A guess by the most common cells, without any update, gets {found.guess.matched} of {found.guess.of} right.",
        f"The masked update begins {found.masked_bytes}: uniform to the server.",
        "Rows of a batch read in full off one ordinary update of a network:\n  "
        + ", ".join(f"{right} of {size}" for size, right in found.batches.items())
        + ".",
        "",
        f"{'WAS THE ROW IN IT? (1 % false alarms)':<40}{'found, measured':>20}{'at most':>16}",
    ]
    for one in found.membership:
        error = f" ± {one.error:.1%}" if one.error else ""
        limit = "no limit" if one.bound is None else f"{up(100 * one.bound, 1)}%"
        lines.append(f"  {one.target:<38}{one.measured:>10.1%}{error:>10}{limit:>16}")
    lines += [
        "",
        f"choral's plan: ε ≤ {up(found.epsilon)} at δ = {found.delta:g}, rule {found.rule}, {found.adjacency},",
        f"against {found.adversary}.",
    ]
    return "\n".join(lines)


def _row(name: str, *cells: str) -> str:
    return f"{name:<15}" + "".join(f"{cell[: _WIDTH - 1]:<{_WIDTH}}" for cell in cells).rstrip()
