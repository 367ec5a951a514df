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
from app.api.native.answers import detect_answer, score_answer, translate_answer
from app.api.native.schema import NativeParser, Requester, RequestLimits
from app.api.openapi import DETECT, MODELS, SCORE, TRANSLATE
from app.api.service import Service
from app.engine.limits import option_bounds
from app.translator import ScoreRequest, Timings, TranslationRequest, Translator, Usage

# Texts of more have answers that are written down beside the event loop.
LONG_CHARACTERS = 2_000


def add_native_routes(router: APIRouter, service: Service, limits: RequestLimits) -> None:
    """Add the routes, which answer through `service`, within `limits`."""

    @router.post("/v1/translate", openapi_extra=TRANSLATE, summary="Translate one text or several")
    async def translate(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            asked = parser_of(translator, limits).translate(body, Requester(*requester_of(request)))
            result = await while_connected(request, translator.translate(asked))
            model = model_summary(translator)
            answer = await build_answer(translator, asked, lambda: translate_answer(result, asked, model))
            return _answered(request, service, result, answer)

    @router.post("/v1/score", openapi_extra=SCORE, summary="Score translations that there are")
    async def score(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            asked = parser_of(translator, limits).score(body, Requester(*requester_of(request)))
            result = await while_connected(request, translator.score(asked))
            model = model_summary(translator)
            answer = await build_answer(translator, asked, lambda: score_answer(result, asked, model))
            return _answered(request, service, result, answer)

    @router.post("/v1/detect", openapi_extra=DETECT, summary="Which languages texts are in")
    async def detect(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            texts = parser_of(translator, limits).detect(body)
            detected = await while_connected(request, translator.detect(texts))
            return OrjsonResponse(detect_answer(detected))

    @router.get("/v1/models", openapi_extra=MODELS, summary="The models that are served")
    async def models() -> Response:
        translator = service.check_open()
        manifest = translator.manifest
        pairs = [{"source": pair.source, "target": pair.target} for pair in manifest.language_pairs]
        described = {
            **model_summary(translator),
            "precision": service.precision,
            "language_pairs": pairs,
            "max_source_length": manifest.max_source_length,
            "max_target_length": translator.engine.limits.max_target_length - 1,
            "alignment": translator.engine.limits.has_alignment,
            "defaults": {
                "beam_size": manifest.decoding.beam_size,
                "length_penalty": {
                    "formula": str(manifest.decoding.length_penalty),
                    "alpha": manifest.decoding.alpha,
                },
            },
            "licence": manifest.weights_licence,
        }
        return OrjsonResponse({"models": [described]})


def server_timing(timings: Timings) -> str:
    """The header's value: each phase's milliseconds."""
    return ", ".join([f"{phase};dur={value:.2f}" for phase, value in timings._asdict().items()])


def model_summary(translator: Translator) -> dict[str, str]:
    """What an answer says of its model."""
    return {"name": translator.manifest.name, "version": translator.manifest.version}


async def build_answer(
    translator: Translator, request: TranslationRequest | ScoreRequest, answer: Callable[[], object]
) -> object:
    """The answer. That of many sentences takes a tenth of a second to write down: not on the event loop."""
    is_long = request.returns_tokens or sum(map(len, request.texts)) > LONG_CHARACTERS
    return await translator.off_loop(answer) if is_long else answer()


@functools.lru_cache(maxsize=1)
def parser_of(translator: Translator, limits: RequestLimits) -> NativeParser:
    """Of bodies for the model that is served."""
    bounds = option_bounds(translator.engine.limits)
    pairs = [(pair.source, pair.target) for pair in translator.manifest.language_pairs]
    return NativeParser(limits, bounds=bounds, defaults=translator.default_options, pairs=pairs)


def _answered(request: Request, service: Service, usage: Usage, answer: object) -> Response:
    """The answer, once it is counted."""
    request.scope["state"]["num_sentences"] = usage.num_sentences
    record_usage(service, usage)
    headers = {
        "server-timing": server_timing(usage.timings),
        "x-transduce-cached-sentences": str(usage.num_cached),
    }
    return OrjsonResponse(answer, headers=headers)


def record_usage(service: Service, result: Usage) -> None:
    """Into the metrics of work done."""
    metrics = service.metrics
    metrics.sentences.inc(result.num_sentences)
    metrics.source_tokens.inc(result.source_tokens)
    metrics.target_tokens.inc(result.target_tokens)
    for phase, value in result.timings._asdict().items():
        metrics.phase_seconds.labels(phase).observe(value / 1000)
