"""Creates, lists, reads and deletes glossaries at /v2. Only the caller that created a glossary can use it.

A caller is all API keys of one name. Without keys, all requests are of one caller.

See docs/http-dialects.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.dialect import DialectError
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_fields
from app.api.http.validation import validate
from app.api.openapi import operation
from app.api.plain_translation import PlainTranslator
from app.api.v2.languages import base_of, base_pair, read_pair
from app.api.v2.models import V2Glossaries, V2Glossary, V2GlossaryBody, V2GlossaryPairs
from app.api.v2.routes import ERRORS, JSON_OR_FORM, TAG
from app.errors import NotReady
from app.stores.glossaries import (
    EntriesError,
    GlossaryNotFound,
    GlossaryStore,
    GlossaryStoreError,
    GlossaryStoreFull,
    StoredGlossary,
    format_tsv,
    parse_entries,
)

T = TypeVar("T")
TSV = "text/tab-separated-values"
# Seconds after which a caller may retry, because another process may have unlocked the file by then. If longer, callers
# wait longer than necessary. If shorter, they retry while the file is still locked.
RETRY_AFTER_S = 5.0
PAIRS = operation(TAG, "The pairs of languages that a glossary can have", V2GlossaryPairs, errors=ERRORS)
CREATE = operation(
    TAG,
    "Store a glossary",
    V2Glossary,
    status=201,
    body=V2GlossaryBody,
    media=JSON_OR_FORM,
    errors=ERRORS,
    example={
        "name": "Travel",
        "source_lang": "en",
        "target_lang": "de",
        "entries_format": "tsv",
        "entries": "station\tHaltestelle",
    },
)
LIST = operation(TAG, "This key's glossaries", V2Glossaries, errors=ERRORS)
ONE = operation(TAG, "One glossary", V2Glossary, errors=ERRORS)
ENTRIES = operation(TAG, "A glossary's terms", TSV, errors=ERRORS)
DELETE = operation(TAG, "Delete a glossary", None, status=204, errors=ERRORS)


def add_v2_glossary_routes(router: APIRouter, plain: PlainTranslator) -> None:
    """Add the routes."""
    store = plain.service.glossaries

    @router.get("/v2/glossary-language-pairs", **PAIRS)
    async def language_pairs(_request: Request) -> Response:
        pairs = sorted({base_pair(pair) for pair in plain.pairs()})
        answer: V2GlossaryPairs = {
            "supported_languages": [
                {"source_lang": source.lower(), "target_lang": target.lower()} for source, target in pairs
            ]
        }
        return OrjsonResponse(answer)

    @router.post("/v2/glossaries", **CREATE)
    async def create(request: Request) -> Response:
        pairs = plain.pairs()
        fields = await read_fields(request, max_bytes=plain.limits.max_body_bytes)
        body = validate(V2GlossaryBody, fields)
        languages = read_pair(body.source_lang, body.target_lang, pairs)
        owner = request.state.caller

        def create_glossary() -> StoredGlossary:
            terms = parse_entries(body.entries, body.entries_format, languages, store.limits)
            return store.create(owner, body.name, languages, terms)

        return OrjsonResponse(_describe(await _call_store(create_glossary)), status_code=201)

    @router.get("/v2/glossaries", **LIST)
    async def list_glossaries(request: Request) -> Response:
        owner = request.state.caller
        stored = await _call_store(lambda: store.list(owner))
        answer: V2Glossaries = {"glossaries": [_describe(glossary) for glossary in stored]}
        return OrjsonResponse(answer)

    _add_glossary_routes(router, store)


def _add_glossary_routes(router: APIRouter, store: GlossaryStore) -> None:
    @router.get("/v2/glossaries/{glossary_id}", **ONE)
    async def read(request: Request) -> Response:
        owner, glossary_id = request.state.caller, request.path_params["glossary_id"]
        return OrjsonResponse(_describe(await _call_store(lambda: store.get(owner, glossary_id))))

    @router.get("/v2/glossaries/{glossary_id}/entries", **ENTRIES)
    async def entries(request: Request) -> Response:
        owner, glossary_id = request.state.caller, request.path_params["glossary_id"]
        terms = await _call_store(lambda: store.entries(owner, glossary_id))
        return Response(format_tsv(terms), media_type=TSV)

    @router.delete("/v2/glossaries/{glossary_id}", **DELETE)
    async def delete(request: Request) -> Response:
        owner, glossary_id = request.state.caller, request.path_params["glossary_id"]
        await _call_store(lambda: store.delete(owner, glossary_id))
        return Response(status_code=204)


async def _call_store(work: Callable[[], T]) -> T:
    """Call the store in another thread. Raises DialectError, and NotReady if the store cannot be read or written."""
    try:
        return await asyncio.to_thread(work)
    except GlossaryNotFound as error:
        raise DialectError(404, str(error)) from error
    except EntriesError as error:
        raise DialectError(400, f"the glossary cannot be used: {error}") from error
    except GlossaryStoreFull as error:
        raise DialectError(400, f"{error}; delete one first") from error
    except GlossaryStoreError as error:
        raise NotReady("the glossaries cannot be read or written now", retry_after_s=RETRY_AFTER_S) from error


def _describe(glossary: StoredGlossary) -> V2Glossary:
    """One glossary in the format of this API. creation_time has milliseconds, because clients need them."""
    created_at = glossary.created_at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return {
        "glossary_id": glossary.glossary_id,
        "name": glossary.name,
        "ready": True,
        "source_lang": base_of(glossary.source_language).lower(),
        "target_lang": base_of(glossary.target_language).lower(),
        "creation_time": f"{created_at}Z",
        "entry_count": glossary.num_terms,
    }
