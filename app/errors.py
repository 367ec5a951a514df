"""Every error that Transduce raises on purpose. Nothing here knows of HTTP.

ServiceError
  RequestError            the caller can mend it
    MalformedRequest        not JSON, not UTF-8, a lone surrogate
    InvalidRequest          names the field, the limit and the value's size; never echoes text
    UnsupportedLanguages    lists the pairs that there are
    PayloadTooLarge         body, items, characters
    UnsupportedMedia        content type or encoding
    SourceTooLong           only where the caller asked not to split
  Unauthorized            a key is missing or wrong
  CrossSite               sent by a page of another site, without a key
  Overloaded              come back after retry_after_s
  NotReady                loading, draining or dead
  DeadlineExceeded        the request's own time ran out
  RequestCancelled        the caller has gone
  EngineFailure           our bug: details only in the log
BundleError             start-up only: lists every problem of a bundle
SettingsError           start-up only: a setting that is unknown or contradicts another
"""

from __future__ import annotations

from collections.abc import Sequence


class ServiceError(Exception):
    """An error of one request. `message` may be shown to the caller: it never holds their text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestError(ServiceError):
    """The caller can mend it. `field` names what is wrong, as a path such as `text[3]`."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class MalformedRequest(RequestError):
    """The body is not the JSON, or the text not the UTF-8, that it should be."""


class InvalidRequest(RequestError):
    """Well formed, but a value is outside its limits, or a field is misspelt (`is_misspelt`)."""

    def __init__(self, message: str, *, field: str | None = None, is_misspelt: bool = False) -> None:
        super().__init__(message, field=field)
        self.is_misspelt = is_misspelt


class UnsupportedLanguages(RequestError):
    """No bundle translates this pair of `source`, as given or detected, and `target`."""

    def __init__(self, message: str, *, source: str = "", target: str = "", field: str = "target") -> None:
        super().__init__(message, field=field)
        self.source = source
        self.target = target


class PayloadTooLarge(RequestError):
    """Too many bytes, items or characters."""


class UnsupportedMedia(RequestError):
    """A content type or encoding that this route does not read."""


class SourceTooLong(RequestError):
    """A sentence longer than the model takes, where the caller asked not to split."""


class CrossSite(ServiceError):
    """A page of another site sent the request, and no key came with it."""


class Unauthorized(ServiceError):
    """No key came with the request, or a wrong one."""

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class Overloaded(ServiceError):
    """The queue is full, or its wait would pass the request's deadline (`is_foreseen`).

    `retry_after_s`: seconds until it is worth trying again.
    """

    def __init__(self, message: str, *, retry_after_s: float, is_foreseen: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_foreseen = is_foreseen


class NotReady(ServiceError):
    """Loading, draining or dead. `retry_after_s`: seconds until it is worth trying again."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(ServiceError):
    """The request's own time ran out before its answer was there."""


class RequestCancelled(ServiceError):
    """The caller has gone: there is nobody to answer."""


class EngineFailure(ServiceError):
    """A forward pass failed or gave scores that are not numbers."""


class BundleError(Exception):
    """A bundle that cannot be served. `problems`: all that is wrong with it, one line each."""

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        super().__init__(f"bundle {path}: " + "; ".join(problems))
        self.path = path
        self.problems = tuple(problems)


class SettingsError(Exception):
    """Settings that cannot be used. `problems`: all that is wrong, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
