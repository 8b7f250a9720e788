"""What a run costs one device, by every rule: proved, with the secure sum, and as published.

Nothing is run and nothing is written. All numbers are those of one device: --rounds counts the rounds in which it
takes part, --rows its own records, --noise the standard deviation on its averaged gradient.
"""

import argparse
import json
from typing import Any

from choral.plan import PASSES, SAMPLINGS
from choral.privacy.account import account

EPILOG = """\
example:
  choral account --rounds 13 --local-steps 10 --cohort 10 --devices 16 --rows 2440 --batch 244 \\
                 --noise 0.004902 --clip 1 --delta 1e-4"""

_NUMBERS = {
    "rounds": (int, "rounds in which the device takes part (C)"),
    "local-steps": (int, "noisy steps a device makes in a round (τ)"),
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
        parser.add_argument(f"--{name}", type=kind, required=True, help=text)
    parser.add_argument(
        "--sampling", choices=SAMPLINGS, default="poisson", help="how a batch is drawn (default: poisson)"
    )
    parser.add_argument(
        "--passes", choices=PASSES, default="continue", help="whether rounds go on with a partition's pass"
    )
    parser.add_argument(
        "--secure-sum", action=argparse.BooleanOptionalAction, default=True, help="the server sees sums only"
    )
    parser.add_argument("--colluders", type=int, default=0, help="devices of a cohort that work with the server")
    parser.add_argument("--dropouts", type=int, default=0, help="devices of a cohort that may be missing from a sum")
    parser.add_argument("--step-size", type=float, help="η, for the rules about several local steps")
    parser.add_argument("--smoothness", type=float, help="L of the loss of one record, for the same rules")
    parser.add_argument("--convex", action="store_true", help="the clipped steps are those of a convex loss")


def run(args: argparse.Namespace) -> int:
    """Print the account as a table, or as one JSON object."""
    names = {name for name in vars(args) if name not in ("json", "debug", "run")}
    told = account(**{name: getattr(args, name) for name in names})
    print(json.dumps(told) if args.json else _table(told))
    return 0


def _table(told: dict[str, Any]) -> str:
    proved, summed = told["proved"]["against_everyone"], told["proved"]["with_secure_sum"]
    lines = [
        f"one device, δ = {told['delta']:g}, {told['adjacency']}",
        "",
        "PROVED",
        _line(proved["epsilon"], f"rule {proved['rule']}, against {proved['adversary']}"),
        _note(proved["because"]),
        "WITH THE SECURE SUM",
    ]
    if summed:
        lines += [
            _line(summed["epsilon"], f"rule {summed['rule']}, against {summed['adversary']}"),
            _note(summed["certificate"]),
        ]
    else:
        lines += [_note(f"no provable extra protection here: {told['proved']['no_certificate']}")]
    lines += ["PUBLISHED"]
    for title, figure in (
        ("Theorem 1, against the server", told["paper"]),
        ("Theorem 1 without secure sum", told["paper_without_secure_sum"]),
        ("DP-SGD as printed", told["dp_sgd"]["as_printed"]),
        ("DP-SGD corrected", told["dp_sgd"]["corrected"]),
    ):
        verdict = "valid here" if figure["valid"] else "published formula, not a guarantee here"
        lines += [_line(figure["epsilon"], title), _note(f"{verdict}: {figure['because']}")]
    return "\n".join(lines)


def _line(epsilon: float, text: str) -> str:
    return f"  ε {epsilon:>9.4g}   {text}"


def _note(text: str) -> str:
    return f"  {'':<11}   {text}"
