"""Runs whose model is made from sums, [model] kind = "additive" or "hazard": the same verbs as for training."""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from choral import __version__
from choral.cli import ask, terminal
from choral.core.errors import ConfigError

if TYPE_CHECKING:
    from choral.config import Job
    from choral.run.inquiry import Inquiry
    from choral.run.runs import Kind

_OF_TRAINING = ("compare", "log", "personal")  # flags that a model on sums has no use for


def start(kind: "Kind", job: "Job", args: argparse.Namespace) -> int:
    """Begin a run folder, make the model sum by sum, and show it."""
    _check(job, args)
    from choral.run.folder import new_folder
    from choral.run.inquiry import begun

    job = job if args.seed is None else job.seeded(args.seed)
    inquiry = begun(kind, job, {}, out=args.out or new_folder(job.run.name), drop=args.drop)
    if not args.open:
        return _follow(inquiry, args)
    from choral.report import serve

    with serve(inquiry.folder, open_browser=True) as live:
        print(f"live page: {live.url}", file=sys.stderr)
        return _follow(inquiry, args)


def go_on(job: "Job", args: argparse.Namespace) -> int:
    """Make what is left of the model of a run that was interrupted; what the register has is not asked for again."""
    _check(job, args)
    from choral.run.inquiry import gone_on

    return _follow(gone_on(args.run_folder), args)


def plan(job: "Job", args: argparse.Namespace) -> int:
    """What the model would cost and tell; nobody is asked, and nothing is written."""
    from choral.run.inquiry import Inquiry
    from choral.run.modelling import advice, question_of
    from choral.run.planning import settle

    inquiry = Inquiry("simulation", settle(job, keep_tables=True, guess=True), folder=Path(args.job).parent / "no run")
    planned = inquiry.plan(question_of(job))
    if args.json:
        print(json.dumps({"file": args.job, **planned.to_dict(), "advice": list(advice(inquiry.study))}))
    else:
        print(ask.shown_plan(planned))
        terminal.say(*advice(inquiry.study))
    return 0


def _check(job: "Job", args: argparse.Namespace) -> None:
    if used := [flag for flag in _OF_TRAINING if getattr(args, flag, None)]:
        raise ConfigError(
            "CH104",
            f'--{used[0]} with [model] kind = "{job.model.kind}", which is made from sums and not trained.',
            where=job.where("model", "kind"),
            fix="Leave the flag out.",
        )


def _follow(inquiry: "Inquiry", args: argparse.Namespace) -> int:
    from choral.cli.training import LABELS, shows
    from choral.report import write_report
    from choral.run.inquiry import made
    from choral.run.modelling import advice

    show, study = shows(args), inquiry.study
    if show:
        kind = LABELS[inquiry.kind] + (", seeded: the noise can be predicted" if study.seeded else "")
        terminal.say(
            f"choral {__version__} · {study.name} · {study.source}, {inquiry.rows:,} rows on {study.plan.devices:,} "
            "devices",
            kind,
            *study.data.notes,
            *advice(study),
        )
    answered = made(inquiry, watch=partial(terminal.progress, show=show))
    write_report(inquiry.folder)
    if args.json:
        print(
            json.dumps(
                {"kind": inquiry.kind, "seeded": study.seeded, "folder": str(inquiry.folder), **answered.to_dict()}
            )
        )
        return 0
    print("\n" + ask.shown(answered, str(inquiry.folder)) if show else ask.in_one_line(answered, str(inquiry.folder)))
    if show:
        terminal.say(f"NEXT      choral verify {inquiry.folder}", f"          choral report {inquiry.folder} --open")
    return 0
