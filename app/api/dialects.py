"""The dialects: APIs of other translation servers. Their clients also work with this server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from app.api.http.auth import ApiKeys
from app.api.http.dialect import Dialects
from app.api.inference import routes as inference
from app.api.plain_translation import PlainTranslator
from app.api.simple import routes as simple
from app.api.v2 import glossaries as v2_glossaries
from app.api.v2 import routes as v2

if TYPE_CHECKING:
    from app.api.files.document_jobs import DocumentJobs

DIALECTS = Dialects((simple.DIALECT, v2.DIALECT, inference.DIALECT))


def add_dialects(
    router: APIRouter,
    plain: PlainTranslator,
    keys: ApiKeys,
    jobs: DocumentJobs | None = None,
) -> None:
    """Add the routes of all dialects. jobs: None leaves out the routes for files."""
    suffixes: tuple[str, ...] = ()
    if jobs is not None:
        # A server without file routes does not import their modules.
        from app.api.files import routes as files
        from app.api.v2 import documents as v2_documents
        from app.files import SUFFIXES

        suffixes = tuple(SUFFIXES)
        files.add_file_routes(router, jobs, keys)
        v2_documents.add_v2_document_routes(router, jobs)
    simple.add_simple_routes(router, plain, keys, file_suffixes=suffixes)
    v2.add_v2_routes(router, plain)
    inference.add_inference_routes(router, plain)
    v2_glossaries.add_v2_glossary_routes(router, plain)
