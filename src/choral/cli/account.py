"""What a run costs one device, by every rule: proved, with the secure sum, and as published.

Nothing is run and nothing is written. All numbers are those of one device: --rounds counts the rounds in which it
takes part, --rows its own records, --noise the standard deviation on its averaged gradient.
"""

import argparse
import json
import textwrap

from choral.accounting.account import account, several_rows
from choral.accounting.groups import EXAMPLE
from choral.accounting.proofs import exposed
from choral.accounting.words import in_plain_words
from choral.core.plan import LAWS, PASSES, SAMPLINGS, UNITS
from choral.core.printable import figures_up
from choral.record import Account

EPILOG = """\
example:
  choral account --rounds 13 --local-steps 10 --cohort 10 --devices 16 \\
                 --rows 2440 --batch 244 --noise 0.0049 --clip 1 --delta 1e-4"""

_NUMBERS = {
    "rounds": (int, "rounds in which the device takes part (C)"),
    "local-steps": (int, "noisy steps per device and round (τ)"),
    "cohort": (int, "devices in a round (r)"),
    "devices": (int, "devices in all (n)"),
    "rows": (int, "records of the device (m)"),
    "batch": (int, "records in a batch, also the divisor of its mean (γ)"),
    "noise": (float, "standard deviation of the noise on the averaged gradient (σ)"),
    "clip": (float, "bound on the norm of a record's gradient (G)"),
    "delta": (float, "the δ of (ε, δ)"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags, named as the arguments of `choral.account`."""
    for name, (kind, text) in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=kind, required=True, metavar="N", help=text)
    parser.add_argument("--sampling", choices=SAMPLINGS, default="poisson", help="how a batch is drawn (poisson)")
    parser.add_argument("--passes", choices=PASSES, default="continue", help="what a partition does between rounds")
    parser.add_argument("--law", choices=LAWS, default="gaussian", help="law of the noise (gaussian)")
    parser.add_argument(
        "--secure-sum",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the server sees only sums (yes)",
    )
    parser.add_argument(
        "--colluders", type=int, default=0, metavar="N", help="devices of a cohort that help the server"
    )
    parser.add_argument("--dropouts", type=int, default=0, metavar="N", help="devices that may be missing from a sum")
    parser.add_argument("--step-size", type=float, metavar="N", help="η, for the rules on several local steps")
    parser.add_argument("--smoothness", type=float, metavar="N", help="L of one record's loss, for the same rules")
    parser.add_argument("--unit", choices=UNITS, default="record", help="what may differ between two tables (record)")
    parser.add_argument(
        "--rows-per-person", type=int, default=0, metavar="N", help="rows of a person that are used, with --unit person"
    )
    parser.add_argument(
        "--clip-quantile", type=float, default=0.0, metavar="Q", help="quantile of an adaptive clip, with --unit device"
    )
    parser.add_argument(
        "--together", type=int, default=EXAMPLE, metavar="N", help=f"rows of one person, for their cost ({EXAMPLE})"
    )
    parser.add_argument("--convex", action="store_true", help="the loss is convex, also after clipping")


def run(args: argparse.Namespace) -> int:
    """Print the account as a table, or as one JSON object."""
    left_out = ("json", "debug", "run", "together")
    numbers = {name: value for name, value in vars(args).items() if name not in left_out}
    accounted = account(**numbers)
    several = None
    part = exposed(**{name: value for name, value in numbers.items() if name != "delta"})
    if part.protects.one_row:
        several = (args.together, *several_rows(part, accounted.delta, args.together))
    if args.json:
        rows = {} if several is None else dict(zip(("rows", "epsilon", "at_two_sites"), several, strict=True))
        print(json.dumps(accounted.to_dict() | ({"several": rows} if rows else {})))
    else:
        print("\n".join(_table(accounted, several)))
    return 0


def _table(accounted: Account, several: tuple[int, float, float] | None) -> list[str]:
    everyone, summed = accounted.proved.against_everyone, accounted.proved.with_secure_sum
    lines = [f"ONE DEVICE · δ = {accounted.delta:g} · {accounted.adjacency}", "", "PROVED"]
    lines += _entry(
        everyone.epsilon, f"rule {everyone.rule}, against {everyone.adversary}", in_plain_words(everyone.because)
    )
    if several is not None:
        (rows, here, twice), terms = several, f"rule {everyone.rule}, against {everyone.adversary}"
        lines += _entry(here, terms, f"{rows} rows of one person replaced")
        lines += _entry(twice, terms, "one row at each of two such sites replaced")
    lines += ["WITH THE SECURE SUM"]
    if summed:
        lines += _entry(
            summed.epsilon, f"rule {summed.rule}, against {summed.adversary}", in_plain_words(summed.certificate)
        )
    else:
        lines += _note(f"no provable extra protection here: {in_plain_words(accounted.proved.no_certificate)}")
    lines += ["PUBLISHED"]
    for title, figure in (
        ("Theorem 1, against a server that sees only sums", accounted.paper),
        ("Theorem 1 without secure sum, against the server", accounted.paper_without_secure_sum),
        ("DP-SGD as printed, against a server that sees only sums", accounted.dp_sgd.as_printed),
        ("DP-SGD corrected, against a server that sees only sums", accounted.dp_sgd.corrected),
    ):
        verdict = "valid here" if figure.valid else "published formula, not a guarantee here"
        lines += _entry(figure.epsilon, title, f"{verdict}: {in_plain_words(figure.because)}")
    return lines


def _entry(epsilon: float, title: str, note: str) -> list[str]:
    return [*_wrapped(title, f"  ε {figures_up(epsilon, 4):<10} "), *_note(note)]


def _note(text: str) -> list[str]:
    return _wrapped(text, " " * 15)


def _wrapped(text: str, start: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent=start, subsequent_indent=" " * 15)
