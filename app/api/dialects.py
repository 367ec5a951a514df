"""The other APIs whose clients are understood."""

from __future__ import annotations

from fastapi import APIRouter

from app.api import files, inference, simple, v2, v2_documents, v2_glossaries
from app.api.auth import ApiKeys
from app.api.dialect import Dialects
from app.api.file_desk import FileDesk
from app.api.plain_translation import PlainTranslator
from app.files import SUFFIXES
from app.stores.usage import UsageCounter

DIALECTS = Dialects((simple.DIALECT, v2.DIALECT, inference.DIALECT))


def add_dialects(
    router: APIRouter,
    plain: PlainTranslator,
    keys: ApiKeys,
    usage: UsageCounter,
    desk: FileDesk | None = None,
) -> None:
    """Add the routes of all of them; those that take files where there is a desk for them."""
    simple.add_simple_routes(router, plain, keys, file_suffixes=tuple(SUFFIXES) if desk else ())
    v2.add_v2_routes(router, plain, usage)
    inference.add_inference_routes(router, plain)
    v2_glossaries.add_v2_glossary_routes(router, plain)
    if desk is not None:
        files.add_file_routes(router, desk, keys)
        v2_documents.add_v2_document_routes(router, desk)
