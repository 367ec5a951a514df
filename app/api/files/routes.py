"""Files in the simple dialect: POST /translate_file, then GET /download_file/<name>. See docs/files.md."""

from __future__ import annotations

from pathlib import PurePath

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.files.document_jobs import DocumentJob, DocumentJobs
from app.api.files.document_store import DocumentStatus, NoSuchDocument, StoredDocument
from app.api.files.multipart import MULTIPART, Upload, read_upload
from app.api.http.auth import ApiKeys
from app.api.http.dialect import DialectError
from app.api.http.disconnect import while_connected
from app.api.http.error_table import OrjsonResponse
from app.api.http.middleware import requester_of
from app.api.http.validation import validate
from app.api.openapi import OCTETS, Errors, operation
from app.api.plain_translation import NoSuchPair
from app.api.simple.models import SimpleFileAnswer, SimpleFileBody
from app.api.simple.routes import ERRORS, HEADERS, TAG, require_served, unavailable
from app.api.spending import begin_spending
from app.errors import InvalidRequest
from app.file_worker.messages import ReadRequest
from app.files import SUFFIXES, FileFormat, format_of
from app.stores.usage import Spending

UPLOAD_PATHS = ("/translate_file", "/v2/document")
TRANSLATE = operation(
    TAG,
    "Translate a file and keep its format; the answer has the address of the translated file",
    SimpleFileAnswer,
    body=SimpleFileBody,
    media=(MULTIPART,),
    errors=Errors(
        ERRORS.answer,
        {**ERRORS.statuses, 403: "the API key is unknown, or a page of another site sent the request"},
    ),
    example={"source": "en", "target": "de"},
)
DOWNLOAD = operation(
    TAG,
    "A translated file, by the name in the answer of /translate_file",
    OCTETS,
    errors=Errors(ERRORS.answer, {**ERRORS.statuses, 404: "there is no such file, or it has expired"}),
)


def add_file_routes(router: APIRouter, jobs: DocumentJobs, keys: ApiKeys) -> None:
    """Add the routes."""

    @router.post("/translate_file", **TRANSLATE)
    async def translate_file(request: Request) -> Response:
        jobs.plain.service.check_open()
        upload = await jobs.plain.service.while_open(
            read_upload(request, max_bytes=jobs.limits.max_file_bytes)
        )
        request.state.caller = _caller(request, upload, keys)
        with await begin_spending(request.scope, jobs.plain.service.usage, 0) as spending:
            document = await _translate_upload(request, jobs, upload, spending)
        name = document.file_id + PurePath(upload.name).suffix.lower()
        url = f"{str(request.base_url).rstrip('/')}/download_file/{name}"
        answer: SimpleFileAnswer = {"translatedFileUrl": url}
        return OrjsonResponse(answer, headers=dict(HEADERS))

    @router.get("/download_file/{name}", **DOWNLOAD)
    async def download_file(request: Request) -> Response:
        try:
            document = jobs.store.find(PurePath(request.path_params["name"]).stem, request.state.caller)
            return await download_response(jobs, document)
        except NoSuchDocument as error:
            raise DialectError(404, str(error)) from error


async def _translate_upload(
    request: Request, jobs: DocumentJobs, upload: Upload, spending: Spending
) -> StoredDocument:
    """Translate a file and store the result. Raises InvalidRequest, DialectError, and the errors of `DocumentJobs`."""
    requester = requester_of(request)
    body = validate(SimpleFileBody, {**upload.fields, "file": upload.content})
    source = None if body.source == "auto" else require_served(body.source, jobs.plain)
    target = require_served(body.target, jobs.plain)
    file_format = known_format(upload.name)
    document = jobs.store.add(requester.caller, requester.share, upload.name, len(upload.content))
    reading = jobs.read(
        document, ReadRequest(upload.content, file_format, target), timeout_s=jobs.limits.timeout_s
    )
    texts = await while_connected(request, reading)
    job = DocumentJob(
        content=upload.content,
        format=file_format,
        texts=texts,
        source=source,
        target=target,
        request_id=requester.request_id,
        share=requester.share,
    )
    await jobs.spend_characters(request.scope, document, job, spending)
    try:
        await while_connected(request, jobs.translate(document, job))
    except NoSuchPair as error:
        raise unavailable(error) from error
    return document


def _caller(request: Request, upload: Upload, keys: ApiKeys) -> str:
    """The caller's name, by the key in the form, else by the key in the header. Raises Unauthorized.

    If the form has a key, the header is ignored, because the header may be the login for a proxy.
    """
    headers = [value for name, value in request.scope["headers"] if name == b"authorization"]
    key = upload.fields.get("api_key", "")
    if not key and headers:
        return keys.caller(request.url.path, headers)
    return keys.caller_of(key if isinstance(key, str) else "")


async def download_response(jobs: DocumentJobs, document: StoredDocument) -> Response:
    """The response with a translated file as an attachment. Raises NoSuchDocument."""
    if document.status is not DocumentStatus.DONE:
        raise NoSuchDocument("there is no such file here")
    suffix = PurePath(document.name).suffix.lower()
    headers = {"content-disposition": f'attachment; filename="translated{suffix}"', **dict(HEADERS)}
    return Response(await jobs.store.content(document), media_type=OCTETS, headers=headers)


def known_format(name: str) -> FileFormat:
    """The format of a file, by its name's suffix. Raises InvalidRequest."""
    found = format_of(name)
    if found is None:
        raise InvalidRequest(
            f"file: this format is not supported; supported are {', '.join(SUFFIXES)}", field="file"
        )
    return found
