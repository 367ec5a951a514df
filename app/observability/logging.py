"""Structured logging: one JSON object per line on stdout, in ASCII, never with a user's text.

Lines pass through `app.observability.log_writer`, so no event waits for a reader. `log_event` writes an event, which is
a fixed name with fields. Other loggers (uvicorn, warnings) use the same formatter. Of an exception only the types and
code locations are written, because its message may contain request text.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import logging
import math
import os
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

from app.observability.log_writer import LogWriter

# Characters of an event or of a field's value. Longer ones are cut.
MAX_FIELD_CHARACTERS = 500
_quoted = json.encoder.encode_basestring_ascii
# Libraries that export traces. Values in their messages can hold a secret of the settings: a header, or a URL.
_TRACE_LIBRARIES = frozenset({"opentelemetry", "urllib3"})
# Loggers of libraries. They use the root logger's handler and level, but the level of asyncio's is at least WARNING.
_LIBRARY_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio", "fastapi")
Field = str | int | float | bool | None


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time (UTC), level, logger, event, the event's fields, and its exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of ASCII. Control characters and all characters beyond ASCII are escaped."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        line = (
            f'{{"time": "{_date(seconds)}.{milliseconds:03d}+00:00", "level": "{record.levelname.lower()}", '
            f'"logger": {_quoted(record.name)}, "event": {_json_value(_message(record))}'
        )
        fields: dict[str, Field] = getattr(record, "fields", {})
        for name, value in fields.items():
            if value is not None:
                line += f', "{name}": {_json_value(value)}'
        if record.exc_info and record.exc_info[1] is not None:
            line += f', "exception": {json.dumps(frames_of(record.exc_info[1]))}'
        return line + "}"


def _message(record: logging.LogRecord) -> str:
    """The message of a record; for libraries that export traces, without values.

    Of asyncio's messages only the first line is used. The other lines describe objects, and may hold the messages of
    exceptions.
    """
    if record.name.partition(".")[0] in _TRACE_LIBRARIES:
        return _without_values(record)
    message = record.getMessage()
    return message.partition("\n")[0] if record.name == "asyncio" else message


def _without_values(record: logging.LogRecord) -> str:
    """The message with its numbers and the types of its exceptions and their causes, without other values."""
    template, arguments = str(record.msg), record.args if isinstance(record.args, tuple) else ()
    try:
        return template % tuple(map(_shown, arguments)) if arguments else template
    except (TypeError, ValueError):  # a `%d` whose value is hidden by "..."
        return template


def _shown(value: object) -> object:
    if isinstance(value, BaseException):
        return " from ".join(type(each).__name__ for each in itertools.islice(_with_causes(value), 10))
    return value if isinstance(value, int | float) else "..."


def _json_value(value: Field) -> str:
    """A value as JSON. Common types bypass json.dumps, which builds an encoder on each call."""
    if isinstance(value, str):
        return _quoted(_clipped(value))
    if type(value) is int:
        return repr(value)
    if type(value) is float:  # JSON has no infinity
        return repr(value) if math.isfinite(value) else _quoted(repr(value))
    return json.dumps(value, ensure_ascii=True, default=str)


class _Event(logging.LogRecord):
    """A log record with only the attributes that a line needs. It is cheap: it does not look up the caller's frame."""

    def __init__(
        self,
        logger: str,
        level: int,
        event: str,
        error: BaseException | None,
        fields: dict[str, Field] | None,
    ) -> None:
        now = time.time()
        self.__dict__ |= _EMPTY_RECORD
        self.name, self.msg, self.levelno, self.levelname = logger, event, level, logging.getLevelName(level)
        self.created, self.msecs = now, now % 1 * 1000
        self.exc_info = None if error is None else (type(error), error, error.__traceback__)
        self.fields = fields or {}


_EMPTY_RECORD = {**vars(logging.LogRecord("", 0, "", 0, "", (), None))}


class _Lines(logging.StreamHandler[TextIO]):
    """A stream handler that, unlike its parent, does not take a second lock to flush."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; a logging error never fails a request."""
        try:
            self.stream.write(self.format(record) + self.terminator)
            self.stream.flush()
        except Exception:  # noqa: BLE001 - the parent class does the same
            self.handleError(record)


class _QueuedLines(logging.Handler):
    """A handler that passes lines to a writer."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line; a logging error never fails a request."""
        try:
            self.writer.put(self.format(record))
        except Exception:  # noqa: BLE001 - the parent class does the same
            self.handleError(record)


@functools.lru_cache(maxsize=4)
def _date(seconds: int) -> str:
    """Date and time of day in UTC. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def frames_of(error: BaseException) -> list[str]:
    """The types of an exception and its causes, each with the file:line of its frames, without messages or values.

    After 60 entries no further cause is added.
    """
    places: list[str] = []
    for cause in _with_causes(error):
        if len(places) >= 60:
            break
        places.append(type(cause).__qualname__)
        frames = traceback.extract_tb(cause.__traceback__)
        places += [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return places


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """An exception, its cause, the cause of that, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def log_event(
    logger: logging.Logger,
    level: int,
    event: str,
    *,
    error: BaseException | None = None,
    fields: dict[str, Field] | None = None,
) -> None:
    """Write an event. `event` is a constant; no field may contain a user's text."""
    if logger.isEnabledFor(level):
        logger.handle(_Event(logger.name, level, event, error, fields))


def configure_logging(level: str, stream: TextIO | None = None, *, starts_thread: bool = True) -> None:
    """Write the lines of all loggers of the process, at `level` and above, to stdout through a queue and a thread.

    The level of asyncio's logger is at least `warning`. A line that cannot be written, or does not fit into the queue,
    is dropped. So a full disk or an unread log neither fails nor delays a request. stream: a stream to write to
    directly instead of stdout. starts_thread: False if the process will fork. Lines then wait until `start_log`.
    """
    logging.raiseExceptions = False
    # Lines do not contain the caller's frame, thread or process, so these are not looked up.
    logging._srcfile = None  # https://docs.python.org/3/howto/logging.html#optimization
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    handler: logging.Handler = _Lines(stream) if stream is not None else _QueuedLines(_new_writer())
    handler.setFormatter(JsonFormatter())
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _LIBRARY_LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(True)
    if starts_thread:
        start_log()


def start_log() -> None:
    """Start the log thread, which writes earlier lines too. It ends with the process."""
    if (writer := _writer()) is not None:
        writer.start()
        atexit.register(writer.close)


def flush_log() -> None:
    """Write the waiting lines, for at most a second."""
    if (writer := _writer()) is not None:
        writer.flush()


def close_log() -> None:
    """Write the waiting lines, for at most a second, and end the log thread."""
    if (writer := _writer()) is not None:
        writer.close()


def num_dropped_lines() -> int:
    """The number of log lines that this process dropped."""
    writer = _writer()
    return 0 if writer is None else writer.num_dropped


def _new_writer() -> LogWriter:
    formatter = JsonFormatter()

    def format_dropped(count: int) -> str:
        event = _Event(__name__, logging.WARNING, "log_lines_dropped", None, {"count": count})
        return formatter.format(event)

    # stdout is None if the process was started without one.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.stdout is None else sys.stdout.fileno()
    return LogWriter(descriptor, format_dropped=format_dropped)


def _writer() -> LogWriter | None:
    """The writer of the current handler; None if lines go to a stream."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _QueuedLines):
            return handler.writer
    return None


def _clipped(value: str) -> str:
    return value if len(value) <= MAX_FIELD_CHARACTERS else value[:MAX_FIELD_CHARACTERS] + "..."
