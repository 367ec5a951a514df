"""The native API: POST /v1/translate, /v1/score and /v1/detect, and GET /v1/models."""

from __future__ import annotations

import functools
from collections.abc import Callable

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.disconnect import while_connected
from app.api.http.error_table import OrjsonResponse
from app.api.http.json_body import read_json
from app.api.http.middleware import requester_of
from app.api.limits import RequestLimits
from app.api.native.answers import (
    DetectAnswer,
    ErrorAnswer,
    ModelAnswer,
    ModelName,
    ModelsAnswer,
    ScoreAnswer,
    TranslateAnswer,
)
from app.api.native.models import DetectBody, ScoreBody, TranslateBody
from app.api.native.requests import NativeParser
from app.api.native.results import detect_answer, score_answer, translate_answer
from app.api.openapi import Errors, operation
from app.api.service import Service
from app.engine.limits import option_bounds
from app.translator import ScoreRequest, Timings, TranslationRequest, Translator, Usage

TAG = "native"
# Code points of a request's texts above which another thread builds its answer, which can take a tenth of a second.
# Larger: other requests wait for the event loop. Smaller: short requests wait for a thread.
LONG_CHARACTERS = 2_000
ERRORS = Errors(
    ErrorAnswer,
    {
        400: "the body is not JSON in UTF-8",
        401: "the request has no API key",
        403: "the API key is unknown, or a page of another site sent the request",
        413: "too many bytes, texts, characters or sentences",
        415: "the content type is not application/json",
        422: "a field is unknown, missing or outside its limits, or the pair of languages is not served",
        429: "the queue is full; see Retry-After",
        500: "the engine failed",
        503: "the server loads, drains or has failed; see Retry-After",
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
MODELS = operation(TAG, "The models that are served", ModelsAnswer)


def add_native_routes(router: APIRouter, service: Service, limits: RequestLimits) -> None:
    """Add the routes, which answer through `service`, within `limits`."""

    @router.post("/v1/translate", **TRANSLATE)
    async def translate(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            parsed = parser_of(translator, limits).translate(body, requester_of(request))
            result = await while_connected(request, translator.translate(parsed))
            model = model_name(translator)
            answer = await build_answer(translator, parsed, lambda: translate_answer(result, parsed, model))
            return _answered(request, service, result, answer)

    @router.post("/v1/score", **SCORE)
    async def score(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            parsed = parser_of(translator, limits).score(body, requester_of(request))
            result = await while_connected(request, translator.score(parsed))
            model = model_name(translator)
            answer = await build_answer(translator, parsed, lambda: score_answer(result, parsed, model))
            return _answered(request, service, result, answer)

    @router.post("/v1/detect", **DETECT)
    async def detect(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            texts = parser_of(translator, limits).detect(body)
            detected = await while_connected(request, translator.detect(texts))
            return OrjsonResponse(detect_answer(detected))

    @router.get("/v1/models", **MODELS)
    async def models() -> Response:
        answer: ModelsAnswer = {"models": [_model(service.check_open(), service.precision)]}
        return OrjsonResponse(answer)


def _model(translator: Translator, precision: str) -> ModelAnswer:
    manifest = translator.manifest
    defaults = manifest.decoding
    return {
        **model_name(translator),
        "precision": precision,
        "language_pairs": [
            {"source": pair.source, "target": pair.target} for pair in manifest.language_pairs
        ],
        "max_source_length": manifest.max_source_length,
        "max_target_length": translator.engine.limits.max_target_length - 1,
        "alignment": translator.engine.limits.has_alignment,
        "defaults": {
            "beam_size": defaults.beam_size,
            "length_penalty": {"formula": str(defaults.length_penalty), "alpha": defaults.alpha},
        },
        "licence": manifest.weights_licence,
    }


def server_timing(timings: Timings) -> str:
    """The value of the header Server-Timing: each phase's milliseconds."""
    return ", ".join([f"{phase};dur={value:.2f}" for phase, value in timings._asdict().items()])


def model_name(translator: Translator) -> ModelName:
    """The model's name and version, for an answer."""
    return {"name": translator.manifest.name, "version": translator.manifest.version}


async def build_answer(
    translator: Translator, request: TranslationRequest | ScoreRequest, build: Callable[[], object]
) -> object:
    """Return the result of `build`, which runs on another thread if the answer is long."""
    is_long = request.returns_tokens or sum(map(len, request.texts)) > LONG_CHARACTERS
    return await translator.off_loop(build) if is_long else build()


@functools.lru_cache(maxsize=1)
def parser_of(translator: Translator, limits: RequestLimits) -> NativeParser:
    """The parser of bodies for the model that is served."""
    bounds = option_bounds(translator.engine.limits)
    pairs = [(pair.source, pair.target) for pair in translator.manifest.language_pairs]
    return NativeParser(limits, bounds=bounds, defaults=translator.default_options, pairs=pairs)


def _answered(request: Request, service: Service, usage: Usage, answer: object) -> Response:
    """Record the work and return the response."""
    request.scope["state"]["num_sentences"] = usage.num_sentences
    record_usage(service, usage)
    headers = {
        "server-timing": server_timing(usage.timings),
        "x-transduce-cached-sentences": str(usage.num_cached),
    }
    return OrjsonResponse(answer, headers=headers)


def record_usage(service: Service, result: Usage) -> None:
    """Add the work to the metrics."""
    metrics = service.metrics
    metrics.sentences.inc(result.num_sentences)
    metrics.source_tokens.inc(result.source_tokens)
    metrics.target_tokens.inc(result.target_tokens)
    for phase, value in result.timings._asdict().items():
        metrics.phase_seconds.labels(phase).observe(value / 1000)
