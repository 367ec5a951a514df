"""The other APIs whose clients are understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from app.api import inference, simple, v2, v2_glossaries
from app.api.auth import ApiKeys
from app.api.dialect import Dialects
from app.api.plain_translation import PlainTranslator
from app.stores.usage import UsageCounter

if TYPE_CHECKING:
    from app.api.file_desk import FileDesk

DIALECTS = Dialects((simple.DIALECT, v2.DIALECT, inference.DIALECT))


def add_dialects(
    router: APIRouter,
    plain: PlainTranslator,
    keys: ApiKeys,
    usage: UsageCounter,
    desk: FileDesk | None = None,
) -> None:
    """Add the routes of all of them; those that take files where there is a desk for them."""
    suffixes: tuple[str, ...] = ()
    if desk is not None:
        # A server that takes no files does not load what reads them.
        from app.api import files, v2_documents
        from app.files import SUFFIXES

        suffixes = tuple(SUFFIXES)
        files.add_file_routes(router, desk, keys)
        v2_documents.add_v2_document_routes(router, desk)
    simple.add_simple_routes(router, plain, keys, file_suffixes=suffixes)
    v2.add_v2_routes(router, plain, usage)
    inference.add_inference_routes(router, plain)
    v2_glossaries.add_v2_glossary_routes(router, plain)
