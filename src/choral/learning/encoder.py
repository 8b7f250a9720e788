"""A frozen public network that turns rows into embeddings, as an ONNX file whose SHA-256 everybody has agreed on.

It sees one row at a time, and its graph has operators that keep nothing and draw nothing. So an embedding depends on
one record alone, and every rule that is proved for records holds for their embeddings. Rows are embedded twice, in two
orders that nobody can predict, and every bit is compared.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from secrets import SystemRandom
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError
from choral.learning.columns import Categorical, Numeric, encode, is_missing
from choral.learning.onnx_operators import check_operators
from choral.learning.records import by

if TYPE_CHECKING:
    from choral.learning.reading import Table

_OTHER_FILES = "session.model_external_initializers_file_folder_path"
_FORM = "session.load_model_format"
_SHOWN = 16  # digits of a SHA-256 in a sentence
_LEAST_VERSION = (1, 24)  # of onnxruntime: older ones read any file of the machine as weights, or its own memory
_ALIGNMENT = 64  # bytes: sums of some kernels follow the order that the place of a row in memory suggests


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """The file's content, the declared range of what it gives, and what it reads: one column of text, or columns.

    `inputs` are the declared columns, scaled to −1…1 before the encoder sees them; none where rows are arrays.
    """

    file: str
    sha256: str
    content: bytes = field(repr=False)
    bounds: tuple[float, float]
    text: str | None = None
    inputs: tuple[Numeric | Categorical, ...] = ()
    embeddings: int | None = None  # how many there are per row, where somebody has said it

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        bounds: Sequence[float],
        sha256: str | None = None,
        text: str | None = None,
        inputs: Sequence[Numeric | Categorical] = (),
        embeddings: int | None = None,
    ) -> Self:
        """The encoder in a file, compared with the SHA-256 that was agreed on if there is one (CH324)."""
        path = Path(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            what = f"the encoder can't be read: {error.strerror}."
            raise ConfigError("CH105", what, where=str(path), fix="Give the path of an ONNX file.") from None
        found = hashlib.sha256(content).hexdigest()
        if sha256 not in (None, found):
            raise TableError(
                "CH324",
                f"is not the encoder that was agreed on: its SHA-256 begins with {found[:_SHOWN]}, "
                f"the agreed one with {str(sha256)[:_SHOWN]}.",
                where=str(path),
                why="Another encoder gives other embeddings, and nobody has approved it.",
                fix="Get the file again from where it was published.",
            )
        return cls(
            file=path.name, sha256=found, content=content, bounds=(bounds[0], bounds[1]), text=text,
            inputs=tuple(inputs), embeddings=embeddings,
        )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse a graph that must not run before anything is approved or read with it."""
        check_operators(self.content, where=self.file)

    def __getstate__(self) -> dict[str, object]:
        """What a copy is made of: all but the graph that is ready to run, which is made of the content again."""
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns that it reads."""
        return tuple(column.name for column in self.inputs) if self.text is None else (self.text,)

    def notes(self, embeddings: int) -> tuple[str, ...]:
        """What there is to say of it in a report."""
        return about_encoder(self.file, self.sha256, embeddings, self.bounds)

    def part_of(self, table: "Table", names: Collection[str], declared: Collection[str] | None) -> "Table":
        """A table with the text that the encoder reads and these columns; as it is where it reads declared columns."""
        if self.text is None:
            if not declared:
                raise TableError(
                    "CH304",
                    "an encoder reads declared columns, and [data] declares none.",
                    why="Ranges that are taken from the rows would reveal them, and the encoder was made for others.",
                    fix='Declare [data.columns.NAME] with bounds for each, or name one column as text = "…".',
                )
            return table
        kept = {name: table.cells(name) for name in dict.fromkeys((self.text, *names))}
        return replace(table, columns=kept)

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401 - onnxruntime is an extra
        """The graph, ready to run from the very bytes whose SHA-256 was compared."""
        onnxruntime = _onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # one row is too little work to share
        options.log_severity_level = 4
        options.add_session_config_entry(_FORM, "ONNX")  # the form whose operators were looked at
        # A graph that names further files was refused. If it named one in a way that nobody knows, it would find none.
        with TemporaryDirectory() as nothing:
            options.add_session_config_entry(_OTHER_FILES, nothing)
            try:
                session = onnxruntime.InferenceSession(self.content, options, providers=["CPUExecutionProvider"])
            except Exception:  # onnxruntime has a class per fault, and none in common below Exception
                raise self._unusable("is not an ONNX file that onnxruntime can run by itself") from None
        inputs, wanted = session.get_inputs(), "tensor(float)" if self.text is None else "tensor(string)"
        if len(inputs) != 1 or inputs[0].type != wanted:
            kinds = ", ".join(one.type for one in inputs) or "nothing"
            raise self._unusable(f"takes {kinds}, and not one {wanted}")
        if inputs[0].shape and isinstance(inputs[0].shape[0], int) and inputs[0].shape[0] != 1:
            raise self._unusable(f"takes {inputs[0].shape[0]} rows at a time, and not one")
        if session.get_outputs()[0].type != "tensor(float)":
            raise self._unusable(f"gives {session.get_outputs()[0].type} first, and not tensor(float)")
        return session

    def _unusable(self, what: str) -> TableError:
        return TableError(
            "CH325",
            f"the encoder {what}.",
            where=self.file,
            fix="Export a graph with one input, float32 rows or a text per row, and float32 embeddings as output.",
        )

    def embed(self, rows: NDArray[np.float32] | NDArray[np.object_], *, source: str = "rows") -> NDArray[np.float32]:
        """What the encoder gives for each row, one row at a time: rows × embeddings, as they come.

        A graph that remembered rows would give other numbers in another order (CH325).
        """
        first = self.of_row(rows[0], 0, source)
        self._check(first, len(first), 0, source)  # before the others are waited for
        with ThreadPoolExecutor(2) as passes:
            found, again = passes.map(self._in_some_order, (rows, rows), (source, source))
        for number, (one, other) in enumerate(zip(found, again, strict=True)):
            self._check(one, len(first), number, source)
            if one.tobytes() != other.tobytes():
                raise self._unusable("gives other numbers for a row that it has seen before")
        return np.stack(found)

    def _in_some_order(self, rows: NDArray[np.float32] | NDArray[np.object_], source: str) -> list[NDArray[np.float32]]:
        """What the graph gives for each row, computed in an order that nobody can predict."""
        order = SystemRandom().sample(range(len(rows)), len(rows))
        found = {number: self.of_row(rows[number], number, source) for number in order}
        return [found[number] for number in range(len(rows))]

    def of_row(self, row: NDArray[np.float32] | str, number: int, source: str) -> NDArray[np.float32]:
        """What the graph gives for one row."""
        session = self._session
        given, out = session.get_inputs()[0], session.get_outputs()[0].name
        one = self._shaped(row, tuple(given.shape))
        try:
            values = session.run([out], {given.name: one})[0]
        except Exception:  # its message may show the row
            raise self._unusable(f"fails on row {number + 1:,} of {source}") from None
        return np.asarray(values, dtype=np.float32).ravel()

    def _shaped(self, row: NDArray[np.float32] | str, shape: tuple[int | str | None, ...]) -> NDArray[Any]:
        """One row in the shape that the graph takes."""
        if isinstance(row, str):
            return np.array([row], dtype=object).reshape((1,) * len(shape))
        fixed = [size for size in shape[1:] if isinstance(size, int)]
        wanted = tuple(fixed) if len(fixed) == len(shape) - 1 else row.shape
        if int(np.prod(wanted)) != row.size:
            raise TableError(
                "CH326",
                f"rows have {by(row.shape)} numbers, the encoder takes {by(wanted)}.",
                where=self.file,
                fix="Declare the columns that the encoder was made for, in its order, or give arrays of its shape.",
            )
        return _aligned(row).reshape((1, *wanted))

    def _check(self, values: NDArray[np.float32], first: int, number: int, source: str) -> None:
        wanted = self.embeddings or first
        if len(values) != wanted:
            raise TableError(
                "CH326",
                f"gives {len(values):,} embeddings for row {number + 1:,} of {source}, {wanted:,} are "
                f"{'declared' if self.embeddings else 'given for the first row'}.",
                where=self.file,
                fix="Correct embeddings in [data], or use an encoder that gives as many for every row.",
            )
        if not np.isfinite(values).all():
            raise TableError(
                "CH327",
                f"gives a number that is not finite for row {number + 1:,} of {source}.",
                where=self.file,
                fix="Check the row and the declared columns, or use another encoder.",
            )

    def columns(self, embeddings: int) -> tuple[Numeric, ...]:
        """So many embeddings as declared columns, which the model reads."""
        return embedding_columns(embeddings, self.bounds)

    def scaled(self, embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeddings scaled to −1…1 by their declared range; what lies outside is moved to the nearer bound."""
        low, high = self.bounds
        middle, half = (low + high) / 2, (high - low) / 2
        return np.clip((embeddings.astype(np.float64) - middle) / half, -1.0, 1.0).astype(np.float32)

    def of_table(self, table: "Table") -> NDArray[np.float32]:
        """The embeddings of a table's rows, as they come."""
        if table.arrays is not None:
            return self.embed(table.arrays, source=table.source)
        return self.embed(encode(table, self.inputs) if self.text is None else self._texts(table), source=table.source)

    def _texts(self, table: "Table") -> NDArray[np.object_]:
        """The texts that it reads of a table; an empty one is a text, and a missing one is refused."""
        cells = list(table.cells(str(self.text)))
        for row, cell in enumerate(cells, start=1):
            if not isinstance(cell, str) and is_missing(cell):
                raise TableError(
                    "CH301", f'column "{self.text}": row {row:,} has no text.', where=table.source, fix="Fill it in."
                )
        return np.array([str(cell) for cell in cells], dtype=object)


def _onnxruntime() -> Any:  # noqa: ANN401 - an extra
    """The module that runs graphs, or CH106 and CH112 where it is missing or too old."""
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError("CH106", "an encoder needs onnxruntime.", fix="pip install 'choral[encoder]'") from None
    found = tuple(int(part) for part in re.findall(r"\d+", onnxruntime.__version__)[:2])
    if found < _LEAST_VERSION:
        wanted = ".".join(map(str, _LEAST_VERSION))
        raise ConfigError(
            "CH112",
            f"onnxruntime is {onnxruntime.__version__}, and an encoder needs {wanted} or newer.",
            why="Older versions let a graph read any file of the machine.",
            fix="pip install --upgrade 'choral[encoder]'",
        )
    return onnxruntime


def _aligned(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """A row's numbers in one line of memory that begins at a fixed alignment, wherever they lay in a table."""
    room = np.empty(row.size + _ALIGNMENT // 4, np.float32)
    start = -room.ctypes.data % _ALIGNMENT // 4
    room[start : start + row.size] = row.ravel()
    return room[start : start + row.size]


def about_encoder(file: str, sha256: str, embeddings: int, bounds: Sequence[float]) -> tuple[str, ...]:
    """What a report says of an encoder, in notes that are short enough for it.

    >>> about_encoder("digits.onnx", "9f3c", 24, (-1, 1))[0]
    'each row passes through the encoder digits.onnx by itself: 24 embeddings'
    """
    return (
        f"each row passes through the encoder {file} by itself: {embeddings:,} embeddings",
        f"its SHA-256: {sha256}",
        f"the embeddings are declared to lie within {bounds[0]:g} and {bounds[1]:g}",
        "no ε covers the rows that the encoder was trained on, so it must be public",
    )


def embedding_columns(embeddings: int, bounds: Sequence[float]) -> tuple[Numeric, ...]:
    """So many embeddings as declared columns, all with the same range.

    >>> [column.name for column in embedding_columns(2, (-1, 1))]
    ['embedding 1', 'embedding 2']
    """
    return tuple(
        Numeric(name=f"embedding {number + 1}", low=float(bounds[0]), high=float(bounds[1]))
        for number in range(embeddings)
    )
