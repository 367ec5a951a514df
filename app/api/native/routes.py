"""The native API: POST /v1/translate, /v1/score and /v1/detect, and GET /v1/models."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from app.api.http.disconnect import while_connected
from app.api.http.error_table import OrjsonResponse
from app.api.http.json_body import read_json
from app.api.http.middleware import requester_of
from app.api.limits import RequestLimits
from app.api.native.answers import (
    DetectAnswer,
    ErrorAnswer,
    ModelAnswer,
    ModelsAnswer,
    PivotedPairAnswer,
    ScoreAnswer,
    TranslateAnswer,
)
from app.api.native.models import AUTO, DetectBody, ScoreBody, TranslateBody
from app.api.native.requests import ModelOptions, NativeParser, matched_languages
from app.api.native.results import detect_answer, model_name, score_answer, translate_answer
from app.api.openapi import Errors, operation
from app.api.service import Service
from app.api.spending import begin_spending
from app.translator import (
    Models,
    ModelTranslator,
    PivotedPair,
    ScoreRequest,
    ServedModel,
    Timings,
    TranslationRequest,
    Usage,
)

TAG = "native"
# If the texts of a request have more code points than this, another thread builds the answer, which can take a tenth of
# a second. If larger, other requests wait for the event loop. If smaller, short requests wait for a thread.
LONG_CHARACTERS = 2_000
ERRORS = Errors(
    ErrorAnswer,
    {
        400: "the body is not JSON in UTF-8",
        401: "the request has no API key",
        403: "the API key is unknown, or a page of another site sent the request",
        408: "the request did not arrive in time",
        413: "too many bytes, brackets [ and {, texts, characters, sentences, terms or lists of tokens, or more "
        "characters than a limit of the API key",
        415: "the content type is not application/json",
        422: "a field is unknown, missing or outside its limits, or the pair of languages is not served",
        429: "the queue is full, the wait would be too long, or a limit of the API key is reached; see Retry-After",
        500: "the engine failed",
        503: "the server loads, drains or has failed, the model cannot be loaded in time, "
        "or glossaries or the counts of the API key cannot be read; see Retry-After",
        504: "the deadline passed",
    },
)
_TEXT = {"text": "Where is the station?", "source": "en", "target": "de"}
TRANSLATE = operation(
    TAG, "Translate one text or several", TranslateAnswer, body=TranslateBody, errors=ERRORS, example=_TEXT
)
SCORE = operation(
    TAG,
    "Score existing translations",
    ScoreAnswer,
    body=ScoreBody,
    errors=ERRORS,
    example={**_TEXT, "text": "It is late.", "translation": "Es ist spät."},
)
DETECT = operation(
    TAG,
    "Detect the languages of texts",
    DetectAnswer,
    body=DetectBody,
    errors=ERRORS,
    example={"text": ["Where is the station?", "Wo ist der Bahnhof?"]},
)
# The parsers of each `Models`, by the models that a body may need. A parser depends on the pairs of all models, so new
# models get new parsers.
_PARSERS: WeakKeyDictionary[Models, dict[tuple[ModelTranslator, ...], NativeParser]] = WeakKeyDictionary()
MODELS = operation(
    TAG,
    "The models that are served",
    ModelsAnswer,
    errors=Errors(
        ErrorAnswer,
        {
            **{status: ERRORS.statuses[status] for status in (401, 403)},
            503: "the server loads, drains or has failed; see Retry-After",
        },
    ),
)


def add_native_routes(router: APIRouter, service: Service, limits: RequestLimits) -> None:
    """Add the routes. limits: those of each request."""

    @router.post("/v1/translate", **TRANSLATE)
    async def translate(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as models:
            parsed = parser_of(models, body, limits).translate(body, requester_of(request))
            with await begin_spending(request.scope, service.usage, parsed.num_characters):
                result = await while_connected(request, models.translate(parsed))
                model = model_name(result.model)
                answer = await build_answer(models, parsed, lambda: translate_answer(result, parsed, model))
            return _response(request, service, result, answer)

    @router.post("/v1/score", **SCORE)
    async def score(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as models:
            parsed = parser_of(models, body, limits).score(body, requester_of(request))
            with await begin_spending(request.scope, service.usage, parsed.num_characters):
                result = await while_connected(request, models.score(parsed))
                model = model_name(result.model)
                answer = await build_answer(models, parsed, lambda: score_answer(result, parsed, model))
            return _response(request, service, result, answer)

    @router.post("/v1/detect", **DETECT)
    async def detect(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as models:
            texts = parser_of(models, body, limits).detect(body)
            with await begin_spending(request.scope, service.usage, 0):
                detected = await while_connected(
                    request, models.detect(texts, caller=requester_of(request).share)
                )
            return OrjsonResponse(detect_answer(detected))

    @router.get("/v1/models", **MODELS)
    async def models(_request: Request) -> Response:
        served = service.check_open()
        answer: ModelsAnswer = {"models": [model_answer(each) for each in served]}
        if served.pivoted:
            answer["pivoted_pairs"] = [_pivoted_pair(each) for each in served.pivoted.values()]
        return OrjsonResponse(answer)


def model_answer(model: ServedModel) -> ModelAnswer:
    """The description of one model, for GET /v1/models and the administrator's routes."""
    translator = model.translator
    manifest = translator.manifest
    defaults = manifest.decoding
    return {
        **model_name(translator.version),
        "precision": model.precision,
        "language_pairs": [
            {"source": pair.source, "target": pair.target} for pair in manifest.language_pairs
        ],
        "max_source_length": manifest.max_source_length,
        "max_target_length": translator.limits.max_target_length - 1,
        "alignment": translator.limits.has_alignment,
        "loaded": translator.is_loaded,
        "defaults": {
            "beam_size": defaults.beam_size,
            "length_penalty": {"formula": str(defaults.length_penalty), "alpha": defaults.alpha},
        },
        "licence": manifest.weights_licence,
    }


def _pivoted_pair(pivoted: PivotedPair) -> PivotedPairAnswer:
    return {
        "source": pivoted.pair.source,
        "target": pivoted.pair.target,
        "pivot": pivoted.pivot,
        "models": [model.name for model in pivoted.versions],
    }


def server_timing(timings: Timings) -> str:
    """The value of the header Server-Timing: each phase's milliseconds."""
    return ", ".join([f"{phase};dur={value:.2f}" for phase, value in timings.phases().items()])


async def build_answer(
    models: Models, request: TranslationRequest | ScoreRequest, build: Callable[[], object]
) -> object:
    """Return the result of `build`.

    With tokens, or for texts of more than LONG_CHARACTERS, another thread builds, serialises and frees the result. If
    the request's deadline passes meanwhile, this raises DeadlineExceeded.
    """
    is_long = request.returns_tokens or sum(map(len, request.texts)) > LONG_CHARACTERS
    if not is_long:
        return build()
    return await models.default.text_threads.run_for(request, lambda: orjson.Fragment(orjson.dumps(build())))


def parser_of(models: Models, body: object, limits: RequestLimits) -> NativeParser:
    """The parser with the limits of the models that a body may need. body: parsed, but not validated yet.

    If no model serves the body's languages, the parser is that of the default model.
    """
    translators: tuple[ModelTranslator, ...] = (models.default,)
    if len(models) > 1 and isinstance(body, dict):
        codes = [body.get(field) for field in ("source", "target", "model")]
        source, target, name = (code if isinstance(code, str) else None for code in codes)
        source, target = matched_languages(source or AUTO, target or "", models.pairs)
        translators = models.candidates(source, target, name)
    parsers = _PARSERS.setdefault(models, {})
    parser = parsers.get(translators)
    if parser is None:
        options = [ModelOptions(each.default_options, each.bounds) for each in translators]
        parser = parsers[translators] = NativeParser(limits, options, pairs=models.pairs)
    return parser


def _response(request: Request, service: Service, usage: Usage, answer: object) -> Response:
    """Record the work and return the response."""
    record_usage(service, usage, request.scope)
    headers = {
        "server-timing": server_timing(usage.timings),
        "x-transduce-cached-sentences": str(usage.num_cached),
    }
    return OrjsonResponse(answer, headers=headers)


def record_usage(service: Service, result: Usage, scope: Scope | None) -> None:
    """Add the work to the metrics, to the request's log line, and to its trace if it has one.

    scope: the request's; None for a batch of a file, which is not all of a request's work.
    """
    if scope is not None:
        scope["state"]["num_sentences"] = result.num_sentences
    metrics = service.metrics
    metrics.record_work(result)
    for phase, value in result.timings.phases().items():
        metrics.phase_seconds.labels(phase).observe(value / 1000)
    if service.tracing is not None and scope is not None:
        decoding = {"transduce.rows": result.num_rows, "transduce.steps": result.num_steps}
        service.tracing.add_work(result.timings.phases(), _attributes(result), decoding=decoding)


def _attributes(usage: Usage) -> dict[str, str | int]:
    """The attributes of a translation's span."""
    return {
        "transduce.model": usage.model.name,
        "transduce.model_version": usage.model.version,
        "transduce.sentences": usage.num_sentences,
        "transduce.cached_sentences": usage.num_cached,
        "transduce.source_tokens": usage.source_tokens,
        "transduce.target_tokens": usage.target_tokens,
    }
