"""Train by a choral.toml on the fast engine: one compiled call per round, masks left out since they cancel."""

import argparse

from choral.cli import personal, training


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of a run by a file, and personal models."""
    training.configure_file(parser)
    parser.add_argument("--personal", action="store_true", help="also make and compare a personal model for every site")
    parser.add_argument("--kappa", type=float, metavar="X", help="how far personal models may go from the shared one")


def run(args: argparse.Namespace) -> int:
    """Read the file, run, and show."""
    from choral import config

    job = config.read(args.job)
    personal.check(job, args)
    return training.start("simulation", job, args, compare=args.compare)
