"""Show what a device's ledger says, and check every line of it.

The file is only read, unless --limit is given: with it the data's owner changes
the limit, as a new entry. A receipt from an earlier look, given with --receipt,
shows that nothing was cut off or put back since then.
"""

import argparse
import json
from collections.abc import Callable

from choral.accounting.ledger_statement import statement_of
from choral.accounting.words import up
from choral.cli import terminal
from choral.core.errors import ConfigError
from choral.core.ledger import Ledger, Receipt
from choral.core.plan import Budget, require_number
from choral.core.printable import count, escaped
from choral.core.sealed import Body
from choral.record import LedgerStatement

_SHORT = {"noise_multiplier": "z", "probability": "q", "mu": "μ", "rho": "ρ", "delta": "δ"}
_SHORT |= {"variance": "var", "releases": "n"}

EPILOG = """\
examples:
  choral ledger site-a.ledger
  choral ledger site-a.ledger --receipt 14:9f3c…
  choral ledger site-a.ledger --limit 3      set the limit to ε = 3; δ stays"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the file and what may be done with it."""
    parser.add_argument("file", help="the device's ledger")
    parser.add_argument("--receipt", metavar="N:SEAL", help="the ledger must continue this receipt")
    parser.add_argument("--limit", type=float, metavar="EPSILON", help="set the limit (the data's owner only)")
    parser.add_argument(
        "--sum-limit", type=float, metavar="EPSILON", help="set the limit against a server that sees only sums"
    )
    parser.add_argument("--delta", type=float, help="δ of the new limit; without it δ stays")
    parser.add_argument("--last", type=int, default=20, metavar="N", help="entries to list (20); 0 for all of them")


def run(args: argparse.Namespace) -> int:
    """Print the ledger's statement, after a change of the limit if one was asked for."""
    receipt = None if args.receipt is None else _receipt(args.receipt)
    if args.delta is not None and args.limit is None:
        raise ConfigError("CH103", "--delta without --limit.", fix="Give both to change the limit.")
    if args.limit is not None or args.sum_limit is not None:
        with Ledger.open(args.file, receipt=receipt) as ledger:
            epsilon = ledger.limit.epsilon if args.limit is None else args.limit
            delta = ledger.limit.delta if args.delta is None else args.delta
            sums = ledger.sum_epsilon if args.sum_limit is None else require_number("--sum-limit", args.sum_limit)
            ledger.set_limit(Budget(epsilon=epsilon, delta=delta), sums)
    ledger = Ledger.read(args.file, receipt=receipt)
    statement = statement_of(ledger)
    file = {"file": str(ledger.path)}
    print(json.dumps(file | statement.to_dict()) if args.json else _page(statement, args.last))
    return 0


def _receipt(text: str) -> Receipt:
    entries, _, seal = text.partition(":")
    if not (entries.isdecimal() and len(seal) == 64):
        raise ConfigError("CH102", "--receipt is not of the form N:SEAL.", fix="Copy it whole from `choral ledger`.")
    return Receipt(entries=int(entries), seal=seal)


def _page(ledger: LedgerStatement, last: int) -> str:
    spent, limit, receipt = ledger.spent, ledger.limit, ledger.receipt
    bar = terminal.bar(spent.epsilon / limit.epsilon)
    lines = [
        f"LEDGER   {ledger.device} · {ledger.charges} charges · every line fits its seal",
        *_proved(ledger),
        f"SPENT    {bar}  ε = {up(spent.epsilon, 4)} of {limit.epsilon:g} (δ = {limit.delta:g})",
        f"         {spent.adjacency}; rules: {', '.join(spent.rules) or 'none yet'}",
        *(f"         against {adversary}" for adversary in spent.adversaries),
    ]
    if of_sums := ledger.with_secure_sum:
        of = "" if of_sums.limit is None else f" of {of_sums.limit:g}"
        lines.append(f"         ε = {up(of_sums.spent.epsilon, 4)}{of} against {of_sums.spent.adversary}")
    if ledger.reserved.epsilon > spent.epsilon:
        lines.append("         (holds if nobody chose by results where to stop)")
    if len(spent.adversaries) > 1:
        lines.append("         (the sum holds only where each of these does)")
    if ledger.torn_bytes:
        lines.append(
            f"TORN     {ledger.torn_bytes} bytes of an interrupted write at the end; nothing was sent for them"
        )
    shown = ledger.entries[-last:] if last > 0 else ledger.entries
    if hidden := len(ledger.entries) - len(shown):
        lines.append(f"ENTRIES  the last {len(shown)}; --last 0 shows {hidden} more")
    elif shown:
        lines.append("ENTRIES")
    lines += [f"  {_entry(entry)}" for entry in shown]
    lines.append(f"RECEIPT  {receipt.entries}:{receipt.seal}")
    return "\n".join(map(escaped, lines))


def _proved(ledger: LedgerStatement) -> list[str]:
    """The figure that holds whatever was chosen by results: that of all uploads which studies have reserved."""
    if ledger.by_version_1:
        return ["RULE     of version 1: not proved for studies that were chosen after", "         seeing results"]
    reserved = ledger.reserved
    uploads = count(reserved.uploads, "upload")
    return [f"PROVED   ε = {up(reserved.epsilon, 4)} for the {uploads} that were reserved or made"]


def _entry(entry: Body) -> str:
    when = str(entry.get("at", "")).replace("T", " ")[:16].ljust(16)
    return f"{when}  {_IN_WORDS[entry['kind']](entry)}"


def _charge(entry: Body) -> str:
    event = " ".join(f"{_SHORT.get(k, k)}={v:.4g}" for k, v in entry["event"].items() if k != "kind" and v)
    what = f"round {entry['round']}.{entry['attempt']}".ljust(11)
    return f"{what} {entry['rule']:<4} plan {entry['plan'][:6]}  {event}"


def _reserve(entry: Body) -> str:
    uploads = sum(group["times"] for group in entry["uploads"])
    return f"reserved    {entry['rule']:<4} plan {entry['plan'][:6]}  {count(uploads, 'upload')}"


def _limit(entry: Body) -> str:
    sums = entry.get("epsilon_sum")
    also = "" if sums is None else f"; with the secure sum ε = {sums:g}"
    return f"limit set to ε = {entry['epsilon']:g}, δ = {entry['delta']:g}{also}"


_IN_WORDS: dict[str, Callable[[Body], str]] = {
    "charge": _charge,
    "reserve": _reserve,
    "release": lambda entry: f"given back       plan {entry['plan'][:6]}",
    "rule": lambda entry: f"from here on by the rule of version {entry['version']}",
    "limit": _limit,
    "limits": _limit,
    "recovered": lambda entry: f"an interrupted write of {entry['bytes']} bytes was cut off",
}
