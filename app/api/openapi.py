"""Makes the OpenAPI document of all routes from the models of bodies and the types of responses.

Each route declares its body and its responses by `operation`. `describe` puts the document together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from starlette.responses import Response

from app.api.http.auth import OPEN_PATHS
from app.api.http.dialect import Dialects
from app.api.http.validation import limit_schema
from app.api.limits import RequestLimits

Json = dict[str, Any]
JSON, OCTETS = "application/json", "application/octet-stream"
_REF = "#/components/schemas/{model}"
# What a response's body is:
# - JSON of a declared type: that type;
# - a JSON object of no declared type: the constant JSON;
# - another format: its media type;
# - no body: None.
AnswerType: TypeAlias = Any
_bodies: dict[str, type[BaseModel]] = {}
_answers: dict[str, AnswerType] = {}
# The type of a query parameter by the type of its example.
_QUERY_TYPES = {str: "string", int: "integer", float: "number"}

_SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "an API key"},
    "deepl_key": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "an API key as DeepL's clients send it: `DeepL-Auth-Key <key>`",
    },
    "admin_token": {"type": "http", "scheme": "bearer", "description": "the administrator's token"},
}
# The credentials that a route accepts, by the route's tag. The empty object stands for a server without API keys.
_KEY: list[Json] = [{"key": []}, {}]
_SECURITY: dict[str, list[Json]] = {"v2": [{"deepl_key": []}, *_KEY], "admin": [{"admin_token": []}]}


@dataclass(frozen=True)
class Errors:
    """The error responses of one dialect's routes.

    answer: the type of the body. statuses: each status with its reason.
    """

    answer: AnswerType
    statuses: Mapping[int, str] = field(default_factory=dict)


def operation(
    tag: str,
    summary: str,
    answer: AnswerType,
    *,
    body: type[BaseModel] | None = None,
    errors: Errors | None = None,
    **more: Any,
) -> Json:
    """The options of a FastAPI route that describe it.

    tag: the group of routes, such as a dialect. more: further keywords:
    status: the status of the response without an error; default 200.
    media: a tuple of the body's media types; default `(JSON,)`.
    example: an example of the body.
    query: example and meaning of each query parameter, by its name. The type of a parameter is the type of its example.
    meaning: a description of the response.
    binary: the name of the header with the length of the JSON. With it, body and response may also have the media type
        OCTETS.
    """
    status = more.get("status", 200)
    response = _response(more.get("meaning", "the response"), answer)
    responses = {str(status): response}
    if errors is not None:
        responses |= {str(code): _response(why, errors.answer) for code, why in errors.statuses.items()}
    extra: Json = {}
    if body is not None:
        _bodies[body.__name__] = body
        schema = {"$ref": _REF.format(model=body.__name__)}
        content = {"schema": schema, "example": more.get("example", {})}
        extra["requestBody"] = {
            "required": True,
            "content": dict.fromkeys(more.get("media", (JSON,)), content),
        }
    if "query" in more:
        extra["parameters"] = [
            {
                "name": name,
                "in": "query",
                "description": meaning,
                "schema": {"type": _QUERY_TYPES[type(example)]},
                "example": example,
            }
            for name, (example, meaning) in more["query"].items()
        ]
    if "binary" in more:
        length = {
            "description": "length of the JSON in bytes; the data comes after it",
            "schema": {"type": "integer"},
        }
        for part in (response, extra["requestBody"]):
            part["content"] |= _content(OCTETS)
        response["headers"] = {more["binary"]: length}
        extra["parameters"] = [{"name": more["binary"], "in": "header", **length}]
    return {
        "summary": summary,
        "tags": [tag],
        "status_code": status,
        "response_class": Response,  # FastAPI then adds no content type of its own
        "responses": responses,
        "openapi_extra": extra,
    }


def describe(app: FastAPI, limits: RequestLimits, dialects: Dialects) -> Json:
    """The OpenAPI document. A call takes about 100 ms, so it must not run on the event loop."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path, methods in document["paths"].items():
        dialect = dialects.of(path)
        is_open = path in OPEN_PATHS or (dialect is not None and path in dialect.open_paths)
        for each in methods.values():
            each["parameters"] = _path_parameters(path) + each.get("parameters", [])
            if not is_open:
                each["security"] = _SECURITY.get(each["tags"][0], _KEY)
    schemas = {**_schemas(_bodies, _BodySchemas), **_schemas(_answers, _Schemas)}
    document["components"] = {
        "schemas": dict(sorted(schemas.items())),
        "securitySchemes": _SECURITY_SCHEMES,
    }
    described: Json = limit_schema(document, limits)
    return described


def _path_parameters(path: str) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _schemas(kinds: Mapping[str, Any], generator: type[GenerateJsonSchema]) -> Json:
    """The schemas of types and of the types in them, by name."""
    adapters = [(name, "validation", TypeAdapter(kind)) for name, kind in kinds.items()]
    _, document = TypeAdapter.json_schemas(adapters, ref_template=_REF, schema_generator=generator)  # type: ignore[arg-type]
    definitions: Json = document.get("$defs", {})
    return definitions


def _response(meaning: str, answer: AnswerType) -> Json:
    if answer is None:
        return {"description": meaning}
    return {"description": meaning, "content": _content(answer)}


def _content(answer: AnswerType) -> Json:
    if isinstance(answer, str):
        return {answer: {"schema": {"type": "object" if answer == JSON else "string"}}}
    if getattr(answer, "__origin__", None) is list:
        schema = {"type": "array", "items": _answer_ref(answer.__args__[0])}
    else:
        schema = _answer_ref(answer)
    return {JSON: {"schema": schema}}


def _answer_ref(kind: Any) -> Json:
    _answers[kind.__name__] = kind
    return {"$ref": _REF.format(model=kind.__name__)}


class _Schemas(GenerateJsonSchema):
    """Pydantic's schemas without a title that repeats each field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """False, so that no field gets a title."""
        return False


class _BodySchemas(_Schemas):
    """The schemas of bodies. A field whose default is None may be absent, but should not be null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """The schema without null, which is refused or counts as left out. A body should leave the field out."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """The schema without a default of null."""
        json_schema = super().default_schema(schema)
        if json_schema.get("default", ...) is None:
            del json_schema["default"]
        return json_schema
