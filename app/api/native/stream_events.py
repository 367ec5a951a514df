"""Server-sent events of a translation in progress.

https://html.spec.whatwg.org/multipage/server-sent-events.html

Unsent text is kept by segment, and new text is appended to it. So a slow client gets fewer, longer events. For a client
that reads nothing, this buffer holds each segment's text at most twice: as it was decoded, and in its final form.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from app.api.native.answers import ModelName
from app.decoding.options import FinishReason
from app.translator import TextSpan

KEEP_ALIVE = b": keep-alive\n\n"


def event(name: str, data: bytes) -> bytes:
    """One event. data: JSON without line breaks."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


@dataclass
class _Unsent:
    """One segment's unsent changes.

    replacement: the segment's new text; None if the sent text is still valid.
    delta: the text to append to the replacement, or to the sent text if there is no replacement.
    finished: the final text and the finish reason; None while the segment is decoded.
    """

    replacement: str | None = None
    delta: str = ""
    finished: tuple[str, FinishReason] | None = None


class EventBuffer:
    """An `Observer` that keeps events until they are sent. Its methods are called on the event loop only.

    changed: set at each change. The task that waits for it clears it.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.num_sent: Counter[str] = Counter()
        self._texts: Sequence[Sequence[TextSpan]] | None = None
        self._unsent: dict[tuple[int, int], _Unsent] = {}
        self._num_segments = 0
        self._num_done = 0

    @property
    def has_segments(self) -> bool:
        """Whether the segments are known."""
        return self._texts is not None

    @property
    def has_unsent(self) -> bool:
        """Whether `take` would return an event."""
        return bool(self._unsent)

    def on_segments(self, texts: Sequence[Sequence[TextSpan]]) -> None:
        """See `Observer.on_segments`."""
        self._texts = texts
        self._num_segments = sum(map(len, texts))
        self.changed.set()

    def on_delta(self, text_index: int, segment_index: int, text: str) -> None:
        """See `Observer.on_delta`."""
        self._mark_changed(text_index, segment_index).delta += text

    def on_replacement(self, text_index: int, segment_index: int, text: str) -> None:
        """See `Observer.on_replacement`."""
        unsent = self._mark_changed(text_index, segment_index)
        unsent.replacement, unsent.delta = text, ""

    def on_final(self, text_index: int, segment_index: int, text: str, finish_reason: FinishReason) -> None:
        """See `Observer.on_final`."""
        self._mark_changed(text_index, segment_index).finished = (text, finish_reason)

    def start(self, model: ModelName, models: Sequence[ModelName] = ()) -> bytes:
        """The first event. model: the one that writes the translation. models: all, in order, if there is a pivot."""
        texts = [{"segments": [span._asdict() for span in spans]} for spans in self._texts or ()]
        all_models = {"models": models} if models else {}
        fields = {"model": model, **all_models, "num_segments": self._num_segments, "texts": texts}
        return self._counted("start", fields)

    def take(self) -> bytes:
        """Remove and return the unsent events, in the order in which their segments changed first."""
        unsent, self._unsent = self._unsent, {}
        return b"".join(self._events(*position, each) for position, each in unsent.items())

    def done(self, body: bytes) -> bytes:
        """The last event. body: the body that /v1/translate would send."""
        self.num_sent["done"] += 1
        return event("done", body)

    def error(self, body: bytes) -> bytes:
        """The last event of a failed translation. body: the body of the error response."""
        self.num_sent["error"] += 1
        return event("error", body)

    def _mark_changed(self, text_index: int, segment_index: int) -> _Unsent:
        """Set `changed`, because the caller adds a change of this segment. Returns the segment's unsent changes."""
        self.changed.set()
        return self._unsent.setdefault((text_index, segment_index), _Unsent())

    def _events(self, text_index: int, segment: int, unsent: _Unsent) -> bytes:
        position = {"text_index": text_index, "segment": segment}
        events = b""
        if unsent.replacement is not None:
            events += self._counted("replace", {**position, "text": unsent.replacement})
        if unsent.delta:
            events += self._counted("delta", {**position, "text": unsent.delta})
        if unsent.finished is not None:
            text, reason = unsent.finished
            self._num_done += 1
            progress = {"num_done": self._num_done, "num_segments": self._num_segments}
            events += self._counted(
                "segment", {**position, "text": text, "finish_reason": str(reason), **progress}
            )
        return events

    def _counted(self, name: str, data: object) -> bytes:
        """Return one event, and count it in `num_sent`."""
        self.num_sent[name] += 1
        return event(name, orjson.dumps(data))
