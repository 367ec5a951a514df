"""One JSON object a line on stdout, in ASCII, and never a user's text.

Lines go to stdout through `app.observability.log_writer`: no event waits for who reads them. An event is a fixed word
with fields; `log_event` is how our own code writes one. Foreign loggers (uvicorn, warnings) come through the same
formatter. Of an exception only the type and the places are written: its message may hold what a user sent.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import math
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import TextIO

from app.observability.log_writer import LogWriter

MAX_FIELD_CHARACTERS = 500
_quoted = json.encoder.encode_basestring_ascii
_FOREIGN = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio", "fastapi")
Field = str | int | float | bool | None


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, logger, event, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; every character beyond ASCII, and every control character, is escaped by JSON."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        line = (
            f'{{"time": "{_date(seconds)}.{milliseconds:03d}+00:00", "level": "{record.levelname.lower()}", '
            f'"logger": {_quoted(record.name)}, "event": {_json_value(record.getMessage())}'
        )
        fields: dict[str, Field] = getattr(record, "fields", {})
        for name, value in fields.items():
            if value is not None:
                line += f', "{name}": {_json_value(value)}'
        if record.exc_info and record.exc_info[1] is not None:
            line += f', "exception": {json.dumps(frames_of(record.exc_info[1]))}'
        return line + "}"


def _json_value(value: Field) -> str:
    """As JSON. What every line has needs no encoder, which the library makes anew at each call."""
    if isinstance(value, str):
        return _quoted(_clipped(value))
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    return json.dumps(value, ensure_ascii=True, default=str)


class _Event(logging.LogRecord):
    """A record of what a line holds. Nothing is looked for of the rest, such as the caller's frame."""

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
    """As its parent, which takes a lock once more to flush."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; an error of the log fails no request."""
        try:
            self.stream.write(self.format(record) + self.terminator)
            self.stream.flush()
        except Exception:  # noqa: BLE001 - as in the parent
            self.handleError(record)


class _QueuedLines(logging.Handler):
    """Hands lines to a writer."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self.writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Put a line; an error of the log fails no request."""
        try:
            self.writer.put(self.format(record))
        except Exception:  # noqa: BLE001 - as in the parent
            self.handleError(record)


@functools.lru_cache(maxsize=4)
def _date(seconds: int) -> str:
    """Date and time of day in UTC. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def frames_of(error: BaseException) -> list[str]:
    """The types of an exception and its causes, each with file:line of its frames; no message, no value."""
    places: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(places) < 60:
        places.append(type(cause).__qualname__)
        frames = traceback.extract_tb(cause.__traceback__)
        places += [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return places


def log_event(
    logger: logging.Logger,
    level: int,
    event: str,
    *,
    error: BaseException | None = None,
    fields: dict[str, Field] | None = None,
) -> None:
    """Write an event. `event` is a constant of the code; no field may hold a user's text."""
    if logger.isEnabledFor(level):
        logger.handle(_Event(logger.name, level, event, error, fields))


def configure_logging(level: str, stream: TextIO | None = None, *, starts_thread: bool = True) -> None:
    """Send every logger of the process to stdout at `level`, debug to error, through a queue and a thread.

    A line that cannot be written, or that waits behind too many, is dropped: neither a full disk nor a log that is not
    read fails a request or holds it up. stream: where lines go at once instead. starts_thread: False where this process
    is to be copied; lines wait then until `start_log`.
    """
    logging.raiseExceptions = False
    # What no line holds is not looked for: of the caller's frame, thread and process.
    logging._srcfile = None  # https://docs.python.org/3/howto/logging.html#optimization
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    handler: logging.Handler = _Lines(stream) if stream is not None else _QueuedLines(_new_writer())
    handler.setFormatter(JsonFormatter())
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _FOREIGN:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    if starts_thread:
        start_log()


def start_log() -> None:
    """Begin to write what was logged since `configure_logging`, and what follows. Its thread ends with the process."""
    if (writer := _writer()) is not None:
        writer.start()
        atexit.register(writer.close)


def flush_log() -> None:
    """Have what was logged written, for at most a second."""
    if (writer := _writer()) is not None:
        writer.flush()


def close_log() -> None:
    """As `flush_log`, and end the thread. What is logged later is not written."""
    if (writer := _writer()) is not None:
        writer.close()


def num_dropped_lines() -> int:
    """Log lines of this process that were not written and will not be."""
    writer = _writer()
    return 0 if writer is None else writer.num_dropped


def _new_writer() -> LogWriter:
    formatter = JsonFormatter()

    def format_dropped(count: int) -> str:
        event = _Event(__name__, logging.WARNING, "log_lines_dropped", None, {"count": count})
        return formatter.format(event)

    # A process may be started without a stdout.
    descriptor = os.open(os.devnull, os.O_WRONLY) if sys.stdout is None else sys.stdout.fileno()
    return LogWriter(descriptor, format_dropped=format_dropped)


def _writer() -> LogWriter | None:
    """Of the handler that is there; None where lines go to a stream."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _QueuedLines):
            return handler.writer
    return None


def _clipped(value: str) -> str:
    return value if len(value) <= MAX_FIELD_CHARACTERS else value[:MAX_FIELD_CHARACTERS] + "..."
