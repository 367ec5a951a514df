"""What happens to a translation as server-sent events.

https://html.spec.whatwg.org/multipage/server-sent-events.html

What was not sent yet is kept by segment, new text joined to old: a reader that is slow finds fewer, longer events, and
one that reads nothing makes the server hold each text once and no more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from app.decoding.options import FinishReason
from app.translator import TextSpan

KEEP_ALIVE = b": keep-alive\n\n"


def event(name: str, data: bytes) -> bytes:
    """One event; data: JSON, which has no line break."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


@dataclass
class _Unsent:
    """Of one segment. replacement: what stands there now, delta: what was appended to that or to what was sent."""

    replacement: str | None = None
    delta: str = ""
    finished: tuple[str, FinishReason] | None = None


class EventBuffer:
    """An `Observer` whose events wait to be sent. On the event loop.

    news: set whenever there is something to look at; whoever waits for it clears it.
    """

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.num_sent: Counter[str] = Counter()
        self._texts: Sequence[Sequence[TextSpan]] | None = None
        self._unsent: dict[tuple[int, int], _Unsent] = {}
        self._num_segments = 0
        self._num_done = 0

    @property
    def is_planned(self) -> bool:
        """Whether it is known what is to be translated."""
        return self._texts is not None

    @property
    def has_unsent(self) -> bool:
        """Whether `take` would give anything."""
        return bool(self._unsent)

    def planned(self, texts: Sequence[Sequence[TextSpan]]) -> None:
        """As `Observer`."""
        self._texts = texts
        self._num_segments = sum(map(len, texts))
        self.news.set()

    def delta(self, text_index: int, segment_index: int, text: str) -> None:
        """As `Observer`."""
        self._of(text_index, segment_index).delta += text

    def replaced(self, text_index: int, segment_index: int, text: str) -> None:
        """As `Observer`."""
        unsent = self._of(text_index, segment_index)
        unsent.replacement, unsent.delta = text, ""

    def finished(self, text_index: int, segment_index: int, text: str, finish_reason: FinishReason) -> None:
        """As `Observer`."""
        self._of(text_index, segment_index).finished = (text, finish_reason)

    def start(self, model: dict[str, str]) -> bytes:
        """The first event."""
        texts = [{"segments": [span._asdict() for span in spans]} for spans in self._texts or ()]
        return self._made("start", {"model": model, "num_segments": self._num_segments, "texts": texts})

    def take(self) -> bytes:
        """All that waits, in the order in which segments had news; it is sent then."""
        unsent, self._unsent = self._unsent, {}
        return b"".join(self._events(*place, each) for place, each in unsent.items())

    def done(self, body: bytes) -> bytes:
        """The last event; body: of the answer that a request without a stream gets."""
        self.num_sent["done"] += 1
        return event("done", body)

    def error(self, body: bytes) -> bytes:
        """The last event where the translation failed; body: that of the error's answer."""
        self.num_sent["error"] += 1
        return event("error", body)

    def _of(self, text_index: int, segment_index: int) -> _Unsent:
        self.news.set()
        return self._unsent.setdefault((text_index, segment_index), _Unsent())

    def _events(self, text_index: int, segment: int, unsent: _Unsent) -> bytes:
        place = {"text_index": text_index, "segment": segment}
        made = b""
        if unsent.replacement is not None:
            made += self._made("replace", {**place, "text": unsent.replacement})
        if unsent.delta:
            made += self._made("delta", {**place, "text": unsent.delta})
        if unsent.finished is not None:
            text, reason = unsent.finished
            self._num_done += 1
            progress = {"num_done": self._num_done, "num_segments": self._num_segments}
            made += self._made("segment", {**place, "text": text, "finish_reason": str(reason), **progress})
        return made

    def _made(self, name: str, data: object) -> bytes:
        self.num_sent[name] += 1
        return event(name, orjson.dumps(data))
