"""Where rows come from, and how they become the records of devices; every fault is refused."""

import glob
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, Faults, TableError
from choral.tables.arrays import SiteArrays, array_features, as_floats, by_way_of_float64, is_arrays, read_site
from choral.tables.cells import OPEN, Cell, Cells, Format, Parts, level_of
from choral.tables.columns import (
    Categorical,
    LabelType,
    Numeric,
    Origin,
    about_columns,
    declare,
    encode,
    infer,
    parse_numbers,
    type_of_classes,
    type_of_labels,
)
from choral.tables.encoder import Encoder
from choral.tables.reading import DataSource, Table, check_kind, from_frame, read_csv, read_parquet, with_guessed_dates
from choral.tables.records import Labels, Partition, Records, holders, names_in

ADULT_LABEL = "income"
_ADULT = resources.files("choral.tables") / "adult"
FEWEST_ROWS = 10  # an 80/10/10 split of fewer rows leaves nothing to validate or test on


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


def load(
    source: DataSource,
    *,
    label: str = "label",
    classes: Sequence[str | int | bool] | None = None,
    label_bounds: Sequence[float] | None = None,
    columns: Mapping[str, Any] | None = None,
    ignore: Sequence[str] = (),
    device_column: str | None = None,
    limit_column: str | None = None,
    person: str | None = None,
    devices: int | None = None,
    partition: Partition = "even",
    skew: float = 0.5,
    seed: int = 0,
    written: Format = OPEN,
    own_labels: Mapping[str, str] | None = None,
    encoder: Encoder | None = None,
    columns_from: Literal["declared", "public metadata"] = "declared",
    deployment: bool = False,
    keep_tables: bool = False,
    guess: bool = False,
) -> Dataset:
    """The devices' records from a file, a glob with one file per device, a data frame, or a pair (features, labels).

    With `label_bounds` the label is a number, scaled like any column; without, it is one of some classes. `person`
    names the column that says whose a row is: rows of one person are dealt to one device. `own_labels` names, for a
    device that predicts something else, the column of its file that is its label. An `encoder` turns each row into
    embeddings, which are the features then. Each row is read by itself, by what is `written` of its table; a simulation
    may `guess` what is left open from the rows, and a note says what it took.

    >>> import numpy as np
    >>> load((np.eye(40), np.arange(40) % 2), devices=2).records.sizes.tolist()
    [20, 20]
    """
    number = None if label_bounds is None else Numeric(name=label, low=label_bounds[0], high=label_bounds[1])
    named = set(filter(None, (device_column, limit_column, person)))
    declared_type = type_of_classes(classes) if classes else None
    if declared_type and isinstance(source, SiteArrays | tuple) and isinstance(next(iter(classes or ())), str):
        declared_type = "text"  # the labels of arrays are numbers, and these are the names that stand for them
    classes = None if classes is None else tuple(map(level_of, classes))
    labels: Labels
    label_type: LabelType
    sites = source if isinstance(source, SiteArrays) else None
    if sites is not None:
        source, classes = (sites.features, sites.labels), sites.classes or classes
    if isinstance(source, tuple) and len(source) == 2:
        if column := device_column or limit_column or person:
            raise ConfigError(
                "CH104",
                f'column "{column}" is named, but arrays have no columns.',
                fix="Give a data frame, or leave device_column, limit_column and person out.",
            )
        features, labels, names, origin = _from_arrays(*source, number)
        tables: list[tuple[str, Table]] = []
        kinds: list[Numeric | Categorical] = []
        looked: tuple[str, ...] = ()
        features = features if encoder is None else encoder.embed(features)
        label_type = declared_type or type_of_labels(np.asarray(source[1])[:1].tolist())
    else:
        tables = labelled(_read(source, written, guess=guess), label, own_labels or {}, columns or {})
        if guess:
            dated = [name for name, said in (columns or {}).items() if "dates" in said]
            tables = [(name, with_guessed_dates(table, written, dated)) for name, table in tables]
        if encoder is not None:
            tables = [(name, encoder.part_of(table, {label, *named}, columns)) for name, table in tables]
        kinds, target, origin, looked = _columns_of(
            [table for _, table in tables],
            label=label,
            classes=classes,
            number=number,
            declared=columns or {},
            ignore={*ignore, *named, *(() if encoder is None or encoder.text is None else encoder.reads)},
            origin=columns_from,
            deployment=deployment,
        )
        encoder = None if encoder is None else replace(encoder, inputs=tuple(kinds))
        features, labels = _encoded([table for _, table in tables], kinds, target, encoder)
        names = tuple(name for kind in kinds for name in kind.features)
        classes = target.levels if isinstance(target, Categorical) else None
        label_type = declared_type or _type_of_rows(tables[0][1].cells(label), classes)
    if encoder is not None:
        features = encoder.scaled(features)
        kinds = [*encoder.columns(features.shape[1])]
        names, looked = tuple(kind.name for kind in kinds), (*looked, *encoder.notes(features.shape[1]))
    if labels.min() == labels.max():
        raise TableError(
            "CH310", f'label "{label}" has only one value in all rows.', fix="Nothing can be learned from it."
        )
    owners = None if person is None else names_in(person, [table for _, table in tables])
    if sites is not None and len(sites.sizes) > 1:
        shares = sites.shares()
    else:
        dealt = {"devices": devices, "partition": partition, "skew": skew, "seed": seed}
        shares = holders(tables, labels, owners, device_column=device_column, **dealt)  # type: ignore[arg-type]
    # In the order of their names, which is the order of a roster: a device has the same number everywhere.
    keep = {name: rows for name, rows in sorted(shares.items()) if len(rows) >= FEWEST_ROWS}
    guesses = [_about_guesses(table) for _, table in tables if table.guessed]
    notes = (*guesses, *looked, *(_too_small(name, len(rows)) for name, rows in shares.items() if name not in keep))
    if not keep:
        largest = max(map(len, shares.values()))
        raise TableError(
            "CH305",
            f"no device has {FEWEST_ROWS} rows (the largest has {largest:,}).",
            fix="Use fewer devices, or give each more rows.",
        )
    class_names = tuple(classes or ())
    if number is None and not classes:
        class_names = tuple(str(code) for code in range(int(labels.max()) + 1))
    if guess:
        absent = sorted(set(range(len(class_names))) - set(np.unique(labels).tolist()))
        notes = (*notes, *(f'no row has the class "{class_names[place]}"' for place in absent))
    return Dataset(
        records=Records.taken(features, labels, keep, classes=len(class_names)),
        features=names,
        classes=class_names,
        columns_from=origin,
        columns=tuple(kinds),
        target=number,
        limits=_limits(tables, limit_column, keep),
        persons=None if owners is None else owners[np.concatenate(list(keep.values()))],
        notes=notes,
        tables=_dealt(tables, keep) if keep_tables else (),
        encoder=encoder,
        label_type=label_type,
    )


def _dealt(tables: list[tuple[str, Table]], shares: Mapping[str, NDArray[np.intp]]) -> tuple[Table, ...]:
    """Each device's own rows, with the columns that every table has."""
    if not tables:
        return ()
    names = [name for name in tables[0][1].columns if all(name in table.columns for _, table in tables)]
    files = dict(tables)
    if all(name in files and files[name].rows == len(rows) for name, rows in shares.items()):
        own = {name: {column: files[name].columns[column] for column in names} for name in shares}
        return tuple(replace(files[name], source=name, columns=columns) for name, columns in own.items())
    written = {replace(table.written, delimiter=None, encoding=None) for _, table in tables}
    if len(written) > 1:
        raise ConfigError(
            "CH104",
            "files that are written differently are dealt over devices.",
            why="Questions read all rows of a device in one way.",
            fix="Write all files alike, or give one file per device.",
        )
    joined = {name: [cell for _, table in tables for cell in table.cells(name)] for name in names}
    return tuple(
        Table(
            source=device,
            columns={name: [cells[row] for row in rows] for name, cells in joined.items()},
            written=tables[0][1].written,
        )
        for device, rows in shares.items()
    )


def read_one(
    path: str | Path,
    written: Format = OPEN,
    *,
    shape: Sequence[int] | None = None,
    label: str = "label",
    classes: Sequence[str] | None = None,
    guess: bool = False,
) -> Table:
    """The table in one site's file, or CH300 for a pattern that matches several.

    It may also be an .npz file, or a folder of images: arrays of the declared `shape`, with the label as a column.
    """
    if is_arrays(path):
        if said := next(iter(written.said), None):
            what = f"{said} is given, which only a table's file can have."
            raise ConfigError("CH104", what, where=str(path), fix=f"Leave {said} out.")
        return read_site(path, shape, label, classes)
    tables = _read(path, written, guess=guess)
    if len(tables) != 1:
        raise TableError("CH300", "matches several files.", where=str(path), fix="A site has one table: give one file.")
    return tables[0][1]


def encode_labels(table: Table, target: Numeric | Categorical) -> Labels:
    """The label of each row of a table: the number of its class, or itself scaled to −1…1."""
    return _labels(target, table)


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
    declared = adult_metadata()
    with resources.as_file(_ADULT / "adult.csv.xz") as path:
        return load(
            path,
            label=ADULT_LABEL,
            classes=declared["classes"],
            columns={**declared["columns"], **(columns or {})},
            columns_from="public metadata",
            devices=devices,
            partition=partition,
            skew=skew,
            seed=seed,
            keep_tables=keep_tables,
        )


def _read(source: DataSource, written: Format, *, guess: bool = False) -> list[tuple[str, Table]]:
    """(device name, table) of every file, or of every data frame of several; one table for one data frame."""
    if isinstance(source, Mapping | list) and source:
        named = source.items() if isinstance(source, Mapping) else enumerate(source, start=1)
        sites = [(str(name) if isinstance(source, Mapping) else f"site-{name}", frame) for name, frame in named]
        if twice := [name for name, count in Counter(name for name, _ in sites).items() if count > 1]:
            raise TableError("CH309", f'two sites have the name "{twice[0]}".', fix="Give each its own name.")
        return [(name, from_frame(frame, written, source=name)) for name, frame in sites]
    if not isinstance(source, str | Path):
        return [("", from_frame(source, written))]
    pattern = glob.has_magic(str(source)) and not Path(source).exists()  # a file's own name may hold brackets
    paths = sorted(glob.glob(str(source), recursive=True)) if pattern else [str(source)]
    if not paths:
        raise TableError("CH300", "matches no file.", where=str(source), fix="Check the pattern in [data].")
    names = [Path(path).name.split(".")[0] for path in paths]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise TableError(
            "CH309", f'two files name the device "{twice[0]}".', where=str(source), fix="Rename one of the files."
        )
    found, faults = [], Faults()
    for name, path in zip(names, map(Path, paths), strict=True):
        with faults:
            check_kind(path)
            parquet = path.suffix in (".parquet", ".pq")
            found.append((name, read_parquet(path, written) if parquet else read_csv(path, written, guess=guess)))
    faults.refuse()
    return found


def _columns_of(
    tables: list[Table],
    *,
    label: str,
    classes: Sequence[str] | None,
    number: Numeric | None,
    declared: Mapping[str, Any],
    ignore: set[str],
    origin: Origin,
    deployment: bool,
) -> tuple[list[Numeric | Categorical], Numeric | Categorical, Origin, tuple[str, ...]]:
    """What the columns are, what the label is, who said so, and what there is to say of it."""
    first, faults = tables[0], Faults()
    for table in tables:
        for name in dict.fromkeys((label, *declared, *sorted(ignore))):
            with faults:
                table.cells(name)  # CH302 where a table lacks it
    faults.refuse()
    others = [name for name in first.columns if name != label and name not in ignore]
    wanted = [name for name in others if name in declared or not declared]  # once one is declared, no other is read
    undeclared = [name for name in wanted if name not in declared]
    known = number is not None or classes is not None
    if deployment and (undeclared or not known):
        name = undeclared[0] if undeclared else label
        raise TableError(
            "CH304",
            f'column "{name}" has no declared range or levels.',
            why="Taking them from the rows would reveal them.",
            fix=f"Declare [data.columns.{name}] with bounds = [low, high] or levels = [...]."
            if undeclared
            else 'Declare classes = ["…", "…"] or label_bounds = [low, high] in [data].',
        )
    if undeclared or not known:
        origin = "the data"
    source = first.source if len(tables) == 1 else "all files"

    taken = {}
    for name in undeclared:
        with faults:
            taken[name] = infer(name, together(tables, name), source=source)
    faults.refuse()
    kinds = [taken[name][0] if name in taken else declare(name, declared[name]) for name in wanted]
    notes = about_columns(
        {name: look.words for name, (_, look) in taken.items()}, [name for name in others if name not in wanted]
    )
    if number is not None:
        return kinds, number, origin, notes
    levels = classes
    if levels is None:  # what is missing is no class, and is refused when the rows are encoded
        parts = together(tables, label)
        levels = sorted({level_of(cell) for cells, by in parts for cell in cells if not by.is_missing(cell)})
    return kinds, Categorical(name=label, levels=tuple(map(level_of, levels))), origin, notes


def together(tables: Sequence[Table], name: str) -> Parts:
    """The cells of one column of all tables, each with the way in which its table is written."""
    return [(table.cells(name), table.written) for table in tables]


def _encoded(
    tables: Sequence[Table],
    kinds: Sequence[Numeric | Categorical],
    target: Numeric | Categorical,
    encoder: Encoder | None,
) -> tuple[NDArray[np.float32], Labels]:
    """Features and labels of all tables; what is wrong with any of them is listed in one go."""
    features, labels, faults = [], [], Faults()
    for table in tables:
        with faults:
            features.append(encode(table, kinds) if encoder is None else encoder.of_table(table))
        with faults:
            labels.append(_labels(target, table))
    faults.refuse()
    return _joined(features), _joined(labels)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts one after the other; of a single one no copy, since it may be most of the memory."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _labels(target: Numeric | Categorical, table: Table) -> Labels:
    """The label of each row: the number of its class, or itself scaled to −1…1."""
    cells = table.cells(target.name)
    if isinstance(target, Categorical):
        return target.codes(cells, source=table.source, written=table.written)
    return target.encode(cells, source=table.source, written=table.written)[:, 0]


def _from_arrays(
    features: DataSource, labels: DataSource, number: Numeric | None
) -> tuple[NDArray[np.float32], Labels, tuple[str, ...], Origin]:
    try:
        matrix, given = np.asarray(by_way_of_float64(features), dtype=np.float32), np.asarray(labels)
    except (TypeError, ValueError):
        raise TableError("CH312", "features are not numbers.", fix="Encode them first, or give a data frame.") from None
    classes = np.issubdtype(given.dtype, np.integer) or np.issubdtype(given.dtype, np.bool_)
    fits = matrix.ndim >= 2 and given.shape == matrix.shape[:1] and matrix.size
    if not fits or (number is None and (not classes or given.min() < 0)):
        raise TableError(
            "CH312",
            f"features have shape {matrix.shape} and labels {given.shape} of {given.dtype}.",
            fix="Give features as rows × columns and one whole label from 0 per row, or label_bounds with numbers.",
        )
    matrix = as_floats(matrix, "")
    codes = given.astype(np.int32) if number is None else number.encode(given.tolist(), source="labels")[:, 0]
    return matrix, codes, array_features(matrix.shape[1:]), "declared"


def _limits(
    tables: list[tuple[str, Table]], column: str | None, shares: Mapping[str, NDArray[np.intp]]
) -> tuple[float, ...]:
    """Each device's limit from a column that holds one number on all rows of a device."""
    if column is None:
        return ()
    parts = [(table.cells(column), table.source, table.written) for _, table in tables]
    numbers = _joined([parse_numbers(cells, source=one, name=column, written=by) for cells, one, by in parts])
    for name, rows in shares.items():
        if numbers[rows].min() <= 0 or numbers[rows].min() != numbers[rows].max():
            raise TableError(
                "CH303",
                f'column "{column}" is not one positive number on all rows of "{name}".',
                fix="Give every row of a device the device's own limit.",
            )
    return tuple(float(numbers[rows[0]]) for rows in shares.values())


def _type_of_rows(cells: Collection[Cell], classes: Sequence[str] | None) -> LabelType:
    """The type of classes that nobody declared: of a frame that of its cells, of a file what others make of it."""
    return type_of_classes(classes or ()) if isinstance(cells, Cells) else type_of_labels(cells)


def _about_guesses(table: Table) -> str:
    return (
        f"guessed from the rows of {Path(table.source).name}, which only a simulation does: {', '.join(table.guessed)}"
    )


def _too_small(name: str, rows: int) -> str:
    return (
        f'CH305 "{name}" has {rows:,} rows, {FEWEST_ROWS} are needed. It sits out; the others go on. '
        "To include it, give it more rows or join it with another device."
    )


def labelled(
    tables: list[tuple[str, Table]], label: str, own: Mapping[str, str], declared: Collection[str]
) -> list[tuple[str, Table]]:
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
