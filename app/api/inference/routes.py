"""The Open Inference Protocol, version 2, at /v2: health, metadata, and POST /v2/models/<name>/infer."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.dialect import Dialect, DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_body
from app.api.http.json_body import check_uncompressed
from app.api.http.validation import validate
from app.api.inference.models import (
    InferAnswer,
    InferBody,
    InferError,
    InferLive,
    InferModel,
    InferModelReady,
    InferParameters,
    InferReady,
    InferServer,
    InferTensorType,
)
from app.api.inference.tensors import DATATYPE, INPUT, OUTPUTS, read_infer, write_infer
from app.api.languages import served_languages, served_pair, target_for_detected_source
from app.api.native.models import AUTO, DetectBody
from app.api.openapi import OCTETS, Errors, operation
from app.api.plain_translation import NoSuchPair, PlainRequest, PlainTranslator
from app.api.probes import NOT_READY_STATUS
from app.errors import InvalidRequest, ServiceError, SourceTooLong, UnsupportedLanguages
from app.translator import ModelTranslator, ServedModel

HEADER_LENGTH = "inference-header-content-length"
HEALTH_PATHS = ("/v2/health/live", "/v2/health/ready")
TAG = "inference"
ERRORS = Errors(
    InferError,
    {
        400: "the body does not follow the protocol, or a value is outside its limits",
        401: "the request has no API key",
        403: "the API key is unknown, or a page of another site sent the request",
        404: "the model or the version is not served",
        408: "the request did not arrive in time",
        413: "too many bytes, brackets [ and {, texts or characters, or more characters than a limit of the API key",
        415: "the body is compressed",
        429: "the queue is full, the wait would be too long, or a limit of the API key is reached; see Retry-After",
        500: "the engine failed",
        503: "the server loads, drains or has failed, the model cannot be loaded in time, or the counts of the API key "
        "cannot be read; see Retry-After",
        504: "the deadline passed",
    },
)
SERVER = operation(TAG, "The server and its extensions of the protocol", InferServer, errors=ERRORS)
LIVE = operation(
    TAG,
    "Whether the process is alive; 503 once it should be replaced",
    InferLive,
    errors=Errors(InferLive, {NOT_READY_STATUS: "`live` is false"}),
)
READY = operation(
    TAG,
    "Whether the server is ready; 503 while it should get no traffic",
    InferReady,
    errors=Errors(InferReady, {NOT_READY_STATUS: "`ready` is false"}),
)
MODEL = operation(TAG, "The model: its inputs and outputs", InferModel, errors=ERRORS)
MODEL_READY = operation(
    TAG,
    "Whether the server takes requests for the model, loaded or not; 503 while it does not",
    InferModelReady,
    errors=ERRORS,
)
INFER = operation(
    TAG,
    "Translate a tensor of texts",
    InferAnswer,
    body=InferBody,
    errors=ERRORS,
    binary="Inference-Header-Content-Length",
    example={
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Where is the station?"]}],
        "parameters": {"source": "en", "target": "de"},
    },
)


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

    @router.get("/v2", **SERVER)
    async def server(_request: Request) -> Response:
        answer: InferServer = {
            "name": "transduce",
            "version": version("transduce"),
            "extensions": ["binary_tensor_data"],
        }
        return OrjsonResponse(answer)

    @router.get("/v2/health/live", **LIVE)
    async def live(_request: Request) -> Response:
        answer: InferLive = {"live": service.why_not_live() is None}
        return _health(answer, is_well=answer["live"])

    @router.get("/v2/health/ready", **READY)
    async def ready(_request: Request) -> Response:
        answer: InferReady = {"ready": service.why_not_ready() is None}
        return _health(answer, is_well=answer["ready"])

    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{number}"):
        _add_model_routes(router, plain, path)


def _add_model_routes(router: APIRouter, plain: PlainTranslator, path: str) -> None:
    """Add the routes of a model, or of one version of it."""

    @router.get(path, **MODEL)
    async def metadata(request: Request) -> Response:
        model = _model(plain, request)
        answer: InferModel = {
            "name": model.name,
            "versions": [model.version],
            "platform": "onnxruntime_onnx",
            "inputs": [_tensor_type(INPUT)],
            "outputs": [_tensor_type(each) for each in OUTPUTS],
        }
        return OrjsonResponse(answer)

    @router.get(f"{path}/ready", **MODEL_READY)
    async def model_ready(request: Request) -> Response:
        model = _model(plain, request)
        answer: InferModelReady = {"name": model.name, "ready": plain.service.why_not_ready() is None}
        return _health(answer, is_well=answer["ready"])

    @router.post(f"{path}/infer", **INFER)
    async def infer(request: Request) -> Response:
        translator = _model(plain, request).translator
        limits = plain.limits
        check_uncompressed(request.scope["headers"])
        body = await read_body(request, max_bytes=limits.max_body_bytes)
        parsed = read_infer(
            body,
            request.headers.get(HEADER_LENGTH),
            max_items=limits.max_items,
            max_bytes=limits.max_body_bytes,
        )
        texts = validate(DetectBody, {INPUT: list(parsed.texts)}, limits).texts
        try:
            translations = await plain.translate(
                request, texts, _plain_request(parsed.parameters, translator)
            )
        except NoSuchPair as error:
            raise DialectError(400, f"{error} is not translated here") from error
        columns = {
            "translation": [each.text for each in translations],
            "source_language": [each.source for each in translations],
        }
        return _response(*write_infer(parsed, translator.version, columns))


def _plain_request(parameters: InferParameters, translator: ModelTranslator) -> PlainRequest:
    """Convert the parameters of a request for this model. Raises InvalidRequest."""
    pairs = {(pair.source, pair.target) for pair in translator.manifest.language_pairs}
    served = served_languages(pairs)
    source = parameters.source or _only({each for each, _ in pairs}, "source")
    target = parameters.target or _only({each for _, each in pairs}, "target")
    if source == AUTO:
        target = target_for_detected_source(target, pairs)
    else:
        source, target = served_pair(source, target, pairs)
    for field, code in (("source", source), ("target", target)):
        if code not in served and not (field == "source" and code == AUTO):
            others = f", or {AUTO}" if field == "source" else ""
            raise InvalidRequest(f"{field} must be one of {', '.join(served)}{others}", field=field)
    return PlainRequest(
        None if source == AUTO else source,
        target,
        text_format=parameters.format,
        timeout_s=parameters.timeout / 1e6 or None,
        model=translator.version.name,
    )


def _only(codes: set[str], field: str) -> str:
    """The only language in `codes`. Raises InvalidRequest for the field if there are several."""
    if len(codes) > 1:
        raise InvalidRequest(f"{field} is missing: it must be one of {', '.join(sorted(codes))}", field=field)
    return next(iter(codes))


def _model(plain: PlainTranslator, request: Request) -> ServedModel:
    """The model that the path names. Raises NotReady. Raises DialectError if this model or version is not served."""
    models = plain.service.check_open()
    model = models.named(request.path_params["name"])
    if model is not None and request.path_params.get("number", model.version) == model.version:
        return model
    names = [f"{each.name}, version {each.version}" for each in models]
    message = f"this model or version is not served; served: {'; '.join(names)}"
    raise DialectError(404, message)


def _tensor_type(name: str) -> InferTensorType:
    return {"name": name, "datatype": DATATYPE, "shape": [-1]}


def _health(answer: object, *, is_well: bool) -> Response:
    return OrjsonResponse(answer, status_code=200 if is_well else NOT_READY_STATUS)


def _response(body: bytes, header_length: int | None) -> Response:
    if header_length is None:
        return Response(body, media_type="application/json")
    headers = {HEADER_LENGTH: str(header_length)}
    return Response(body, media_type=OCTETS, headers=headers)
