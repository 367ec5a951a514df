"""The exceptions that the client raises.

TransduceError
  ConnectionFailed      no server answers, or the connection broke
  TimedOut              no response, or no next piece of it, within timeout_s; or the request's deadline passed (504)
  RequestRefused        the request or its API key is invalid (see status, code, field); a retry does not help
  Overloaded            the server has too much work, or a limit of the API key is reached: retry after retry_after_s
  NotReady              the server takes no requests now, such as while it loads or drains: retry after retry_after_s
  ServerFailed          the server failed
    AnswerLost          a proxy answers, because the server behind it ended before its answer was complete
  InvalidAnswer         the response does not match the API: other software answers, or another version
"""

from __future__ import annotations


class TransduceError(Exception):
    """Base of all client errors.

    `message`: one line without request text. `status`: the status of the error response. For an error event in a
    stream, it is the status of a response with the same error. It is None if the server has reported no error.
    `request_id`: identifies the request in the server's log.
    """

    def __init__(self, message: str, *, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.request_id = request_id

    def __str__(self) -> str:
        """The message, with the status if there is one."""
        return self.message if self.status is None else f"the server answered {self.status}: {self.message}"


class ConnectionFailed(TransduceError):
    """No server answers, the host name is unknown, or the connection broke before the response was complete."""


class TimedOut(TransduceError):
    """No response, or no next piece of it, within `timeout_s`. With status 504: the request's own deadline passed."""


class RequestRefused(TransduceError):
    """The server refuses the request, because it or its API key is invalid, or JSON cannot hold the request.

    status: 400 to 499 except 429; None if the request was not sent, because JSON cannot hold it. code: the server's
    error code, such as `invalid_request`; empty without one. field: the path of the bad field, such as
    `text[3]`; None if the error concerns no field.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        code: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(message, status=status, request_id=request_id)
        self.code = code
        self.field = field


class _TryLater(TransduceError):
    """Base of the errors after which a retry may succeed. retry_after_s: the server's Retry-After; None without one."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status=status, request_id=request_id)
        self.retry_after_s = retry_after_s


class Overloaded(_TryLater):
    """Status 429, and the client makes no further retry."""


class NotReady(_TryLater):
    """Status 503, and the client makes no further retry."""


class ServerFailed(TransduceError):
    """Any other status of 500 or more."""


class AnswerLost(ServerFailed):
    """Status 500 or 502 of a proxy, which has lost its connection to the server before the answer was complete."""


class InvalidAnswer(TransduceError):
    """The response does not match the API."""
