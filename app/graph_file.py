"""Reads nodes, attributes and initializers of an ONNX file without loading ONNX or ONNX Runtime.

The file is a Protocol Buffers message. onnx.proto3 defines the messages and their field numbers. The file is
memory-mapped, so the bytes of a weight are read from disk only when a caller uses them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Field numbers by message.
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OP_TYPE, _NODE_ATTRIBUTE = 4, 5
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_STRING, _ATTRIBUTE_INTS = 1, 3, 4, 8
_TENSOR_DIMS, _TENSOR_DATA_TYPE, _TENSOR_NAME, _TENSOR_RAW_DATA, _TENSOR_EXTERNAL_DATA = 1, 2, 8, 9, 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
# Protocol Buffers wire types. A field starts with a varint that holds the field number and, in its last 3 bits, the
# wire type.
_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5
# A 64-bit integer takes at most 10 bytes of 7 bits.
_MAX_VARINT_BYTES = 10


class GraphFileError(ValueError):
    """The file is not an ONNX graph."""


@dataclass
class Node:
    """One operator call in a graph. attributes: integers, strings and non-empty lists of integers."""

    op_type: str = ""
    attributes: dict[str, int | str | tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Initializer:
    """A tensor of constant values, such as a weight.

    data_type: a TensorProto.DataType. raw_data: the bytes of the values if the graph file holds them in this field,
    else empty (typed fields such as float_data are not read). external_data: `location`, `offset` and `length` of the
    values if another file holds them, else empty.
    """

    name: str = ""
    shape: tuple[int, ...] = ()
    data_type: int = 0
    raw_data: memoryview = field(default_factory=lambda: memoryview(b""))
    external_data: dict[str, str] = field(default_factory=dict)


@dataclass
class GraphFile:
    """The nodes and initializers of an ONNX file."""

    nodes: list[Node] = field(default_factory=list)
    initializers: list[Initializer] = field(default_factory=list)

    def count(self, *op_types: str) -> int:
        """The number of nodes whose operator type is one of `op_types`."""
        return sum(node.op_type in op_types for node in self.nodes)


def read_graph(path: Path) -> GraphFile:
    """Read the nodes and initializers of an ONNX file.

    Raises GraphFileError if the file is not an ONNX graph, and OSError if it cannot be read.
    """
    graph: GraphFile | None = None
    try:
        with path.open("rb") as file:
            # Python unmaps the file when the last memoryview of it is freed.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for number, value in _fields(memoryview(mapped)):
            if number == _MODEL_GRAPH:
                graph = graph or GraphFile()
                _read_graph(_bytes(value), graph)
    except (ValueError, IndexError) as error:  # UnicodeDecodeError is a ValueError
        raise GraphFileError(f"{path.name} is not an ONNX graph") from error
    if graph is None:
        raise GraphFileError(f"{path.name} is not an ONNX graph: it has no field {_MODEL_GRAPH}")
    return graph


def _read_graph(data: memoryview, graph: GraphFile) -> None:
    for number, value in _fields(data):
        if number == _GRAPH_NODE:
            graph.nodes.append(_read_node(_bytes(value)))
        elif number == _GRAPH_INITIALIZER:
            graph.initializers.append(_read_initializer(_bytes(value)))


def _read_node(data: memoryview) -> Node:
    node = Node()
    for number, value in _fields(data):
        if number == _NODE_OP_TYPE:
            node.op_type = _string(value)
        elif number == _NODE_ATTRIBUTE:
            name, content = _read_attribute(_bytes(value))
            if content is not None:
                node.attributes[name] = content
    return node


def _read_attribute(data: memoryview) -> tuple[str, int | str | tuple[int, ...] | None]:
    """The name and value of an attribute.

    The value is None for an empty list of integers, and for types other than integer, integers and string.
    """
    name = ""
    content: int | str | None = None
    integers: list[int] = []
    for number, value in _fields(data):
        if number == _ATTRIBUTE_NAME:
            name = _string(value)
        elif number == _ATTRIBUTE_INT:
            content = _integer(value)
        elif number == _ATTRIBUTE_STRING:
            content = bytes(_bytes(value)).decode("utf-8", "replace")
        elif number == _ATTRIBUTE_INTS:
            integers += _integers(value)
    return name, tuple(integers) if integers else content


def _read_initializer(data: memoryview) -> Initializer:
    initializer = Initializer()
    for number, value in _fields(data):
        if number == _TENSOR_DIMS:
            initializer.shape += tuple(_integers(value))
        elif number == _TENSOR_DATA_TYPE:
            initializer.data_type = _integer(value)
        elif number == _TENSOR_NAME:
            initializer.name = _string(value)
        elif number == _TENSOR_RAW_DATA:
            initializer.raw_data = _bytes(value)
        elif number == _TENSOR_EXTERNAL_DATA:
            entry = {key: _string(text) for key, text in _fields(_bytes(value))}
            initializer.external_data[entry.get(_ENTRY_KEY, "")] = entry.get(_ENTRY_VALUE, "")
    return initializer


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and value of each field of a message. A varint field has an integer, any other field has bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        field_number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield field_number, value
            continue
        if wire_type == _LENGTH_DELIMITED:
            length, position = _varint(data, position)
        elif wire_type in (_FIXED_64, _FIXED_32):
            length = 8 if wire_type == _FIXED_64 else 4
        else:
            raise GraphFileError(f"field {field_number} has the unknown wire type {wire_type}")
        if not 0 <= length <= len(data) - position:
            raise GraphFileError(f"the data ends before the end of field {field_number}")
        yield field_number, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """The signed 64-bit integer at `position`, and the position after the integer."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:  # the highest bit is 0 in the last byte only
            value &= (1 << 64) - 1
            is_negative = value >> 63
            return value - (1 << 64 if is_negative else 0), position + index + 1
    raise GraphFileError(f"an integer has more than {_MAX_VARINT_BYTES} bytes")


def _bytes(value: int | memoryview) -> memoryview:
    """The value of a field that must have bytes. Raises GraphFileError for an integer."""
    if isinstance(value, int):
        raise GraphFileError("a field that must have bytes has an integer")
    return value


def _string(value: int | memoryview) -> str:
    return bytes(_bytes(value)).decode("utf-8")


def _integer(value: int | memoryview) -> int:
    """The value of a field that must have an integer. Raises GraphFileError for bytes."""
    if not isinstance(value, int):
        raise GraphFileError("a field that must have an integer has bytes")
    return value


def _integers(value: int | memoryview) -> list[int]:
    """The integers of a repeated field: one integer, or several that are packed in bytes."""
    if isinstance(value, int):
        return [value]
    integers, position = [], 0
    while position < len(value):
        integer, position = _varint(value, position)
        integers.append(integer)
    return integers
