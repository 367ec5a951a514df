"""The exceptions that several packages use. None of them depends on HTTP; app.api maps them to status codes.

ServiceError
  RequestError            the caller can fix the request
    RequestTimeout          the body did not arrive in time
    MalformedRequest        neither JSON nor a form, not UTF-8, or a lone surrogate
    InvalidRequest          names the field and what is wrong with it; never repeats the text
    UnsupportedLanguages    lists the supported pairs
    PayloadTooLarge         too many bytes, items, characters, sentences or tokens, or too costly a file
    UnsupportedMedia        content type or encoding
    SourceTooLong           a text to score, or a single character, that is longer than the model takes
    UnknownModel            only an administrator's request
    ModelInUse              only an administrator's request
    ModelRefused            only an administrator's request; says why the bundle cannot be served
  Unauthorized            the API key or the administrator's token is missing or wrong
  CrossSite               sent by a page of another site to a server without API keys
  RetryLater              the request may succeed after retry_after_s
    Overloaded              the queue is full, the estimated wait passes the deadline, or no file can be stored
    QuotaExceeded           a limit of the API key is reached
    NotReady                the server, a model, the stored glossaries or the folder of files cannot be used now
    UsageUnavailable        the counts of the API keys cannot be read or written
  DeadlineExceeded        the request's deadline passed
  RequestCancelled        the client disconnected, or does not read its response
  EngineFailure           a forward pass or the reader of files failed, or workers died: details only in the log
BundleError             while a model is loaded: lists every problem of a bundle
WorkerEnded             while a model is loaded: its process ended
SettingsError           at start, and when models are loaded or keys are read: an unusable setting, or a contradiction
"""

from __future__ import annotations

from collections.abc import Sequence


class ServiceError(Exception):
    """An error of one request. `message` is safe to return to the client: it never holds request text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RequestError(ServiceError):
    """An error that the caller can fix. `field` is the path of the bad field, such as `text[3]`."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class RequestTimeout(RequestError):
    """The request's body did not arrive in time."""


class MalformedRequest(RequestError):
    """The body is not valid JSON, not a valid form, or text in it is not valid UTF-8.

    is_form: the error is in a form or in the query string.
    """

    def __init__(self, message: str, *, field: str | None = None, is_form: bool = False) -> None:
        super().__init__(message, field=field)
        self.is_form = is_form


class InvalidRequest(RequestError):
    """The body is well-formed, but a value is outside its limits or a field is misspelt (`is_misspelt`)."""

    def __init__(self, message: str, *, field: str | None = None, is_misspelt: bool = False) -> None:
        super().__init__(message, field=field)
        self.is_misspelt = is_misspelt


class UnsupportedLanguages(RequestError):
    """No bundle translates, or scores translations, from `source` to `target`.

    is_detected: the source is the detected language of a text, which `field` names.
    """

    def __init__(
        self,
        message: str,
        *,
        source: str = "",
        target: str = "",
        field: str = "target",
        is_detected: bool = False,
    ) -> None:
        super().__init__(message, field=field)
        self.source = source
        self.target = target
        self.is_detected = is_detected


class PayloadTooLarge(RequestError):
    """Too many bytes, items, characters, sentences or tokens, or a file that takes too much memory or CPU time."""


class UnsupportedMedia(RequestError):
    """The route does not accept the content type or encoding."""


class SourceTooLong(RequestError):
    """A text to score, which is not split, or a single character is longer than the model takes."""


class UnknownModel(RequestError):
    """No served model has the name in an administrator's request."""


class ModelInUse(RequestError):
    """A model cannot be unloaded: it loads, a request or a reload uses it, or the server keeps all models loaded."""


class ModelRefused(RequestError):
    """A model that an administrator loads or reloads cannot be served. The message lists the bundle's problems."""


class CrossSite(ServiceError):
    """A page of another site sent the request to a server without API keys."""


class Unauthorized(ServiceError):
    """The API key or the administrator's token is missing or wrong.

    is_wrong_key: True for a wrong API key, False for a missing key and for a missing or wrong token.
    """

    def __init__(self, message: str, *, is_wrong_key: bool) -> None:
        super().__init__(message)
        self.is_wrong_key = is_wrong_key


class RetryLater(ServiceError):
    """The request may succeed later. `retry_after_s`: seconds after which a retry may succeed."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Overloaded(RetryLater):
    """The queue is full, no file can be stored, or the estimated wait passes the deadline (`would_be_late`)."""

    def __init__(self, message: str, *, retry_after_s: float, would_be_late: bool = False) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.would_be_late = would_be_late


class QuotaExceeded(RetryLater):
    """A limit of the API key is reached. `is_of_characters`: it is a limit on characters, not on requests."""

    def __init__(self, message: str, *, retry_after_s: float, is_of_characters: bool = False) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.is_of_characters = is_of_characters


class NotReady(RetryLater):
    """The server is loading, draining or dead. Or a model, the stored glossaries or the folder of files is unusable."""


class UsageUnavailable(RetryLater):
    """The store of the keys' counts cannot be read or written, so the limits of a key cannot be checked."""


class DeadlineExceeded(ServiceError):
    """The request's deadline passed before its response was complete."""


class RequestCancelled(ServiceError):
    """The client disconnected or does not read, so no further part of the response is sent."""


class EngineFailure(ServiceError):
    """A forward pass failed or returned scores that are not finite, workers died, or the reader of files failed."""


class BundleError(Exception):
    """The bundle cannot be served. `problems`: everything that is wrong with it, one line each."""

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        super().__init__(f"bundle {path}: " + "; ".join(problems))
        self.path = path
        self.problems = tuple(problems)


class WorkerEnded(RuntimeError):
    """A worker process ended while it loaded its model. The message has its exit code or signal."""


class SettingsError(Exception):
    """The settings cannot be used. `problems`: everything that is wrong with them, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
