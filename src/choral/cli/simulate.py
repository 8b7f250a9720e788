"""Train by a choral.toml on the fast engine: one compiled call a round, masks left out since they cancel."""

from functools import partial

from choral.cli import training

configure = training.configure_file
run = partial(training.start_file, "simulation")
