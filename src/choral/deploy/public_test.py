"""The coordinator's public table, on which the model of a deployment is measured; sites report no figures."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from choral.core.errors import ConfigError
from choral.record import STUDY
from choral.run.agreement import Agreement
from choral.run.folder import write_whole
from choral.run.study import Study
from choral.tables.reading import Table
from choral.tables.records import Records

TEST = "test.*"


def keep_test(folder: Path, table: Path) -> None:
    """Put a public table that fits the declared columns next to the study, to measure the model on after each round."""
    if table.is_dir():
        raise ConfigError("CH105", "is a folder.", where=str(table), fix="Give the public rows as one .npz file.")
    study = Agreement.read(folder / STUDY).with_code_in(folder)
    with tempfile.TemporaryDirectory(dir=folder) as checked:
        copy = Path(checked, table.name)  # what is checked is what is kept, whatever happens to the file meanwhile
        try:
            write_whole(copy, table.read_bytes())
        except OSError as error:
            fix = "Give a table whose rows are public."
            raise ConfigError("CH105", f"can't be read: {error.strerror}.", where=str(table), fix=fix) from None
        _read_test(copy, study)
        for old in folder.glob(TEST):
            old.unlink()
        os.replace(copy, folder / TEST.replace(".*", "".join(table.suffixes)))


def with_public_test(folder: Path, study: Agreement) -> Study:
    """The study of an agreement, with the rows of that table to test on if there is one."""
    settled, table = study.settled, next(folder.glob(TEST), None)
    return settled if table is None else replace(settled, split=replace(settled.split, test=_read_test(table, study)))


def public_table(folder: Path, study: Agreement) -> Table | None:
    """That table as it is, for models on sums; None if there is none."""
    path = next(folder.glob(TEST), None)
    return None if path is None else study.table_in(path)


def _read_test(path: Path, study: Agreement) -> Records:
    features, labels = study.encoded(study.table_in(path))
    return Records.of([("test", features, labels)], classes=len(study.settled.data.classes))
