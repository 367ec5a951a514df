"""The routes /v2/translate, /v2/languages and /v2/usage. Bodies are JSON or urlencoded. See docs/http-dialects.md."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.dialect import Dialect, DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import FORM, read_fields
from app.api.http.json_body import JSON
from app.api.http.validation import validate
from app.api.openapi import Errors, operation
from app.api.plain_translation import NoSuchPair, PlainRequest, PlainTranslation, PlainTranslator
from app.api.v2.languages import base_of, base_pair, read_languages, source_rows, target_rows
from app.api.v2.models import (
    V2Error,
    V2Language,
    V2LanguagesQuery,
    V2TranslateAnswer,
    V2TranslateBody,
    V2TranslationRow,
    V2Usage,
)
from app.errors import (
    InvalidRequest,
    NotReady,
    QuotaExceeded,
    ServiceError,
    SourceTooLong,
    Unauthorized,
    UnsupportedLanguages,
)
from app.stores.glossaries import GlossaryNotFound, GlossaryStoreError
from app.stores.key_limits import KINDS, Unit
from app.text.glossary import Glossary
from app.text.language_names import language_name
from app.text.parsed_text import Splitting, TextFormat
from app.text.xml_reader import XmlRules

# Errors on all these paths have this dialect's format. The server does not implement /v2/write/ and /v3/. It serves
# /v2/document only if the setting TRANSDUCE_FILES_ENABLED is on. A path with a final "/" stands for all paths below it.
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
# The limit that /v2/usage returns for a key without a limit, because clients need a number.
UNLIMITED_CHARACTERS = 1_000_000_000_000
TAG = "v2"
JSON_OR_FORM = (JSON, FORM)
SPLITTINGS = {"0": Splitting.LINES, "1": Splitting.SENTENCES, "nonewlines": Splitting.NO_NEWLINES}
ERRORS = Errors(
    V2Error,
    {
        400: "the body is malformed, a field is misspelt, missing or outside its limits, or the languages are not "
        "served",
        403: "the API key is missing or unknown, or a page of another site sent the request",
        404: "there is no such glossary or document",
        408: "the request did not arrive in time",
        413: "too many bytes, fields, brackets [ and {, texts or characters, or more characters than a limit "
        "of the API key",
        415: "another content type",
        429: "the queue is full, the wait would be too long, or a limit of requests of the API key is reached; see "
        "Retry-After",
        QUOTA_EXCEEDED: "a limit of characters of the API key is reached; see Retry-After",
        500: "the engine failed",
        503: "the server loads, drains or has failed, the model cannot be loaded in time, or glossaries or the counts "
        "of the API key cannot be read; see Retry-After",
        504: "the deadline passed",
    },
)
TRANSLATE = operation(
    TAG,
    "Translate one text or several",
    V2TranslateAnswer,
    body=V2TranslateBody,
    media=JSON_OR_FORM,
    errors=ERRORS,
    example={"text": ["Where is the station?"], "source_lang": "en", "target_lang": "de"},
)
LANGUAGES = operation(
    TAG,
    "The languages of texts, or with type=target those of translations",
    list[V2Language],
    errors=ERRORS,
    query={"type": ("target", "source or target")},
)
USAGE = operation(TAG, "Characters translated for this key, and the limit", V2Usage, errors=ERRORS)


def _map_error(error: ServiceError) -> tuple[int, str] | None:
    if isinstance(error, Unauthorized):
        return 403, error.message
    if isinstance(error, QuotaExceeded) and error.is_of_characters:
        return QUOTA_EXCEEDED, error.message
    if isinstance(error, InvalidRequest | UnsupportedLanguages | SourceTooLong):
        return 400, error.message
    return None


DIALECT = Dialect(
    paths=PATHS,
    body=lambda _status, message: {"message": message},
    map_error=_map_error,
    trace_header="x-trace-id",
)


def add_v2_routes(router: APIRouter, plain: PlainTranslator) -> None:
    """Add the routes of this module to the router."""

    @router.post("/v2/translate", **TRANSLATE)
    async def translate(request: Request) -> Response:
        plain.service.check_open()
        fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
        body = validate(V2TranslateBody, fields, plain.limits)
        plain_request = await _plain_request(plain, request.state.caller, body)
        try:
            translations = await plain.translate(request, body.texts, plain_request)
        except NoSuchPair as error:
            target, source = (
                f"{code.upper()} ({language_name(code)})" for code in (error.target, error.source)
            )
            message = f"target_lang {target} is not supported from source_lang {source}"
            raise DialectError(400, message) from error
        rows = [_row(body, text, each) for text, each in zip(body.texts, translations, strict=True)]
        answer: V2TranslateAnswer = {"translations": rows}
        return OrjsonResponse(answer)

    @router.get("/v2/languages", **LANGUAGES)
    async def languages(request: Request) -> Response:
        pairs = plain.pairs()
        fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
        query = validate(V2LanguagesQuery, fields)
        return OrjsonResponse(source_rows(pairs) if query.type == "source" else target_rows(pairs))

    @router.get("/v2/usage", **USAGE)
    async def used(request: Request) -> Response:
        usage, caller = plain.service.usage, request.state.caller
        await usage.refresh()
        limits = [each for each in usage.limit_usages(caller) if each.kind.unit is Unit.CHARACTERS]
        # If the key has two limits, the last one is that of the month, which is DeepL's period.
        used, limit = (
            (limits[-1].used, limits[-1].limit)
            if limits
            else (usage.used(caller, KINDS["characters_per_month"]), UNLIMITED_CHARACTERS)
        )
        answer: V2Usage = {"character_count": used, "character_limit": limit}
        return OrjsonResponse(answer)


async def _plain_request(plain: PlainTranslator, caller: str, body: V2TranslateBody) -> PlainRequest:
    """Convert a body to a plain request. Raises InvalidRequest, DialectError, NotReady."""
    source, target = read_languages(body.source_lang, body.target_lang, plain.pairs())
    check_formality(body.formality, target)
    text_format = TextFormat.PLAIN if body.tag_handling is None else TextFormat(body.tag_handling)
    is_html = text_format is TextFormat.HTML
    splitting = Splitting.NO_NEWLINES if is_html else Splitting.SENTENCES
    return PlainRequest(
        source,
        target,
        beam_size=1 if body.model_type == "latency_optimized" else None,
        text_format=text_format,
        splitting=splitting if body.split_sentences is None else SPLITTINGS[body.split_sentences],
        xml=XmlRules(
            ignored=frozenset(name.lower() if is_html else name for name in body.ignore_tags),
            splitting=frozenset(body.splitting_tags),
            not_splitting=frozenset(body.non_splitting_tags),
            is_outlined=body.outline_detection,
        ),
        glossary=await stored_glossary(plain, caller, body.glossary, (source, target)),
    )


def check_formality(formality: str | None, target: str) -> None:
    """Raise InvalidRequest if the formality is required, because no model supports it."""
    if formality in {"more", "less"}:
        raise InvalidRequest(
            f"formality is not supported for target language {target.upper()}; prefer_{formality} is accepted",
            field="formality",
        )


async def stored_glossary(
    plain: PlainTranslator, owner: str, glossary_id: str | None, pair: tuple[str | None, str]
) -> Glossary | None:
    """Return the glossary with this id; None without an id.

    The regions and scripts of languages are ignored. Raises DialectError if the owner has no such glossary, or if it is
    for other languages. Raises NotReady if the store cannot be read.
    """
    if not glossary_id:
        return None
    store = plain.service.glossaries
    try:
        stored, glossary = await asyncio.to_thread(lambda: store.load(owner, glossary_id))
    except GlossaryNotFound as error:
        raise DialectError(404, f"glossary_id: {error}") from error
    except GlossaryStoreError as error:
        raise NotReady("the glossaries cannot be read now") from error
    source, target = base_pair((stored.source_language, stored.target_language))
    if base_pair((pair[0] or "", pair[1])) != (source, target):
        raise DialectError(400, f"glossary_id: this glossary is for {source} to {target}")
    return glossary


def _row(body: V2TranslateBody, text: str, translation: PlainTranslation) -> V2TranslationRow:
    """Return the row of one text. billed_characters counts code points, markup included."""
    row: V2TranslationRow = {
        "detected_source_language": base_of(translation.source),
        "text": translation.text,
        "billed_characters": len(text),
    }
    if body.model_type is not None:
        row["model_type_used"] = body.model_type.removeprefix("prefer_")
    return row
