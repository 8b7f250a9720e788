"""Predictions as a CSV table: the number, the logarithm of the hazard, or the class and each class's probability."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from choral.run.result import TrainedModel
    from choral.tables.reading import Table


def show(trained: "TrainedModel", label: str, table: "Table", *, out: Path | None, as_json: bool) -> int:
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
