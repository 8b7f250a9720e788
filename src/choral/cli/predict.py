"""Predict for new rows with the model of a finished run: each row's class and the probability of every class.

The rows need the columns or the shape that the model reads, and no label. A label that is a number is predicted in
its own unit. Predictions say something about the rows that they are made for, so only its owner can read a file of
them. For a model that is your own code, use choral.open in Python.
"""

import argparse
from pathlib import Path

from choral.cli import predictions

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
    from choral.run.opened import opened
    from choral.tables.cells import Format
    from choral.tables.sources import Reading, read_one

    result = opened(args.folder, encoder=args.encoder)
    data = config.parse(result.record.about.job).data
    written = Format(**{name: getattr(args, name) for name in FORMAT})
    table = read_one(args.rows, Reading(written=written.over(data.written), row_shape=data.row_shape, label=data.label))
    return predictions.show(result, data.label, table, out=args.out, as_json=args.json)
