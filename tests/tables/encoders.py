"""ONNX encoders for tests, made here."""

import numpy as np
from onnx import TensorProto, helper, load, numpy_helper, save

MODEL_GRAPH, GRAPH_NODE, NODE_OPERATOR = 7, 1, 4  # numbers of fields in onnx.proto


def saved(path, nodes, given, out, weights=(), kind=TensorProto.FLOAT, **settings):
    graph = helper.make_graph(
        list(nodes),
        "encoder",
        [helper.make_tensor_value_info("x", kind, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        list(weights),
    )
    model = helper.make_model(graph, ir_version=7, opset_imports=[helper.make_opsetid("", 13)])
    save(model, path, **settings)
    return path


def linear(path, matrix, **settings):
    """y = tanh(x W)."""
    weights = numpy_helper.from_array(np.asarray(matrix, np.float32), "W")
    nodes = [helper.make_node("MatMul", ["x", "W"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    rows, columns = np.shape(matrix)
    return saved(path, nodes, ["rows", rows], ["rows", columns], [weights], **settings)


def mixing(path, features):
    """y = x − the mean over all rows of the batch: what a graph must not be able to do here."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
    ]
    return saved(path, nodes, ["rows", features], ["rows", features])


def of_text(path, words):
    """How many of its words a text has: StringNormalizer and a term count."""
    nodes = [
        helper.make_node(
            "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
            ngram_counts=[0], ngram_indexes=list(range(len(words))), pool_strings=list(words),
        )
    ]  # fmt: skip
    return saved(path, nodes, ["rows"], ["words"], kind=TensorProto.STRING)


def drawing(path, *, in_a_branch):
    """y = x + noise; in a branch, noise is drawn only for a row whose first number is above 0."""
    noise = [
        helper.make_node("RandomNormalLike", ["x"], ["n"]),
        helper.make_node("Add", ["x", "n"], ["noisy"]),
    ]
    if not in_a_branch:
        return saved(path, [*noise, helper.make_node("Identity", ["noisy"], ["y"])], ["rows", 2], ["rows", 2])
    out = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("noisy", "plain")]
    branches = {
        "then_branch": helper.make_graph(noise, "then", [], out[:1]),
        "else_branch": helper.make_graph([helper.make_node("Identity", ["x"], ["plain"])], "else", [], out[1:]),
    }
    constants = {"flat": [-1], "first": [0], "zero": [0.0]}
    kinds = {"zero": np.float32}
    weights = [
        numpy_helper.from_array(np.array(one, kinds.get(name, np.int64)), name) for name, one in constants.items()
    ]
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["row"]),
        helper.make_node("Gather", ["row", "first"], ["one"]),
        helper.make_node("Greater", ["one", "zero"], ["above"]),
        helper.make_node("If", ["above"], ["y"], **branches),
    ]
    return saved(path, nodes, ["rows", 2], ["rows", 2], weights)


def varint(value):
    """A whole number as protobuf writes it."""
    written = b""
    while value >= 0x80:
        written, value = written + bytes([value & 0x7F | 0x80]), value >> 7
    return written + bytes([value])


def field(number, content, above=0):
    """A field of a protobuf message with these bytes; `above` are bits of its tag beyond the 32 that it may have."""
    return varint((number << 3 | 2) + (above << 32)) + varint(len(content)) + content


def hidden(path, form, above):
    """A graph whose RandomNormalLike stands behind a tag above 32 bits, which onnxruntime reads without those bits."""
    model = load(drawing(path, in_a_branch=False))
    first, *others = list(model.graph.node)
    del model.graph.node[:]
    rest, after = (
        model.graph.SerializeToString(),
        b"".join(field(GRAPH_NODE, one.SerializeToString()) for one in others),
    )
    model.ClearField("graph")
    drawn = first.SerializeToString()
    if form == "an operator":
        first.ClearField("op_type")
        names = field(NODE_OPERATOR, b"Identity") + field(NODE_OPERATOR, b"RandomNormalLike", above)
        graph = field(MODEL_GRAPH, rest + field(GRAPH_NODE, first.SerializeToString() + names) + after)
    elif form == "a node":
        graph = field(MODEL_GRAPH, rest + field(GRAPH_NODE, drawn, above) + after)
    else:
        graph = field(MODEL_GRAPH, field(GRAPH_NODE, drawn), above) + field(MODEL_GRAPH, rest + after)
    return model.SerializeToString() + graph
