"""Text to subword ids and back, the same in training and in serving.

SentencePiece with the identity normalisation: no character is folded, no space is merged. Two things
are done around it. Text is composed first (Unicode NFC), so that a decomposed umlaut is the letter
that training saw. A run of characters that the vocabulary has no piece for (emoji, other scripts,
control characters, a literal U+2581) becomes one placeholder, which the model learns to copy, and
comes back as the very run. Placeholders are PLACEHOLDERS private-use characters, which SentencePiece
holds as user-defined symbols; the same characters in a user's text are themselves carried.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

PLACEHOLDERS = tuple(chr(0xE000 + index) for index in range(8))
SPACE = "\u2581"
# WordCache whose subwords are kept, of at most so many characters: some two megabytes.
MAX_KEPT_WORDS, MAX_KEPT_CHARACTERS = 8192, 32
_PROBE = "A text of \u00e4ny kind, 1 \ue000."


class TokenizerError(ValueError):
    """A SentencePiece model that this code cannot have trained."""


class Encoded(NamedTuple):
    """A source sentence.

    ids: subwords, the end token last.
    carried: the runs that placeholders stand for, by placeholder index.
    """

    ids: tuple[int, ...]
    verbatim_spans: tuple[str, ...]


class Decoded(NamedTuple):
    """A target sentence.

    text: with every carried run in it.
    num_appended: carried runs that the model had left out and that were put at the end.
    """

    text: str
    num_appended: int


class Tokenizer:
    """A joint vocabulary. Immutable, so any thread may use it."""

    def __init__(self, path: Path) -> None:
        """Load a SentencePiece model. Raises TokenizerError where it is not one, or lacks the placeholders."""
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self._encode, self._decode = _direct_functions(self._processor)
            self.vocab_size = int(self._processor.vocab_size())
            pieces = [self._processor.id_to_piece(index) for index in range(self.vocab_size)]
        except (OSError, RuntimeError, ValueError, LookupError) as error:  # ValueError: a piece not in UTF-8
            told = f"{path.name} is not a SentencePiece model, or damaged"
            raise TokenizerError(f"{told} ({type(error).__name__})") from error
        self.pad_id, self.bos_id = int(self._processor.pad_id()), int(self._processor.bos_id())
        self.eos_id, self.unk_id = int(self._processor.eos_id()), int(self._processor.unk_id())
        known = {piece for piece in pieces if len(piece) == 1}
        if not known.issuperset(PLACEHOLDERS):
            raise TokenizerError(f"{path.name} does not hold the {len(PLACEHOLDERS)} placeholder symbols")
        self._known = frozenset(known - set(PLACEHOLDERS) - {SPACE} | {" "})
        self._words = WordCache(self._encode) if _encodes_by_word(self._processor, pieces) else None

    def id_of(self, piece: str) -> int:
        """The id of a piece, such as a manifest's source prefix. Raises TokenizerError where there is none."""
        found = int(self._processor.piece_to_id(piece))
        if found == self.unk_id:
            raise TokenizerError(f"the vocabulary has no piece {piece!r}")
        return found

    def text_of(self, identity: int, verbatim_spans: Sequence[str] = ()) -> str:
        """What one subword says, the space before it included; a byte of a character by name, such as <0xE2>."""
        piece = str(self._processor.id_to_piece(identity))
        index = ord(piece[0]) - ord(PLACEHOLDERS[0]) if len(piece) == 1 else -1
        if 0 <= index < len(PLACEHOLDERS):
            return verbatim_spans[index] if index < len(verbatim_spans) else ""
        return piece.replace(SPACE, " ")

    def num_verbatim_spans(self, text: str) -> int:
        """How many runs `encode` would carry; it takes at most len(PLACEHOLDERS)."""
        return sum(is_unknown for is_unknown, _ in self._runs(unicodedata.normalize("NFC", text)))

    def encode(self, text: str) -> Encoded:
        """Encode a source sentence. Raises TokenizerError for more runs than there are placeholders."""
        parts: list[str] = []
        verbatim_spans: list[str] = []
        for is_unknown, run in self._runs(unicodedata.normalize("NFC", text)):
            if is_unknown:
                if len(verbatim_spans) == len(PLACEHOLDERS):
                    raise TokenizerError(
                        f"more than {len(PLACEHOLDERS)} runs of unknown characters in one sentence"
                    )
                parts.append(PLACEHOLDERS[len(verbatim_spans)])
                verbatim_spans.append(run)
            else:
                parts.append(run)
        return Encoded((*self._ids("".join(parts)), self.eos_id), tuple(verbatim_spans))

    def encode_tagged(self, text: str, tag: str | None) -> Encoded:
        """Encode a source sentence behind a subword that names its target language; None puts nothing before it.

        Raises TokenizerError as `encode` does, and for a tag that the vocabulary does not have.
        """
        encoded = self.encode(text)
        if tag is None:
            return encoded
        return Encoded((self.id_of(tag), *encoded.ids), encoded.verbatim_spans)

    def encode_target(self, text: str, verbatim_spans: Sequence[str] = ()) -> tuple[int, ...]:
        """Encode the translation of a source that carried those runs, the end token last.

        A run that was carried becomes its placeholder, any other is spelled in bytes. Raises
        TokenizerError where that other run is itself a placeholder's character, which bytes cannot spell.
        """
        waiting = list(enumerate(verbatim_spans))
        parts: list[str] = []
        for is_unknown, run in self._runs(unicodedata.normalize("NFC", text)):
            match = next((entry for entry in waiting if is_unknown and entry[1] == run), None)
            if match is not None:
                waiting.remove(match)
                parts.append(PLACEHOLDERS[match[0]])
            elif not set(PLACEHOLDERS).isdisjoint(run):
                raise TokenizerError("the target has placeholder characters that the source does not have")
            else:
                parts.append(run)
        return (*self._processor.encode("".join(parts)), self.eos_id)

    def decode(self, ids: Sequence[int], verbatim_spans: Sequence[str] = ()) -> Decoded:
        """Decode subwords, without start and end tokens, and put the carried runs back.

        A placeholder that the source did not have is dropped, one that comes twice is kept once, and
        a run whose placeholder is missing is put at the end: what was carried is never lost.
        """
        text = self._decode(list(ids))
        if not verbatim_spans and (not text or max(text) < PLACEHOLDERS[0]):
            return Decoded(text=text, num_appended=0)
        missing = dict(enumerate(verbatim_spans))
        parts: list[str] = []
        for character in text:
            index = ord(character) - ord(PLACEHOLDERS[0])
            if 0 <= index < len(PLACEHOLDERS):
                parts.append(missing.pop(index, ""))
            else:
                parts.append(character)
        decoded = "".join(parts)
        if missing:
            decoded = " ".join([decoded.rstrip(), *missing.values()]).lstrip()
        return Decoded(text=decoded, num_appended=len(missing))

    def offsets(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of ids, with its placeholders, and where in it each of them starts and ends.

        The bytes of a character that is spelled in bytes are empty but for the last.
        """
        found = self._processor.decode(list(ids), return_type="offset_mapping")
        return str(found["text"]), [(int(start), int(end)) for start, end in found["offsets"]]

    def _ids(self, text: str) -> Sequence[int]:
        """The subwords of a text whose every run is known or a placeholder."""
        return self._encode(text) if self._words is None else self._words.encode(text)

    def _runs(self, text: str) -> Iterator[tuple[bool, str]]:
        """The text in pieces, each wholly unknown (True) or wholly known to the vocabulary."""
        if self._known.issuperset(text):
            return iter(((False, text),))
        groups = itertools.groupby(text, key=lambda character: character not in self._known)
        return ((is_unknown, "".join(run)) for is_unknown, run in groups)


class WordCache:
    """Cuts a text word by word, and the same word once: a text's words are common ones. Any thread may use it."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        """encode: of a whole text, the space before its first word included."""
        self._encode = encode
        self._kept: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """As `encode` of the text at once."""
        words = text.split(" ")
        if "" in words:
            return self._encode(text)
        ids: list[int] = []
        for word in words:
            ids += self._kept.get(word) or self._cut(word)
        return ids

    def _cut(self, word: str) -> tuple[int, ...]:
        found = tuple(self._encode(word))
        if len(word) <= MAX_KEPT_CHARACTERS:
            if len(self._kept) >= MAX_KEPT_WORDS:
                self._kept.clear()
            self._kept[word] = found
        return found


def _encodes_by_word(processor: Any, pieces: Sequence[str]) -> bool:
    """Whether a model cuts every word by itself: by merges, whose scores are ranks, none of which spans two words."""
    last = range(max(0, len(pieces) - 64), len(pieces))
    has_ranks = all(float(processor.get_score(index)).is_integer() for index in last)
    return has_ranks and not any(piece.find(SPACE, 1) > 0 for piece in pieces)


def _direct_functions(processor: Any) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    """From a text to ids, and back.

    The library's own functions look for a dozen options at each call, which takes as long as the work. What they call
    in the end is taken where this version has it and it says the same.
    """
    encode, decode = processor.encode, processor.decode
    try:
        inner, options = processor._processor, (False, -1, 0.1, False, False, False)
        ids = inner._EncodeAsIds(_PROBE, *options)
        is_known = ids == encode(_PROBE) and inner._DecodeIds(ids) == decode(ids)
    except (AttributeError, TypeError):
        is_known = False
    if not is_known:
        return encode, decode
    direct = inner._EncodeAsIds
    return lambda text: direct(text, *options), inner._DecodeIds
