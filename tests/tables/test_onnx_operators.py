"""The operators of an ONNX file are read so strictly that onnx and onnxruntime never read more of them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, defs, numpy_helper

from choral.core.errors import TableError
from choral.tables.encoder import ALLOWED, Operator, check_operators, operators
from tests.tables import encoders
from tests.tables.encoders import field, helper, varint


def parts(content):
    """The fields of a message that onnx wrote, as (number, wire type, bytes after the tag)."""
    found, at = [], 0
    while at < len(content):
        tag, at = number(content, at)
        wire, start = tag & 7, at
        if wire == 0:
            _, at = number(content, at)
        elif wire == 2:
            size, at = number(content, at)
            at += size
        else:
            at += {1: 8, 5: 4}[wire]
        found.append((tag >> 3, wire, content[start:at]))
    return found


def number(content, at):
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if content[at - 1] < 0x80:
            return value, at


@pytest.mark.parametrize("above", [1, 7])
@pytest.mark.parametrize("form", ["an operator", "a node", "a second graph"])
def test_operators_behind_tags_above_32_bits_are_refused_though_onnxruntime_runs_them(form, above, tmp_path):
    content = encoders.hidden(tmp_path / "e.onnx", form, above)
    session = onnxruntime.InferenceSession(content)
    one, two = (session.run(None, {"x": [[1.0, 1.0]]})[0].tolist() for _ in range(2))
    assert one != two  # it draws
    with pytest.raises(TableError, match=r"CH338 .*a number that does not end, is too large or is written too long"):
        check_operators(content, where="e.onnx")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\x3b", id="a group"),
        pytest.param(b"\x02\x00", id="field 0"),
        pytest.param(b"\xba\x00\x00", id="a tag that is longer than necessary"),
        pytest.param(b"\x3a\x80\x00", id="a length that is longer than necessary"),
        pytest.param(b"\x3a\x7f", id="a length beyond the end"),
        pytest.param(b"\x08" + b"\xff" * 10 + b"\x01", id="a number of 11 bytes"),
        pytest.param(b"\x08" + b"\xff" * 9 + b"\x02", id="a number of 65 bits"),
        pytest.param(field(99, b""), id="a field that nobody knows"),
        pytest.param(b"\x38\x01", id="another type of field"),
        pytest.param(2 * field(7, b""), id="two graphs"),
        pytest.param(field(7, field(1, 2 * field(4, b"Relu"))), id="two names of one operator"),
        pytest.param(b"no graph", id="no message"),
    ],
)
def test_what_another_program_could_read_differently_is_refused(content):
    with pytest.raises(TableError, match=r"CH338 e\.onnx the encoder's file has"):
        operators(content, where="e.onnx")


def with_function():
    drawn = helper.make_node("Bernoulli", ["a"], ["b"])
    function = helper.make_function("own", "Drawn", ["a"], ["b"], [drawn], [helper.make_opsetid("", 15)])
    graph = helper.make_graph([helper.make_node("Drawn", ["x"], ["y"], domain="own")], "g", [], [])
    return helper.make_model(graph, functions=[function])


def with_training():
    model = with_nodes(helper.make_node("Relu", ["x"], ["y"]))
    model.training_info.add()
    return model


def with_settings():
    model = with_nodes(helper.make_node("Relu", ["x"], ["y"]))
    helper.set_model_props(model, {"ort_config": "{}"})
    return model


def with_nodes(*nodes, **rest):
    return helper.make_model(helper.make_graph(list(nodes), "g", [], [], **rest))


def in_a_branch():
    inner = helper.make_graph([helper.make_node("RandomNormal", [], ["n"], shape=[1])], "i", [], [])
    return with_nodes(helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner))


def sparse():
    values = numpy_helper.from_array(np.ones(1, np.float32), "v")
    places = numpy_helper.from_array(np.zeros(1, np.int64), "p")
    return helper.make_sparse_tensor(values, places, [1])


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (with_function(), "a function in a model"),
        (with_training(), "instructions for its training in a model"),
        (with_settings(), "metadata with settings for onnxruntime"),
        (in_a_branch(), "a branch or a loop in an attribute"),
        (
            with_nodes(helper.make_node("Relu", ["x"], ["y"]), sparse_initializer=[sparse()]),
            "a sparse tensor in a grap",
        ),
        (with_nodes(helper.make_node("Constant", [], ["y"], sparse_value=sparse())), "a sparse tensor in an attribute"),
    ],
)
def test_parts_that_an_encoder_does_not_need_are_refused(model, said):
    with pytest.raises(TableError, match=f"CH338 e.onnx the encoder's file has {said}"):
        operators(model.SerializeToString(), where="e.onnx")


def elsewhere(location=TensorProto.EXTERNAL, entries=1):
    tensor = numpy_helper.from_array(np.ones((2, 2), np.float32), "W")
    tensor.data_location = location
    for _ in range(entries):
        tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


@pytest.mark.parametrize("tensor", [elsewhere(), elsewhere(TensorProto.DEFAULT), elsewhere(entries=0)])
def test_numbers_outside_of_the_file_are_refused_wherever_a_tensor_may_stand(tensor):
    relu = helper.make_node("Relu", ["x"], ["y"])
    constant = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(np.ones(1), "c"))
    constant.attribute[0].t.CopyFrom(tensor)
    several = helper.make_node("Relu", ["x"], ["y"])
    several.attribute.add(name="all", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)
    for model in (with_nodes(relu, initializer=[tensor]), with_nodes(constant), with_nodes(several)):
        with pytest.raises(TableError, match=r"CH340 e\.onnx the encoder keeps numbers outside of its file"):
            operators(model.SerializeToString(), where="e.onnx")


def test_only_operators_whose_definition_is_deterministic_and_has_no_inner_graph_are_allowed():
    # The definitions are onnx's own, of every version of an operator that it has.
    every = {}
    for schema in defs.get_all_schemas_with_history():
        every.setdefault((schema.domain, schema.name), []).append(schema)
    graphs = {defs.OpSchema.AttrType.GRAPH, defs.OpSchema.AttrType.GRAPHS}
    unsaid = {"DepthToSpace", "SpaceToDepth"}  # their first versions do not say; the later ones say that they are
    for domain, names in ALLOWED.items():
        for name in names:
            for schema in every[domain, name]:
                known = schema.node_determinism == defs.OpSchema.NodeDeterminism.Deterministic
                assert known or name in unsaid | {"Dropout"}, name
                assert not graphs & {one.type for one in schema.attributes.values()}, name
    drawing = {name for (_, name), found in every.items() if any(one.non_deterministic for one in found)}
    assert {"RandomNormal", "Bernoulli", "Multinomial", "If", "Dropout"} <= drawing
    assert drawing & ALLOWED[""] == {"Dropout"} | unsaid


@pytest.mark.parametrize("domain", ["com.microsoft", "ai.onnx.preview.training", "own", "ai.onnx "])
def test_operators_of_other_domains_are_refused(domain):
    model = with_nodes(helper.make_node("Relu", ["x"], ["y"], domain=domain))
    with pytest.raises(TableError, match=f"CH339 e.onnx the encoder has the operator {domain}:Relu, which is not on"):
        check_operators(model.SerializeToString(), where="e.onnx")


def test_dropout_draws_only_if_a_third_input_says_that_it_trains():
    assert Operator("Dropout", "", 2).allowed and not Operator("Dropout", "", 3).allowed


# What onnx reads of a file that we accept.


def seen_by_onnx(model):
    return tuple(Operator(text(node.op_type), text(node.domain), len(node.input)) for node in model.graph.node)


def text(found):
    return found if isinstance(found, str) else found.decode(errors="replace")  # bytes where it is no UTF-8


def sample():
    """A model that runs, with all that an encoder has."""
    weights = {"W": np.ones((1, 1, 3, 3), np.float32), "rate": np.float32(0.5)}
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Conv", ["x", "W"], ["c"], name="first", strides=[1, 1], auto_pad="SAME_UPPER"),
                helper.make_node("Scaler", ["c"], ["s"], domain="ai.onnx.ml", scale=[1.0], offset=[0.5]),
                helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(4, np.float32), "k")),
                helper.make_node("Add", ["s", "k"], ["d"]),
                helper.make_node("Dropout", ["d", "rate"], ["y"]),
            ],
            "sample",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 4, 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(one, name) for name, one in weights.items()],
            value_info=[helper.make_tensor_value_info("c", TensorProto.FLOAT, ["n", 1, 4, 4])],
        ),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 2)],
    )
    helper.set_model_props(model, {"author": "somebody"})
    return model.SerializeToString()


def test_files_of_onnx_itself_are_read_as_onnx_reads_them():
    folder = Path(onnx.__file__).parent / "backend/test/data"
    files = [*folder.glob("pytorch-*/*/model.onnx"), *folder.glob("light/*.onnx")]
    read = 0
    for path in files:
        content = path.read_bytes()
        assert operators(content, where=path.name) == seen_by_onnx(onnx.load_from_string(content)), path
        read += 1
    assert read > 100


WAYS = ["as it is"] * 12 + ["twice", "left out", "wide", "long", "other", "first", "noise"]


def changed(draw, content, deep=3):
    """A message with fields left out, doubled, moved, written another way, or of another kind."""
    found = []
    for place, wire, after in parts(content):
        how, value = draw(st.sampled_from(WAYS)), after
        if wire == 2 and deep and draw(st.booleans()):
            size, at = number(after, 0)
            try:
                inner = changed(draw, after[at : at + size], deep - 1)
                value = varint(len(inner)) + inner
            except (IndexError, KeyError):  # a text and no message
                pass
        tag = varint(place << 3 | wire)
        if how == "wide":
            tag = varint((place << 3 | wire) + (draw(st.integers(1, 2**8)) << 32))
        elif how == "long":
            tag = tag[:-1] + bytes([tag[-1] | 0x80, 0])
        elif how == "other":
            tag = varint(draw(st.integers(0, 30)) << 3 | draw(st.integers(0, 7)))
        elif how == "noise":
            value += draw(st.binary(max_size=6))
        if how == "first":
            found.insert(0, tag + value)
        elif how != "left out":
            found += [tag + value] * (1 + (how == "twice"))
    return b"".join(found)


@st.composite
def files(draw):
    content = bytearray(changed(draw, sample()))
    for _ in range(draw(st.integers(0, 3)) if content and draw(st.booleans()) else 0):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


@settings(max_examples=300, deadline=None)
@given(content=files())
def test_whatever_onnx_reads_of_a_damaged_file_was_seen_or_the_file_is_refused(content):
    try:
        found = operators(content)
    except TableError:
        return
    try:
        model = onnx.load_from_string(content)
    except Exception:  # protobuf's own error: what it refuses does not run
        return
    assert seen_by_onnx(model) == found and not model.functions and not model.training_info
    tensors = [*model.graph.initializer, *(one.t for node in model.graph.node for one in node.attribute)]
    assert not any(one.external_data or one.data_location for one in tensors)


@settings(max_examples=150, deadline=None)
@given(content=files())
def test_whatever_onnxruntime_runs_of_a_damaged_file_was_seen_or_the_file_is_refused(content, tmp_path_factory):
    # onnxruntime has a parser that accepts more than onnx does. It writes down what it read.
    written = tmp_path_factory.getbasetemp() / "as-read.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(written)
    try:
        onnxruntime.InferenceSession(content, options)
    except Exception:  # it has a class per fault
        return
    try:
        found = {(one.name, one.domain) for one in operators(content)}
    except TableError:
        return
    read = {(one.op_type, one.domain) for one in onnx.load(written).graph.node}
    assert read <= found and ("Conv", "") in found


def test_the_sample_is_accepted_and_runs():
    check_operators(sample(), where="sample")
    session = onnxruntime.InferenceSession(sample())
    assert session.run(None, {"x": np.zeros((1, 1, 4, 4), np.float32)})[0].shape == (1, 1, 4, 4)
