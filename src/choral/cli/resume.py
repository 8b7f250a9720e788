"""Go on with a run that was interrupted, after its last finished round; nothing that was spent is forgotten."""

import argparse

from choral.cli import training


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral resume`."""
    parser.add_argument("run_folder", metavar="RUN", help="the run folder")
    training.configure_following(parser)


def run(args: argparse.Namespace) -> int:
    """Take the run up and finish it."""
    from choral.run.runs import resume

    return training.follow(resume(args.run_folder, log=args.log), args)
