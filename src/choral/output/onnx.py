"""A finished run's model as an ONNX graph, for programs that know neither choral nor JAX."""

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from choral.errors import ConfigError
from choral.learning.models import KINDS
from choral.record import ModelCard
from choral.run.folder import write_whole
from choral.run.opened import read_model

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 13, 7  # of ONNX 1.8: the oldest whose Softmax is the usual one


def export_onnx(folder: str | Path, path: str | Path | None = None) -> Path:
    """The ONNX file of a finished run, `model.onnx` in its folder unless another path is given."""
    folder = Path(folder)
    record, card, parameters = read_model(folder)
    if card.kind not in KINDS or not card.widths:
        raise ConfigError(
            "CH102",
            f'the model "{card.kind}" is your own function: choral does not know its layers.',
            where=str(folder / "model.json"),
            fix="Use your function with the parameters in model.safetensors; logistic, linear and mlp can be exported.",
        )
    graph = onnx_of(card, parameters, run=record.about.plan_digest)
    path = Path(path) if path is not None else folder / "model.onnx"
    write_whole(path, graph.SerializeToString())
    return path


def onnx_of(card: ModelCard, parameters: NDArray[np.float32], *, run: str, **notes: str) -> "ModelProto":
    """The graph of a dense stack: encoded features in, each class's probability out, or the number in its own unit.

    `notes` are further words for the file's metadata.
    """
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ConfigError("CH106", "ONNX files need onnx.", fix="pip install 'choral[onnx]'") from None
    from choral import __version__

    widths, nodes, weights, start, here = card.widths, [], [], 0, "features"
    for layer, (fan, out) in enumerate(pairwise(widths), start=1):
        matrix, start = parameters[start : start + fan * out].reshape(fan, out), start + fan * out
        bias, start = parameters[start : start + out], start + out
        weights += [numpy_helper.from_array(matrix, f"W{layer}"), numpy_helper.from_array(bias, f"b{layer}")]
        nodes.append(helper.make_node("Gemm", [here, f"W{layer}", f"b{layer}"], [here := f"sums{layer}"]))
        if layer < len(widths) - 1:
            nodes.append(helper.make_node("Relu", [here], [here := f"hidden{layer}"]))
    if card.label_bounds is None:
        nodes.append(helper.make_node("ArgMax", [here], ["label"], axis=1, keepdims=0))
        nodes.append(helper.make_node("Softmax", [here], ["probabilities"], axis=1))
        given: dict[str, tuple[int, list[str | int | None]]] = {
            "label": (TensorProto.INT64, ["rows"]),
            "probabilities": (TensorProto.FLOAT, ["rows", widths[-1]]),
        }
    else:
        low, high = card.label_bounds
        scale = {"unit": (high - low) / 2, "middle": (low + high) / 2}
        weights += [numpy_helper.from_array(np.array([value], dtype=np.float32), name) for name, value in scale.items()]
        weights.append(numpy_helper.from_array(np.array([-1], dtype=np.int64), "flat"))
        nodes.append(helper.make_node("Mul", [here, "unit"], ["scaled"]))
        nodes.append(helper.make_node("Add", ["scaled", "middle"], ["column"]))
        nodes.append(helper.make_node("Reshape", ["column", "flat"], ["label"]))
        given = {"label": (TensorProto.FLOAT, ["rows"])}
    graph = helper.make_graph(
        nodes,
        card.kind,
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", widths[0]])],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in given.items()],
        weights,
    )
    model = helper.make_model(
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
    helper.set_model_props(model, {**properties, "plan_digest": run, **notes})
    return model
