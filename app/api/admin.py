"""POST /admin/models/{name}/load, unload and reload, for administrators with a token of their own."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Protocol

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.error_table import OrjsonResponse
from app.api.native.answers import ErrorAnswer, ModelAnswer
from app.api.native.routes import model_answer
from app.api.openapi import Errors, operation
from app.errors import Unauthorized
from app.translator import ServedModel

TAG = "admin"
SCHEME = b"bearer "
ERRORS = Errors(
    ErrorAnswer,
    {
        401: "the administrator's token is missing or wrong",
        404: "no model has this name",
        503: "the server loads, drains or has failed, requests use all the memory, a load is not done in time, "
        "or the worker process of a load has ended; see Retry-After",
    },
)
REFUSABLE = Errors(
    ErrorAnswer,
    {
        **ERRORS.statuses,
        422: "the bundle cannot be served; the message says why",
        429: "the model's queue is full during its check; see Retry-After",
        504: "the check of the golden sentences or the warm-up takes too long",
    },
)
IN_USE = Errors(
    ErrorAnswer,
    {
        **ERRORS.statuses,
        409: "the model loads, a request or a reload uses it, or the server keeps all models loaded",
    },
)


class ModelControl(Protocol):
    """The operations of the routes. Each method returns the model, and raises UnknownModel and NotReady.

    The methods that load a model also raise ModelRefused, and other ServiceErrors if its check or warm-up fails.
    """

    async def load_model(self, name: str) -> ServedModel:
        """Bring a model into memory."""

    async def unload_model(self, name: str) -> ServedModel:
        """Remove a model from memory until a request needs it. Raises ModelInUse."""

    async def reload_model(self, name: str) -> ServedModel:
        """Replace a model by its bundle's new version. If it raises ModelRefused, the old version stays."""


class AdminToken:
    """The token that an administrator's request must send as `Authorization: Bearer TOKEN`. Only its hash is stored."""

    def __init__(self, token: str) -> None:
        self._digest = hashlib.sha256(token.encode()).digest()

    def check(self, request: Request) -> None:
        """Raise Unauthorized unless the request has the token. The comparison takes the same time for any token."""
        sent = [value for name, value in request.scope["headers"] if name == b"authorization"]
        token = (
            sent[0][len(SCHEME) :].strip() if len(sent) == 1 and sent[0].lower().startswith(SCHEME) else b""
        )
        if not hmac.compare_digest(hashlib.sha256(token).digest(), self._digest):
            raise Unauthorized(
                "the administrator's token is needed: Authorization: Bearer <token>", is_wrong_key=False
            )


def add_admin_routes(router: APIRouter, models: ModelControl, token: AdminToken) -> None:
    """Add the routes."""

    async def answer(request: Request, act: Callable[[str], Awaitable[ServedModel]]) -> Response:
        token.check(request)
        return OrjsonResponse(model_answer(await act(request.path_params["name"])))

    @router.post("/admin/models/{name}/load", **operation(TAG, "Load a model", ModelAnswer, errors=REFUSABLE))
    async def load(request: Request) -> Response:
        return await answer(request, models.load_model)

    @router.post(
        "/admin/models/{name}/unload",
        **operation(TAG, "Unload a model until a request needs it", ModelAnswer, errors=IN_USE),
    )
    async def unload(request: Request) -> Response:
        return await answer(request, models.unload_model)

    @router.post(
        "/admin/models/{name}/reload",
        **operation(TAG, "Replace a model by its bundle's new version", ModelAnswer, errors=REFUSABLE),
    )
    async def reload(request: Request) -> Response:
        return await answer(request, models.reload_model)
