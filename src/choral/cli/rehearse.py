"""Train by a choral.toml with the whole protocol in one process: real keys, real masks, every message, drop-outs."""

from functools import partial

from choral.cli import training

configure = training.configure_file
run = partial(training.start_file, "rehearsal")
