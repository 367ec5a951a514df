"""The native API: POST /v1/translate and GET /v1/models."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.disconnect import while_connected
from app.api.error_table import OrjsonResponse
from app.api.json_body import read_json
from app.api.middleware import requester_of
from app.api.native_schema import Requester, RequestLimits, parse_translate, translate_answer
from app.api.openapi import MODELS, TRANSLATE
from app.api.service import Service
from app.translator import Timings, TranslationResult, Translator


def add_native_routes(router: APIRouter, service: Service, limits: RequestLimits) -> None:
    """Add the routes, which answer through `service`, within `limits`."""

    @router.post("/v1/translate", openapi_extra=TRANSLATE, summary="Translate one text or several")
    async def translate(request: Request) -> Response:
        service.check_open()
        body = await read_json(request, max_bytes=limits.max_body_bytes)
        with service.work() as translator:
            asked = parse_translate(
                body,
                limits,
                requester=Requester(*requester_of(request)),
                max_target_length=translator.engine.limits.max_target_length - 1,
            )
            result = await while_connected(request, translator.translate(asked))
            request.state.num_sentences = result.num_sentences
            _count(service, result)
            answer = translate_answer(result, model=_model(translator), request=asked)
            return OrjsonResponse(answer, headers={"server-timing": server_timing(result.timings)})

    @router.get("/v1/models", openapi_extra=MODELS, summary="The models that are served")
    async def models() -> Response:
        translator = service.check_open()
        manifest = translator.manifest
        pairs = [{"source": pair.source, "target": pair.target} for pair in manifest.language_pairs]
        described = {
            **_model(translator),
            "precision": service.precision,
            "language_pairs": pairs,
            "max_source_length": manifest.max_source_length,
            "max_target_length": translator.engine.limits.max_target_length - 1,
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
    return ", ".join(f"{phase};dur={value:.2f}" for phase, value in vars(timings).items())


def _model(translator: Translator) -> dict[str, str]:
    return {"name": translator.manifest.name, "version": translator.manifest.version}


def _count(service: Service, result: TranslationResult) -> None:
    metrics = service.metrics
    metrics.sentences.inc(result.num_sentences)
    metrics.source_tokens.inc(result.source_tokens)
    metrics.target_tokens.inc(result.target_tokens)
    for phase, value in vars(result.timings).items():
        metrics.phase_seconds.labels(phase).observe(value / 1000)
