"""The interface of an object that receives a translation in pieces, for a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.decoding.options import FinishReason
from app.translator.request import TextSpan


class Observer(Protocol):
    """Receives the progress of a request on the event loop. Its methods must not raise.

    Segments count from 0 within their text.
    """

    def on_segments(self, texts: Sequence[Sequence[TextSpan]]) -> None:
        """Called once, before decoding. texts: for each text the spans of its segments."""

    def on_delta(self, text_index: int, segment_index: int, text: str) -> None:
        """Called when `text` is appended to the segment's translation so far. Only with a beam size of 1."""

    def on_replacement(self, text_index: int, segment_index: int, text: str) -> None:
        """Called when `text` replaces the segment's translation so far. Only with a beam size of 1."""

    def on_final(self, text_index: int, segment_index: int, text: str, finish_reason: FinishReason) -> None:
        """Called once for each segment, with its final translation."""
