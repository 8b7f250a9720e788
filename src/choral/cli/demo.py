"""Train on UCI Adult over 250 small devices in one process, with real keys, masks and noise, and show what it cost.

Each device has about 195 rows, too few to learn well alone. Nothing is downloaded. The run folder, with a report for
people, is written to runs/. --paper uses the setting of the paper: 16 devices, noise in every step.
"""

import argparse

from choral.cli import training

EPILOG = "Next: choral account --help · choral simulate my.toml · choral verify RUN"
JOB = {"name": "demo", "builtin": "adult", "epsilon": 2.0, "delta": 1e-5, "devices": 250, "cohort": 25, "rounds": 10}
PAPER = {
    "name": "demo",
    "builtin": "adult",
    "epsilon": 2.0,
    "delta": 1e-5,
    "devices": 16,
    "cohort": 10,
    "rounds": 20,
    "local_steps": 10,
    "batch": 244,
    "step_size": 4.0,
    "clip": 1.0,
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral demo`."""
    parser.add_argument("--paper", action="store_true", help="the paper's setting: 16 devices, noise in every step")
    parser.add_argument("--rounds", type=int, help="how many rounds (default 10; 20 with --paper)")
    training.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Rehearse the demo's job."""
    from choral.config import job_of

    job = PAPER if args.paper else JOB
    return training.start("rehearsal", job_of(**job | {"rounds": args.rounds or job["rounds"]}), args, compare=True)
