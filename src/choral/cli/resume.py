"""Go on with a run that was interrupted, after its last finished round; nothing that was spent is forgotten."""

import argparse

from choral.cli import sums, terminal, training


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral resume`."""
    parser.add_argument("run_folder", metavar="RUN", help="the run folder")
    training.configure_following(parser)


def run(args: argparse.Namespace) -> int:
    """Take the run up and finish it."""
    from choral import config
    from choral.record import read_run

    job = config.parse(read_run(args.run_folder).about.job, source="run.json")
    if job.on_sums:
        return sums.go_on(job, args)
    with terminal.stages("PLAN", 4, show=training.shows(args)) as done:
        from choral.output.logs import RunLog
        from choral.run.runs import resume

        done()
        taken_up = resume(args.run_folder, log=None if args.log is None else RunLog(args.log), reached=done)
    return training.follow(taken_up, args)
