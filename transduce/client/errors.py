"""Every error that the client raises.

TransduceError
  ConnectionFailed      nobody answers, or the connection broke
  TimedOut              no answer in time, here (timeout_s) or there (the request's own deadline, 504)
  RequestRefused        the request is at fault: status, code, field; asking again changes nothing
  Overloaded            the server's queue is full: come back after retry_after_s
  NotReady              the server is loading, draining or dead: come back after retry_after_s
  ServerFailed          the server's own fault
  InvalidAnswer         the answer is not what the API says: another server, or another version
"""

from __future__ import annotations


class TransduceError(Exception):
    """Base of all. message: one line; never holds the text that was sent. request_id: the server's, for its log."""

    def __init__(self, message: str, *, status: int | None = None, request_id: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.request_id = request_id

    def __str__(self) -> str:
        """With the status, where a server told one."""
        return self.message if self.status is None else f"the server answered {self.status}: {self.message}"


class ConnectionFailed(TransduceError):
    """Nobody listens, the name is unknown, or the connection broke before the answer was whole."""


class TimedOut(TransduceError):
    """The time was up: the client's `timeout_s`, or with status 504 the request's own deadline at the server."""


class RequestRefused(TransduceError):
    """The request cannot be answered as it is.

    status: 400 to 499. code: the server's word for it, such as `invalid_request`; empty where it has none.
    field: what is wrong, as a path such as `text[3]`; None where it is no field.
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
    """retry_after_s: seconds that the server asks to wait; None where it names none."""

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
    """429, also after the retries."""


class NotReady(_TryLater):
    """503, also after the retries."""


class ServerFailed(TransduceError):
    """Any other status from 500 on."""


class InvalidAnswer(TransduceError):
    """What came is not the answer that the API promises."""
