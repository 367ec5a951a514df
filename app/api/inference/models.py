"""The bodies of the Open Inference Protocol, version 2, and the types of the answers.

Specification: https://github.com/kserve/open-inference-protocol, with the binary tensor data extension.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from app.api.http.validation import NotOffered, RequestBody, TolerantBody
from app.text.parsed_text import TextFormat

MAX_ID_CHARACTERS = 256
MAX_DIMENSIONS = 8
MAX_OUTPUTS = 16
_MAX_INT32 = 2**31 - 1
# Doubles represent every integer up to this one, so every JSON client can send the limit exactly.
_MAX_EXACT = 2**53
_IGNORED = frozenset({"priority", "sequence_id", "sequence_start", "sequence_end"})
OutputName = Literal["translation", "source_language"]


class InferParameters(RequestBody):
    """The options of a translation.

    `source` may be left out if the model has one source language, `target` if it has one target language.
    """

    source: Annotated[
        str | None, Field(description="language code of the texts; auto: detected, text by text")
    ] = None
    target: Annotated[str | None, Field(description="language code of the translations")] = None
    format: Annotated[TextFormat, Field(strict=False, description="what the texts are written in")] = (
        TextFormat.PLAIN
    )
    timeout: Annotated[
        int,
        Field(
            ge=0,
            le=_MAX_EXACT,
            description="microseconds from the arrival of the request until the response is 504. 0, or more than the "
            "server's timeout: the server's timeout",
        ),
    ] = 0
    binary_data_output: Annotated[bool, Field(description="default of the outputs' `binary_data`")] = False
    priority: Annotated[Any, Field(description="ignored")] = None
    sequence_id: Annotated[Any, Field(description="ignored")] = None
    sequence_start: Annotated[Any, Field(description="ignored")] = None
    sequence_end: Annotated[Any, Field(description="ignored")] = None

    @model_validator(mode="before")
    @classmethod
    def _drop_ignored(cls, value: object) -> object:
        """Drop the ignored parameters, so that they may be null. Pydantic runs this before the inherited validator."""
        if not isinstance(value, dict):
            return value
        return {key: item for key, item in value.items() if key not in _IGNORED}


class TensorOrOutputParameters(TolerantBody):
    """Base of the parameters of an input and of an output.

    `classification` and the parameters of shared memory are refused, because the server cannot do what they request.
    """

    classification: NotOffered = None
    shared_memory_region: NotOffered = None
    shared_memory_offset: NotOffered = None
    shared_memory_byte_size: NotOffered = None


class TensorParameters(TensorOrOutputParameters):
    """How the input tensor is sent."""

    binary_data_size: Annotated[
        int | None, Field(ge=0, le=_MAX_INT32, description="bytes of the tensor that follow the JSON")
    ] = None


class InferTensor(TolerantBody):
    """The input tensor: the texts in row-major order."""

    name: Literal["text"]
    datatype: Literal["BYTES"]
    shape: Annotated[
        list[Annotated[int, Field(ge=1, le=_MAX_INT32)]], Field(max_length=MAX_DIMENSIONS, fail_fast=True)
    ]
    parameters: TensorParameters = Field(default_factory=TensorParameters)
    data: Annotated[
        Any,
        Field(
            description="an array of strings, flat or nested as the shape says; absent with binary_data_size"
        ),
    ] = None


class OutputParameters(TensorOrOutputParameters):
    """How an output is sent."""

    binary_data: Annotated[
        bool | None,
        Field(
            description="whether the output follows the JSON as bytes; absent: as the request's `binary_data_output`"
        ),
    ] = None


class InferOutputRequest(TolerantBody):
    """One requested output."""

    name: OutputName
    parameters: OutputParameters = Field(default_factory=OutputParameters)


class InferBody(TolerantBody):
    """The body of POST /v2/models/{name}/infer."""

    id: Annotated[str | None, Field(max_length=MAX_ID_CHARACTERS, description="repeated in the response")] = (
        None
    )
    parameters: InferParameters = Field(default_factory=InferParameters)
    inputs: Annotated[list[InferTensor], Field(min_length=1, max_length=1, fail_fast=True)]
    outputs: Annotated[
        list[InferOutputRequest],
        Field(max_length=MAX_OUTPUTS, fail_fast=True, description="absent or empty: both outputs"),
    ] = Field(default_factory=list)


class InferError(TypedDict):
    """Why a request failed."""

    error: str
    field: NotRequired[Annotated[str, Field(description="a misspelt field")]]


class InferServer(TypedDict):
    """The server and the extensions of the protocol that it supports."""

    name: str
    version: str
    extensions: list[str]


class InferLive(TypedDict):
    """The answer of GET /v2/health/live."""

    live: bool


class InferReady(TypedDict):
    """The answer of GET /v2/health/ready."""

    ready: bool


class InferModelReady(TypedDict):
    """Whether a model takes requests."""

    name: str
    ready: bool


class InferTensorType(TypedDict):
    """An input or output of the model. -1: a dimension of any size."""

    name: str
    datatype: str
    shape: list[int]


class InferModel(TypedDict):
    """A served model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[InferTensorType]
    outputs: list[InferTensorType]


class InferOutput(TypedDict):
    """One output. It has the shape of the input."""

    name: str
    shape: list[int]
    datatype: str
    data: NotRequired[Annotated[list[str], Field(description="absent if the data follows the JSON as bytes")]]
    parameters: NotRequired[Annotated[dict[str, int], Field(description="binary_data_size, in bytes")]]


class InferAnswer(TypedDict):
    """The answer of POST /v2/models/{name}/infer."""

    model_name: str
    model_version: str
    outputs: list[InferOutput]
    id: NotRequired[str]
