"""The operators of an ONNX file, read from its bytes: who runs a graph need not have the package that writes them."""

from collections.abc import Iterator
from typing import NamedTuple

# Operators that draw random numbers. A session has one source of them, so what a row gets depends on the rows before.
_DRAWING = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Sampling"}
)
_DROPOUTS = frozenset({"Dropout", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout"})
_PASSIVE_INPUTS = 2  # the rows and the rate: without a third input, Dropout hands its rows on

# Numbers of fields in onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTION, _GRAPH_NODE, _FUNCTION_NODE = 7, 25, 1, 7
_NODE_INPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE = 1, 4, 5
_ATTRIBUTE_GRAPHS = (6, 11)


class Operator(NamedTuple):
    """An operator's name, and how many inputs it has."""

    name: str
    inputs: int

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers.

        >>> Operator("RandomNormal", 0).draws, Operator("Dropout", 1).draws, Operator("Relu", 1).draws
        (True, False, False)
        """
        return self.name in _DRAWING or (self.name in _DROPOUTS and self.inputs > _PASSIVE_INPUTS)


def operators(content: bytes) -> Iterator[Operator]:
    r"""The operators of a model, those inside of branches, loops and functions too; ValueError if it is no model.

    >>> list(operators(b"\x3a\x08\x0a\x06\x22\x04Relu"))
    [Operator(name='Relu', inputs=0)]
    """
    for number, part in _fields(content):
        if number == _MODEL_GRAPH:
            yield from _of_nodes(part, _GRAPH_NODE)
        elif number == _MODEL_FUNCTION:
            yield from _of_nodes(part, _FUNCTION_NODE)


def _of_nodes(content: bytes, nodes: int) -> Iterator[Operator]:
    for number, node in _fields(content):
        if number != nodes:
            continue
        fields = list(_fields(node))
        inputs = sum(field == _NODE_INPUT for field, _ in fields)
        for field, part in fields:
            if field == _NODE_OPERATOR:
                yield Operator(part.decode(errors="replace"), inputs)
            elif field == _NODE_ATTRIBUTE:
                for inner, graph in _fields(part):
                    if inner in _ATTRIBUTE_GRAPHS:
                        yield from _of_nodes(graph, _GRAPH_NODE)


def _fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of each field of a message that has a length; numbers are passed over."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        wire = tag & 7
        if wire == 0:
            _, at = _varint(content, at)
            continue
        size, at = {1: (8, at), 5: (4, at)}.get(wire) or (_varint(content, at) if wire == 2 else (-1, at))
        if size < 0 or at + size > len(content):
            raise ValueError("no message of this form")
        if wire == 2:
            yield tag >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(content):
            break
        byte = content[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number does not end")
