"""Reads nodes, attributes and constants of an ONNX file without loading ONNX or ONNX Runtime.

The file is a Protocol Buffers message with the field numbers of onnx.proto3. It is memory-mapped, and the values of
constants are skipped.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_OPERATOR, _ATTRIBUTE = 4, 5
_INTEGER, _TEXT, _INTEGERS = 3, 4, 8
_DIMENSIONS, _TYPE, _TENSOR_NAME, _VALUES, _EXTERNAL = 1, 2, 8, 9, 13
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class GraphFileError(ValueError):
    """The file is not an ONNX graph."""


@dataclass
class Node:
    """One operator of a graph, with its integer and text attributes."""

    kind: str = ""
    attributes: dict[str, int | str | tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Constant:
    """A tensor of fixed values.

    element_type: a TensorProto.DataType. values: bytes of the values, if they are in the graph. external: location,
    offset and length of the values, if they are in another file.
    """

    name: str = ""
    shape: tuple[int, ...] = ()
    element_type: int = 0
    values: memoryview = field(default_factory=lambda: memoryview(b""))
    external: dict[str, str] = field(default_factory=dict)


@dataclass
class GraphFile:
    """The nodes and constants of an ONNX file."""

    nodes: list[Node] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def count(self, *kinds: str) -> int:
        """How many nodes have one of these operator types."""
        return sum(node.kind in kinds for node in self.nodes)


def read_graph(path: Path) -> GraphFile:
    """The nodes and constants of an ONNX file. Raises GraphFileError, OSError."""
    graph = GraphFile()
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # unmapped with its last view
        for number, value in _fields(memoryview(mapped)):
            if number == _GRAPH:
                _read_graph(_message(value), graph)
    except (ValueError, IndexError, struct.error) as error:  # UnicodeDecodeError is a ValueError
        raise GraphFileError(f"{path.name} is not an ONNX graph") from error
    return graph


def _read_graph(data: memoryview, graph: GraphFile) -> None:
    for number, value in _fields(data):
        if number == _NODE:
            graph.nodes.append(_read_node(_message(value)))
        elif number == _INITIALIZER:
            graph.constants.append(_read_constant(_message(value)))


def _read_node(data: memoryview) -> Node:
    node = Node()
    for number, value in _fields(data):
        if number == _OPERATOR:
            node.kind = _text(value)
        elif number == _ATTRIBUTE:
            name, found = _read_attribute(_message(value))
            if found is not None:
                node.attributes[name] = found
    return node


def _read_attribute(data: memoryview) -> tuple[str, int | str | tuple[int, ...] | None]:
    name = ""
    found: int | str | None = None
    integers: list[int] = []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == _INTEGER:
            found = _number(value)
        elif number == _TEXT:
            found = bytes(_message(value)).decode("utf-8", "replace")
        elif number == _INTEGERS:
            integers += _numbers(value)
    return name, tuple(integers) if integers else found


def _read_constant(data: memoryview) -> Constant:
    constant = Constant()
    for number, value in _fields(data):
        if number == _DIMENSIONS:
            constant.shape += tuple(_numbers(value))
        elif number == _TYPE:
            constant.element_type = _number(value)
        elif number == _TENSOR_NAME:
            constant.name = _text(value)
        elif number == _VALUES:
            constant.values = _message(value)
        elif number == _EXTERNAL:
            entry = {key: _text(each) for key, each in _fields(_message(value))}
            constant.external[entry.get(1, "")] = entry.get(2, "")
    return constant


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message, each as its number and its integer or bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind, value = key & 7, 0
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == _LENGTH:
            length, position = _varint(data, position)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise GraphFileError(f"field {key >> 3} is of the unknown kind {kind}")
        if position + length > len(data):
            raise GraphFileError("the file ends within a field")
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A 64-bit integer, and the position after it."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64 if value >> 63 else 0), position + index + 1
    raise GraphFileError("a number has too many bytes")


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise GraphFileError("a number stands where bytes belong")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_message(value)).decode("utf-8")


def _number(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise GraphFileError("bytes stand where a number belongs")
    return value


def _numbers(value: int | memoryview) -> list[int]:
    """The integers of a field, which has one or several packed ones."""
    if isinstance(value, int):
        return [value]
    found, position = [], 0
    while position < len(value):
        number, position = _varint(value, position)
        found.append(number)
    return found
