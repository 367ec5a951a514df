"""Splits a text into the spans that are translated, and joins their translations with everything else unchanged.

A text is split into lines at every line break, tab, other control character and check box, and lines into cells at
marks such as `|` and at spaces between columns. `sentencex` splits cells into sentences. Over-long sentences are split
between clauses, else between words, else between characters. The text between two spans stays unchanged: line breaks,
indentation, bullets, numbering, and anything without a letter. If every span is replaced by itself, the result is the
text.

Time is linear in the text, or n log n for an over-long sentence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sentencex

from app.text.abbreviations import joined
from app.text.columns import running_gaps
from app.text.control_characters import SPLITTING
from app.text.language_codes import base_language

# A tab separates columns. The model loses letters next to any other control character in a sentence. A check box
# separates the options of a form. Check boxes are those of Unicode, with the character that selects their form, and
# those of the font Wingdings.
_CHECK_BOXES = r"\u2610-\u2612\uf06f\uf0a8\uf0fd\uf0fe"
_LINE = re.compile(rf"(?:(?<![{_CHECK_BOXES}])|(?![\ufe0e\ufe0f]))[^{SPLITTING}{_CHECK_BOXES}]+")
# White space beyond ASCII is replaced by spaces for sentencex, because version 1.0.32 panics on "B\u00a0.".
_WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
# Marks that sentencex does not know, and those that it gets instead: Khmer full stops, except in the Khmer "etc.", and
# the Greek question mark.
_UNKNOWN_MARKS = (
    (re.compile("[\u17d4\u17d5](?!\u179b\u17d4)(?<!\u17d4\u179b\u17d4)"), "\u104b"),
    (re.compile("\u037e"), ";"),
)
# Cells in which sentencex finds no sentence end in any language, so that it need not be called. It is called for a cell
# with a semicolon, because Greek ends questions with it, and for one with a bracket, because "b)" begins an item.
_ONE_SENTENCE = re.compile(r"[^.!?;:)\x80-\U0010ffff]*+[\x00-\x7f]?")
# What is between two cells of a line: a mark or a check box such as `[x]` between spaces, or dots before a number. In
# text with columns, three spaces or more are also between two cells.
_CELL_MARK = r"(?<!\S)(?:[|\u00b7\u2022]|\[[ xX]?\])(?!\S)|(?<!\.)\.{4,}+(?= ?\d)"
_CELL_BORDER = re.compile(_CELL_MARK)
_CELL_OR_COLUMN_BORDER = re.compile(rf" {{3,}}+|{_CELL_MARK}")
# Maximum number of characters after an open bracket in which a line is not divided into cells. If larger, a bracket
# that is never closed hides more borders, and reading takes more time. If smaller, more brackets are divided.
_LENGTH_IN_BRACKETS = 80
# Up to four words and a colon at the start of a sentence, such as `WARNING: `. One word has four letters or more.
_LABEL = re.compile(r"\s*+(?=[^:]{0,20}[^\W\d_]{4})((?:[^\W\d_]+ ){0,3}[^\W\d_]+) ?:(?=\s+\S)")
# Characters that are trimmed at the ends of a span: white space, control characters and zero-width format characters.
# Joiners (U+200C, U+200D) and tags are not trimmed, because they belong to the character next to them.
_EDGE = (
    "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x7f"
    "\u00ad\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064"
    "\u2066\u2067\u2068\u2069\ufeff"
)
_ATTACHED = frozenset({"Mn", "Mc", "Me", "Cf"})  # Unicode's categories of marks and format characters
_SKIN_TONES = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))
_ZERO_WIDTH_JOINER = "\u200d"
# Characters that belong to the one after them: Thai and Lao vowels, and the marks that stack Khmer and Burmese letters.
_LEADING = frozenset("\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4\u17d2\u1039")
# Letters that belong to the one before them: Thai and Lao vowels, and Japanese small letters and long vowels.
_TRAILING = frozenset(
    "\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3"
    "\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u308e"
    "\u30a1\u30a3\u30a5\u30a7\u30a9\u30c3\u30e3\u30e5\u30e7\u30ee\u30fc"
)
# List marks at the start of a cell, before white space or the end: 1. 2.1. 3) (4) b) (c) iv), keycap emoji, the box of
# a task, and the marks of a comment in code.
_NUMBERING = re.compile(
    r"(?:\d{1,3}(?:\.\d{1,3}){0,4}[.)]|\(\d{1,3}\)|\(?[A-Za-z]\)|\(?[ivxIVX]{1,5}\)|\[[ xX]?\]"
    r"|[0-9#*]\ufe0f?\u20e3|/{2,3}|/\*{1,2})(?=\s|\Z)"
)
# Arrows that may be after the last word of a cell, as in `Read more \u2192`, and marks that are arrows after a space.
_ARROWS = frozenset(
    map(chr, (*range(0x2190, 0x2200), *range(0x2794, 0x27C0), 0x25B6, 0x25B8, 0x25BA, 0x276F))
)
_ARROW_MARKS = frozenset(">\u00bb\u203a")
_EMOJI_STYLE = "\ufe0f"  # after an arrow that is shown as an emoji
# In a cell with one of these, _ARROW_MARKS are closing marks.
_OPENING_MARKS = frozenset("<\u00ab\u2039")
# A cell that begins with a word has no list mark.
_WORD_FIRST = re.compile(r"[^\W\d_]++[ ,']")
# Unicode's dashes, mathematical and other symbols (bullets, arrows, emoji), and these marks.
_BULLET_CATEGORIES = frozenset({"Pd", "Sm", "So"})
_BULLETS = frozenset("*#\u00b7\u2022\u2023\u2043")
_NUMERO = "\u2116"  # a symbol, but it stands before a number
# Characters after which a clause may end, first those of scripts without spaces between words.
_WIDE_CLAUSE_END = frozenset("\u3001\u3002\uff0c\uff1b\uff1a")
_CLAUSE_END = _WIDE_CLAUSE_END | frozenset(
    ",;:!?.\u2013\u2014)]}\u201d\u00bb\u0589\u060c\u061b\u061f\u06d4\u0964\u104a\u104b\u1362\u1363\u17d4"
)


# Start and end in a text, in code points. They are equal if the span is empty.
Offsets = tuple[int, int]


class Span(NamedTuple):
    """Code points start..end-1 of a text. A span is never empty."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return the part of `text` that this span covers."""
        return text[self.start : self.end]


class Piece(NamedTuple):
    """A span for the model. is_part: whether the sentence was longer than the model takes."""

    span: Span
    is_part: bool


@dataclass(frozen=True)
class Joined:
    """A text with translated spans. spans: the position of each translation in the text, in code points."""

    text: str
    spans: tuple[tuple[int, int], ...]


def sentence_spans(text: str, language: str, *, has_columns: bool = True) -> Iterator[Span]:
    """Yield the sentences of a text in order, without list marks, arrows at the end and surrounding white space.

    language: BCP 47 code, which selects the abbreviations that do not end a sentence. has_columns: whether three spaces
    or more separate columns.
    """
    for start, cell in _cells(text, has_columns=has_columns):
        marks = _after_marks(cell)
        start += marks
        for sentence in _sentences(cell[marks : _before_arrows(cell)], base_language(language)):
            span = trimmed(text, start, start + len(sentence))
            # The sentence is as long in the text, although its spaces and marks may differ there.
            start += len(sentence)
            if span is not None:
                yield span


def _cells(text: str, *, has_columns: bool) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each cell. has_columns: as in `sentence_spans`."""
    border = _CELL_OR_COLUMN_BORDER if has_columns else _CELL_BORDER
    gaps = running_gaps(text) if has_columns else frozenset()
    for line in _LINE.finditer(text):
        start = line.start()
        for found in border.finditer(text, start, line.end()):
            if found.start() not in gaps and not _is_in_brackets(text, start, found.start()):
                yield start, text[start : found.start()]
                start = found.end()
        yield start, text[start : line.end()]


def _is_in_brackets(text: str, start: int, position: int) -> bool:
    """Whether text[start:position] has a bracket that is still open. Only the last _LENGTH_IN_BRACKETS are read."""
    start = max(start, position - _LENGTH_IN_BRACKETS)
    return text.rfind("(", start, position) > text.rfind(")", start, position)


def _after_marks(cell: str) -> int:
    """Return the position after bullets, numbering and white space, where the text of a cell begins."""
    begin = index = 0
    if _WORD_FIRST.match(cell):
        return 0
    while True:
        while index < len(cell) and _is_edge(cell[index]):
            index += 1
        begin = index
        numbering = _NUMBERING.match(cell, index)
        if numbering is not None:
            index = numbering.end()
            continue
        while index < len(cell) and _is_bullet(cell, index):
            index += 1
        if index == begin or index == len(cell) or not cell[index].isspace():
            return begin


def _before_arrows(cell: str) -> int:
    """Return the position before the arrows at the end of a cell, and before the white space around them."""
    end, has_arrow = len(cell), False
    has_opening = not _OPENING_MARKS.isdisjoint(cell)
    while end > 0:
        last, before = cell[end - 1], cell[end - 2 : end - 1]
        if last in _ARROWS or (last in _ARROW_MARKS and before.isspace() and not has_opening):
            has_arrow = True
        elif not (_is_edge(last) or (last == _EMOJI_STYLE and before in _ARROWS)):
            break
        end -= 1
    return end if has_arrow else len(cell)


def _is_bullet(cell: str, index: int) -> bool:
    character = cell[index]
    if character == _NUMERO:
        return False
    return (
        character in _BULLETS
        or unicodedata.category(character) in _BULLET_CATEGORIES
        or (index > 0 and is_attached(cell, index))
    )


def _sentences(cell: str, language: str) -> list[str]:
    """Return the sentences of a cell, or the whole cell if sentencex fails or its output differs from the cell."""
    if _ONE_SENTENCE.fullmatch(cell):
        return [cell]
    plain = _WIDE_SPACE.sub(" ", cell)
    for pattern, known in _UNKNOWN_MARKS:
        plain = pattern.sub(known, plain)
    try:
        sentences: list[str] = sentencex.segment(language, plain)
    except BaseException as error:
        # A Rust panic raises a BaseException whose class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        return [cell]
    whole = joined(sentences, language) if "".join(sentences) == plain else [cell]
    return [part for sentence in whole for part in _divided_at_label(sentence)]


def _divided_at_label(sentence: str) -> list[str]:
    """Return the label in capitals at the start of a sentence and the rest, or just the sentence if it has no label."""
    label = _LABEL.match(sentence)
    if label is None or not label[1].isupper():
        return [sentence]
    return [sentence[: label.end()], sentence[label.end() :]]


def trimmed(text: str, start: int, end: int) -> Span | None:
    """Return the span start..end-1 without its edges, or None if it has no letter."""
    while start < end and _is_edge(text[start]):
        start += 1
    while start < end and _is_edge(text[end - 1]):
        end -= 1
    if any(map(str.isalpha, text[start:end])):
        return Span(start, end)
    return None


def _is_edge(character: str) -> bool:
    return character.isspace() or character in _EDGE


def fitting_pieces(text: str, span: Span, fits: Callable[[str], bool]) -> list[Piece]:
    """Return a sentence in as many pieces as the model needs, in order. fits: as in `fitting_spans`."""
    spans = list(fitting_spans(text, span, fits))
    is_part = spans != [span]
    return [Piece(part, is_part) for part in spans]


def fitting_spans(text: str, span: Span, fits: Callable[[str], bool]) -> Iterator[Span]:
    """Split a span near the middle until every part fits: between clauses, else words, else characters.

    The parts are trimmed, and a part without a letter is left out. So there may be none.
    fits: whether the model takes a string at once. A single character counts as fitting.
    """
    pending = [span]
    while pending:
        part = pending.pop()
        if part.end - part.start <= 1 or fits(part.of(text)):
            yield part
            continue
        cut = best_cut(text, part)
        halves = (trimmed(text, cut, part.end), trimmed(text, part.start, cut))
        pending.extend(half for half in halves if half is not None)


def best_cut(text: str, span: Span) -> int:
    """Return the position at which to split a span in two, start < cut < end.

    It is the first of these that exists:
    - the clause end nearest to the middle, in the middle half of the span, if a space follows or the script has none;
    - the space nearest to the middle;
    - the position nearest to the middle that does not separate a letter from its marks;
    - the middle.
    """
    middle = (span.start + span.end) // 2
    quarter = (span.end - span.start) // 4

    def nearest(is_cut: Callable[[int], bool], reach: int) -> int | None:
        for distance in range(reach + 1):
            for index in (middle - distance, middle + distance):
                if span.start < index < span.end and is_cut(index):
                    return index
        return None

    def is_after_clause(index: int) -> bool:
        if text[index].isspace():
            return text[index - 1] in _CLAUSE_END
        if _is_closing(text[index]):
            return False
        last = index - 1 - _is_closing(text[index - 1])
        return last >= span.start and text[last] in _WIDE_CLAUSE_END

    for is_cut, reach in (
        (is_after_clause, quarter),
        (lambda index: text[index].isspace(), 2 * quarter + 1),
        (lambda index: not is_attached(text, index), 2 * quarter + 1),
    ):
        cut = nearest(is_cut, reach)
        if cut is not None:
            return cut
    return middle


def _is_closing(character: str) -> bool:
    """Whether a character is a closing bracket or quotation mark."""
    return unicodedata.category(character) in {"Pe", "Pf"}


def is_attached(text: str, index: int) -> bool:
    """Whether the character at `index` belongs to the one before it.

    It is a mark, joiner, skin tone, half a flag, or a letter of a script without spaces that does not stand alone.
    """
    before, character = text[index - 1], text[index]
    return (
        unicodedata.category(character) in _ATTACHED
        or before in _LEADING
        or character in _TRAILING
        or character in _SKIN_TONES
        or before == _ZERO_WIDTH_JOINER
        or (before in _FLAG_LETTERS and character in _FLAG_LETTERS)
    )


def join(text: str, spans: Sequence[Span], translations: Sequence[str], separator: str = "") -> Joined:
    """Replace spans of a text by their translations.

    spans: in order, without overlap. separator: what stands between two spans that nothing separates. Raises ValueError
    if the counts differ.
    """
    parts: list[str] = []
    placed: list[tuple[int, int]] = []
    length = 0
    done = 0
    for span, translation in zip(spans, translations, strict=True):
        gap = text[done : span.start] or (separator if done else "")
        start = length + len(gap)
        length = start + len(translation)
        parts += (gap, translation)
        placed.append((start, length))
        done = span.end
    parts.append(text[done:])
    return Joined("".join(parts), tuple(placed))
