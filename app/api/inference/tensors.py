"""Bodies of the Open Inference Protocol, version 2: one tensor of texts in, tensors of strings out.

Strings stand in the JSON, or behind it, each after its length as four little-endian bytes; a header then tells how many
bytes of the body the JSON has. Specification: https://github.com/kserve/open-inference-protocol, with the binary
tensor data extension of KServe and Triton.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from app.api.http.form_body import parse_json
from app.api.http.values import check_misspelt, switch, whole_number
from app.errors import InvalidRequest, MalformedRequest, PayloadTooLarge

INPUT = "text"
OUTPUTS = ("translation", "source_language")
DATATYPE = "BYTES"
FIELDS = ("id", "parameters", "inputs", "outputs")
TENSOR_FIELDS = ("name", "shape", "datatype", "parameters", "data")
LENGTH_BYTES = 4
MAX_DIMENSIONS = 8
MAX_ID_CHARACTERS = 256
Json = dict[str, object]


@dataclass(frozen=True)
class InferRequest:
    """A request, its texts in row-major order.

    shape: of the input, and of every output. outputs: those asked for, by name, and whether each is sent as bytes.
    """

    request_id: str | None
    texts: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: Mapping[str, object]
    outputs: Mapping[str, bool]


def read_infer(body: bytes, header_length: str | None, *, max_items: int) -> InferRequest:
    """header_length: how many bytes of the body are JSON; None: all. max_items: elements of the tensor.

    Raises MalformedRequest, InvalidRequest, PayloadTooLarge.
    """
    size = len(body)
    if header_length is not None:
        if not (header_length.isascii() and header_length.isdecimal()) or int(header_length[:20]) > len(body):
            raise MalformedRequest("Inference-Header-Content-Length is not within the body")
        size = int(header_length)
    fields = parse_json(body[:size])
    check_misspelt(fields, FIELDS)
    request_id = fields.get("id")
    if request_id is not None and (not isinstance(request_id, str) or len(request_id) > MAX_ID_CHARACTERS):
        raise InvalidRequest(f"id must be a string of at most {MAX_ID_CHARACTERS} characters", field="id")
    parameters = _object(fields.get("parameters"), "parameters")
    inputs = fields.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise InvalidRequest(f"inputs must have one tensor, {INPUT}", field="inputs")
    tensor = _object(inputs[0], "inputs[0]")
    check_misspelt(tensor, TENSOR_FIELDS, "inputs[0]")
    if tensor.get("name") != INPUT or tensor.get("datatype") != DATATYPE:
        raise InvalidRequest(f"inputs[0] must be {INPUT} of datatype {DATATYPE}", field="inputs[0]")
    shape = _shape(tensor, max_items)
    texts = _texts(tensor, shape, body[size:])
    outputs = _outputs(fields, parameters)
    rest = {name: value for name, value in parameters.items() if name != "binary_data_output"}
    return InferRequest(request_id, texts, shape, rest, outputs)


def write_infer(
    request: InferRequest, model: tuple[str, str], columns: Mapping[str, Sequence[str]]
) -> tuple[bytes, int | None]:
    """The answer, and how many bytes of it are JSON: None where all are. model: name and version."""
    parts: list[bytes] = []
    outputs: list[Json] = []
    for name, is_binary in request.outputs.items():
        output: Json = {"name": name, "shape": list(request.shape), "datatype": DATATYPE}
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
    answer: Json = {"model_name": model[0], "model_version": model[1], "outputs": outputs}
    if request.request_id is not None:
        answer["id"] = request.request_id
    header = orjson.dumps(answer)
    return b"".join([header, *parts]), len(header) if parts else None


def _object(value: object, name: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be a JSON object", field=name)
    return value


def _shape(tensor: Json, max_items: int) -> tuple[int, ...]:
    """Of at least one element."""
    field = "inputs[0].shape"
    shape = tensor.get("shape")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise InvalidRequest(f"{field} must be an array of at most {MAX_DIMENSIONS} numbers", field=field)
    sizes = tuple(whole_number(size, field, 1, 2**31 - 1) for size in shape)
    if math.prod(sizes) > max_items:
        raise PayloadTooLarge(f"{field}: {math.prod(sizes)} texts, the limit is {max_items}", field=field)
    return sizes


def _texts(tensor: Json, shape: tuple[int, ...], behind: bytes) -> tuple[str, ...]:
    """behind: what follows the JSON."""
    field, count = "inputs[0].data", math.prod(shape)
    parameters = _object(tensor.get("parameters"), "inputs[0].parameters")
    if "binary_data_size" in parameters:
        if "data" in tensor:
            raise InvalidRequest("inputs[0] has its data twice, in the JSON and behind it", field=field)
        size = whole_number(parameters["binary_data_size"], "binary_data_size", 0, 2**31 - 1)
        if size != len(behind):
            raise InvalidRequest(
                f"binary_data_size is {size}, and {len(behind)} bytes follow the JSON", field=field
            )
        found = list(_strings(behind, count))
    else:
        if behind:
            raise InvalidRequest("bytes follow the JSON that no input claims", field=field)
        found = list(_flat(tensor.get("data"), shape))
    if len(found) != count:
        raise InvalidRequest(f"inputs[0] has {len(found)} elements, its shape says {count}", field=field)
    return tuple(found)


def _strings(content: bytes, count: int) -> Iterator[str]:
    """At most `count` strings."""
    place = 0
    for index in range(count):
        start = place + LENGTH_BYTES
        if start > len(content):
            return
        place = start + int.from_bytes(content[place:start], "little")
        if place > len(content):
            raise InvalidRequest(f"element {index} reaches beyond the tensor's bytes", field="inputs[0].data")
        try:
            yield content[start:place].decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRequest(f"element {index} is not UTF-8", field="inputs[0].data") from error
    if place != len(content):
        raise InvalidRequest("the tensor's bytes hold more than its shape says", field="inputs[0].data")


def _flat(data: object, shape: Sequence[int]) -> Iterator[str]:
    """Strings in one array, or in arrays within arrays."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, list) and (shape or not any(isinstance(each, list) for each in data)):
        for each in data:
            yield from _flat_element(each, shape)
    else:
        raise InvalidRequest("inputs[0].data must be an array of strings", field="inputs[0].data")


def _flat_element(element: object, shape: Sequence[int]) -> Iterator[str]:
    if isinstance(element, list):
        yield from _flat(element, shape[1:])
    elif isinstance(element, str):
        yield element
    else:
        raise InvalidRequest("inputs[0].data must be an array of strings", field="inputs[0].data")


def _outputs(fields: Mapping[str, object], parameters: Json) -> dict[str, bool]:
    """What is asked for, in that order; everything where nothing is named."""
    default = _is_binary(parameters, "binary_data_output", default=False)
    asked = fields.get("outputs") or []
    if not isinstance(asked, list):
        raise InvalidRequest("outputs must be an array", field="outputs")
    found: dict[str, bool] = {}
    for index, each in enumerate(asked):
        output = _object(each, f"outputs[{index}]")
        name = output.get("name")
        if not isinstance(name, str) or name not in OUTPUTS:
            raise InvalidRequest(f"outputs[{index}] is none of {', '.join(OUTPUTS)}", field="outputs")
        own = _object(output.get("parameters"), f"outputs[{index}].parameters")
        found[name] = _is_binary(own, "binary_data", default=default)
    return found or dict.fromkeys(OUTPUTS, default)


def _is_binary(parameters: Json, name: str, *, default: bool) -> bool:
    return switch(parameters[name], name) if name in parameters else default
