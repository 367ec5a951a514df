"""The Open Inference Protocol, version 2, at /v2: health, metadata, and POST /v2/models/<name>/infer."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.dialect import Dialect, DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_body
from app.api.http.values import check_total, choice, texts, unknown_field, whole_number
from app.api.inference.tensors import DATATYPE, INPUT, OUTPUTS, InferRequest, read_infer, write_infer
from app.api.languages import served_pair, served_target
from app.api.plain_translation import NoSuchPair, PlainRequest, PlainTranslator
from app.api.probes import NOT_READY_STATUS
from app.errors import InvalidRequest, ServiceError, SourceTooLong, UnsupportedLanguages, UnsupportedMedia
from app.text.parsed_text import TextFormat

HEADER_LENGTH = "inference-header-content-length"
HEALTH_PATHS = ("/v2/health/live", "/v2/health/ready")
# Of a request to translate; and what clients of the protocol may send for servers that know it.
PARAMETERS = ("source", "target", "format", "timeout")
PASSED_OVER = ("priority", "sequence_id", "sequence_start", "sequence_end")
FORMATS = {each.value: each for each in TextFormat}


def _map_error(error: ServiceError) -> tuple[int, str] | None:
    if isinstance(error, InvalidRequest | UnsupportedLanguages | SourceTooLong):
        return 400, error.message
    return None


DIALECT = Dialect(
    paths=("/v2", "/v2/", "/v2/health/", "/v2/models/", "/v2/repository/"),
    body=lambda _status, message: {"error": message},
    map_error=_map_error,
    open_paths=frozenset(HEALTH_PATHS),
)


def add_inference_routes(router: APIRouter, plain: PlainTranslator) -> None:
    """Add the routes."""
    service = plain.service

    @router.get("/v2", include_in_schema=False)
    async def server() -> Response:
        described = {
            "name": "transduce",
            "version": version("transduce"),
            "extensions": ["binary_tensor_data"],
        }
        return OrjsonResponse(described)

    @router.get("/v2/health/live", include_in_schema=False)
    async def live() -> Response:
        return _health("live", is_well=service.why_not_live() is None)

    @router.get("/v2/health/ready", include_in_schema=False)
    async def ready() -> Response:
        return _health("ready", is_well=service.why_not_ready() is None)

    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{number}"):
        _add_model_routes(router, plain, path)


def _add_model_routes(router: APIRouter, plain: PlainTranslator, path: str) -> None:
    """The routes of a model, or of one version of it."""

    @router.get(path, include_in_schema=False)
    async def metadata(name: str, number: str | None = None) -> Response:
        model, versions = _model(plain, name, number)
        tensors = ("inputs", (INPUT,)), ("outputs", OUTPUTS)
        described = {
            "name": model,
            "versions": [versions],
            "platform": "onnxruntime_onnx",
            **{
                kind: [{"name": each, "datatype": DATATYPE, "shape": [-1]} for each in names]
                for kind, names in tensors
            },
        }
        return OrjsonResponse(described)

    @router.get(f"{path}/ready", include_in_schema=False)
    async def model_ready(name: str, number: str | None = None) -> Response:
        model, _ = _model(plain, name, number)
        is_ready = plain.service.why_not_ready() is None
        status = 200 if is_ready else NOT_READY_STATUS
        return OrjsonResponse({"name": model, "ready": is_ready}, status_code=status)

    @router.post(f"{path}/infer", include_in_schema=False)
    async def infer(request: Request, name: str, number: str | None = None) -> Response:
        model = _model(plain, name, number)
        limits = plain.limits
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMedia("compressed bodies are not read here")
        body = await read_body(request, max_bytes=limits.max_body_bytes)
        asked = read_infer(body, request.headers.get(HEADER_LENGTH), max_items=limits.max_items)
        given = texts(
            list(asked.texts), INPUT, max_items=limits.max_items, max_characters=limits.max_item_characters
        )
        check_total({INPUT: given}, limits.max_request_characters)
        try:
            found = await plain.translate(request, given, _wanted(asked, plain))
        except NoSuchPair as error:
            raise DialectError(400, f"{error} is not translated here") from error
        columns = {
            "translation": [each.text for each in found],
            "source_language": [each.source for each in found],
        }
        return _answered(*write_infer(asked, model, columns))


def _wanted(asked: InferRequest, plain: PlainTranslator) -> PlainRequest:
    """What the parameters say. A model of one pair needs none. Raises InvalidRequest."""
    parameters = asked.parameters
    for name in parameters:
        if name not in {*PARAMETERS, *PASSED_OVER}:
            raise unknown_field(name, PARAMETERS, "parameters")
    pairs = plain.pairs()
    sources, targets = ({pair[side] for pair in pairs} for side in (0, 1))
    source = parameters.get("source", next(iter(sources)) if len(sources) == 1 else None)
    target = parameters.get("target", next(iter(targets)) if len(targets) == 1 else None)
    source, target = _served(source, target, pairs)
    served = plain.languages()
    timeout_s = None
    if parameters.get("timeout"):
        timeout_s = whole_number(parameters["timeout"], "timeout", 1, 2**53) / 1e6
    return PlainRequest(
        None if source == "auto" else choice(source, "source", served),
        choice(target, "target", served),
        text_format=FORMATS[choice(parameters.get("format", "text"), "format", tuple(FORMATS))],
        timeout_s=timeout_s,
    )


def _served(source: object, target: object, pairs: frozenset[tuple[str, str]]) -> tuple[object, object]:
    """The languages as they are served, where they are codes that mean one."""
    if not isinstance(target, str) or not isinstance(source, str):
        return source, target
    if source == "auto":
        return source, served_target(target, {each for _, each in pairs})
    return served_pair(source, target, pairs)


def _model(plain: PlainTranslator, name: str, number: str | None) -> tuple[str, str]:
    """Name and version of what is served. Raises NotReady, DialectError for another."""
    manifest = plain.service.check_open().manifest
    if name != manifest.name or number not in {None, manifest.version}:
        raise DialectError(404, f"there is one model here, {manifest.name}, version {manifest.version}")
    return manifest.name, manifest.version


def _health(word: str, *, is_well: bool) -> Response:
    return OrjsonResponse({word: is_well}, status_code=200 if is_well else NOT_READY_STATUS)


def _answered(body: bytes, header_length: int | None) -> Response:
    if header_length is None:
        return Response(body, media_type="application/json")
    headers = {HEADER_LENGTH: str(header_length)}
    return Response(body, media_type="application/octet-stream", headers=headers)
