"""A segment's translation while it grows, told to an observer so that what was told always adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.decoding.options import FinishReason
from app.text.tokenizer import Tokenizer
from app.translator.observer import Observer

# What SentencePiece makes of a character whose bytes are not all there yet.
REPLACEMENT_CHARACTER = "\ufffd"


class LiveSegment:
    """One segment. What was told by delta and replaced of a greedy search is, at its end, its translation."""

    def __init__(
        self,
        observer: Observer,
        place: tuple[int, int],
        tokenizer: Tokenizer,
        show: Callable[[str], str],
        *,
        is_greedy: bool,
    ) -> None:
        """place: index of the text, and of the segment in it. tokenizer: of the target.

        show: how the model's words look in the text: their casing, what stand-ins stand for. is_greedy: else only the
        end is told.
        """
        self._is_greedy = is_greedy
        self._observer = observer
        self._place = place
        self._tokenizer = tokenizer
        self._show = show
        self._ids: list[int] = []
        self._told = ""

    def on_tokens(self, position: int, ids: tuple[int, ...], verbatim_spans: Sequence[str]) -> None:
        """Subwords from the engine, as `TokenDelta` says. carried: the source's runs."""
        self._ids[position:] = ids
        self._tell(self._show(partial_text(self._tokenizer, self._ids, verbatim_spans)))

    def restart(self) -> None:
        """It is decoded once more: what was told is void."""
        self._ids.clear()
        self._tell("")

    def finish(self, text: str, finish_reason: FinishReason) -> None:
        """Its translation is there."""
        self._tell(text)
        self._observer.finished(*self._place, text, finish_reason)

    def _tell(self, text: str) -> None:
        if not self._is_greedy:
            return
        told, self._told = self._told, text
        if not text.startswith(told):
            self._observer.replaced(*self._place, text)
        elif len(text) > len(told):
            self._observer.delta(*self._place, text[len(told) :])


def partial_text(tokenizer: Tokenizer, ids: Sequence[int], verbatim_spans: Sequence[str]) -> str:
    """What an unfinished target says: whole characters only, and no run that it has not come to."""
    decoded = tokenizer.decode(ids, verbatim_spans)
    text = decoded.text
    if decoded.num_appended:
        # The tokenizer has put them at the end, each behind a space; a run has no space in it.
        text = " ".join(text.split(" ")[: -decoded.num_appended])
    return text.rstrip(REPLACEMENT_CHARACTER)
