"""A finished run's model as an ONNX graph, for programs that know neither choral nor JAX."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError
from choral.learning.models import Model
from choral.record import ModelCard
from choral.run.folder import write_whole
from choral.run.result import built_in, read_model

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from choral.learning.models.layered import Layered

OPSET, IR_VERSION = 13, 7  # of ONNX 1.8: the oldest whose Softmax is the usual one
_CHANNELS_FIRST, _CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def export_onnx(folder: str | Path, path: str | Path | None = None) -> Path:
    """The ONNX file of a finished run, `model.onnx` in its folder unless another path is given."""
    folder = Path(folder)
    record, card, parameters = read_model(folder)
    model = built_in(card, record.about.model)
    if record.about.sums is not None:
        raise ConfigError(
            "CH102",
            f'the model "{card.kind}" is made from sums: it has cells of columns, and no layers.',
            where=str(folder / "model.json"),
            fix="Use choral predict, or the figures in models.jsonl.",
        )
    if model is None:
        raise ConfigError(
            "CH102",
            f'the model "{card.kind}" is your own function: choral does not know its layers.',
            where=str(folder / "model.json"),
            fix="Use your function with the parameters in model.safetensors; the built-in kinds can be exported.",
        )
    graph = onnx_of(model, card, parameters, run=record.about.plan_digest)
    path = Path(path) if path is not None else folder / "model.onnx"
    write_whole(path, graph.SerializeToString())
    return path


@dataclass(frozen=True)
class Steps:
    """The nodes of a graph, one after the other, and the weights that they read."""

    helper: Any  # of onnx, which is an extra
    numpy_helper: Any
    nodes: "list[NodeProto]" = field(default_factory=list)
    weights: "list[TensorProto]" = field(default_factory=list)

    def add(self, operator: str, inputs: list[str], output: str, **settings: object) -> str:
        """One more node; the name of what it gives."""
        self.nodes.append(self.helper.make_node(operator, inputs, [output], **settings))
        return output

    def weight(self, name: str, values: object, kind: type[np.generic] = np.float32) -> str:
        """One more constant; its name."""
        self.weights.append(self.numpy_helper.from_array(np.ascontiguousarray(values, dtype=kind), name))
        return name


def onnx_of(model: Model, card: ModelCard, parameters: NDArray[np.float32], *, run: str, **notes: str) -> "ModelProto":
    """The graph of a built-in model: encoded features in, each class's probability out, or the number in its own unit.

    `notes` are further words for the file's metadata.
    """
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ConfigError("CH106", "ONNX files need onnx.", fix="pip install 'choral[onnx]'") from None
    from choral import __version__

    steps = Steps(helper, numpy_helper)
    matrices = list(pairwise(model.widths)) if model.layered is None else model.layered.matrices
    layers = list(_layers(parameters, matrices))
    here = "features" if model.layered is None else _convolved(steps, model.layered, layers)
    here = _dense(steps, layers[2 if model.layered else 0 :], here)
    if card.label_bounds is None:
        steps.add("ArgMax", [here], "label", axis=1, keepdims=0)
        steps.add("Softmax", [here], "probabilities", axis=1)
        given: dict[str, tuple[int, list[str | int | None]]] = {
            "label": (TensorProto.INT64, ["rows"]),
            "probabilities": (TensorProto.FLOAT, ["rows", matrices[-1][1]]),
        }
    else:
        low, high = card.label_bounds
        scaled = steps.add("Mul", [here, steps.weight("unit", [(high - low) / 2])], "scaled")
        column = steps.add("Add", [scaled, steps.weight("middle", [(low + high) / 2])], "column")
        steps.add("Reshape", [column, steps.weight("flat", [-1], np.int64)], "label")
        given = {"label": (TensorProto.FLOAT, ["rows"])}
    graph = helper.make_graph(
        steps.nodes,
        card.kind,
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", *model.row])],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in given.items()],
        steps.weights,
    )
    made = helper.make_model(
        graph,
        producer_name="choral",
        producer_version=__version__,
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    written = card.to_dict()
    properties = {
        name: json.dumps(written[name], ensure_ascii=False)
        for name in ("classes", "label_bounds", "features", "columns")
    }
    helper.set_model_props(made, {**properties, "plan_digest": run, **notes})
    return made


def _layers(
    parameters: NDArray[np.float32], matrices: list[tuple[int, int]]
) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
    """(number, matrix, bias) of each layer."""
    start = 0
    for number, (fan, out) in enumerate(matrices, start=1):
        end = start + fan * out
        yield number, parameters[start:end].reshape(fan, out), parameters[end : end + out]
        start = end + out


def _dense(steps: Steps, layers: list[tuple[int, NDArray[np.float32], NDArray[np.float32]]], here: str) -> str:
    """Dense layers with ReLU between them; the name of the outputs."""
    for number, matrix, bias in layers:
        read = [here, steps.weight(f"W{number}", matrix), steps.weight(f"b{number}", bias)]
        here = steps.add("Gemm", read, f"sums{number}")
        if number < layers[-1][0]:
            here = steps.add("Relu", [here], f"hidden{number}")
    return here


def _convolved(steps: Steps, net: "Layered", layers: list[tuple[int, NDArray[np.float32], NDArray[np.float32]]]) -> str:
    """Both convolutions with their pooling; the name of the numbers that are left of each row, in choral's order.

    choral's pixels have their colours last, and ONNX wants them first.
    """
    pixels = steps.add("Reshape", ["features", steps.weight("pixels", [0, *net.shape], np.int64)], "image")
    here = steps.add("Transpose", [pixels], "input", perm=_CHANNELS_FIRST)
    for number, matrix, bias in layers[:2]:
        kernel = matrix.reshape(net.side, net.side, -1, matrix.shape[1]).transpose(3, 2, 0, 1)
        read = [here, steps.weight(f"W{number}", kernel), steps.weight(f"b{number}", bias)]
        found = steps.add("Conv", read, f"sums{number}", pads=[net.side // 2] * 4)
        pooled = steps.add("MaxPool", [found], f"pooled{number}", kernel_shape=[2, 2], strides=[2, 2])
        here = steps.add("Relu", [pooled], f"hidden{number}")
    last = steps.add("Transpose", [here], "last", perm=_CHANNELS_LAST)
    return steps.add("Flatten", [last], "row", axis=1)
