"""One JSON object a line on stdout, in ASCII, and never a user's text.

An event is a fixed word with fields; `log_event` is how our own code writes one. Foreign loggers (uvicorn,
warnings) come through the same formatter. Of an exception only the type and the places are written: its message
may hold what a user sent.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TextIO

MAX_FIELD_CHARACTERS = 500
_FOREIGN = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio", "fastapi")
Field = str | int | float | bool | None


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, logger, event, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; every character beyond ASCII, and every control character, is escaped by JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _clipped(record.getMessage()),
        }
        fields: dict[str, Field] = getattr(record, "fields", {})
        line.update({name: _clipped(value) for name, value in fields.items() if value is not None})
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = places_of(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True, default=str)


def places_of(error: BaseException) -> list[str]:
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
        logger.log(level, event, extra={"fields": fields or {}}, exc_info=error)


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to `stream` (default: stdout) at `level`, debug to error.

    A line that cannot be written is dropped: a full disk does not fail a request.
    """
    logging.raiseExceptions = False
    # What no line holds is not looked for: of the caller's frame, thread and process.
    logging._srcfile = None  # https://docs.python.org/3/howto/logging.html#optimization
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _FOREIGN:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _clipped(value: Field) -> Field:
    if isinstance(value, str) and len(value) > MAX_FIELD_CHARACTERS:
        return value[:MAX_FIELD_CHARACTERS] + "..."
    return value
