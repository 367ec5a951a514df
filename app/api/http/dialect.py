"""What the routes of another API share: their paths, the format of their errors, and their rules for API keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from app.api.http.error_table import MAX_MESSAGE_CHARACTERS, OrjsonResponse, answer_to
from app.errors import InvalidRequest, RetryLater, ServiceError

# Makes the body of an error from its status and message.
BodyOf = Callable[[int, str], dict[str, str]]


class DialectError(Exception):
    """A dialect refuses a request with its own status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Dialect:
    """One API whose clients the server understands.

    paths: the paths of its routes. A path with a final `/` stands for all paths below it.
    body: makes the body of an error.
    map_error: returns an error's status and message in this dialect; None for the native API's status and message.
    open_paths: the paths that need no key in the header. A route there needs no key, or reads it from the query or the
        body.
    any_site_paths: the paths that pages of any site may call. A request there must leave no file and no glossary on the
        server.
    headers: the headers of every error response.
    trace_header: the response header, in lower case, in which this dialect's clients look for the request's id.
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
        if status == 401:
            headers["www-authenticate"] = "Bearer"
        if isinstance(error, RetryLater):
            headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
        field = error.field if isinstance(error, InvalidRequest) and error.is_misspelt else None
        return self.answer(status, message, headers, field=field)

    def answer(
        self, status: int, message: str, headers: dict[str, str] | None = None, *, field: str | None = None
    ) -> Response:
        """The response to an error. field: a misspelt field, whose name is added to the body."""
        body = self.body(status, message[:MAX_MESSAGE_CHARACTERS])
        if field is not None:
            body = {**body, "field": field}
        return OrjsonResponse(body, status_code=status, headers={**dict(self.headers), **(headers or {})})


class Dialects:
    """The dialects by path."""

    def __init__(self, dialects: Sequence[Dialect] = ()) -> None:
        paths = [(path, dialect) for dialect in reversed(dialects) for path in dialect.paths]
        self._by_path = dict(paths)
        self._by_prefix = [(path, dialect) for path, dialect in reversed(paths) if path.endswith("/")]
        self._prefixes = tuple(path for path, _ in self._by_prefix)

    def of(self, path: str) -> Dialect | None:
        """The first dialect that has this path; None for a path of the native API."""
        found = self._by_path.get(path)
        if found is None and path.startswith(self._prefixes):
            found = next((dialect for prefix, dialect in self._by_prefix if path.startswith(prefix)), None)
        return found
