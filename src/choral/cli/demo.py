"""Train on UCI Adult over 16 devices in one process, with real keys, masks and noise, and show what it cost.

Nothing is downloaded. The run folder, with a report for people, lands under runs/.
"""

import argparse

from choral.cli import training

EPILOG = "Next: choral account --help · choral simulate my.toml · choral verify RUN"
JOB = {
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
    parser.add_argument("--rounds", type=int, default=JOB["rounds"], help="how many rounds (default 20)")
    training.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Rehearse the demo's job."""
    from choral.config import job_of

    job = job_of(**{**JOB, "rounds": args.rounds})
    return training.start("rehearsal", job, args, compare=True)
