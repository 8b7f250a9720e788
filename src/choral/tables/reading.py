"""Tables as people have them: CSV or Parquet files and data frames; read whole, judged strictly, never printed."""

import codecs
import csv
import gzip
import hashlib
import io
import lzma
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from choral.core.errors import ConfigError, TableError
from choral.tables.cells import EMPTY, OPEN, Cell, Cells, Format, order_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_DELIMITERS = (",", ";", "\t", "|")
UTF_8, _WINDOWS = "utf-8-sig", "cp1252"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # the first bytes of a file that says what it is
_OTHER_PROGRAMS = {
    ".xlsx": "Excel", ".xlsm": "Excel", ".xlsb": "Excel", ".xls": "Excel", ".ods": "LibreOffice", ".sav": "SPSS",
    ".dta": "Stata", ".sas7bdat": "SAS", ".rds": "R", ".rdata": "R", ".feather": "Arrow",
}  # fmt: skip
BLOCK = 500  # rows that are lists at a time: with more of them, the garbage collector looks for cycles in each
DataSource: TypeAlias = Any  # a path, a glob, a data frame, or a pair (features, labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Named columns of cells and where they came from; its repr shows neither cells nor names of people.

    Where rows are `arrays`, of images for example, the label is the only column, if they have one. `written` says how
    each cell is read; what a simulation `guessed` of that from the rows is listed in words.
    """

    source: str
    columns: Mapping[str, Collection[Cell]] = field(repr=False)
    arrays: "NDArray[np.float32] | None" = field(default=None, repr=False)
    written: Format = OPEN
    guessed: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.columns.values()), ())) if self.arrays is None else len(self.arrays)

    def cells(self, name: str) -> Collection[Cell]:
        """One column's cells, or CH302 with the closest name."""
        if name not in self.columns:
            fix = _closest(name, list(self.columns)) if self.arrays is None else "Arrays have labels, and no columns."
            raise TableError("CH302", f'has no column "{name}".', where=self.source, fix=fix)
        return self.columns[name]

    def digest(self, names: Sequence[str], *, ordered: bool = True) -> str:
        """SHA-256 of the cells of these columns, in hex: of the rows in their order, or of the rows in any order.

        >>> one, other = (Table(source="t", columns={"age": ages}) for ages in (["25", "38"], ["38", "25"]))
        >>> one.digest(["age"]) == other.digest(["age"]), one.digest(["age"], ordered=False) == other.digest(
        ...     ["age"], ordered=False)
        (False, True)
        """
        rows = self.row_digests(names)
        read = tuple(names) if self.arrays is None else (*names, self.arrays.shape[1:])
        whole = hashlib.sha256(repr(read).encode())
        for row in rows if ordered else sorted(rows):
            whole.update(row)
        return whole.hexdigest()

    def row_digests(self, names: Sequence[str]) -> Iterator[bytes]:
        """SHA-256 of each row: of its cells in these columns, and of its array if it has one."""
        if self.arrays is None:
            for row in zip(*(self.cells(name) for name in names), strict=True):
                yield hashlib.sha256(repr(row).encode()).digest()
            return
        cells = [self.cells(name) for name in names]
        for array, *own in zip(self.arrays, *cells, strict=True):
            yield hashlib.sha256(array.tobytes() + repr(tuple(own)).encode()).digest()


def _closest(name: str, known: list[str]) -> str:
    import difflib

    by_folded = {other.casefold(): other for other in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.5)
    if close:
        return f'Closest: "{by_folded[close[0]]}".'
    return f"It has: {', '.join(known[:12])}{', …' if len(known) > 12 else ''}."


def _named_twice(source: str) -> TableError:
    return TableError("CH302", "has a column name that is empty or occurs twice.", where=source, fix="Rename it.")


def _open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked."""
    packed: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
    opened: IO[bytes] = packed.get(path.suffix, open)(path, "rb")
    return opened


def check_kind(path: Path) -> None:
    """Nothing, or CH329 for a file whose name says that another program wrote it in its own format.

    >>> check_kind(Path("site.csv"))
    """
    program = _OTHER_PROGRAMS.get(path.suffix.lower())
    if program is not None:
        raise TableError(
            "CH329",
            f"is a {path.suffix.lower()} file of {program}.",
            where=str(path),
            fix="Save it as CSV (UTF-8) there, or as Parquet, and give that file.",
        )


def read_rows(path: Path, delimiter: str = ",", encoding: str = UTF_8) -> Iterator[list[str]]:
    """The lines of a CSV file (also .csv.gz, .csv.xz) as lists of cells, the header first.

    A quotation mark may stand in a quoted cell only: elsewhere, a mark in one row could begin a cell that swallows the
    rows after it.
    """
    check_kind(path)
    lines: list[str] = []  # of the row that is being read
    try:
        with _open_bytes(path) as opened, io.TextIOWrapper(opened, encoding=encoding, newline="") as text:
            for number, row in enumerate(csv.reader(_kept(text, lines), delimiter=delimiter, strict=True)):
                if any('"' in line for line in lines) and not _quoted_rows(delimiter).fullmatch("".join(lines)):
                    raise _stray_mark(path, number)
                lines.clear()
                yield row
    except FileNotFoundError:
        raise TableError("CH300", "is not there.", where=str(path), fix="Check the path.") from None
    except UnicodeError:
        raise _no_text(path, encoding, _first_bad_line(path, encoding)) from None
    except (csv.Error, OSError, EOFError, lzma.LZMAError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is not well-formed CSV"
        raise TableError("CH300", f"can't be read: {reason}.", where=str(path), fix="Check the file.") from None
    except (TypeError, ValueError):  # of csv.reader, about its one setting
        raise ConfigError(
            "CH102", f"delimiter = {delimiter!r}.", where=str(path), fix="Must be one character, such as ; in quotes."
        ) from None


def _kept(lines: Iterable[str], kept: list[str]) -> Iterator[str]:
    """The lines, each of them also put into the list."""
    for line in lines:
        kept.append(line)
        yield line


@lru_cache
def _quoted_rows(delimiter: str) -> re.Pattern[str]:
    """A row whose quotation marks begin and end cells, or stand twice in a quoted one."""
    between = re.escape(delimiter)
    cell = rf'(?:"[^"]*(?:""[^"]*)*"|[^"{between}\r\n]*)'
    return re.compile(rf"{cell}(?:{between}{cell})*(?:\r\n|\n|\r)?")


def _stray_mark(path: Path, row: int) -> TableError:
    return TableError(
        "CH300",
        f"can't be read: row {row:,} has a quotation mark inside a cell that is not quoted.",
        where=str(path),
        fix='Write the cell as "5"" pipe", in quotes and with the mark twice, as R, pandas and Excel do.',
    )


def _no_text(path: Path, encoding: str, line: int) -> TableError:
    return TableError(
        "CH307",
        f"is not {'UTF-8' if encoding == UTF_8 else encoding} text (line {line:,}).",
        where=str(path),
        fix="Save it as UTF-8, or say what it is: encoding in [data]; for choral device approve and predict, "
        "--encoding",
    )


def _first_bad_line(path: Path, encoding: str) -> int:
    """The number of the first line with bytes that are no text in this encoding."""
    with _open_bytes(path) as opened, io.TextIOWrapper(opened, encoding=encoding, errors="replace") as text:
        return next((number for number, line in enumerate(text, start=1) if "\ufffd" in line), 1)


def _marked(path: Path) -> str | None:
    """UTF-16 where the first bytes of a file say so."""
    try:
        with _open_bytes(path) as opened:
            return _MARKS.get(opened.read(2))
    except (OSError, EOFError, lzma.LZMAError):
        return None  # said when the file is read


def _guessed_encoding(path: Path) -> str:
    """UTF-8 where all bytes are; else that of Windows, if it has all bytes. For simulations: any row decides it.

    Text in another encoding is hardly ever well-formed UTF-8. Who has Latin-1 with bytes that Windows lacks says so.
    """
    try:
        return next((one for one in (UTF_8, _WINDOWS) if _is_text_in(one, path)), UTF_8)
    except (OSError, EOFError, lzma.LZMAError):
        return UTF_8  # said when the file is read, as is the line of bytes that are no text


def _is_text_in(encoding: str, path: Path) -> bool:
    """Whether all bytes of a file are text in this encoding; zeros are in no text."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with _open_bytes(path) as opened:
        try:
            for piece in iter(partial(opened.read, 2**20), b""):
                if b"\0" in piece:
                    return False
                if not piece.isascii() or decoder.getstate()[0]:
                    decoder.decode(piece)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def resolved(path: Path, given: Format = OPEN, *, guess: bool = False) -> Format:
    r"""How a CSV file is written: as is said, and what is left open by its first bytes and its header line alone.

    No row below the header has a part in it, so none decides how the others are read. Only where a simulation may
    `guess` is a file that is not UTF-8 taken for Windows' encoding.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "ages.csv")
    >>> _ = path.write_text("age;bmi\n25;27,5\n")
    >>> found = resolved(path)
    >>> found.delimiter, found.decimal, found.encoding, found.dates
    (';', ',', 'utf-8-sig', 'iso')
    """
    encoding = given.encoding or _marked(path) or (_guessed_encoding(path) if guess else UTF_8)
    delimiter = given.delimiter or _delimiter_of(path, encoding)
    usual = {"decimal": "." if delimiter == "," else ",", "dates": "iso", "empty": EMPTY}
    return given.over(Format(delimiter=delimiter, encoding=encoding, **usual))  # type: ignore[arg-type]


def _delimiter_of(path: Path, encoding: str) -> str:
    """What divides the header line into the most names; a comma where nothing does."""
    widths = {}
    for delimiter in _DELIMITERS:
        with suppress(TableError):  # said when the file is read
            widths[delimiter] = len(next(read_rows(path, delimiter, encoding), []))
    return max(widths, key=widths.__getitem__, default=_DELIMITERS[0])


def read_csv(path: str | Path, given: Format = OPEN, *, guess: bool = False) -> Table:
    r"""The table in a CSV file (also .csv.gz, .csv.xz) with a header line; what is not said of its format is found.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "ages.csv")
    >>> _ = path.write_text("age,income\n25,low\n")
    >>> read_csv(path).rows
    1
    """
    path = Path(path)
    written = resolved(path, given, guess=guess)
    encoding = written.encoding or UTF_8
    lines = read_rows(path, written.delimiter or ",", encoding)
    header = [name.strip() for name in next(lines, [])]
    if "\0" in "".join(header):  # UTF-16 without its mark: such bytes are well-formed UTF-8
        raise _no_text(path, encoding, 1)
    if not header:
        raise TableError("CH308", "is empty.", where=str(path), fix="It needs a header line and at least one row.")
    if len(set(header)) != len(header) or "" in header:
        raise _named_twice(str(path))
    columns, done = {name: Cells() for name in header}, 0
    while block := list(islice(lines, BLOCK)):
        rows = list(filter(None, block))  # without blank lines, as many editors leave them at the end
        if set(map(len, rows)) - {len(header)}:
            number, cells_there = next((n, len(row)) for n, row in enumerate(rows, done + 1) if len(row) != len(header))
            raise TableError(
                "CH306",
                f"row {number:,} has {cells_there} cells, the header has {len(header)}.",
                where=str(path),
                fix="Quote cells that hold the delimiter, or say another one; at a site, device approve … --delimiter",
            )
        done += len(rows)
        for cells, column in zip(columns.values(), zip(*rows, strict=True), strict=bool(rows)):
            cells.add(column)
    if not done:
        raise TableError("CH308", "has a header but no rows.", where=str(path), fix="Give it at least one row.")
    guessed = (f"encoding {encoding}",) if guess and encoding == _WINDOWS != given.encoding else ()
    return Table(source=str(path), columns=columns, written=written, guessed=guessed)


def with_guessed_dates(table: Table, given: Format, names: Collection[str]) -> Table:
    """The table with the order of day and month that its dates in these columns show; for simulations only.

    CH316 where they do not show it. One row can decide it for all others, so where a promise is made it must be said.
    """
    if given.dates is not None or not names:
        return table
    cells = [table.cells(name) for name in names if name in table.columns]
    order = order_of(cell for cell in chain.from_iterable(cells) if isinstance(cell, str))
    if order is None:
        raise TableError(
            "CH316",
            f'column "{next(iter(names))}": its dates do not show whether the day or the month comes first.',
            where=table.source,
            why="A guess would exchange days and months without anybody noticing.",
            fix='Say dates = "day first" or "month first" (choral device approve … --dates), or write 2024-01-31.',
        )
    if order == "iso":
        return table
    return replace(table, written=replace(table.written, dates=order), guessed=(*table.guessed, f"dates {order}"))


def read_parquet(path: str | Path, given: Format = OPEN) -> Table:
    """The table in a Parquet file, whose texts are read as is said; needs the extra `choral[parquet]`."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError("CH106", "Parquet files need pyarrow.", fix="pip install 'choral[parquet]'") from None
    try:
        frame = parquet.read_table(path)
    except FileNotFoundError:
        raise TableError("CH300", "is not there.", where=str(path), fix="Check the path.") from None
    except (ArrowException, OSError):
        raise TableError("CH300", "is not a Parquet file.", where=str(path), fix="Check the file.") from None
    return from_frame(frame, given, source=str(path))


def from_frame(frame: DataSource, given: Format = OPEN, *, source: str = "data frame") -> Table:
    """The table in a data frame of pandas, Polars, PyArrow or any other that narwhals knows.

    >>> import pandas
    >>> from_frame(pandas.DataFrame({"age": [25, 38]})).rows
    2
    """
    import narwhals

    if isinstance(frame, Table):
        return frame
    try:
        known = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        raise TableError(
            "CH312",
            f"a {type(frame).__name__} is not a table that choral can read.",
            fix="Give a path, a data frame, or a pair (features, labels) of arrays.",
        ) from None
    except ValueError:
        raise _named_twice(source) from None
    written = given.over(Format(decimal=".", dates="iso", empty=EMPTY))
    cells = {str(name): _plain(known.get_column(name).to_list()) for name in known.columns}
    table = Table(source=source, columns=cells, written=written)
    if len(table.columns) != len(known.columns):
        raise _named_twice(source)
    if not table.rows:
        raise TableError("CH308", "has no rows.", where=source, fix="Give it at least one row.")
    return table


def _plain(cells: list[Cell]) -> list[Cell]:
    """The cells, with texts for bytes, and Python's numbers for NumPy's, so that the type of a column changes none.

    One cell of bytes makes Arrow write all texts of its column as bytes. One text makes a column of a frame hold
    objects, in which NumPy's numbers stay what they are; in a column of numbers they are Python's.
    """
    import numpy as np

    if not any(issubclass(kind, bytes | np.number | np.bool_) for kind in set(map(type, cells))):
        return cells
    return [
        cell.decode(errors="replace")
        if isinstance(cell, bytes)
        else cell.item()
        if isinstance(cell, np.number | np.bool_)
        else cell
        for cell in cells
    ]


def frame_of(rows: Sequence[Mapping[str, object]]) -> Any:  # noqa: ANN401 - pandas is optional, so its type can't be named
    """Rows as a data frame of pandas, or CH106 where pandas is not installed.

    >>> frame_of([{"estimate": 3.0, "low": 1.0}]).low.tolist()
    [1.0]
    """
    try:
        import pandas
    except ImportError:
        raise ConfigError("CH106", "a data frame needs pandas.", fix="pip install pandas, or use .rows") from None
    return pandas.DataFrame(list(rows))
