"""The dialect at the root: /translate, /detect, /languages, JSON or urlencoded. docs/http-dialects.md."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.auth import ApiKeys
from app.api.http.dialect import Dialect, DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import Fields, read_fields
from app.api.http.values import check_misspelt
from app.api.languages import served_language
from app.api.plain_translation import NoSuchPair, PlainRequest, PlainTranslation, PlainTranslator
from app.errors import (
    InvalidRequest,
    MalformedRequest,
    Overloaded,
    PayloadTooLarge,
    ServiceError,
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
FIELDS = ("q", "source", "target", "format", "alternatives", "api_key")
FRONTEND_TIMEOUT_MS = 500
FORMATS = {"text": TextFormat.PLAIN, "html": TextFormat.HTML}
Json = dict[str, object]


def _map_error(error: ServiceError) -> tuple[int, str] | None:
    if isinstance(error, Unauthorized):
        if error.is_missing:
            return 400, "Please contact the server operator to get an API key"
        return 403, "Invalid API key"
    if isinstance(error, MalformedRequest):
        return 400, "Invalid JSON format"
    if isinstance(error, Overloaded):
        return 429, f"Slowdown: {error.message}"
    if isinstance(error, InvalidRequest | UnsupportedLanguages):
        return 400, f"Invalid request: {error.message}"
    if isinstance(error, PayloadTooLarge) and error.field is not None:
        return 400, f"Invalid request: {error.message}"
    return None


DIALECT = Dialect(
    paths=(*PATHS, *FILE_PATHS),
    body=lambda _status, message: {"error": message},
    map_error=_map_error,
    # The key of an upload stands in its form.
    open_paths=frozenset((*PATHS, "/translate_file")),
    any_site_paths=frozenset(PATHS),
    headers=HEADERS,
)


class _Reader:
    """Checks the fields of a request, in the order in which clients expect complaints."""

    def __init__(self, plain: PlainTranslator, keys: ApiKeys) -> None:
        self._plain = plain
        self._keys = keys

    async def fields(self, request: Request) -> Fields:
        """The request's fields, once its key is known to be good."""
        fields = await read_fields(request, max_bytes=self._plain.limits.max_body_bytes)
        key = fields.get("api_key")
        request.state.caller = self._keys.caller_of(key if isinstance(key, str) else "")
        check_misspelt(fields, FIELDS)
        return fields

    def texts(self, fields: Fields) -> list[str]:
        """One or several; raises DialectError."""
        value = fields.get("q")
        if value is None or value in ("", []):
            raise _missing("q")
        items = value if isinstance(value, list) else [value]
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise DialectError(400, "Invalid request: q must be a string or an array of strings")
        limits = self._plain.limits
        sizes = (
            (len(texts), limits.max_items),
            (max(map(len, texts)), limits.max_item_characters),
            (sum(map(len, texts)), limits.max_request_characters),
        )
        for size, limit in sizes:
            if size > limit:
                raise DialectError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
        return texts

    def languages(self, fields: Fields) -> tuple[str | None, str]:
        """Source, None where it is to be detected, and target."""
        for name in ("source", "target"):
            if not fields.get(name):
                raise _missing(name)
        source = None if fields["source"] == "auto" else self._language(fields["source"])
        return source, self._language(fields["target"])

    def _language(self, code: object) -> str:
        found = served_language(code, self._plain.languages()) if isinstance(code, str) else None
        if found is None:
            is_code = isinstance(code, str) and len(code) <= 10 and code.replace("-", "").isalnum()
            raise DialectError(400, f"{code if is_code else 'this language'} is not supported")
        return found

    def num_alternatives(self, fields: Fields) -> int:
        """Raises DialectError."""
        value = fields.get("alternatives", 0)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise DialectError(400, "Invalid request: alternatives parameter is not a number")
        limit = self._plain.limits.max_num_hypotheses - 1
        if isinstance(value, str):
            digits = value.strip().removeprefix("-")
            if not (digits.isascii() and digits.isdecimal()):
                raise DialectError(400, "Invalid request: alternatives parameter is not a number")
            value = int(value.strip()[:9])
        if value > limit:
            raise DialectError(400, f"Invalid request: alternatives parameter must be <= {limit}")
        return max(0, value)


def text_format(fields: Fields) -> TextFormat:
    """Raises DialectError."""
    value = fields.get("format") or "text"
    if not isinstance(value, str) or value not in FORMATS:
        is_word = isinstance(value, str) and len(value) <= 10 and value.isascii() and value.isalnum()
        raise DialectError(400, f"{value if is_word else 'this'} format is not supported")
    return FORMATS[value]


def add_simple_routes(
    router: APIRouter, plain: PlainTranslator, keys: ApiKeys, *, file_suffixes: Sequence[str] = ()
) -> None:
    """Add the routes. file_suffixes: of the files that are taken; none where none are."""
    reader = _Reader(plain, keys)

    @router.post("/translate", include_in_schema=False)
    async def translate(request: Request) -> Response:
        plain.service.check_open()
        fields = await reader.fields(request)
        texts = reader.texts(fields)
        source, target = reader.languages(fields)
        written_in = text_format(fields)
        num_alternatives = reader.num_alternatives(fields)
        # Clients expect none of HTML.
        num_sought = num_alternatives if written_in is TextFormat.PLAIN else 0
        wanted = PlainRequest(source, target, num_sought, text_format=written_in)
        try:
            found = await plain.translate(request, texts, wanted)
        except NoSuchPair as error:
            raise unavailable(error) from error
        answers = _columns(found, tells_source=source is None, tells_alternatives=num_alternatives > 0)
        if not isinstance(fields["q"], list):
            return _answered({name: values[0] for name, values in answers.items()})
        return _answered(answers)

    @router.post("/detect", include_in_schema=False)
    async def detect(request: Request) -> Response:
        plain.service.check_open()
        texts = reader.texts(await reader.fields(request))
        ranked = (await plain.detect(["\n".join(texts)]))[0] or [("en", 0.0)]
        return _answered([_detected(language, confidence) for language, confidence in ranked])

    @router.post("/suggest", include_in_schema=False)
    async def suggest(request: Request) -> Response:
        await reader.fields(request)
        raise DialectError(403, "Suggestions are disabled on this server.")

    async def preflight() -> Response:
        return Response(status_code=204, headers=dict(HEADERS))

    for path in PATHS:
        router.add_api_route(path, preflight, methods=["OPTIONS"], include_in_schema=False)
    _add_descriptions(router, plain, has_keys=keys.are_needed, file_suffixes=file_suffixes)


def _add_descriptions(
    router: APIRouter, plain: PlainTranslator, *, has_keys: bool, file_suffixes: Sequence[str]
) -> None:
    """What is open to everyone: clients ask it before they have a key at hand."""

    @router.get("/languages", include_in_schema=False)
    async def languages() -> Response:
        pairs = plain.pairs()
        return _answered(
            [
                {
                    "code": code,
                    "name": language_name(code),
                    "targets": sorted({code, *(target for source, target in pairs if source == code)}),
                }
                for code in plain.languages()
            ]
        )

    @router.get("/health", include_in_schema=False)
    async def health() -> Response:
        plain.service.check_open()
        return _answered({"status": "ok"})

    @router.get("/frontend/settings", include_in_schema=False)
    async def frontend_settings() -> Response:
        target = min(target for _, target in plain.pairs())
        settings = {
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
        return _answered(settings)


def _columns(
    found: Sequence[PlainTranslation], *, tells_source: bool, tells_alternatives: bool
) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {"translatedText": [each.text for each in found]}
    if tells_source:
        columns["detectedLanguage"] = [_detected(each.source, each.confidence) for each in found]
    if tells_alternatives:
        columns["alternatives"] = [list(each.alternatives) for each in found]
    return columns


def _detected(language: str, confidence: float) -> Json:
    """Confidence 0 to 100."""
    return {"confidence": round(confidence * 100, 1), "language": language}


def _missing(name: str) -> DialectError:
    return DialectError(400, f"Invalid request: missing {name} parameter")


def unavailable(error: NoSuchPair) -> DialectError:
    """What clients expect to be told of a pair that is not translated."""
    source, target = (f"{language_name(code)} ({code})" for code in (error.source, error.target))
    return DialectError(400, f"{target} is not available as a target language from {source}")


def _answered(body: object) -> Response:
    return OrjsonResponse(body, headers=dict(HEADERS))
