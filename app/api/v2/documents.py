"""Documents at /v2. POST /v2/document translates one. Other routes return its status and result. See docs/files.md."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.files.document_jobs import DocumentJob, DocumentJobs, seconds_remaining
from app.api.files.document_store import DocumentStatus, NoSuchDocument, StoredDocument
from app.api.files.multipart import MULTIPART, read_upload
from app.api.files.routes import download_response, known_format
from app.api.http.dialect import DialectError
from app.api.http.disconnect import while_connected
from app.api.http.error_table import OrjsonResponse
from app.api.http.form_body import read_fields
from app.api.http.middleware import requester_of
from app.api.http.validation import validate
from app.api.openapi import OCTETS, operation
from app.api.spending import begin_spending
from app.api.v2.languages import read_languages
from app.api.v2.models import V2DocumentBody, V2DocumentHandle, V2DocumentKeyBody, V2DocumentStatus
from app.api.v2.routes import ERRORS, JSON_OR_FORM, TAG, check_formality, stored_glossary
from app.errors import InvalidRequest
from app.files import format_of

UPLOAD = operation(
    TAG,
    "Translate a file; the answer has its id and key",
    V2DocumentHandle,
    body=V2DocumentBody,
    media=(MULTIPART,),
    errors=ERRORS,
    example={"source_lang": "en", "target_lang": "de"},
)
KEY_IN_QUERY: dict[str, Any] = {"query": {"document_key": ("", "from the answer to the upload")}}
KEY_IN_BODY: dict[str, Any] = {
    "body": V2DocumentKeyBody,
    "media": JSON_OR_FORM,
    "example": {"document_key": ""},
}


def _describe_status(extra: dict[str, Any]) -> dict[str, Any]:
    return operation(TAG, "The state of a file", V2DocumentStatus, errors=ERRORS, **extra)


def _describe_result(extra: dict[str, Any]) -> dict[str, Any]:
    return operation(TAG, "The translated file", OCTETS, errors=ERRORS, **extra)


def add_v2_document_routes(router: APIRouter, jobs: DocumentJobs) -> None:
    """Add the routes."""

    @router.post("/v2/document", **UPLOAD)
    async def upload(request: Request) -> Response:
        service = jobs.plain.service
        service.check_open()
        spending = await begin_spending(request.scope, service.usage, 0)
        try:
            document, job = await _read_job(request, jobs)
            starting = jobs.start(request.scope, document, job, spending, wait_s=jobs.plain.timeout_s)
            await while_connected(request, starting)
        except BaseException as error:
            spending.end(error)
            raise
        answer: V2DocumentHandle = {"document_id": document.file_id, "document_key": document.key}
        return OrjsonResponse(answer)

    _add_document_routes(router, jobs)


async def _read_job(request: Request, jobs: DocumentJobs) -> tuple[StoredDocument, DocumentJob]:
    """Read an upload. Raises DialectError, NotReady, Overloaded, and the errors of `read_upload`."""
    service = jobs.plain.service
    form = await service.while_open(read_upload(request, max_bytes=jobs.limits.max_file_bytes))
    body = validate(V2DocumentBody, {**form.fields, "file": form.content})
    source, target = read_languages(body.source_lang, body.target_lang, jobs.plain.pairs())
    if source not in {None, target} and (source, target) not in jobs.plain.pairs():
        raise InvalidRequest("this pair of languages is not translated here", field="target_lang")
    check_formality(body.formality, target)
    requester = requester_of(request)
    glossary = await stored_glossary(jobs.plain, requester.caller, body.glossary, (source, target))
    name = body.filename or form.name
    file_format = known_format(name)
    if body.output_format and format_of(f"file.{body.output_format}") != file_format:
        raise InvalidRequest("output_format must be the format of the uploaded file", field="output_format")
    document = jobs.store.add(requester.caller, requester.share, name, len(form.content))
    job = DocumentJob(
        content=form.content,
        format=file_format,
        source=source,
        target=target,
        request_id=requester.request_id,
        glossary=glossary,
        share=requester.share,
    )
    return document, job


def _add_document_routes(router: APIRouter, jobs: DocumentJobs) -> None:
    """Add the routes of one document: GET with its key in the query, and POST with its key in the body."""
    for method, extra in (("GET", KEY_IN_QUERY), ("POST", KEY_IN_BODY)):
        status_path, result_path = "/v2/document/{document_id}", "/v2/document/{document_id}/result"

        @router.api_route(status_path, methods=[method], **_describe_status(extra))
        async def status(request: Request) -> Response:
            return OrjsonResponse(_status(await _find_document(jobs, request)))

        @router.api_route(result_path, methods=[method], **_describe_result(extra))
        async def result(request: Request) -> Response:
            document = await _find_document(jobs, request)
            if document.status in {DocumentStatus.QUEUED, DocumentStatus.TRANSLATING}:
                raise DialectError(503, "the document is not translated yet")
            try:
                return await download_response(jobs, document)
            except NoSuchDocument as error:
                raise DialectError(404, str(error)) from error


def _status(document: StoredDocument) -> V2DocumentStatus:
    answer: V2DocumentStatus = {"document_id": document.file_id, "status": document.status.value}
    if document.status is DocumentStatus.TRANSLATING:
        answer["seconds_remaining"] = seconds_remaining(document)
    elif document.status is DocumentStatus.DONE:
        answer["billed_characters"] = document.num_characters
    elif document.status is DocumentStatus.ERROR:
        answer["error_message"] = document.message
    return answer


async def _find_document(jobs: DocumentJobs, request: Request) -> StoredDocument:
    """The caller's document, by its id and key. Raises DialectError, InvalidRequest and the errors of `read_fields`."""
    fields = await read_fields(request, max_bytes=jobs.plain.limits.max_body_bytes)
    key = validate(V2DocumentKeyBody, fields).document_key
    try:
        return jobs.store.find(request.path_params["document_id"], request.state.caller, key)
    except NoSuchDocument as error:
        raise DialectError(404, str(error)) from error
