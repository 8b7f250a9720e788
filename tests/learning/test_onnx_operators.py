"""The operators of an ONNX file, read without the package that writes them."""

import pytest

from choral.learning.onnx_operators import Operator, operators
from tests.learning import encoders
from tests.learning.encoders import helper


def test_operators_are_those_of_the_graph_and_of_its_branches(tmp_path):
    path = encoders.drawing(tmp_path / "e.onnx", in_a_branch=True)
    found = {one.name for one in operators(path.read_bytes())}
    assert found == {"Reshape", "Gather", "Greater", "If", "RandomNormalLike", "Add", "Identity"}


def test_operators_inside_of_a_function_are_found():
    drawn = helper.make_node("Bernoulli", ["a"], ["b"])
    function = helper.make_function("own", "Drawn", ["a"], ["b"], [drawn], [helper.make_opsetid("", 15)])
    graph = helper.make_graph([helper.make_node("Drawn", ["x"], ["y"], domain="own")], "g", [], [])
    found = list(operators(helper.make_model(graph, functions=[function]).SerializeToString()))
    assert {one.name for one in found} == {"Drawn", "Bernoulli"} and any(one.draws for one in found)


def test_dropout_draws_only_if_a_third_input_says_that_it_trains():
    assert Operator("Dropout", 3).draws and not Operator("Dropout", 2).draws


@pytest.mark.parametrize("content", [b"no graph", b"\x3a\x7f", b"\xff" * 12, b"\x3b"])
def test_what_is_no_model_is_refused(content):
    with pytest.raises(ValueError, match=r"no message of this form|does not end"):
        list(operators(content))
