"""An ONNX file's operators, read from its bytes by a parser that accepts less than any other.

Who runs a graph need not have the package that writes it, and what is compared must be what runs: a parser that skips
what it does not know can be made to skip what onnxruntime executes. So every field must be known, be of its type, be
there at most once where it stands for one value, and be written in the one way in which programs write it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from choral.core.errors import TableError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; groups are not among them
_BITS = 64
_MOST_OF_TAG, _MOST_OF_NUMBER = 2**32, 2**_BITS
_UNREADABLE = "is not an ONNX file that onnxruntime can run by itself"
_EXPORT = "Export a graph with one input, float32 rows or a text per row, and float32 embeddings as output."


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
        raise TableError("CH325", f"the encoder {_UNREADABLE}.", where=where, fix=_EXPORT)
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


def _two_readings(what: str, where: str) -> TableError:
    return TableError(
        "CH338",
        f"the encoder's file has {what}.",
        where=where,
        why="Another program could read operators there that choral does not see.",
        fix="Write it again with onnx.save, with weights and functions inside of one plain graph.",
    )
