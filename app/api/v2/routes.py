"""The dialect at /v2: /v2/translate, /v2/languages, /v2/usage, JSON or urlencoded. docs/http-dialects.md."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.dialect import Dialect, DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_fields
from app.api.http.values import check_misspelt
from app.api.plain_translation import NoSuchPair, PlainRequest, PlainTranslation, PlainTranslator
from app.api.v2.fields import V2Request, read_request
from app.api.v2.languages import base_of, source_rows, target_rows
from app.errors import InvalidRequest, ServiceError, SourceTooLong, Unauthorized, UnsupportedLanguages
from app.stores.glossaries import GlossaryNotFound
from app.stores.usage import QuotaExceeded, UsageCounter
from app.text.glossary import Glossary
from app.text.language_names import language_name

# Style rules and other glossaries that the same clients know are not offered, documents by a setting; errors are
# told so that these clients understand them.
PATHS = (
    "/v2/translate",
    "/v2/languages",
    "/v2/usage",
    "/v2/glossary-language-pairs",
    "/v2/glossaries",
    "/v2/glossaries/",
    "/v2/document",
    "/v2/document/",
    "/v2/write/",
    "/v3/",
)
QUOTA_EXCEEDED = 456


def _map_error(error: ServiceError) -> tuple[int, str] | None:
    if isinstance(error, Unauthorized):
        return 403, error.message
    if isinstance(error, InvalidRequest | UnsupportedLanguages | SourceTooLong):
        return 400, error.message
    return None


DIALECT = Dialect(
    paths=PATHS,
    body=lambda _status, message: {"message": message},
    map_error=_map_error,
    trace_header="x-trace-id",
)


def add_v2_routes(router: APIRouter, plain: PlainTranslator, usage: UsageCounter) -> None:
    """Add the routes."""

    @router.post("/v2/translate", include_in_schema=False)
    async def translate(request: Request) -> Response:
        plain.service.check_open()
        fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
        asked = read_request(fields, plain.limits, plain.pairs())
        wanted = PlainRequest(
            asked.source,
            asked.target,
            beam_size=1 if asked.model_type == "latency_optimized" else None,
            text_format=asked.text_format,
            splitting=asked.splitting,
            xml=asked.xml,
            glossary=await _glossary(plain, request.state.caller, asked),
        )
        try:
            with usage.spending(request.state.caller, sum(map(len, asked.texts))):
                found = await plain.translate(request, asked.texts, wanted)
        except QuotaExceeded as error:
            raise DialectError(QUOTA_EXCEEDED, str(error)) from error
        except NoSuchPair as error:
            target, source = (
                f"{code.upper()} ({language_name(code)})" for code in (error.target, error.source)
            )
            told = f"target_lang {target} is not supported from source_lang {source}"
            raise DialectError(400, told) from error
        rows = [_row(asked, text, each) for text, each in zip(asked.texts, found, strict=True)]
        return OrjsonResponse({"translations": rows})

    @router.get("/v2/languages", include_in_schema=False)
    async def languages(request: Request) -> Response:
        pairs = plain.pairs()
        fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
        check_misspelt(fields, ("type",))
        kind = fields.get("type", "source")
        if kind not in ("source", "target"):
            raise DialectError(400, "type must be source or target")
        return OrjsonResponse(source_rows(pairs) if kind == "source" else target_rows(pairs))

    @router.get("/v2/usage", include_in_schema=False)
    async def used(request: Request) -> Response:
        count = usage.of(request.state.caller)
        return OrjsonResponse({"character_count": count, "character_limit": usage.max_characters})


async def _glossary(plain: PlainTranslator, owner: str, asked: V2Request) -> Glossary | None:
    """The glossary that a request names. Raises DialectError."""
    if asked.glossary_id is None:
        return None
    store, glossary_id = plain.service.glossaries, asked.glossary_id
    try:
        stored, glossary = await asyncio.to_thread(lambda: store.load(owner, glossary_id))
    except GlossaryNotFound as error:
        raise DialectError(404, f"glossary_id: {error}") from error
    if (stored.source_language, stored.target_language) != (asked.source, asked.target):
        told = f"{stored.source_language} to {stored.target_language}".upper()
        raise DialectError(400, f"glossary_id: this glossary is for {told}")
    return glossary


def _row(asked: V2Request, text: str, found: PlainTranslation) -> dict[str, object]:
    """One text's answer. Characters are code points, those of markup counted."""
    row: dict[str, object] = {
        "detected_source_language": base_of(found.source),
        "text": found.text,
        "billed_characters": len(text),
    }
    if asked.model_type is not None:
        row["model_type_used"] = asked.model_type
    return row
