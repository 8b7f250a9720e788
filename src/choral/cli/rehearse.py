"""Train by a choral.toml with the whole protocol in one process: real keys, real masks, every message, drop-outs."""

import argparse

from choral.cli import training


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral rehearse`."""
    parser.add_argument("job", metavar="choral.toml", help="what to train, on which data, for which budget")
    parser.add_argument("--compare", action="store_true", help="also train without privacy and each device alone")
    training.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Rehearse the job."""
    from choral import config

    return training.start("rehearsal", config.read(args.job), args, compare=args.compare)
