"""Streams the growing translation of a segment to an observer.

The model writes a placeholder symbol for each verbatim span of the source, and the tokenizer replaces the symbol by the
span (`app.text.tokenizer`). A placeholder of the server (`app.text.parsed_text`) is one such span. It is a single
character, which is then replaced by its contents, such as a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.decoding.options import FinishReason
from app.text.tokenizer import Tokenizer
from app.translator.observer import Observer

# SentencePiece decodes the bytes of an incomplete character to this one.
REPLACEMENT_CHARACTER = "\ufffd"


class LiveSegment:
    """One segment. After `finish`, the deltas and replacements of a greedy search add up to its translation."""

    def __init__(
        self,
        observer: Observer,
        indices: tuple[int, int],
        tokenizer: Tokenizer,
        show: Callable[[str], str],
        *,
        is_greedy: bool,
    ) -> None:
        """indices: of the text in the request, and of the segment in the text. tokenizer: of the target vocabulary.

        show: restores the casing and the contents of the server's placeholders in the model's output. is_greedy:
        whether the beam has one hypothesis, as in greedy search and in sampling; if not, only the finished translation
        is reported.
        """
        self._is_greedy = is_greedy
        self._observer = observer
        self._indices = indices
        self._tokenizer = tokenizer
        self._show = show
        self._ids: list[int] = []
        self._sent = ""

    def on_tokens(self, position: int, ids: tuple[int, ...], verbatim_spans: Sequence[str]) -> None:
        """Add subwords from the engine, which begin at `position`. verbatim_spans: those of the source."""
        self._ids[position:] = ids
        self._send(self._show(partial_text(self._tokenizer, self._ids, verbatim_spans)))

    def restart(self) -> None:
        """Withdraw everything sent, because the segment is decoded again."""
        self._ids.clear()
        self._send("")

    def finish(self, text: str, finish_reason: FinishReason) -> None:
        """Send the rest of the translation, and report the segment as finished."""
        self._send(text)
        self._observer.on_final(*self._indices, text, finish_reason)

    def _send(self, text: str) -> None:
        if not self._is_greedy:
            return
        sent, self._sent = self._sent, text
        if not text.startswith(sent):
            self._observer.on_replacement(*self._indices, text)
        elif len(text) > len(sent):
            self._observer.on_delta(*self._indices, text[len(sent) :])


def partial_text(tokenizer: Tokenizer, ids: Sequence[int], verbatim_spans: Sequence[str]) -> str:
    """Return the text of an unfinished target, without incomplete characters.

    A verbatim span is left out until its placeholder symbol is decoded.
    """
    decoded = tokenizer.decode(ids, verbatim_spans)
    text = decoded.text
    if decoded.num_appended:
        # The tokenizer appends each missing span after a space. No span has a space in it.
        text = " ".join(text.split(" ")[: -decoded.num_appended])
    return text.rstrip(REPLACEMENT_CHARACTER)
