"""Train by a choral.toml on the fast engine: one compiled call a round, masks left out since they cancel."""

import argparse

from choral.cli import training


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral simulate`."""
    parser.add_argument("job", metavar="choral.toml", help="what to train, on which data, for which budget")
    parser.add_argument("--compare", action="store_true", help="also train without privacy and each device alone")
    training.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate the job."""
    from choral import config

    return training.start("simulation", config.read(args.job), args, compare=args.compare)
