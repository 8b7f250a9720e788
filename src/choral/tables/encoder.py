"""A frozen public network that turns rows into embeddings, as an ONNX file whose SHA-256 everybody has agreed on.

It sees one row at a time, and its graph has operators that keep nothing and draw nothing. So an embedding depends on
one record alone, and every rule that is proved for records holds for their embeddings. Rows are embedded twice, in two
orders that nobody can predict, and every bit is compared.

The operators are read from the file's bytes by a parser that accepts less than any other: who runs a graph need not
have the package that writes it, and what is compared must be what runs. So every field must be known, be of its type,
be there at most once where it stands for one value, and be written in the one way in which programs write it.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from secrets import SystemRandom
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError
from choral.tables.cells import is_missing
from choral.tables.columns import Categorical, Numeric, encode
from choral.tables.records import by

if TYPE_CHECKING:
    from choral.tables.reading import Table


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups are not among them
_BITS = 64
_MOST_OF_TAG, _MOST_OF_NUMBER = 2**32, 2**_BITS
_UNREADABLE = "is not an ONNX file that onnxruntime can run by itself"


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The fields of a message that choral knows, each by its number in onnx.proto."""

    name: str
    scalars: Mapping[int, int] = field(default_factory=dict)  # at most once: its wire type
    lists: Mapping[int, int] = field(default_factory=dict)  # any number of times: its wire type, if it is not packed
    part: Mapping[int, "_Form"] = field(default_factory=dict)  # a message, at most once
    parts: Mapping[int, "_Form"] = field(default_factory=dict)  # messages
    refused: Mapping[int, str] = field(default_factory=dict)  # what is known, and not accepted

    def inner(self, number: int) -> "_Form | None":
        return self.part.get(number) or self.parts.get(number)

    def wires(self, number: int) -> tuple[int, ...]:
        """The wire types that a field may have; none where it is not known."""
        if self.inner(number):
            return (_BYTES,)
        if number in self.scalars:
            return (self.scalars[number],)
        return (self.lists[number], _BYTES) if number in self.lists else ()


_ENTRY = _Form(name="a pair of texts", scalars={1: _BYTES, 2: _BYTES})
_OPSET = _Form(name="a set of operators", scalars={1: _BYTES, 2: _VARINT})
_TENSOR = _Form(
    name="a tensor",
    scalars={2: _VARINT, 8: _BYTES, 9: _BYTES, 12: _BYTES, 14: _VARINT},
    lists={1: _VARINT, 4: _FIXED32, 5: _VARINT, 6: _BYTES, 7: _VARINT, 10: _FIXED64, 11: _VARINT},
    parts={13: _ENTRY, 16: _ENTRY},
    refused={3: "a segment"},
)
_VALUE = _Form(name="a value", scalars={1: _BYTES, 2: _BYTES, 3: _BYTES}, parts={4: _ENTRY})
_ATTRIBUTE = _Form(
    name="an attribute",
    scalars={1: _BYTES, 2: _FIXED32, 3: _VARINT, 4: _BYTES, 13: _BYTES, 20: _VARINT},
    lists={7: _FIXED32, 8: _VARINT, 9: _BYTES},
    part={5: _TENSOR},
    parts={10: _TENSOR},
    refused={6: "a branch or a loop", 11: "a branch or a loop", 14: "a type", 15: "a type",
             21: "a part of a function", 22: "a sparse tensor", 23: "a sparse tensor"},
)  # fmt: skip
_NODE = _Form(
    name="a node",
    scalars={3: _BYTES, 4: _BYTES, 6: _BYTES, 7: _BYTES},
    lists={1: _BYTES, 2: _BYTES},
    parts={5: _ATTRIBUTE, 9: _ENTRY},
    refused={8: "a part of a function", 10: "a part for several machines"},
)
_GRAPH = _Form(
    name="a graph",
    scalars={2: _BYTES, 10: _BYTES},
    parts={1: _NODE, 5: _TENSOR, 11: _VALUE, 12: _VALUE, 13: _VALUE, 16: _ENTRY},
    refused={14: "quantisation that is only noted", 15: "a sparse tensor"},
)
_MODEL = _Form(
    name="a model",
    scalars={1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES},
    part={7: _GRAPH},
    parts={8: _OPSET, 14: _ENTRY},
    refused={20: "instructions for its training", 25: "a function", 26: "a part for several machines"},
)
_MODEL_GRAPH, _MODEL_METADATA, _GRAPH_NODE, _NODE_INPUT, _NODE_OPERATOR, _NODE_DOMAIN = 7, 14, 1, 1, 4, 7
_ENTRY_KEY, _TENSOR_ELSEWHERE, _TENSOR_LOCATION = 1, 13, 14
_SETTINGS = b"ort_config"  # metadata that onnxruntime can take for settings of the session

# Operators whose outputs follow from their inputs alone, call by call. Not among them: those that draw random numbers;
# branches, loops and sequences; and those whose results their definition leaves open.
_OF_ONNX = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization BitShift
BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu CenterCropPad Clip Col2Im Compress
Concat Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumSum DFT DepthToSpace DequantizeLinear Det
Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements
GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization
HammingWindow HannWindow HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LSTM
LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool
Mean MeanVarianceNormalization MelWeightMatrix Min Mish Mod Mul Neg NonZero Not OneHot Or PRelu Pad Pow QLinearConv
QLinearMatMul QuantizeLinear RMSNormalization RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare RegexFullMatch Relu Reshape Resize ReverseSequence
RotaryEmbedding Round STFT Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice
Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze StringConcat StringNormalizer StringSplit Sub Sum Swish Tan
Tanh TfIdfVectorizer ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
"""
_OF_ONNX_ML = """
ArrayFeatureExtractor Binarizer CategoryMapper FeatureVectorizer Imputer LabelEncoder LinearClassifier LinearRegressor
Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor
"""
ALLOWED = {"": frozenset(_OF_ONNX.split()), "ai.onnx.ml": frozenset(_OF_ONNX_ML.split())}
_PASSIVE_INPUTS = 2  # of Dropout, the rows and the rate: without a third input it hands its rows on


class Operator(NamedTuple):
    """An operator's name, its domain, and how many inputs it has."""

    name: str
    domain: str
    inputs: int

    @property
    def allowed(self) -> bool:
        """Whether its outputs follow from its inputs alone, whatever was computed before.

        >>> Operator("RandomNormal", "", 0).allowed, Operator("Dropout", "", 1).allowed, Operator("Relu", "", 1).allowed
        (False, True, True)
        """
        domain = "" if self.domain == "ai.onnx" else self.domain
        passive = self.name != "Dropout" or self.inputs <= _PASSIVE_INPUTS
        return self.name in ALLOWED.get(domain, ()) and passive


def check_operators(content: bytes, *, where: str) -> None:
    """Nothing, or why a file's graph must not run: CH338, CH339 or CH340, and CH325 if it has no operators."""
    found = operators(content, where=where)
    if not found:
        raise _unusable(_UNREADABLE, where)
    if refused := next((one for one in found if not one.allowed), None):
        named = f"{refused.domain}:{refused.name}" if refused.domain else refused.name
        raise TableError(
            "CH339",
            f"the encoder has the operator {named}, which is not on choral's list.",
            where=where,
            why="An embedding must follow from its row alone, and not from random numbers or from the rows before it.",
            fix="Export it with operators of ONNX itself: no random numbers, branches, loops, sequences or functions.",
        )


def operators(content: bytes, *, where: str = "encoder") -> tuple[Operator, ...]:
    r"""The operators of a model, in the order of its nodes; CH338 or CH340 for a file that is not accepted.

    >>> operators(b"\x3a\x08\x0a\x06\x22\x04Relu")
    (Operator(name='Relu', domain='', inputs=0),)
    """
    model = _Reader(content=memoryview(content), where=where).message(0, len(content), _MODEL)
    if any(_text(entry, _ENTRY_KEY) == _SETTINGS for entry in model.get(_MODEL_METADATA, ())):
        raise _two_readings("metadata with settings for onnxruntime", where)
    nodes = [node for graph in model.get(_MODEL_GRAPH, ()) for node in graph.get(_GRAPH_NODE, ())]
    return tuple(
        Operator(
            name=_text(node, _NODE_OPERATOR).decode(errors="replace"),
            domain=_text(node, _NODE_DOMAIN).decode(errors="replace"),
            inputs=len(node.get(_NODE_INPUT, ())),
        )
        for node in nodes
    )


_Message = dict[int, list[Any]]  # by the number of a field: whole numbers, bytes, or messages


def _text(message: _Message, number: int) -> bytes:
    return bytes(message.get(number, (b"",))[0])


@dataclass(frozen=True, kw_only=True)
class _Reader:
    """Reads messages from the bytes of one file; a tensor's bytes are looked at in their place, and not copied."""

    content: memoryview
    where: str

    def message(self, at: int, end: int, form: _Form) -> _Message:
        """The fields of the message from one place to another; CH338 for any that is not as it must be."""
        found: _Message = {}
        while at < end:
            tag, at = self.number(at, end, _MOST_OF_TAG)
            number, wire = tag >> 3, tag & 7
            if number in form.refused:
                raise _two_readings(f"{form.refused[number]} in {form.name}", self.where)
            if wire not in form.wires(number):
                raise _two_readings(f"a field {number} of type {wire} in {form.name}", self.where)
            if number in found and (number in form.scalars or number in form.part):
                raise _two_readings(f"the field {number} of {form.name} twice", self.where)
            value: Any
            if wire == _VARINT:
                value, at = self.number(at, end, _MOST_OF_NUMBER)
            else:
                size, at = (8 if wire == _FIXED64 else 4, at) if wire != _BYTES else self.number(at, end, end + 1)
                if size > end - at:
                    raise _two_readings(f"a field {number} that ends outside of {form.name}", self.where)
                inner = form.inner(number)
                value = self.content[at : at + size] if inner is None else self.message(at, at + size, inner)
                at += size
            found.setdefault(number, []).append(value)
        if form is _TENSOR and (_TENSOR_ELSEWHERE in found or any(found.get(_TENSOR_LOCATION, ()))):
            raise TableError(
                "CH340",
                "the encoder keeps numbers outside of its file.",
                where=self.where,
                why="No SHA-256 covers them, and an encoder must read nothing else of a site.",
                fix='Save it as one file: onnx.save(onnx.load("encoder.onnx"), "whole.onnx").',
            )
        return found

    def number(self, at: int, end: int, most: int) -> tuple[int, int]:
        """A whole number below `most`, written as shortly as it can be, and the place after it."""
        value = shift = 0
        while at < end:
            byte = self.content[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                if value >= most or (byte == 0 and shift > 7):
                    break
                return value, at
            if value >= most or shift >= _BITS:
                break
        raise _two_readings("a number that does not end, is too large or is written too long", self.where)


def _unusable(what: str, where: str) -> TableError:
    return TableError(
        "CH325",
        f"the encoder {what}.",
        where=where,
        fix="Export a graph with one input, float32 rows or a text per row, and float32 embeddings as output.",
    )


def _two_readings(what: str, where: str) -> TableError:
    return TableError(
        "CH338",
        f"the encoder's file has {what}.",
        where=where,
        why="Another program could read operators there that choral does not see.",
        fix="Write it again with onnx.save, with weights and functions inside of one plain graph.",
    )


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
                raise _unusable(_UNREADABLE, self.file) from None
        inputs, wanted = session.get_inputs(), "tensor(float)" if self.text is None else "tensor(string)"
        if len(inputs) != 1 or inputs[0].type != wanted:
            kinds = ", ".join(one.type for one in inputs) or "nothing"
            raise _unusable(f"takes {kinds}, and not one {wanted}", self.file)
        if inputs[0].shape and isinstance(inputs[0].shape[0], int) and inputs[0].shape[0] != 1:
            raise _unusable(f"takes {inputs[0].shape[0]} rows at a time, and not one", self.file)
        if session.get_outputs()[0].type != "tensor(float)":
            raise _unusable(f"gives {session.get_outputs()[0].type} first, and not tensor(float)", self.file)
        return session

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
                raise _unusable("gives other numbers for a row that it has seen before", self.file)
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
            raise _unusable(f"fails on row {number + 1:,} of {source}", self.file) from None
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
