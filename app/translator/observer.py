"""Who watches a translation while it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.decoding.options import FinishReason
from app.translator.request import TextSpan


class Observer(Protocol):
    """Told, on the event loop, what becomes of a request's texts; nothing may be raised here.

    Segments count from 0 within their text. The translation's own answer has the same segments.
    """

    def planned(self, texts: Sequence[Sequence[TextSpan]]) -> None:
        """Once, before anything is decoded: where each segment of each text stands in that text."""

    def delta(self, text_index: int, segment_index: int, text: str) -> None:
        """More was appended to the segment's translation. Only of greedy searches."""

    def replaced(self, text_index: int, segment_index: int, text: str) -> None:
        """What `delta` told of the segment is void: this stands there now, and more may be appended."""

    def finished(self, text_index: int, segment_index: int, text: str, finish_reason: FinishReason) -> None:
        """Once a segment: its translation, as it stands in the text's."""
