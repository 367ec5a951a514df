"""The server's ASGI application, as Ray's proxy calls it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ReplicaRoutes:
    """Passes requests to the application, which the replica starts and ends.

    Ray's proxy gives each request its id (`X-Request-ID`) and adds that header to the response, so the application's
    own header is removed. Ray puts the prefix of its route into `root_path` and `path`; the application's paths have
    none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or answer the start and end of a lifespan without doing anything."""
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        inner = {**scope, "path": path or "/", "root_path": ""}

        async def send_without_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(inner, receive, send_without_id)


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
