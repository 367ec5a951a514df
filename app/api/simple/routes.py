"""The simple dialect, at the root: /translate, /detect, /languages and others. See docs/http-dialects.md."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.auth import ApiKeys
from app.api.http.dialect import Dialect, DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import FORM, Fields, read_fields
from app.api.http.json_body import JSON
from app.api.http.validation import validate
from app.api.languages import served_language
from app.api.openapi import Errors, operation
from app.api.plain_translation import NoSuchPair, PlainRequest, PlainTranslation, PlainTranslator
from app.api.simple.models import (
    SimpleDetectBody,
    SimpleDetection,
    SimpleError,
    SimpleHealth,
    SimpleLanguage,
    SimpleSettings,
    SimpleTranslateAnswer,
    SimpleTranslateBody,
)
from app.api.spending import begin_spending
from app.errors import (
    InvalidRequest,
    MalformedRequest,
    Overloaded,
    PayloadTooLarge,
    QuotaExceeded,
    ServiceError,
    SourceTooLong,
    Unauthorized,
    UnsupportedLanguages,
)
from app.text.language_names import language_name
from app.text.parsed_text import TextFormat

HEADERS = (
    ("access-control-allow-origin", "*"),
    ("access-control-allow-headers", "Authorization, Content-Type"),
    ("access-control-allow-methods", "GET, POST"),
)
PATHS = ("/translate", "/detect", "/languages", "/health", "/frontend/settings", "/suggest")
FILE_PATHS = ("/translate_file", "/download_file/")
# Milliseconds without typing until a client's page sends a request. If smaller, pages send more requests.
FRONTEND_TIMEOUT_MS = 500
# The maximum code points of a language code that an error repeats.
MAX_SHOWN_CHARACTERS = 10
TAG = "simple"
ERRORS = Errors(
    SimpleError,
    {
        400: "the body is malformed, a field is misspelt, missing or outside its limits, the languages are not served, "
        "or the key is missing",
        403: "the API key is unknown",
        408: "the request did not arrive in time",
        413: "too many bytes, fields, or brackets [ and {, or more characters than a limit of the API key",
        415: "another content type",
        429: "the queue is full, the wait would be too long, or a limit of the API key is reached; see Retry-After",
        500: "the engine failed",
        503: "the server loads, drains or has failed, the model cannot be loaded in time, or the counts of the API key "
        "cannot be read; see Retry-After",
        504: "the deadline passed",
    },
)
_MEDIA = (JSON, FORM)
_EXAMPLE = {"q": "Where is the station?", "source": "en", "target": "de"}
TRANSLATE = operation(
    TAG,
    "Translate one text or several",
    SimpleTranslateAnswer,
    body=SimpleTranslateBody,
    media=_MEDIA,
    errors=ERRORS,
    example=_EXAMPLE,
)
DETECT = operation(
    TAG,
    "Detect the language of a text",
    list[SimpleDetection],
    body=SimpleDetectBody,
    media=_MEDIA,
    errors=ERRORS,
    example={"q": "Where is the station?"},
)
SUGGEST = operation(
    TAG,
    "Always refused: the server accepts no suggestions",
    SimpleError,
    status=403,
    meaning="the server accepts no suggestions, or the API key is unknown",
    errors=Errors(SimpleError, {code: ERRORS.statuses[code] for code in (400, 413, 415)}),
)
_CLOSED = Errors(SimpleError, {503: "the server loads, drains or has failed; see Retry-After"})
LANGUAGES = operation(
    TAG, "The languages, each with its target languages", list[SimpleLanguage], errors=_CLOSED
)
HEALTH = operation(TAG, "200 while the server takes requests", SimpleHealth, errors=_CLOSED)
SETTINGS = operation(TAG, "The server's settings for a client's page", SimpleSettings, errors=_CLOSED)


def _map_error(error: ServiceError) -> tuple[int, str] | None:
    if isinstance(error, Unauthorized):
        if not error.is_wrong_key:
            return 400, "Please contact the server operator to get an API key"
        return 403, "Invalid API key"
    if isinstance(error, MalformedRequest) and not error.is_form:
        return 400, "Invalid JSON format"
    if isinstance(error, Overloaded | QuotaExceeded):
        return 429, f"Slowdown: {error.message}"
    if isinstance(error, MalformedRequest | InvalidRequest | UnsupportedLanguages | SourceTooLong):
        return 400, f"Invalid request: {error.message}"
    if isinstance(error, PayloadTooLarge) and error.field is not None:
        return 400, f"Invalid request: {error.message}"
    return None


DIALECT = Dialect(
    paths=(*PATHS, *FILE_PATHS),
    body=lambda _status, message: {"error": message},
    map_error=_map_error,
    # The key of /translate_file may be in its form.
    open_paths=frozenset((*PATHS, "/translate_file")),
    any_site_paths=frozenset(PATHS),
    headers=HEADERS,
)


def add_simple_routes(
    router: APIRouter, plain: PlainTranslator, keys: ApiKeys, *, file_suffixes: Sequence[str] = ()
) -> None:
    """Add the routes. file_suffixes: the suffixes of files that the server translates; empty if it translates none."""

    @router.post("/translate", **TRANSLATE)
    async def translate(request: Request) -> Response:
        plain.service.check_open()
        body = validate(SimpleTranslateBody, await _fields(request, plain, keys), plain.limits)
        source = None if body.source == "auto" else require_served(body.source, plain)
        # Clients expect no alternatives of HTML.
        num_alternatives = body.alternatives if body.format == "text" else 0
        plain_request = PlainRequest(
            source, require_served(body.target, plain), num_alternatives, text_format=TextFormat(body.format)
        )
        try:
            translations = await plain.translate(request, body.texts, plain_request)
        except NoSuchPair as error:
            raise unavailable(error) from error
        return _response(_translate_answer(body, translations))

    @router.post("/detect", **DETECT)
    async def detect(request: Request) -> Response:
        plain.service.check_open()
        body = validate(SimpleDetectBody, await _fields(request, plain, keys), plain.limits)
        with await begin_spending(request.scope, plain.service.usage, 0):
            ranked = (await plain.detect(request, ["\n".join(body.texts)]))[0] or [("en", 0.0)]
        return _response([_detected(language, confidence) for language, confidence in ranked])

    @router.post("/suggest", **SUGGEST)
    async def suggest(request: Request) -> Response:
        await _fields(request, plain, keys)
        raise DialectError(403, "Suggestions are disabled on this server.")

    async def preflight(_request: Request) -> Response:
        return Response(status_code=204, headers=dict(HEADERS))

    for path in PATHS:
        router.add_api_route(path, preflight, methods=["OPTIONS"], include_in_schema=False)
    _add_descriptions(router, plain, has_keys=keys.are_needed, file_suffixes=file_suffixes)


def _add_descriptions(
    router: APIRouter, plain: PlainTranslator, *, has_keys: bool, file_suffixes: Sequence[str]
) -> None:
    """Add the routes that describe the server. They need no key, because clients call them before they have one."""

    @router.get("/languages", **LANGUAGES)
    async def languages(_request: Request) -> Response:
        targets: dict[str, set[str]] = {code: {code} for code in plain.languages()}
        for source, target in plain.pairs():
            targets[source].add(target)
        rows: list[SimpleLanguage] = [
            {
                "code": code,
                "name": language_name(code),
                "targets": sorted(codes),
            }
            for code, codes in targets.items()
        ]
        return _response(rows)

    @router.get("/health", **HEALTH)
    async def health(_request: Request) -> Response:
        plain.service.check_open()
        answer: SimpleHealth = {"status": "ok"}
        return _response(answer)

    @router.get("/frontend/settings", **SETTINGS)
    async def frontend_settings(_request: Request) -> Response:
        target = min(target for _, target in plain.pairs())
        settings: SimpleSettings = {
            "charLimit": plain.limits.max_item_characters,
            "frontendTimeout": FRONTEND_TIMEOUT_MS,
            "apiKeys": has_keys,
            "keyRequired": has_keys,
            "suggestions": False,
            "filesTranslation": bool(file_suffixes),
            "supportedFilesFormat": list(file_suffixes),
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"},
                "target": {"code": target, "name": language_name(target)},
            },
        }
        return _response(settings)


async def _fields(request: Request, plain: PlainTranslator, keys: ApiKeys) -> Fields:
    """Read the request's fields and check its key. Raises Unauthorized, and the errors of `read_fields`."""
    fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
    key = fields.get("api_key")
    request.state.caller = keys.caller_of(key if isinstance(key, str) else "")
    return fields


def require_served(code: str, plain: PlainTranslator) -> str:
    """The served language that a code matches. Raises DialectError, which repeats only a short code."""
    found = served_language(code, plain.languages())
    if found is None:
        is_code = len(code) <= MAX_SHOWN_CHARACTERS and code.replace("-", "").isalnum()
        raise DialectError(400, f"{code if is_code else 'this language'} is not supported")
    return found


def unavailable(error: NoSuchPair) -> DialectError:
    """The error for a pair that is not translated. Clients of this API expect this wording."""
    source, target = (f"{language_name(code)} ({code})" for code in (error.source, error.target))
    return DialectError(400, f"{target} is not available as a target language from {source}")


def _translate_answer(
    body: SimpleTranslateBody, translations: Sequence[PlainTranslation]
) -> SimpleTranslateAnswer:
    is_list = isinstance(body.q, list)
    texts = [each.text for each in translations]
    answer: SimpleTranslateAnswer = {"translatedText": texts if is_list else texts[0]}
    if body.source == "auto":
        detected = [_detected(each.source, each.confidence) for each in translations]
        answer["detectedLanguage"] = detected if is_list else detected[0]
    if body.alternatives:
        alternatives = [list(each.alternatives) for each in translations]
        answer["alternatives"] = alternatives if is_list else alternatives[0]
    return answer


def _detected(language: str, confidence: float) -> SimpleDetection:
    """A detected language for the response. confidence: from 0 to 1. In the response it is from 0 to 100."""
    return {"confidence": round(confidence * 100, 1), "language": language}


def _response(body: object) -> Response:
    return OrjsonResponse(body, headers=dict(HEADERS))
