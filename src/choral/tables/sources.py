"""Where rows come from, and how they become the records of devices; every fault is refused."""

import glob
import tomllib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError
from choral.tables.arrays import NPZ, array_features, as_floats, by_way_of_float64, is_arrays, no_arrays, read_site
from choral.tables.cells import OPEN, Cells, Faults, Format, Parts, level_of
from choral.tables.columns import (
    Categorical,
    LabelType,
    Numeric,
    Origin,
    about_columns,
    declare,
    encode,
    infer,
    type_of_classes,
    type_of_labels,
)
from choral.tables.encoder import Encoder
from choral.tables.reading import (
    DataSource,
    Table,
    check_kind,
    from_frame,
    read_csv,
    read_parquet,
    with_guessed_dates,
)
from choral.tables.records import Dealing, Labels, Partition, Records, by, holders, joined, limits_in, names_in

ADULT_LABEL = "income"
_ADULT = resources.files("choral.tables") / "adult"
FEWEST_ROWS = 10  # an 80/10/10 split of fewer rows leaves nothing to validate or test on
NamedTables = list[tuple[str, Table]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """What all devices hold, encoded, with the columns that it was encoded by and where those came from."""

    records: Records
    features: tuple[str, ...]
    classes: tuple[str, ...]  # none where the label is a number
    columns_from: Origin
    columns: tuple[Numeric | Categorical, ...] = ()  # none if the features were given as arrays
    target: Numeric | None = None  # how the label is scaled, where it is a number
    limits: tuple[float, ...] = ()  # each device's own ε, where a column names it
    persons: NDArray[Any] | None = None  # whose each row of the records is, where a column says so
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()  # each device's rows as they are, where somebody wants to ask about them
    encoder: Encoder | None = None  # what made the features out of the rows, where they are embeddings
    label_type: LabelType = "text"

    @property
    def label_bounds(self) -> tuple[float, float] | None:
        """The range of the label, where it is a number."""
        return None if self.target is None else (self.target.low, self.target.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """How rows are read, wherever they come from: all that a study pins, and nothing of any row.

    With `label_bounds` the label is a number, scaled like any column; without, it is one of some classes. `person`
    names the column that says whose a row is: rows of one person are dealt to one device. `own_labels` names, for a
    device that predicts something else, the column of its file that is its label. An `encoder` turns each row into
    embeddings, which are the features then. Each row is read by itself, by what is `written` of its table; a simulation
    may `guess` what is left open from the rows, and a note says what it took. A `deployment` takes nothing from rows.
    """

    label: str = "label"
    classes: Sequence[str | int | bool] | None = None
    label_bounds: Sequence[float] | None = None
    columns: Mapping[str, Any] | None = None
    ignore: Sequence[str] | None = None
    device_column: str | None = None
    limit_column: str | None = None
    person: str | None = None
    row_shape: Sequence[int] | None = None
    written: Format = OPEN
    own_labels: Mapping[str, str] | None = None
    encoder: Encoder | None = None
    columns_from: Origin = "declared"
    deployment: bool = False
    guess: bool = False

    @property
    def levels(self) -> tuple[str, ...] | None:
        """The classes as texts, where they are declared."""
        return None if self.classes is None else tuple(map(level_of, self.classes))

    @property
    def target(self) -> Numeric | Categorical | None:
        """The label as it is declared; None where only the rows tell its classes."""
        if self.label_bounds is not None:
            return Numeric(name=self.label, low=self.label_bounds[0], high=self.label_bounds[1])
        return None if self.levels is None else Categorical(name=self.label, levels=self.levels)

    @property
    def own_columns(self) -> set[str]:
        """The columns that say whose a row is, or what its device allows."""
        return set(filter(None, (self.device_column, self.limit_column, self.person)))

    def table_in(self, path: str | Path) -> Table:
        """The table in one file: CSV, Parquet, an .npz file, or a folder of images."""
        path = Path(path)
        if is_arrays(path):
            if said := next(iter(self.written.said), None):
                what = f"{said} is given, which only a table's file can have."
                raise ConfigError("CH104", what, where=str(path), fix=f"Leave {said} out.")
            return read_site(path, self.row_shape, self.label, self.levels)
        check_kind(path)
        if path.suffix in (".parquet", ".pq"):
            return read_parquet(path, self.written)
        return read_csv(path, self.written, guess=self.guess)

    def tables_of(self, source: "Source") -> NamedTables:
        """The tables of a source by device, each with its device's label in its place and the columns that are read."""
        tables = source.tables(self)
        if tables[0][1].arrays is not None:
            return tables
        tables = labelled(tables, self.label, self.own_labels or {}, self.columns or {})
        if self.guess:
            dated = [name for name, said in (self.columns or {}).items() if "dates" in said]
            tables = [(name, with_guessed_dates(table, self.written, dated)) for name, table in tables]
        if self.encoder is None:
            return tables
        names = {self.label, *self.own_columns}
        return [(name, self.encoder.part_of(table, names, self.columns)) for name, table in tables]

    def label_type(self, table: Table, target: Categorical) -> LabelType:
        """The type of the classes: as declared, of a frame or of arrays that of its cells, else what others make of it.

        Labels of arrays are numbers, and declared texts are names that stand for them.
        """
        if self.classes:
            of_names = table.arrays is not None and isinstance(next(iter(self.classes)), str)
            return "text" if of_names else type_of_classes(self.classes)
        cells = table.cells(self.label)
        return type_of_classes(target.levels) if isinstance(cells, Cells) else type_of_labels(cells)


class Source(ABC):
    """A value that says where rows come from. A plug-in for another place is a subclass with one method."""

    @abstractmethod
    def tables(self, how: Reading) -> NamedTables:
        """Each device's name with its table; a single table without a name is dealt over devices."""


@dataclass(frozen=True)
class Files(Source):
    """A file, or a pattern that matches one file per device: CSV, Parquet or .npz."""

    pattern: str | Path

    def tables(self, how: Reading) -> NamedTables:
        """Read each file once; what is wrong with any of them is listed in one go."""
        found, faults = [], Faults()
        for name, path in matching(self.pattern).items():
            with faults:
                table = how.table_in(path)
                if path.suffix.lower() == NPZ and not table.columns:
                    raise no_arrays(path)
                if path.suffix.lower() == NPZ and how.target is None:  # labels are the places of classes then
                    table = replace(table, columns={how.label: np.asarray([*table.cells(how.label)])})
                found.append((name, table))
        faults.refuse()
        return found


@dataclass(frozen=True)
class ImageFolders(Source):
    """Images: one folder per device, in it one folder for each class. Needs the extra `choral[images]`.

    Each image is brought to the declared shape, height × width in grey or height × width × 3 in colour, and to numbers
    in −1…1.
    """

    pattern: str | Path

    def tables(self, how: Reading) -> NamedTables:
        """Read the folders that hold images in folders of classes; others are no devices."""
        folders = {name: path for name, path in matching(self.pattern).items() if path.is_dir()}
        found = [
            (name, read_site(path, how.row_shape, how.label, how.levels))
            for name, path in folders.items()
            if any(one.is_file() for kind in path.iterdir() if kind.is_dir() for one in kind.iterdir())
        ]
        if not found:
            fix = "Give one folder per device, with a folder per class."
            raise TableError("CH300", "holds no images.", where=str(self.pattern), fix=fix)
        return found


@dataclass(frozen=True, eq=False)
class Frames(Source):
    """A data frame, or several by the names of their sites or in their order."""

    frames: DataSource

    def tables(self, how: Reading) -> NamedTables:
        """Read each frame as its texts are written."""
        if isinstance(self.frames, Mapping) and self.frames:
            sites = [(str(name), frame) for name, frame in self.frames.items()]
        elif isinstance(self.frames, list) and self.frames:
            sites = [(f"site-{number}", frame) for number, frame in enumerate(self.frames, start=1)]
        else:
            return [("", from_frame(self.frames, how.written))]
        if twice := [name for name, count in Counter(name for name, _ in sites).items() if count > 1]:
            raise TableError("CH309", f'two sites have the name "{twice[0]}".', fix="Give each its own name.")
        return [(name, from_frame(frame, how.written, source=name)) for name, frame in sites]


@dataclass(frozen=True, eq=False)
class Arrays(Source):
    """Features as rows × anything, and one label per row: the place of its class from 0, or a number."""

    features: DataSource
    labels: DataSource

    def tables(self, how: Reading) -> NamedTables:
        """One table whose rows are arrays."""
        try:
            matrix, given = np.asarray(by_way_of_float64(self.features), dtype=np.float32), np.asarray(self.labels)
        except (TypeError, ValueError):
            fix = "Encode them first, or give a data frame."
            raise TableError("CH312", "features are not numbers.", fix=fix) from None
        if matrix.ndim < 2 or given.shape != matrix.shape[:1] or not matrix.size:
            raise _do_not_fit(matrix, given)
        if how.label_bounds is None:
            _check_places(matrix, given)
        labels = given if how.label_bounds is None else given.tolist()
        return [("", Table(source="rows", columns={how.label: labels}, arrays=as_floats(matrix, "")))]


def source_of(given: DataSource) -> Source:
    """What somebody gave as a source: a path, a glob, a data frame, several of them, or a pair (features, labels)."""
    if isinstance(given, Source):
        return given
    if isinstance(given, str | Path):
        return Files(given)
    return Arrays(*given) if isinstance(given, tuple) and len(given) == 2 else Frames(given)


def matching(pattern: str | Path) -> dict[str, Path]:
    """The files or folders that a pattern matches, by the names of their devices; a name may itself hold brackets."""
    is_pattern = glob.has_magic(str(pattern)) and not Path(pattern).exists()
    paths = [Path(path) for path in (sorted(glob.glob(str(pattern), recursive=True)) if is_pattern else [str(pattern)])]
    if not paths:
        raise TableError("CH300", "matches no file.", where=str(pattern), fix="Check the pattern in [data].")
    names = [path.name.split(".")[0] for path in paths]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise TableError(
            "CH309", f'two files name the device "{twice[0]}".', where=str(pattern), fix="Rename one of the files."
        )
    return dict(zip(names, paths, strict=True))


def read(source: Source, how: Reading, dealing: Dealing, *, keep_tables: bool = False) -> Dataset:
    """The devices' records from a source: columns encoded as declared, rows shared out, and every fault refused."""
    tables = how.tables_of(source)
    whole = [table for _, table in tables]
    found = _of_columns(whole, how) if whole[0].arrays is None else _of_arrays(whole, how)
    encoder = None if how.encoder is None else replace(how.encoder, inputs=found.columns)
    features, labels = _encoded(whole, found, encoder)
    columns, notes = found.columns, found.notes
    if encoder is not None:
        columns, notes = encoder.columns(features.shape[1]), (*notes, *encoder.notes(features.shape[1]))
    if labels.min() == labels.max():
        raise TableError(
            "CH310", f'label "{how.label}" has only one value in all rows.', fix="Nothing can be learned from it."
        )
    owners = None if how.person is None else names_in(how.person, whole)
    shares = holders(tables, labels, owners, how.device_column, dealing)
    # In the order of their names, which is the order of a roster: a device has the same number everywhere.
    keep = {name: rows for name, rows in sorted(shares.items()) if len(rows) >= FEWEST_ROWS}
    if not keep:
        raise TableError(
            "CH305",
            f"no device has {FEWEST_ROWS} rows (the largest has {max(map(len, shares.values())):,}).",
            fix="Use fewer devices, or give each more rows.",
        )
    classes = found.target.levels if isinstance(found.target, Categorical) else ()
    absent = sorted(set(range(len(classes))) - set(np.unique(labels).tolist())) if how.guess else []
    return Dataset(
        records=Records.taken(features, labels, keep, classes=len(classes)),
        features=tuple(name for one in columns for name in one.features) or array_features(features.shape[1:]),
        classes=classes,
        columns_from=found.origin,
        columns=columns,
        target=found.target if isinstance(found.target, Numeric) else None,
        limits=limits_in(how.limit_column, whole, keep),
        persons=None if owners is None else owners[np.concatenate(list(keep.values()))],
        notes=(
            *(_about_guesses(table) for table in whole if table.guessed),
            *notes,
            *(_too_small(name, len(rows)) for name, rows in shares.items() if name not in keep),
            *(f'no row has the class "{classes[place]}"' for place in absent),
        ),
        tables=_dealt(tables, keep) if keep_tables and whole[0].arrays is None else (),
        encoder=encoder,
        label_type="text" if isinstance(found.target, Numeric) else how.label_type(whole[0], found.target),
    )


class LoadOptions(TypedDict, total=False):
    """All that says how rows are read, by the names of Reading, and how they are dealt over devices."""

    label: str
    classes: Sequence[str | int | bool] | None
    label_bounds: Sequence[float] | None
    columns: Mapping[str, Any] | None
    ignore: Sequence[str]
    device_column: str | None
    limit_column: str | None
    person: str | None
    row_shape: Sequence[int] | None
    written: Format
    own_labels: Mapping[str, str] | None
    encoder: Encoder | None
    columns_from: Origin
    deployment: bool
    guess: bool
    devices: int | None
    partition: Partition
    skew: float
    seed: int


def load(source: DataSource, *, keep_tables: bool = False, **options: Unpack[LoadOptions]) -> Dataset:
    """The devices' records from a file, a glob with one file per device, a data frame, or a pair (features, labels).

    The options are the fields of `Reading`, which say how rows are read, and of `Dealing`: devices, partition, skew
    and seed.

    >>> import numpy as np
    >>> load((np.eye(40), np.arange(40) % 2), devices=2).records.sizes.tolist()
    [20, 20]
    """
    dealt = {name: value for name, value in options.items() if name in Dealing.__dataclass_fields__}
    how = {name: value for name, value in options.items() if name not in dealt}
    return read(source_of(source), Reading(**how), Dealing(**dealt), keep_tables=keep_tables)  # type: ignore[arg-type]


def read_one(path: str | Path, how: Reading | None = None) -> Table:
    """The table in one site's file, or CH300 for a pattern that matches several.

    It may also be an .npz file, or a folder of images: arrays of the declared shape, with the label as a column.
    """
    paths = [Path(path)] if is_arrays(path) else [*matching(path).values()]
    if len(paths) != 1:
        raise TableError("CH300", "matches several files.", where=str(path), fix="A site has one table: give one file.")
    return (how or Reading()).table_in(paths[0])


def encode_labels(table: Table, target: Numeric | Categorical) -> Labels:
    """The label of each row of a table: the number of its class, or itself scaled to −1…1."""
    cells = table.cells(target.name)
    if isinstance(target, Numeric):
        return target.encode(cells, source=table.source, written=table.written)[:, 0]
    if isinstance(cells, np.ndarray):  # of arrays: the places of classes themselves
        return cells.astype(np.int32)
    return target.codes(cells, source=table.source, written=table.written)


def adult_metadata() -> dict[str, Any]:
    """The public metadata of UCI Adult: what its columns and its classes are.

    >>> adult_metadata()["classes"]
    ['<=50K', '>50K']
    """
    return tomllib.loads((_ADULT / "columns.toml").read_text())


def load_adult(
    *,
    devices: int = 16,
    seed: int = 0,
    partition: Partition = "even",
    skew: float = 0.5,
    columns: Mapping[str, Any] | None = None,
    keep_tables: bool = False,
) -> Dataset:
    """UCI Adult, which comes with choral, dealt over devices; its ranges and levels are public metadata.

    `columns` declares some of them otherwise.

    >>> load_adult(columns={"age": {"bounds": [15, 65]}}).records.devices
    16
    """
    public = adult_metadata()
    declared = {**public["columns"], **(columns or {})}
    how = Reading(label=ADULT_LABEL, classes=public["classes"], columns=declared, columns_from="public metadata")
    dealing = Dealing(devices=devices, partition=partition, skew=skew, seed=seed)
    with resources.as_file(_ADULT / "adult.csv.xz") as path:
        return read(Files(path), how, dealing, keep_tables=keep_tables)


@dataclass(frozen=True, kw_only=True)
class _Described:
    """What the columns are, what the label is, who said so, and what there is to say of it."""

    columns: tuple[Numeric | Categorical, ...]
    target: Numeric | Categorical
    origin: Origin = "declared"
    notes: tuple[str, ...] = field(default=())


def _of_columns(tables: Sequence[Table], how: Reading) -> _Described:
    """Tables by their declared columns; what nobody has declared is taken from the rows, except in deployments."""
    first, declared, faults = tables[0], how.columns or {}, Faults()
    by_encoder = () if how.encoder is None or how.encoder.text is None else how.encoder.reads
    ignore = {*(how.ignore or ()), *how.own_columns, *by_encoder}
    for table in tables:
        for name in dict.fromkeys((how.label, *declared, *sorted(ignore))):
            with faults:
                table.cells(name)  # CH302 where a table lacks it
    faults.refuse()
    others = [name for name in first.columns if name != how.label and name not in ignore]
    wanted = [name for name in others if name in declared or not declared]  # once one is declared, no other is read
    undeclared, target = [name for name in wanted if name not in declared], how.target
    if how.deployment and (undeclared or target is None):
        raise TableError(
            "CH304",
            f'column "{undeclared[0] if undeclared else how.label}" has no declared range or levels.',
            why="Taking them from the rows would reveal them.",
            fix=f"Declare [data.columns.{undeclared[0]}] with bounds = [low, high] or levels = [...]."
            if undeclared
            else 'Declare classes = ["…", "…"] or label_bounds = [low, high] in [data].',
        )
    source, taken = first.source if len(tables) == 1 else "all files", {}
    for name in undeclared:
        with faults:
            taken[name] = infer(name, together(tables, name), source=source)
    faults.refuse()
    origin: Origin = "the data" if undeclared or target is None else how.columns_from
    if target is None:  # what is missing is no class, and is refused when the rows are encoded
        parts = together(tables, how.label)
        levels = {level_of(cell) for cells, written in parts for cell in cells if not written.is_missing(cell)}
        target = Categorical(name=how.label, levels=tuple(sorted(levels)))
    return _Described(
        columns=tuple(taken[name][0] if name in taken else declare(name, declared[name]) for name in wanted),
        target=target,
        origin=origin,
        notes=about_columns(
            {name: look.words for name, (_, look) in taken.items()}, [name for name in others if name not in wanted]
        ),
    )


def _of_arrays(tables: Sequence[Table], how: Reading) -> _Described:
    """Arrays of one shape, whose labels are classes by their places where nobody has declared them."""
    if column := how.device_column or how.limit_column or how.person:
        raise ConfigError(
            "CH104",
            f'column "{column}" is named, but arrays have no columns.',
            fix="Give a data frame, or leave device_column, limit_column and person out.",
        )
    arrays = [table.arrays for table in tables if table.arrays is not None]
    shapes = sorted({one.shape[1:] for one in arrays})
    if len(shapes) > 1 or len(arrays) < len(tables):
        other = f"{by(shapes[1])} in another" if len(shapes) > 1 else "columns in another"
        what = f"rows have {by(shapes[0])} features in one file and {other}."
        raise TableError("CH317", what, fix="Give rows of one shape.")
    target = how.target
    if target is None:
        labels = np.concatenate([np.asarray(table.cells(how.label)) for table in tables])
        if isinstance(tables[0].cells(how.label), np.ndarray):
            _check_places(arrays[0], labels)
            target = Categorical(name=how.label, levels=tuple(map(str, range(int(labels.max()) + 1))))
        else:  # the names of folders
            target = Categorical(name=how.label, levels=tuple(sorted(set(labels.tolist()))))
    return _Described(columns=(), target=target)


def _check_places(features: NDArray[Any], labels: NDArray[Any]) -> None:
    if labels.dtype.kind not in "iub" or not labels.size or labels.min() < 0:
        raise _do_not_fit(features, labels)


def _do_not_fit(features: NDArray[Any], labels: NDArray[Any]) -> TableError:
    return TableError(
        "CH312",
        f"features have shape {features.shape} and labels {labels.shape} of {labels.dtype}.",
        fix="Give features as rows × columns and one whole label from 0 per row, or label_bounds with numbers.",
    )


def together(tables: Sequence[Table], name: str) -> Parts:
    """The cells of one column of all tables, each with the way in which its table is written."""
    return [(table.cells(name), table.written) for table in tables]


def _encoded(tables: Sequence[Table], found: _Described, encoder: Encoder | None) -> tuple[NDArray[np.float32], Labels]:
    """Features and labels of all tables; what is wrong with any of them is listed in one go."""
    features, labels, faults = [], [], Faults()
    for table in tables:
        with faults:
            features.append(features_of(table, found.columns, encoder))
        with faults:
            labels.append(encode_labels(table, found.target))
    faults.refuse()
    return joined(features), joined(labels)


def features_of(
    table: Table, columns: Sequence[Numeric | Categorical], encoder: Encoder | None = None
) -> NDArray[np.float32]:
    """The rows of a table as a model takes them: declared columns, arrays as they are, or scaled embeddings."""
    if encoder is not None:
        return encoder.scaled(encoder.of_table(table))
    return encode(table, columns) if table.arrays is None else table.arrays


def _dealt(tables: NamedTables, shares: Mapping[str, NDArray[np.intp]]) -> tuple[Table, ...]:
    """Each device's own rows, with the columns that every table has."""
    names = [name for name in tables[0][1].columns if all(name in table.columns for _, table in tables)]
    files = dict(tables)
    if all(name in files and files[name].rows == len(rows) for name, rows in shares.items()):
        own = {name: {column: files[name].columns[column] for column in names} for name in shares}
        return tuple(replace(files[name], source=name, columns=columns) for name, columns in own.items())
    if len({replace(table.written, delimiter=None, encoding=None) for _, table in tables}) > 1:
        raise ConfigError(
            "CH104",
            "files that are written differently are dealt over devices.",
            why="Questions read all rows of a device in one way.",
            fix="Write all files alike, or give one file per device.",
        )
    whole = {name: [cell for _, table in tables for cell in table.cells(name)] for name in names}
    return tuple(
        Table(
            source=device,
            columns={name: [cells[row] for row in rows] for name, cells in whole.items()},
            written=tables[0][1].written,
        )
        for device, rows in shares.items()
    )


def _about_guesses(table: Table) -> str:
    return (
        f"guessed from the rows of {Path(table.source).name}, which only a simulation does: {', '.join(table.guessed)}"
    )


def _too_small(name: str, rows: int) -> str:
    return (
        f'CH305 "{name}" has {rows:,} rows, {FEWEST_ROWS} are needed. It sits out; the others go on. '
        "To include it, give it more rows or join it with another device."
    )


def labelled(tables: NamedTables, label: str, own: Mapping[str, str], declared: Collection[str]) -> NamedTables:
    """The tables by device, each with its device's own column in the label's place.

    >>> table = Table(source="t", columns={"age": [1], "died": [0]})
    >>> labelled([("north", table)], "outcome", {"north": "died"}, ["age"])[0][1].columns
    {'age': [1], 'outcome': [0]}
    """
    known = {name for name, _ in tables}
    if stranger := next((name for name in own if name not in known), None):
        raise ConfigError(
            "CH102",
            f'[data.labels] names "{stranger}", which has no file.',
            fix=f"Devices have the names of their files: {', '.join(sorted(known)[:8])}.",
        )
    return [(name, with_outcome(table, label, own.get(name), declared, own.values())) for name, table in tables]


def with_outcome(
    table: Table, label: str, own: str | None, declared: Collection[str], others: Collection[str] = ()
) -> Table:
    """The table with its own column in the label's place, if it has one; what `others` have there is left out."""
    if own is None and not others:
        return table
    if own in declared:
        raise ConfigError(
            "CH102",
            f'the label "{own}" is a declared column.',
            why="A model that reads its own label learns nothing else.",
            fix="Name a column that the study does not read.",
        )
    left_out = {label, own, *others}
    cells = table.cells(label if own is None else own)
    kept = {name: column for name, column in table.columns.items() if name not in left_out}
    return replace(table, columns={**kept, label: cells})
