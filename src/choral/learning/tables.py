"""Tables as people have them: CSV or Parquet files, data frames, arrays; read whole, judged strictly, never printed."""

import csv
import glob
import gzip
import lzma
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from choral.errors import ConfigError, TableError
from choral.learning.columns import Categorical, Cell, Numeric, Origin, declare, infer, level_of
from choral.learning.records import Records
from choral.learning.splits import Partition, deal

FEWEST_ROWS = 10  # an 80/10/10 split of fewer rows leaves nothing to validate or test on
DataSource: TypeAlias = Any  # a path, a glob, a data frame, or a pair (features, labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Named columns of cells and where they came from; its repr shows neither cells nor names of people."""

    source: str
    columns: Mapping[str, Sequence[Cell]] = field(repr=False)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.columns.values()), ()))

    def cells(self, name: str) -> Sequence[Cell]:
        """One column's cells, or CH302 with the closest name."""
        if name not in self.columns:
            raise TableError(
                "CH302", f'has no column "{name}".', where=self.source, fix=_closest(name, list(self.columns))
            )
        return self.columns[name]

    def take(self, rows: NDArray[np.intp]) -> "Table":
        """The table with only these rows."""
        return Table(
            source=self.source, columns={name: [cells[row] for row in rows] for name, cells in self.columns.items()}
        )


def _closest(name: str, known: list[str]) -> str:
    import difflib

    by_folded = {other.casefold(): other for other in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    if close:
        return f'Closest: "{by_folded[close[0]]}".'
    return f"It has: {', '.join(known[:12])}{', …' if len(known) > 12 else ''}."


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8-sig", newline="")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _read_rows(path: Path, delimiter: str) -> Iterator[list[str]]:
    try:
        with _open_text(path) as text:
            yield from csv.reader(text, delimiter=delimiter, strict=True)
    except FileNotFoundError:
        raise TableError("CH300", "is not there.", where=str(path), fix="Check the path in [data].") from None
    except UnicodeDecodeError as error:
        raise TableError(
            "CH307",
            f"is not UTF-8 text (byte {error.start:,} of a block).",
            where=str(path),
            fix="Save it as UTF-8, e.g. iconv -f latin1 -t utf-8.",
        ) from None
    except (csv.Error, OSError, EOFError, lzma.LZMAError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is not well-formed CSV"
        raise TableError("CH300", f"can't be read: {reason}.", where=str(path), fix="Check the file.") from None


def read_csv(path: str | Path, *, delimiter: str = ",") -> Table:
    r"""The table in a CSV file (also .csv.gz, .csv.xz) with a header line.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "ages.csv")
    >>> _ = path.write_text("age,income\n25,low\n")
    >>> read_csv(path).rows
    1
    """
    path = Path(path)
    lines = _read_rows(path, delimiter)
    header = [name.strip() for name in next(lines, [])]
    if not header:
        raise TableError("CH308", "is empty.", where=str(path), fix="It needs a header line and at least one row.")
    if len(set(header)) != len(header) or "" in header:
        raise TableError(
            "CH302", "has a column name that is empty or stands twice.", where=str(path), fix="Rename it in the header."
        )
    body: list[list[str]] = []
    for row in lines:
        if not row:
            continue  # a blank line, as many editors leave at the end
        if len(row) != len(header):
            raise TableError(
                "CH306",
                f"row {len(body) + 1:,} has {len(row)} cells, the header has {len(header)}.",
                where=str(path),
                fix="Quote cells that hold the delimiter, or set delimiter = … in [data].",
            )
        body.append(row)
    if not body:
        raise TableError("CH308", "has a header but no rows.", where=str(path), fix="Give it at least one row.")
    return Table(source=str(path), columns=dict(zip(header, zip(*body, strict=True), strict=True)))


def read_parquet(path: str | Path) -> Table:
    """The table in a Parquet file; needs the extra `choral[parquet]`."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError("CH106", "Parquet files need pyarrow.", fix="pip install 'choral[parquet]'") from None
    try:
        frame = parquet.read_table(path)
    except FileNotFoundError:
        raise TableError("CH300", "is not there.", where=str(path), fix="Check the path in [data].") from None
    except (ArrowException, OSError):
        raise TableError("CH300", "is not a Parquet file.", where=str(path), fix="Check the file.") from None
    return from_frame(frame, source=str(path))


def from_frame(frame: DataSource, *, source: str = "data frame") -> Table:
    """The table in a data frame of pandas, Polars, PyArrow or any other that narwhals knows.

    >>> import pandas
    >>> from_frame(pandas.DataFrame({"age": [25, 38]})).rows
    2
    """
    import narwhals

    try:
        known = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        raise TableError(
            "CH312",
            f"a {type(frame).__name__} is not a table that choral can read.",
            fix="Give a path, a data frame, or a pair (features, labels) of arrays.",
        ) from None
    table = Table(source=source, columns={str(name): known[name].to_list() for name in known.columns})
    if not table.rows:
        raise TableError("CH308", "has no rows.", where=source, fix="Give it at least one row.")
    return table


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """What all devices hold, encoded, with the columns that it was encoded by and where those came from."""

    records: Records
    features: tuple[str, ...]
    classes: tuple[str, ...]
    columns_from: Origin
    columns: tuple[Numeric | Categorical, ...] = ()  # none if the features were given as arrays
    notes: tuple[str, ...] = ()


def load(
    source: DataSource,
    *,
    label: str = "label",
    classes: Sequence[str] | None = None,
    columns: Mapping[str, Any] | None = None,
    ignore: Sequence[str] = (),
    device_column: str | None = None,
    devices: int | None = None,
    partition: Partition = "even",
    skew: float = 0.5,
    seed: int = 0,
    delimiter: str = ",",
    columns_from: Literal["declared", "public metadata"] = "declared",
    deployment: bool = False,
) -> Dataset:
    """The devices' records from a file, a glob with one file a device, a data frame, or a pair (features, labels).

    >>> import numpy as np
    >>> load((np.eye(40), np.arange(40) % 2), devices=2).records.sizes.tolist()
    [20, 20]
    """
    if isinstance(source, tuple) and len(source) == 2:
        features, labels, names, origin = _from_arrays(*source)
        tables: list[tuple[str, Table]] = []
        kinds: list[Numeric | Categorical] = []
    else:
        tables = _read(source, delimiter=delimiter)
        kinds, target, origin = _columns_of(
            [table for _, table in tables],
            label=label,
            classes=classes,
            declared=columns or {},
            ignore={*ignore, *([device_column] if device_column else [])},
            origin=columns_from,
            deployment=deployment,
        )
        features = np.concatenate([encode(table, kinds) for _, table in tables])
        labels = np.concatenate([target.codes(table.cells(label), source=table.source) for _, table in tables])
        names = tuple(name for kind in kinds for name in kind.features)
        classes = target.levels
    if len(np.unique(labels)) < 2:
        raise TableError(
            "CH310", f'label "{label}" has only one value in all rows.', fix="Nothing can be learned from it."
        )
    shares = _shares(
        tables, labels, device_column=device_column, devices=devices, partition=partition, skew=skew, seed=seed
    )
    # In the order of their names, which is the order of a roster: a device has the same number everywhere.
    keep = {name: rows for name, rows in sorted(shares.items()) if len(rows) >= FEWEST_ROWS}
    notes = tuple(_too_small(name, len(rows)) for name, rows in shares.items() if name not in keep)
    if not keep:
        largest = max(map(len, shares.values()))
        raise TableError(
            "CH305",
            f"no device has {FEWEST_ROWS} rows (the largest has {largest:,}).",
            fix="Use fewer devices, or give each more rows.",
        )
    class_names = tuple(classes) if classes else tuple(str(code) for code in range(int(labels.max()) + 1))
    records = Records.of(
        [(name, features[rows], labels[rows]) for name, rows in keep.items()], classes=len(class_names)
    )
    return Dataset(
        records=records, features=names, classes=class_names, columns_from=origin, columns=tuple(kinds), notes=notes
    )


def load_adult(*, devices: int = 16, seed: int = 0, partition: Partition = "even", skew: float = 0.5) -> Dataset:
    """UCI Adult, which comes with choral, dealt over devices; its ranges and levels are public metadata.

    >>> load_adult().records.devices
    16
    """
    folder = resources.files("choral.learning") / "adult"
    declared = tomllib.loads((folder / "columns.toml").read_text())
    with resources.as_file(folder / "adult.csv.xz") as path:
        return load(
            path,
            label="income",
            classes=declared["classes"],
            columns=declared["columns"],
            columns_from="public metadata",
            devices=devices,
            partition=partition,
            skew=skew,
            seed=seed,
        )


def _read(source: DataSource, *, delimiter: str) -> list[tuple[str, Table]]:
    """(device name, table) of every file; one table for a data frame."""
    if not isinstance(source, str | Path):
        return [("", from_frame(source))]
    paths = sorted(glob.glob(str(source), recursive=True)) if glob.has_magic(str(source)) else [str(source)]
    if not paths:
        raise TableError("CH300", "matches no file.", where=str(source), fix="Check the pattern in [data].")
    names = [Path(path).name.split(".")[0] for path in paths]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TableError(
            "CH309", f'two files name the device "{twice[0]}".', where=str(source), fix="Rename one of the files."
        )
    is_parquet = [Path(path).suffix in (".parquet", ".pq") for path in paths]
    return [
        (name, read_parquet(path) if parquet else read_csv(path, delimiter=delimiter))
        for name, path, parquet in zip(names, paths, is_parquet, strict=True)
    ]


def _columns_of(
    tables: list[Table],
    *,
    label: str,
    classes: Sequence[str] | None,
    declared: Mapping[str, Any],
    ignore: set[str],
    origin: Origin,
    deployment: bool,
) -> tuple[list[Numeric | Categorical], Categorical, Origin]:
    first = tables[0]
    for table in tables:
        for name in (label, *declared, *ignore):
            table.cells(name)  # CH302 where a table lacks it
    wanted = [name for name in first.columns if name != label and name not in ignore]
    undeclared = [name for name in wanted if name not in declared]
    if deployment and (undeclared or classes is None):
        name = undeclared[0] if undeclared else label
        raise TableError(
            "CH304",
            f'column "{name}" has no declared range or levels.',
            why="Taking them from the rows would reveal them.",
            fix=f"Declare [data.columns.{name}] with bounds = [low, high] or levels = [...]."
            if undeclared
            else 'Declare classes = ["…", "…"] in [data].',
        )
    if undeclared or classes is None:
        origin = "the data"
    source = first.source if len(tables) == 1 else "all files"

    def everywhere(name: str) -> list[Cell]:
        return [cell for table in tables for cell in table.cells(name)]

    kinds = [
        declare(name, declared[name]) if name in declared else infer(name, everywhere(name), source=source)
        for name in wanted
    ]
    levels = classes if classes is not None else sorted({level_of(cell) for cell in everywhere(label)})
    return kinds, Categorical(name=label, levels=tuple(map(level_of, levels))), origin


def encode(table: Table, columns: Sequence[Numeric | Categorical]) -> NDArray[np.float32]:
    """The table's rows as features, by the declared columns."""
    blocks = [column.encode(table.cells(column.name), source=table.source) for column in columns]
    return np.concatenate([np.empty((table.rows, 0), dtype=np.float32), *blocks], axis=1)


def _from_arrays(
    features: DataSource, labels: DataSource
) -> tuple[NDArray[np.float32], NDArray[np.int32], tuple[str, ...], Origin]:
    try:
        matrix, codes = np.asarray(features, dtype=np.float32), np.asarray(labels)
    except (TypeError, ValueError):
        raise TableError("CH312", "features are not numbers.", fix="Encode them first, or give a data frame.") from None
    whole = np.issubdtype(codes.dtype, np.integer) or np.issubdtype(codes.dtype, np.bool_)
    if matrix.ndim != 2 or codes.shape != matrix.shape[:1] or not whole or not matrix.size or codes.min() < 0:
        raise TableError(
            "CH312",
            f"features have shape {matrix.shape} and labels {codes.shape} of {codes.dtype}.",
            fix="Give features as rows × columns and one whole label from 0 a row.",
        )
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise TableError(
            "CH303", f"features: row {row + 1:,} is not finite.", fix="Replace NaN by a constant you choose."
        )
    return matrix, codes.astype(np.int32), tuple(f"x{i}" for i in range(matrix.shape[1])), "declared"


def _shares(
    tables: list[tuple[str, Table]],
    labels: NDArray[np.int32],
    *,
    device_column: str | None,
    devices: int | None,
    partition: Partition,
    skew: float,
    seed: int,
) -> dict[str, NDArray[np.intp]]:
    """Which rows of the joined tables each device holds."""
    if device_column is not None:
        owners = np.array([level_of(cell) for _, table in tables for cell in table.cells(device_column)])
        return {str(name): np.flatnonzero(owners == name) for name in np.unique(owners)}
    if len(tables) > 1:
        ends = np.cumsum([table.rows for _, table in tables])
        return {name: np.arange(end - table.rows, end) for (name, table), end in zip(tables, ends, strict=True)}
    if devices is None:
        raise ConfigError(
            "CH103",
            "one table, but nothing says how many devices share it.",
            fix='Set devices = … in [federation], or device_column = "…" in [data], or give one file a device.',
        )
    dealt = deal(labels, devices=devices, partition=partition, skew=skew, seed=seed)
    width = len(str(devices))
    return {f"device {number:0{width}}": rows for number, rows in enumerate(dealt, start=1)}


def _too_small(name: str, rows: int) -> str:
    return (
        f'CH305 "{name}" has {rows:,} rows, {FEWEST_ROWS} are needed. It sits out; the others go on. '
        "To include it, give it more rows or join it with another device."
    )
