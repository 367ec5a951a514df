"""Converts text to subword ids and back. Training and serving use the same code.

In our own models, SentencePiece runs with the identity normalisation, so it folds no character and merges no space. The
tokenizer adds two steps.

- It first composes the text (Unicode NFC), so that a decomposed umlaut becomes the letter of the training data.
- It replaces verbatim spans. A verbatim span is a run of characters that the vocabulary has no piece for, such as
  emoji, other scripts, control characters or a literal U+2581. Each span becomes one placeholder symbol. The model
  learns to copy the symbol, and decoding restores the span unchanged.

Some imported models have learned to read unknown characters in bytes. The placeholder symbols of their vocabularies
have the score SPELLED_SCORE. With such a vocabulary, a character is in a verbatim span only if bytes cannot keep it:

- a private-use character, such as a placeholder of the server;
- a surrogate;
- an unknown character that SentencePiece drops or turns into a space.

The placeholder symbols are the private-use characters of PLACEHOLDER_SYMBOLS, which are user-defined symbols of the
SentencePiece model. The same characters in a user's text are themselves verbatim spans.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from app.text.control_characters import with_spaces

PLACEHOLDER_SYMBOLS = tuple(chr(0xE000 + index) for index in range(8))
SPACE = "\u2581"
# The score of the placeholder symbols in a vocabulary whose unknown characters are spelled in bytes. SentencePiece
# ignores the score of a user-defined symbol.
SPELLED_SCORE = -1.0
# The maximum number of words in the cache, and of characters in a cached word. The cache takes about three megabytes.
# If larger, it takes more memory. If smaller, encoding takes more time.
MAX_CACHED_WORDS, MAX_CACHED_CHARACTERS = 8192, 32
# Characters that a normalisation may fold: a ligature, a no-break space between words and a full-width letter.
_FOLDED = "\ufb01a\u00a0a\uff21"
# A text on which `_direct_functions` compares the private functions of the library with the public ones.
_PROBE = "A text of \u00e4ny kind, 1 \ue000."


class TokenizerError(ValueError):
    """A SentencePiece model that this code cannot use, or a text that it cannot encode."""


class Encoded(NamedTuple):
    """A source sentence.

    ids: subwords, then the end token unless the model's sources have none. `encode_tagged` adds one tag, as the first
        or as the last id.
    verbatim_spans: span k has placeholder symbol k.
    """

    ids: tuple[int, ...]
    verbatim_spans: tuple[str, ...]


class Decoded(NamedTuple):
    """A target sentence.

    text: with all verbatim spans. num_appended: spans that the model lost and that were appended.
    """

    text: str
    num_appended: int


class Tokenizer:
    """A SentencePiece vocabulary, of the source, of the target or of both. Any thread may use it."""

    def __init__(self, path: Path, *, ends_source: bool = True, tag_follows_source: bool = False) -> None:
        """Load a SentencePiece model. Raises TokenizerError if it is no model or lacks usable placeholder symbols.

        ends_source: whether `encode` adds the end token. A source without any subword always has it.
        tag_follows_source: whether the tag of `encode_tagged` is the last id, not the first.
        """
        self.ends_source, self.tag_follows_source = ends_source, tag_follows_source
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            self._encode, self._decode = _direct_functions(self._processor)
            self.vocab_size = int(self._processor.vocab_size())
            pieces = [self._processor.id_to_piece(index) for index in range(self.vocab_size)]
        except (OSError, RuntimeError, ValueError, LookupError) as error:  # ValueError: a piece not in UTF-8
            message = f"{path.name} is not a SentencePiece model, or damaged"
            raise TokenizerError(f"{message} ({type(error).__name__})") from error
        self.pad_id, self.bos_id = int(self._processor.pad_id()), int(self._processor.bos_id())
        self.eos_id, self.unk_id = int(self._processor.eos_id()), int(self._processor.unk_id())
        known = {
            piece
            for index, piece in enumerate(pieces)
            if len(piece) == 1 and not self._processor.is_unused(index)
        }
        if not known.issuperset(PLACEHOLDER_SYMBOLS):
            raise TokenizerError(
                f"{path.name} does not hold the {len(PLACEHOLDER_SYMBOLS)} placeholder symbols"
            )
        known = known - set(PLACEHOLDER_SYMBOLS) - {SPACE} | {" "}
        try:
            self._known = frozenset(known | _folded_characters(self._processor, known))
        except ValueError as error:
            raise TokenizerError(f"{path.name}: {error}") from error
        symbol_id = self._processor.piece_to_id(PLACEHOLDER_SYMBOLS[0])
        self._spells_unknown = self._processor.get_score(symbol_id) == SPELLED_SCORE
        self._words = WordCache(self._encode) if _encodes_by_word(self._processor, pieces) else None

    def id_of(self, piece: str) -> int:
        """Return the id of a piece, such as a manifest's source prefix. Raises TokenizerError for an unknown one."""
        piece_id = int(self._processor.piece_to_id(piece))
        if piece_id == self.unk_id:
            raise TokenizerError(f"the vocabulary has no piece {piece!r}")
        return piece_id

    def has_piece(self, piece: str) -> bool:
        """Whether the vocabulary has this piece."""
        return int(self._processor.piece_to_id(piece)) != self.unk_id

    def has_word(self, word: str) -> bool:
        """Whether a word that follows a space is one subword."""
        return int(self._processor.piece_to_id(SPACE + word)) != self.unk_id

    def text_of(self, identity: int, verbatim_spans: Sequence[str] = ()) -> str:
        """Return the text of one subword, with the space before it. A byte has its name as text, such as <0xE2>."""
        piece = str(self._processor.id_to_piece(identity))
        index = ord(piece[0]) - ord(PLACEHOLDER_SYMBOLS[0]) if len(piece) == 1 else -1
        if 0 <= index < len(PLACEHOLDER_SYMBOLS):
            return verbatim_spans[index] if index < len(verbatim_spans) else ""
        return piece.replace(SPACE, " ")

    def num_verbatim_spans(self, text: str) -> int:
        """Return how many verbatim spans a text has; `encode` takes at most len(PLACEHOLDER_SYMBOLS)."""
        return sum(is_unknown for is_unknown, _ in self._runs(unicodedata.normalize("NFC", text)))

    def encode(self, text: str) -> Encoded:
        """Encode a source sentence. Raises TokenizerError for more verbatim spans than placeholder symbols."""
        text, verbatim_spans = self._with_symbols(text)
        ids = self._ids(text)
        end = (self.eos_id,) if self.ends_source or not ids else ()
        return Encoded((*ids, *end), verbatim_spans)

    def offsets_in_source(self, text: str) -> tuple[str, tuple[str, ...], list[tuple[int, int]]]:
        """Return the text that `encode` gives to SentencePiece, its verbatim spans, and each subword's start and end.

        The offsets are those in this text. It is composed (NFC), with placeholder symbols. If a character becomes
        several subwords, as in bytes or by a normalisation that expands it, all of them but the last are empty. Raises
        TokenizerError as `encode`.
        """
        text, verbatim_spans = self._with_symbols(text)
        return text, verbatim_spans, self._encode_with_offsets(text)

    def _with_symbols(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Return the composed text with a placeholder symbol for each verbatim span, and these spans."""
        parts: list[str] = []
        verbatim_spans: list[str] = []
        for is_unknown, run in self._runs(unicodedata.normalize("NFC", text)):
            if is_unknown:
                if len(verbatim_spans) == len(PLACEHOLDER_SYMBOLS):
                    raise TokenizerError(
                        f"more than {len(PLACEHOLDER_SYMBOLS)} runs of unknown characters in one sentence"
                    )
                parts.append(PLACEHOLDER_SYMBOLS[len(verbatim_spans)])
                verbatim_spans.append(run)
            else:
                parts.append(run)
        return "".join(parts), tuple(verbatim_spans)

    def encode_tagged(self, text: str, tag: str | None) -> Encoded:
        """Encode a source sentence with a subword that names a language. tag: None for no such subword.

        Raises TokenizerError as `encode` does, and for a tag that is not in the vocabulary.
        """
        encoded = self.encode(text)
        if tag is None:
            return encoded
        tag_id = self.id_of(tag)
        ids = (*encoded.ids, tag_id) if self.tag_follows_source else (tag_id, *encoded.ids)
        return Encoded(ids, encoded.verbatim_spans)

    def encode_target(self, text: str, verbatim_spans: Sequence[str] = ()) -> tuple[int, ...]:
        """Encode the translation of a source with these verbatim spans, the end token last.

        Raises TokenizerError if a run of unknown characters is none of these spans and has a placeholder symbol, which
        bytes cannot spell.
        """
        return (*self._processor.encode(self._target_with_symbols(text, verbatim_spans)), self.eos_id)

    def offsets_in_target(
        self, text: str, verbatim_spans: Sequence[str]
    ) -> tuple[str, list[tuple[int, int]]]:
        """Return the text that `encode_target` gives to SentencePiece, and each subword's start and end in it.

        The end token has no offsets. If a character becomes several subwords, all of them but the last are empty.
        Raises TokenizerError as `encode_target` does.
        """
        text = self._target_with_symbols(text, verbatim_spans)
        return text, self._encode_with_offsets(text)

    def _target_with_symbols(self, text: str, verbatim_spans: Sequence[str]) -> str:
        """Return the composed text in which placeholder symbols stand for the source's verbatim spans.

        A verbatim span that the source has becomes its placeholder symbol. Any other run of unknown characters is
        spelled in bytes; a vocabulary without bytes gives the unknown token. Raises TokenizerError as `encode_target`.
        """
        remaining = list(enumerate(verbatim_spans))
        parts: list[str] = []
        for is_unknown, run in self._runs(unicodedata.normalize("NFC", text)):
            match = next((entry for entry in remaining if is_unknown and entry[1] == run), None)
            if match is not None:
                remaining.remove(match)
                parts.append(PLACEHOLDER_SYMBOLS[match[0]])
            elif not set(PLACEHOLDER_SYMBOLS).isdisjoint(run):
                raise TokenizerError("the target has placeholder characters that the source does not have")
            else:
                parts.append(run)
        return "".join(parts)

    def decode(self, ids: Sequence[int], verbatim_spans: Sequence[str] = ()) -> Decoded:
        """Decode subwords without start and end tokens, and restore the verbatim spans.

        A control character that the model writes becomes a space. A placeholder symbol without a span is dropped. A
        repeated symbol is kept once. A span whose symbol is missing is appended, so that no span is lost.
        """
        text = with_spaces(self._decode(list(ids)))
        if not verbatim_spans and (not text or max(text) < PLACEHOLDER_SYMBOLS[0]):
            return Decoded(text=text, num_appended=0)
        missing = dict(enumerate(verbatim_spans))
        parts: list[str] = []
        for character in text:
            index = ord(character) - ord(PLACEHOLDER_SYMBOLS[0])
            if 0 <= index < len(PLACEHOLDER_SYMBOLS):
                parts.append(missing.pop(index, ""))
            else:
                parts.append(character)
        decoded = "".join(parts)
        if missing:
            decoded = " ".join([decoded.rstrip(), *missing.values()]).lstrip()
        return Decoded(text=decoded, num_appended=len(missing))

    def offsets(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of ids, with its placeholder symbols, and each subword's start and end in it.

        Control characters are spaces, as in `decode`. If a character is spelled in bytes, all bytes but the last are
        empty.
        """
        decoded = self._processor.decode(list(ids), return_type="offset_mapping")
        return with_spaces(decoded["text"]), [(int(start), int(end)) for start, end in decoded["offsets"]]

    def _encode_with_offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the start and end of each subword in a text with placeholder symbols."""
        encoded = self._processor.encode(text, return_type="offset_mapping")
        return [(int(start), int(end)) for start, end in encoded["offsets"]]

    def _ids(self, text: str) -> Sequence[int]:
        """Return the subwords of a text in which placeholder symbols stand for all verbatim spans."""
        return self._encode(text) if self._words is None else self._words.encode(text)

    def _runs(self, text: str) -> Iterator[tuple[bool, str]]:
        """Yield the text in runs of characters that need a placeholder symbol (True) or none (False)."""
        if self._known.issuperset(text):
            return iter(((False, text),))
        groups = itertools.groupby(text, key=self._is_unknown)
        return ((is_unknown, "".join(run)) for is_unknown, run in groups)

    def _is_unknown(self, character: str) -> bool:
        """Whether a character needs a placeholder symbol. UTF-8 cannot spell surrogates (Cs)."""
        if character in self._known:
            return False
        if not self._spells_unknown or unicodedata.category(character) in ("Co", "Cs"):
            return True
        return not self._processor.normalize(character).strip(SPACE)


class WordCache:
    """Encodes a text word by word with a cache, because most words of a text are common. Any thread may use it."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        """encode: a function that encodes a whole text, with the space before its first word."""
        self._encode = encode
        self._cached: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the same ids as `encode` of the whole text."""
        words = text.split(" ")
        if "" in words:
            return self._encode(text)
        ids: list[int] = []
        for word in words:
            ids += self._cached.get(word) or self._encode_word(word)
        return ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._encode(word))
        if len(word) <= MAX_CACHED_CHARACTERS:
            if len(self._cached) >= MAX_CACHED_WORDS:
                self._cached.clear()
            self._cached[word] = ids
        return ids


def _encodes_by_word(processor: Any, pieces: Sequence[str]) -> bool:
    """Whether the model encodes each word independently.

    It does so if its scores are the ranks of merges, no piece spans two words, and SentencePiece puts a space before
    the first word.
    """
    if not processor.normalize("a").startswith(SPACE):
        return False
    last = range(max(0, len(pieces) - 64), len(pieces))
    has_ranks = all(float(processor.get_score(index)).is_integer() for index in last)
    return has_ranks and not any(piece.find(SPACE, 1) > 0 for piece in pieces)


def _folded_characters(processor: Any, known: Collection[str]) -> set[str]:
    """Return the characters that an imported model's normalisation turns into known ones, such as a ligature.

    Raises ValueError if the normalisation adds or removes placeholder symbols.
    """
    if processor.normalize(_FOLDED).endswith(_FOLDED):  # our own models keep every character
        return set()
    codes = (*range(ord("!"), 0xD800), *range(0xE000, 0x10000))
    characters = [each for each in map(chr, codes) if each not in known and each not in PLACEHOLDER_SYMBOLS]
    # One text of all characters takes a quarter of the time. The symbol between them is never folded with a neighbour.
    separator = PLACEHOLDER_SYMBOLS[0]
    texts = processor.normalize(separator.join(characters)).replace(SPACE, " ").split(separator)
    if len(texts) != len(characters):
        raise ValueError("the normalisation adds or removes placeholder symbols")
    folded = set()
    for character, text in zip(characters, texts, strict=True):
        if text == character:
            continue
        text = text.strip(" ")
        # A character that is folded into nothing stays unknown and becomes a verbatim span, unless it is a space.
        if all(each in known for each in text) and (text or character.isspace()):
            folded.add(character)
    return folded


def _direct_functions(processor: Any) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str]]:
    """Return functions from a text to ids and back.

    The library's public functions check a dozen options at each call, which takes as long as the work. The functions
    that they call are used instead, if this version of the library has them and they return the same.
    """
    encode, decode = processor.encode, processor.decode
    try:
        inner, options = processor._processor, (False, -1, 0.1, False, False, False)
        ids = inner._EncodeAsIds(_PROBE, *options)
        is_same = ids == encode(_PROBE) and inner._DecodeIds(ids) == decode(ids)
    except (AttributeError, TypeError):
        is_same = False
    if not is_same:
        return encode, decode
    direct = inner._EncodeAsIds
    return lambda text: direct(text, *options), inner._DecodeIds
