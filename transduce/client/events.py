"""The events of a streamed translation, and the parser of `text/event-stream`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from transduce.client.errors import InvalidAnswer
from transduce.client.results import (
    Json,
    ModelName,
    Span,
    TranslationResult,
    parsed,
    read_span,
    read_translations,
)

# Maximum size of an event's data in bytes. The server writes it as one line. A longer line ends the stream in an error.
MAX_EVENT_BYTES = 64_000_000


@dataclass(frozen=True)
class Started:
    """The first event. segments: for each text, the source spans of its segments."""

    model: ModelName
    num_segments: int
    segments: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True)
class Delta:
    """`text` is appended to the segment's translation."""

    text_index: int
    segment: int
    text: str


@dataclass(frozen=True)
class Replaced:
    """`text` replaces everything streamed for the segment so far."""

    text_index: int
    segment: int
    text: str


@dataclass(frozen=True)
class SegmentDone:
    """The segment's translation is complete: `text`. num_done: complete segments so far, of all num_segments."""

    text_index: int
    segment: int
    text: str
    finish_reason: str
    num_done: int
    num_segments: int


@dataclass(frozen=True)
class Done:
    """The last event: the result that `translate` would return."""

    result: TranslationResult


Event = Started | Delta | Replaced | SegmentDone | Done


def read_event(name: str, data: Json) -> Event | None:
    """Parse one event; None for an unknown kind. Raises InvalidAnswer."""
    return parsed(lambda answer: _read(name, answer), data, f"an event of kind {name[:20]!r}")


def _read(name: str, data: Json) -> Event | None:
    match name:
        case "start":
            return Started(
                model=ModelName(data["model"]["name"], data["model"]["version"]),
                num_segments=data["num_segments"],
                segments=tuple(
                    tuple(read_span(segment) for segment in text["segments"]) for text in data["texts"]
                ),
            )
        case "delta":
            return Delta(data["text_index"], data["segment"], data["text"])
        case "replace":
            return Replaced(data["text_index"], data["segment"], data["text"])
        case "segment":
            return SegmentDone(
                data["text_index"],
                data["segment"],
                data["text"],
                data["finish_reason"],
                data["num_done"],
                data["num_segments"],
            )
        case "done":
            return Done(read_translations(data))
    return None


class EventReader:
    r"""Incremental parser: bytes in, (name, data) out.

    A line ends only at \n, \r\n or \r (HTML standard, 9.2.6). Other Unicode line separators may occur in the data, so
    `str.splitlines` cannot be used.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # the chunks of the line that is not complete yet
        self._num_bytes = 0  # the total size of `_parts`
        self._name = "message"
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[str, Json]]:
        """Yield the events that are complete.

        Raises InvalidAnswer for an event that is too long, and for data that is not a JSON object.
        """
        is_after_return = bool(self._parts) and self._parts[-1].endswith(b"\r")
        self._parts.append(chunk)
        self._num_bytes += len(chunk)
        if self._num_bytes > MAX_EVENT_BYTES:
            raise InvalidAnswer(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        # The parts are joined only at the end of a line. To join them at each chunk takes quadratic time.
        if not (is_after_return or b"\n" in chunk or b"\r" in chunk):
            return
        received = b"".join(self._parts)
        # A \r at the end may be the first half of \r\n.
        whole = received.removesuffix(b"\r")
        lines = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop() + received[len(whole) :]
        self._parts, self._num_bytes = [rest], len(rest)
        for line in lines:
            if line:
                self._take(line)
            else:
                name, data = self._name, self._data
                self._name, self._data = "message", []
                if data:
                    yield name, _object(b"\n".join(data))

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)


def _object(data: bytes) -> Json:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise InvalidAnswer("an event's data is not JSON") from error
    if not isinstance(found, dict):
        raise InvalidAnswer("an event's data is not an object")
    return found
