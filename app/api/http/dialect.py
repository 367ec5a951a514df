"""What the routes of another API share: their paths, the shape of their errors, and the keys that they need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from app.api.http.error_table import OrjsonResponse, answer_to
from app.errors import InvalidRequest, NotReady, Overloaded, ServiceError

MAX_MESSAGE_CHARACTERS = 600
# Status and message -> body.
BodyOf = Callable[[int, str], dict[str, str]]


class DialectError(Exception):
    """A request that a dialect refuses with a status and message of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Dialect:
    """One API whose clients the server understands.

    paths: of its routes; a final `/` stands for everything below. body: an error's body. map_error: an error's status
    and message in this dialect; None: the server's own. open_paths: paths that need no key in the header: they need
    none, or read it elsewhere. any_site_paths: paths that pages of any site may call, as the API's own clients do; the
    server stores nothing of these requests. headers: of every error's answer. trace_header: the header of every answer
    in which the dialect's clients look for the request's id.
    """

    paths: tuple[str, ...]
    body: BodyOf
    map_error: Callable[[ServiceError], tuple[int, str] | None]
    open_paths: frozenset[str] = frozenset()
    any_site_paths: frozenset[str] = frozenset()
    headers: tuple[tuple[str, str], ...] = ()
    trace_header: str | None = None

    def error_response(self, error: ServiceError) -> Response:
        """The answer to a ServiceError."""
        status, message = self.map_error(error) or (answer_to(error).status, error.message)
        headers = {}
        if isinstance(error, Overloaded | NotReady):
            headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
        field = error.field if isinstance(error, InvalidRequest) and error.is_misspelt else None
        return self.answer(status, message, headers, field=field)

    def answer(
        self, status: int, message: str, headers: dict[str, str] | None = None, *, field: str | None = None
    ) -> Response:
        """An error's answer. field: the misspelt field, beside the message."""
        body = self.body(status, message[:MAX_MESSAGE_CHARACTERS])
        if field is not None:
            body = {**body, "field": field}
        return OrjsonResponse(body, status_code=status, headers={**dict(self.headers), **(headers or {})})


class Dialects:
    """The dialects by path."""

    def __init__(self, dialects: Sequence[Dialect] = ()) -> None:
        paths = [(path, dialect) for dialect in reversed(dialects) for path in dialect.paths]
        self._by_path = dict(paths)
        self._above = [(path, dialect) for path, dialect in reversed(paths) if path.endswith("/")]
        self._prefixes = tuple(path for path, _ in self._above)

    def of(self, path: str) -> Dialect | None:
        """The first dialect that has a path; None: a path of the native API."""
        found = self._by_path.get(path)
        if found is None and path.startswith(self._prefixes):
            found = next((dialect for above, dialect in self._above if path.startswith(above)), None)
        return found
