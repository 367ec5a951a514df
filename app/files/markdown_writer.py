"""Writes the translation of a Markdown block.

The block is parsed again. Characters that Markdown would read as markup are escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from app.files.block_starts import as_text, begins_block, begins_definition
from app.files.inline_marks import InlineMark, InlineParser
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText

# White space, which cannot be at the inner edges of emphasis (CommonMark 0.31, 2.1: Unicode whitespace).
_SPACES = " \t\n\r\f\u00a0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SINGLE = frozenset({MarkKind.POINT, MarkKind.PLACEHOLDER})
_EMPHASIS = frozenset({"em", "strong", "s"})
# Characters of a heading's end that Markdown would drop.
_HEADING_END = re.compile(r"(?:(?<=[ \t])|^)(?=#+[ \t]*$)")
_FIRST_WORD = re.compile(r"\s*\S+")
_SPECIAL = re.compile(r"[\\`*_<&\[\]!~]")
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


@dataclass(frozen=True)
class Markup:
    """Inline markup. content: as the parser sees it. file: with the line breaks and the backslashes of the file.

    named_end: the end of a link with the name of its definition, if the link's text is that name; else empty.
    """

    content: str
    file: str
    named_end: str = ""


@dataclass(frozen=True)
class BlockWriter:
    """Writes a block. breaks: the line breaks in its text, each with the `>` and the indentation of the next line.

    kind: the type of the token that opens the block, such as `paragraph_open` or, for a cell, `td_open`. An underlined
        heading has the kind `paragraph_open`.
    has_block_start: whether the source begins with characters that could begin a block other than running text. The
        translation's beginning is then not escaped.
    spellings: the spellings of a character in the source, in order, if one of them is an escape or a reference.
    parser, environment: parse the translated block. A mark that spans lines holds its own line breaks.
    """

    tagged: TaggedText[Markup]
    breaks: tuple[str, ...]
    kind: str
    has_block_start: bool
    spellings: Mapping[str, Sequence[str]]
    parser: InlineParser
    environment: dict[str, Any]

    def __call__(self, translation: str) -> str:
        """The block's text with a translation.

        The translation is first written with the source's markup. Then these changes are added one by one, until the
        parser reads the result as the translation:

        - markup that would begin another kind of block is changed;
        - code spans that touch are divided;
        - links name their definitions;
        - white space is moved out of emphasis;
        - emphasis beside a letter or digit is changed so that CommonMark accepts it;
        - characters are escaped. The parser does not check this last resort.
        """
        pieces = self.tagged.read(translation)
        if not self.breaks:
            pieces = [piece if isinstance(piece, Mark) else " ".join(piece.split("\n")) for piece in pieces]
        if self.kind == "paragraph_open" and pieces != list(self.tagged.pieces):
            pieces = _with_inline_starts(pieces)
        tried: list[Piece[Markup]] | None = None
        for change in (
            joined,
            _with_divided_code,
            _with_link_names,
            _with_trimmed_emphasis,
            _with_valid_emphasis,
        ):
            pieces = change(pieces)
            if pieces == tried:
                continue
            written = self._spelled(pieces, is_escaped=False)
            if self._is_read_as(written, pieces):
                return self._in_file(written)
            tried = pieces
        return self._in_file(self._spelled(pieces, is_escaped=True))

    def _spelled(self, pieces: Sequence[Piece[Markup]], *, is_escaped: bool) -> list[Piece[Markup]]:
        """The pieces as a file has them. is_escaped: escape all characters that may be markup."""
        texts = [piece for piece in pieces if isinstance(piece, str)] if self.spellings else []
        counts = Counter("".join(texts))
        spellings = {
            character: _spellings(spellings, counts[character], character)
            for character, spellings in self.spellings.items()
        }
        written: list[Piece[Markup]] = []
        for index, piece in enumerate(pieces):
            if isinstance(piece, Mark) or not (spellings or is_escaped):
                written.append(piece)
                continue
            # The text with one character of each neighbour. The beginning and the end of a block count as white space.
            padded = f"{_edge(pieces, index - 1, -1)}{piece}{_edge(pieces, index + 1, 0)}"
            spelled = [next(spellings[each]) if each in spellings else each for each in piece]
            if is_escaped:
                spelled = [
                    f"\\{each}" if each == padded[place] and _is_active(padded, place) else each
                    for place, each in enumerate(spelled, start=1)
                ]
            written.append("".join(spelled))
        if self.kind == "paragraph_open":
            return _escaped(written, is_line_start=not self.has_block_start)
        if self.kind == "heading_open" and written and isinstance(written[-1], str):
            written[-1] = _HEADING_END.sub(r"\\", written[-1])
        return written

    def _is_read_as(self, written: Sequence[Piece[Markup]], pieces: Sequence[Piece[Markup]]) -> bool:
        """Whether the parser reads what is written as these pieces."""
        content = "".join(piece.raw.content if isinstance(piece, Mark) else piece for piece in written)
        if not _SPECIAL.search(content):
            return True
        found = joined(
            _mark(piece, content)
            if isinstance(piece, InlineMark)
            else piece
            if isinstance(piece, str)
            else piece.text
            for piece in self.parser.pieces(content, self.environment)
        )
        return len(found) == len(pieces) and all(map(_is_same, found, pieces))

    def _in_file(self, written: Sequence[Piece[Markup]]) -> str:
        """The written pieces with the line breaks of the file, or as a cell."""
        is_cell = self.kind in {"th_open", "td_open"}
        parts: list[str] = []
        num_breaks = 0
        for piece in written:
            if isinstance(piece, Mark):
                parts.append(piece.raw.file)
                continue
            parts.append(in_cell(piece) if is_cell else restored(piece, self.breaks, num_breaks))
            num_breaks += piece.count("\n")
        text = "".join(parts)
        return f"{text} " if is_cell and text.endswith("\\") else text


def in_cell(content: str) -> str:
    """The content of a cell as the file has it. The parser removes the backslash before each `|`."""
    return content.replace("|", r"\|")


def restored(text: str, breaks: tuple[str, ...], num_done: int = 0) -> str:
    """The text with the file's own line breaks, from breaks[num_done] on. Further line breaks are like the last one."""
    lines = text.split("\n")
    parts = [lines[0]]
    for index, line in enumerate(lines[1:], start=num_done):
        parts += (breaks[min(index, len(breaks) - 1)], line)
    return "".join(parts)


def _spellings(spellings: Sequence[str], count: int, character: str) -> Iterator[str]:
    """The spellings of a character that a translation has `count` times.

    They are those of the source if it has the character as often or spells it in one way.
    """
    if count == len(spellings):
        return iter(spellings)
    return repeat(spellings[0] if len(set(spellings)) == 1 else character)


def _edge(pieces: Sequence[Piece[Markup]], index: int, end: int) -> str:
    """The first character (end: 0) or the last one (-1) of a piece, or a line break if there is no such piece."""
    if not 0 <= index < len(pieces):
        return "\n"
    piece = pieces[index]
    return (piece.raw.content if isinstance(piece, Mark) else piece)[end]


def _is_active(text: str, place: int) -> bool:
    """Whether the character text[place], which has two neighbours, may be markup."""
    before, character, after = text[place - 1], text[place], text[place + 1]
    match character:
        case "`" | "[" | "]":
            return True
        case "*":
            return not {before, after} <= {" ", "\t", "\n"}
        case "_":
            return not ({before, after} <= {" ", "\t", "\n"} or (before.isalnum() and after.isalnum()))
        case "<":
            return after in "/!?" or after.isalpha()
        case "&":
            return _REFERENCE.match(text, place) is not None
        case "!":
            return after == "["
        case "~":
            return "~" in {before, after}
        case "\\":
            return not (after.isascii() and (after.isalnum() or after == " "))
    return False


def joined(pieces: Iterable[Piece[Markup]]) -> list[Piece[Markup]]:
    """The pieces with neighbouring texts joined."""
    result: list[Piece[Markup]] = []
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        result += [text for text in ["".join(texts)] if text]
        result.append(piece)
        texts.clear()
    return result + [text for text in ["".join(texts)] if text]


def _mark(mark: InlineMark, content: str) -> Mark[Markup]:
    raw = content[mark.start : mark.end]
    return Mark(mark.kind, Markup(raw, raw, mark.named_end), mark.name)


def _is_same(found: Piece[Markup], piece: Piece[Markup]) -> bool:
    """Whether the parser found this piece. A mark without a partner is a point in the block."""
    if isinstance(found, str) or isinstance(piece, str):
        return found == piece
    return (
        piece.kind in {found.kind, MarkKind.POINT}
        and found.name == piece.name
        and found.raw.content == piece.raw.content
        and found.raw.named_end == piece.raw.named_end
    )


def _with_inline_starts(pieces: Sequence[Piece[Markup]]) -> list[Piece[Markup]]:
    """The pieces, in which no code span and no HTML without a partner begins another kind of block.

    At the start of a line, a code span is written on one line, because such a line is no fence. HTML is put behind the
    next word.
    """
    changed: list[Piece[Markup]] = []
    held: list[Piece[Markup]] = []  # HTML at the start of a line
    is_start = True
    for piece in pieces:
        if isinstance(piece, str):
            text = piece.lstrip(" ") if is_start and held else piece
            if held and (word := _FIRST_WORD.match(text)):
                changed += [word.group(), *held]
                held, text, is_start = [], text[word.end() :], False
            changed.append(text)
            _, line_break, line = text.rpartition("\n")
            is_start = not line.strip(" ") and (is_start or bool(line_break))
            continue
        if is_start and piece.kind in _SINGLE and begins_block(piece.raw.content):
            if piece.raw.content[0] == "<":
                held.append(piece)
                continue
            line = piece.raw.content.replace("\n", " ")
            piece = replace(piece, raw=Markup(line, line))
        changed.append(piece)
        is_start = _ends_line(piece)
    return [piece for piece in [*changed, *held] if piece != ""]


def _ends_line(mark: Mark[Markup]) -> bool:
    return mark.kind is MarkKind.BREAK and not {"\r", "\n"}.isdisjoint(mark.raw.content)


def _with_divided_code(pieces: Sequence[Piece[Markup]]) -> list[Piece[Markup]]:
    """The pieces with a space between two code spans that touch, because their backticks would join."""
    divided: list[Piece[Markup]] = []
    for piece in pieces:
        previous = divided[-1] if divided else ""
        if isinstance(piece, Mark) and isinstance(previous, Mark):
            divided += [" "] * (previous.raw.content[-1] == "`" == piece.raw.content[0])
        divided.append(piece)
    return divided


def _with_link_names(pieces: Sequence[Piece[Markup]]) -> list[Piece[Markup]]:
    """The pieces, in which a link names its definition if the link's text was that name and has changed."""
    named: list[Piece[Markup]] = []
    label: list[str] = []
    for piece in pieces:
        if isinstance(piece, str) or piece.name != "link":
            label.append(piece if isinstance(piece, str) else piece.raw.content)
            named.append(piece)
            continue
        end = piece.raw.named_end
        is_changed = end and end != f"][{' '.join(''.join(label).split())}]"
        named.append(replace(piece, raw=Markup(end, end)) if is_changed else piece)
        label.clear()
    return named


def _with_trimmed_emphasis(pieces: Sequence[Piece[Markup]]) -> list[Piece[Markup]]:
    """Move white space out of emphasis, because CommonMark allows none at its inner edges."""
    tidied: list[Piece[Markup]] = []
    for piece in pieces:
        previous = tidied[-1] if tidied else ""
        if isinstance(piece, str) and _is_emphasis(previous, MarkKind.OPEN):
            body = piece.lstrip(_SPACES)
            tidied[-1:] = [piece[: len(piece) - len(body)], previous, body]
        elif not _is_emphasis(piece, MarkKind.CLOSE):
            tidied.append(piece)
        elif isinstance(previous, str):
            body = previous.rstrip(_SPACES)
            tidied[-1:] = [body, piece, previous[len(body) :]]
        elif _is_emphasis(previous, MarkKind.OPEN):
            tidied.pop()  # the emphasis is empty
        else:
            tidied.append(piece)
        tidied[-3:] = [each for each in tidied[-3:] if each != ""]
    return joined(tidied)


def _with_valid_emphasis(pieces: Sequence[Piece[Markup]]) -> list[Piece[Markup]]:
    """The pieces with emphasis that CommonMark accepts beside a letter or digit.

    There, a `_` is no emphasis, and an emphasis with punctuation at its inner edge is none (CommonMark 0.31, 6.2).
    """
    marked = _moved_out(list(map(_with_asterisks, pieces)), MarkKind.CLOSE)
    return _with_trimmed_emphasis(_moved_out(marked[::-1], MarkKind.OPEN)[::-1])


def _with_asterisks(piece: Piece[Markup]) -> Piece[Markup]:
    if isinstance(piece, Mark) and piece.name in {"em", "strong"}:
        asterisks = "*" * len(piece.raw.content)
        return replace(piece, raw=Markup(asterisks, asterisks))
    return piece


def _moved_out(pieces: Sequence[Piece[Markup]], kind: MarkKind) -> list[Piece[Markup]]:
    """Move punctuation out of emphasis if a letter or digit follows the emphasis.

    If markup other than emphasis is at the inner edge, a space is added outside of the emphasis instead.
    pieces: in reverse order if `kind` is OPEN, so that the piece outside of the emphasis always follows its mark.
    """
    outer_end = 0 if kind is MarkKind.CLOSE else -1
    # The character outside of each piece, beyond neighbouring marks of emphasis.
    outer = [" "]
    for index in range(len(pieces) - 1, 0, -1):
        is_emphasis = _is_emphasis(pieces[index], MarkKind.OPEN) or _is_emphasis(
            pieces[index], MarkKind.CLOSE
        )
        outer.append(outer[-1] if is_emphasis else _edge(pieces, index, outer_end))
    moved: list[Piece[Markup]] = []
    for piece, character in zip(pieces, reversed(outer), strict=False):
        inner = moved[-1] if moved else ""
        if not _is_emphasis(piece, kind) or _is_boundary(character):
            moved.append(piece)
        elif isinstance(inner, str):
            end = len(inner)
            if kind is MarkKind.CLOSE:
                while end and _is_boundary(inner[end - 1]):
                    end -= 1
                moved[-1:] = [inner[:end], piece, inner[end:]]
            else:
                start = next((place for place, each in enumerate(inner) if not _is_boundary(each)), end)
                moved[-1:] = [inner[start:], piece, inner[:start]]
        elif _is_emphasis(inner, MarkKind.OPEN) or _is_emphasis(inner, MarkKind.CLOSE):
            moved.append(piece)
        else:
            moved += [piece, " "]
        moved[-3:] = [each for each in moved[-3:] if each != ""]
    return moved


def _is_boundary(character: str) -> bool:
    """Whether a character is white space or punctuation."""
    return character in _SPACES or unicodedata.category(character)[0] in "PS"


def _is_emphasis(piece: Piece[Markup], kind: MarkKind) -> bool:
    return isinstance(piece, Mark) and piece.name in _EMPHASIS and piece.kind is kind


def _escaped(pieces: Sequence[Piece[Markup]], *, is_line_start: bool) -> list[Piece[Markup]]:
    """Escape the block marker at the beginning of each line. is_line_start: whether to escape the first line's, too."""
    escaped: list[Piece[Markup]] = []
    for piece in pieces:
        if isinstance(piece, Mark):
            escaped.append(piece)
            is_line_start = _ends_line(piece)
        else:
            first, *others = piece.split("\n")
            if is_line_start and not escaped and begins_definition(first):
                first = first.replace("[", r"\[", 1)
            lines = [as_text(first) if is_line_start else first, *map(as_text, others)]
            escaped.append("\n".join(lines))
            is_line_start = lines[-1] == ""
    return escaped
