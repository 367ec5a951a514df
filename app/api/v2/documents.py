"""Documents at /v2: POST /v2/document, then its status and its result. docs/files.md."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.files.document_jobs import DocumentJob, DocumentJobs, seconds_remaining
from app.api.files.document_store import DocumentStatus, NoSuchDocument, StoredDocument
from app.api.files.multipart import Upload, read_upload
from app.api.files.routes import known_format, sent
from app.api.http.dialect import DialectError
from app.api.http.disconnect import while_connected
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_fields
from app.api.http.middleware import caller_address
from app.api.http.values import check_misspelt
from app.api.languages import served_language
from app.errors import InvalidRequest
from app.stores.glossaries import GlossaryNotFound
from app.text.glossary import Glossary

FIELDS = ("source_lang", "target_lang", "filename", "formality", "glossary_id", "output_format")
IGNORED_FORMALITIES = ("", "default", "prefer_more", "prefer_less")


def add_v2_document_routes(router: APIRouter, jobs: DocumentJobs) -> None:
    """Add the routes."""

    @router.post("/v2/document", include_in_schema=False)
    async def upload(request: Request) -> Response:
        jobs.plain.service.check_open()
        given = await jobs.plain.service.while_open(
            read_upload(request, max_bytes=jobs.limits.max_file_bytes)
        )
        check_misspelt(given.fields, FIELDS)
        source, target = _languages(jobs, given)
        caller = request.state.caller
        glossary = await _glossary(jobs, caller, given, (source, target))
        name = given.fields.get("filename") or given.name
        file_format = known_format(name)
        wanted = given.fields.get("output_format", file_format)
        if wanted.lower() != file_format:
            raise InvalidRequest("output_format must be the format of the file", field="output_format")
        document = jobs.store.add(caller, name, len(given.content))
        texts = await while_connected(request, jobs.read(document, given.content, file_format))
        job = DocumentJob(
            *(given.content, file_format, texts, source, target),
            request_id=request.state.request_id,
            glossary=glossary,
            share=caller or caller_address(request.scope),
        )
        jobs.start(document, job)
        return OrjsonResponse({"document_id": document.file_id, "document_key": document.key})

    _add_results(router, jobs)


def _add_results(router: APIRouter, jobs: DocumentJobs) -> None:
    @router.api_route("/v2/document/{document_id}", methods=["GET", "POST"], include_in_schema=False)
    async def status(request: Request, document_id: str) -> Response:
        file = await _found(request, document_id)
        answer: dict[str, object] = {"document_id": document_id, "status": file.status}
        if file.status is DocumentStatus.TRANSLATING:
            answer["seconds_remaining"] = seconds_remaining(file)
        elif file.status is DocumentStatus.DONE:
            answer["billed_characters"] = file.num_characters
        elif file.status is DocumentStatus.ERROR:
            answer["error_message"] = file.message
        return OrjsonResponse(answer)

    @router.api_route("/v2/document/{document_id}/result", methods=["GET", "POST"], include_in_schema=False)
    async def result(request: Request, document_id: str) -> Response:
        file = await _found(request, document_id)
        if file.status in {DocumentStatus.QUEUED, DocumentStatus.TRANSLATING}:
            raise DialectError(503, "the document is not translated yet")
        try:
            return await sent(jobs, file)
        except NoSuchDocument as error:
            raise DialectError(404, str(error)) from error

    async def _found(request: Request, document_id: str) -> StoredDocument:
        fields = await read_fields(request, max_bytes=jobs.plain.limits.max_body_bytes)
        key = fields.get("document_key")
        try:
            return jobs.store.find(document_id, request.state.caller, key if isinstance(key, str) else "")
        except NoSuchDocument as error:
            raise DialectError(404, str(error)) from error


def _languages(jobs: DocumentJobs, given: Upload) -> tuple[str | None, str]:
    """Source and target, served. Raises InvalidRequest."""
    formality = given.fields.get("formality", "")
    if formality not in IGNORED_FORMALITIES:
        raise InvalidRequest("formality is not supported here", field="formality")
    served = jobs.plain.languages()
    found = {}
    for name in ("source_lang", "target_lang"):
        code = given.fields.get(name, "")
        found[name] = served_language(code, served) if code else None
        if found[name] is None and (code or name == "target_lang"):
            raise InvalidRequest(f"{name} must be one of {', '.join(served).upper()}", field=name)
    source, target = found["source_lang"], found["target_lang"]
    if target is None or (
        source is not None and source != target and (source, target) not in jobs.plain.pairs()
    ):
        raise InvalidRequest("this pair of languages is not translated here", field="target_lang")
    return source, target


async def _glossary(
    jobs: DocumentJobs, owner: str, given: Upload, pair: tuple[str | None, str]
) -> Glossary | None:
    """The glossary that a request names. Raises DialectError, InvalidRequest."""
    glossary_id = given.fields.get("glossary_id")
    if not glossary_id:
        return None
    store = jobs.plain.service.glossaries
    try:
        stored, glossary = await asyncio.to_thread(lambda: store.load(owner, glossary_id))
    except GlossaryNotFound as error:
        raise DialectError(404, f"glossary_id: {error}") from error
    if (stored.source_language, stored.target_language) != pair:
        raise InvalidRequest(
            "glossary_id: this glossary is for another pair of languages", field="glossary_id"
        )
    return glossary
