"""Predict for new rows with the model of a finished run: each row's class and the probability of every class.

The rows need the columns or the shape that the model reads, and no label. A label that is a number is predicted in
its own unit. Predictions say something about the rows that they are made for, so only its owner can read a file of
them. For a model that is your own code, use choral.open in Python.
"""

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from choral.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from choral.deploy.personal import OwnModel
    from choral.run.result import TrainedModel
    from choral.tables.reading import Table

EPILOG = """\
examples:
  choral predict runs/first new.csv
  choral predict runs/first new.csv --json
  choral predict runs/first new.parquet --out predicted.csv"""
FORMAT = {
    "delimiter": "delimiter",
    "decimal": "decimal point",
    "encoding": "encoding",
    "dates": "order of day and month",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The run's folder and the table."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("rows", type=Path, help="rows as the run had them: CSV, Parquet, .npz, or a folder of images")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a CSV file instead of printing it")
    parser.add_argument("--encoder", type=Path, metavar="FILE", help="the run's encoder, if it has moved")
    for name, what in FORMAT.items():
        parser.add_argument(f"--{name}", metavar="X", help=f"the table's {what} (default: as the run says it)")


def run(args: argparse.Namespace) -> int:
    """Open the run, predict, and show."""
    from choral import config
    from choral.run.result import opened
    from choral.tables.cells import Format
    from choral.tables.sources import Reading, read_one

    result = opened(args.folder, encoder=args.encoder)
    data = config.parse(result.record.about.job, recorded=True).data
    written = Format(**{name: getattr(args, name) for name in FORMAT})
    table = read_one(args.rows, Reading(written=written.over(data.written), row_shape=data.row_shape, label=data.label))
    return _show(result, data.label, table, out=args.out, as_json=args.json)


def _show(trained: "TrainedModel", label: str, table: "Table", *, out: Path | None, as_json: bool) -> int:
    """Predict for the rows of a table, and print them or write them to a file that only its owner reads."""
    from choral.run.folder import write_whole

    header, rows = _predicted(trained, label, table)
    if as_json:
        print(json.dumps({"columns": header, "rows": rows}))
        return 0
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([header, *rows])
        return 0
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_whole(out, text.getvalue().encode(), mode=0o600, fix="Choose another --out.")
    print(out)
    return 0


def _predicted(trained: "TrainedModel", label: str, table: "Table") -> tuple[list[str], list[list[object]]]:
    found = trained.predict(table).tolist()
    if trained.target is not None or trained.ranks:
        return [label if trained.target is not None else "log hazard"], [[round(value, 6)] for value in found]
    shares = trained.predict_proba(table).round(6).tolist()
    return [label, *trained.classes], [[name, *share] for name, share in zip(found, shares, strict=True)]


def configure_own(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral device personal`."""
    parser.add_argument("--validation", type=Path, metavar="FILE", help="rows of this site that the run never saw")
    parser.add_argument("--kappa", type=float, metavar="X", help="the proposed distance from the shared model (0.1)")
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="also write the personal model as ONNX; an extra")
    _configure_model(parser)


def configure_predict(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral device predict`."""
    parser.add_argument("rows", type=Path, help="rows as the study declares them; no label is needed")
    parser.add_argument("--personal", action="store_true", help="use the personal model instead of the shared one")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a CSV file instead of printing it")
    _configure_model(parser)


def _configure_model(parser: argparse.ArgumentParser) -> None:
    """Where the shared model is, if this site was not there when the run ended."""
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="the run's model.safetensors, if it is not kept here"
    )


def make_personal_model(args: argparse.Namespace, passphrase: str | None) -> int:
    """Make the site's personal model and its page, and say what it is."""
    from choral.deploy.home import Home
    from choral.deploy.ownership import keep
    from choral.deploy.personal import PAGE, make_personal
    from choral.learning.personal import KAPPA
    from choral.report.site_page import personal_page

    kappa = KAPPA if args.kappa is None else args.kappa
    made = make_personal(
        Home(args.home), validation=args.validation, model=args.model, kappa=kappa, passphrase=passphrase
    )
    page = args.home / PAGE
    summary = made.to_dict() | {"page": str(page)}
    keep(page, personal_page(summary))
    if args.onnx is not None:
        summary["onnx"] = str(_exported(made, args.onnx))
    lines = (*_own_lines(made), f"PAGE      {page}", f"          {summary['not_private']}")
    return terminal.answer(args, summary, *lines)


def _exported(made: "OwnModel", path: Path) -> Path:
    from choral.deploy.personal import NOT_PRIVATE
    from choral.output.onnx import onnx_of
    from choral.run.folder import write_whole

    graph = onnx_of(made.trained.model, made.card, made.trained.parameters, run=made.plan_digest, privacy=NOT_PRIVATE)
    write_whole(path, graph.SerializeToString(), mode=0o600, fix="Choose another --onnx.")
    return path


def _own_lines(made: "OwnModel") -> "Iterator[str]":
    yield f"PERSONAL  {made.path}"
    yield f"          {made.words}: κ = {made.own.kappa:g}; {made.own.because}"
    for name, standing in made.standings.items():
        figures = " · ".join(f"{figure} {value:.4f}" for figure, value in standing.to_dict().items())
        yield f"  {name:<10}{figures}"
    if made.repeated:
        yield f"          {made.repeated:,} validation rows are rows that the run was trained on: they judge nothing"


def predict_at_site(args: argparse.Namespace, passphrase: str | None) -> int:
    """Predict for new rows, as CSV: the number, or the class and the probability of each class."""
    from choral.deploy.home import Home
    from choral.deploy.personal import predictor

    trained, study = predictor(Home(args.home), personal=args.personal, model=args.model, passphrase=passphrase)
    rows = study.table_in(args.rows)
    return _show(trained, study.target.name, rows, out=args.out, as_json=args.json)
