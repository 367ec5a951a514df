"""Reads and writes bodies of the Open Inference Protocol, version 2.

A request has one tensor of texts. A response has tensors of strings. The strings are in the JSON, or after it in the
format of the binary tensor data extension of KServe and Triton. In that format, four little-endian bytes before each
string have its length in bytes. The HTTP header Inference-Header-Content-Length has the length of the JSON in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import orjson

from app.api.http.form_body import parse_object
from app.api.http.validation import validate
from app.api.inference.models import (
    InferAnswer,
    InferBody,
    InferOutput,
    InferParameters,
    InferTensor,
    OutputName,
)
from app.errors import InvalidRequest, MalformedRequest, PayloadTooLarge

INPUT = "text"
OUTPUTS: tuple[str, ...] = get_args(OutputName)
DATATYPE = "BYTES"
LENGTH_BYTES = 4
# The maximum number of digits of a length. Python refuses to convert a number of some thousand digits.
MAX_DIGITS = 20
DATA_FIELD = "inputs[0].data"


@dataclass(frozen=True)
class InferRequest:
    """A request, with its texts in row-major order.

    shape: the shape of the input and of every output. outputs: the name of each requested output, and whether it is
    sent as bytes.
    """

    request_id: str | None
    texts: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: InferParameters
    outputs: Mapping[str, bool]


def read_infer(body: bytes, header_length: str | None, *, max_items: int, max_bytes: int) -> InferRequest:
    """The request of a body. Raises MalformedRequest, InvalidRequest, PayloadTooLarge.

    header_length: the value of Inference-Header-Content-Length, the length of the JSON in bytes; None if the whole body
    is JSON. max_items: the maximum elements of the tensor. max_bytes: as in `parse_json`.
    """
    size = len(body)
    if header_length is not None:
        digits = header_length.lstrip("0")
        is_number = header_length.isascii() and header_length.isdecimal()
        if not is_number or len(digits) > MAX_DIGITS or int(digits or "0") > len(body):
            raise MalformedRequest("Inference-Header-Content-Length is not within the body")
        size = int(digits or "0")
    fields = validate(InferBody, parse_object(body[:size], max_bytes=max_bytes))
    tensor = fields.inputs[0]
    shape = tuple(tensor.shape)
    if math.prod(shape) > max_items:
        field = "inputs[0].shape"
        raise PayloadTooLarge(f"{field}: {math.prod(shape)} texts, the limit is {max_items}", field=field)
    default = fields.parameters.binary_data_output
    outputs: dict[str, bool] = {
        each.name: default if each.parameters.binary_data is None else each.parameters.binary_data
        for each in fields.outputs
    }
    return InferRequest(
        fields.id,
        _texts(tensor, shape, body[size:]),
        shape,
        fields.parameters,
        outputs or dict.fromkeys(OUTPUTS, default),
    )


def write_infer(
    request: InferRequest, model: tuple[str, str], columns: Mapping[str, Sequence[str]]
) -> tuple[bytes, int | None]:
    """The response's body and the length of its JSON in bytes; None as the length if the whole body is JSON.

    model: name and version. columns: the strings of each output, in row-major order.
    """
    parts: list[bytes] = []
    outputs: list[InferOutput] = []
    for name, is_binary in request.outputs.items():
        output: InferOutput = {"name": name, "shape": list(request.shape), "datatype": DATATYPE}
        if is_binary:
            content = b"".join(
                len(each).to_bytes(LENGTH_BYTES, "little") + each
                for each in (value.encode() for value in columns[name])
            )
            output["parameters"] = {"binary_data_size": len(content)}
            parts.append(content)
        else:
            output["data"] = list(columns[name])
        outputs.append(output)
    answer: InferAnswer = {"model_name": model[0], "model_version": model[1], "outputs": outputs}
    if request.request_id is not None:
        answer["id"] = request.request_id
    header = orjson.dumps(answer)
    return b"".join([header, *parts]), len(header) if parts else None


def _texts(tensor: InferTensor, shape: tuple[int, ...], binary: bytes) -> tuple[str, ...]:
    """The texts of a tensor, from its JSON or from the bytes after the JSON. Raises InvalidRequest, MalformedRequest.

    binary: the bytes that follow the JSON.
    """
    count, size = math.prod(shape), tensor.parameters.binary_data_size
    if size is not None:
        if "data" in tensor.model_fields_set:
            raise InvalidRequest("inputs[0] has its data twice, in the JSON and after it", field=DATA_FIELD)
        if size != len(binary):
            raise InvalidRequest(
                f"binary_data_size is {size}, and {len(binary)} bytes follow the JSON", field=DATA_FIELD
            )
        texts = list(_strings(binary, count))
    else:
        if binary:
            raise InvalidRequest(
                f"{len(binary)} bytes follow the JSON, and no input has binary_data_size", field=DATA_FIELD
            )
        texts = _flat(tensor.data, shape)
    if len(texts) != count:
        raise InvalidRequest(f"inputs[0] has {len(texts)} elements, its shape says {count}", field=DATA_FIELD)
    return tuple(texts)


def _strings(content: bytes, count: int) -> Iterator[str]:
    """Yield at most `count` strings of a binary tensor. Raises InvalidRequest, MalformedRequest."""
    end = 0
    for index in range(count):
        start = end + LENGTH_BYTES
        if start > len(content):
            return
        end = start + int.from_bytes(content[end:start], "little")
        if end > len(content):
            raise InvalidRequest(
                f"element {index} is longer than the rest of the tensor's bytes", field=DATA_FIELD
            )
        try:
            yield content[start:end].decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"element {index} is not UTF-8", field=DATA_FIELD) from error
    if end != len(content):
        raise InvalidRequest(f"bytes remain after the {count} elements of the tensor", field=DATA_FIELD)


def _flat(data: object, shape: Sequence[int]) -> list[str]:
    """The strings of an array, flat or nested as the shape says, in order. Raises InvalidRequest.

    The length of a flat array is not checked here.
    """
    message = "inputs[0].data must be an array of strings, flat or nested as the shape says"
    elements: Any = data
    if isinstance(data, list) and data and isinstance(data[0], list):
        elements = [data]
        for size in shape:
            if not all(isinstance(each, list) and len(each) == size for each in elements):
                raise InvalidRequest(message, field=DATA_FIELD)
            elements = [element for each in elements for element in each]
    if not isinstance(elements, list) or not all(isinstance(each, str) for each in elements):
        raise InvalidRequest(message, field=DATA_FIELD)
    return elements
