"""Subtitles, SubRip (.srt) and WebVTT (.vtt): one unit per cue. Numbers, times, settings, notes and styles are kept.

The tags of a cue are marks. A cue of several lines is one running text, unless a line begins with a dash, which says
that the speaker changes. This dash is a mark, too. A translation with fewer lines than the cue is broken into as many
lines as the cue has, of similar length, if it has enough words.

A blank line ends a cue. A line with times begins the next cue, even without a blank line before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape, unescape
from itertools import pairwise

from app.files.encoding import decode
from app.files.references import has_reference
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import FileError, FileLimits, Slot, SlottedText, is_translatable

_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")
_SRT_TIME = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
_VTT_TIME = re.compile(r"\s*(?:\d+:)?\d\d:\d\d\.\d{3}\s+-->\s+(?:\d+:)?\d\d:\d\d\.\d{3}")
# The reading of a ruby text, a tag, a time, and overrides in braces, such as the position {\an8} or the italics {\i1}.
_MARK = re.compile(
    r"<rt\b[^<>]*+>(?>(?:[^<]|<(?!/?(?:rt|ruby)\b))*)(?:</rt>|(?=</ruby>))"
    r"|<(?P<close>/?)(?P<name>[A-Za-z]\w*+)[^<>]*+>|<(?P<time>[\d:.]+)>|\{(?P<overrides>\\[^{}]*)\}"
)
# The name and the value of an override: \i and 1, \1c and &H0000FF&, \fs and 20.
_OVERRIDE = re.compile(r"(\\\d?[a-z]+)([^\\]*)")
# A tag or overrides, or a space outside of them.
_SPACE = re.compile(r"<[^<>]*+>|\{\\[^{}]*\}| ")
# A line that numbers a cue.
_NUMBER = re.compile(r"\s*\d+\s*")
# The first line of a block of WebVTT that is no cue.
_NO_CUE = re.compile(r"(?:NOTE|STYLE|REGION)(?:[ \t]|$)")
# A dash at the start of a line, which says that the speaker changes. Before a digit, it may be a minus sign.
_DIALOGUE = re.compile(r"^[^\S\n]*+[-–—]", re.MULTILINE)
_DASH = re.compile(r"^[^\S\n]*[-–—]++(?!\d)[^\S\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line. start: its offset in the decoded text. ending: its line ending; empty at the end of the text."""

    start: int
    text: str
    ending: str

    @property
    def stop(self) -> int:
        """The offset of the end of its text."""
        return self.start + len(self.text)


def read_srt(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse SubRip. Raises FileError with the line of a cue without times."""
    decoded = decode(data)
    return SlottedText(decoded.text, limits.bounded(_srt_slots(decoded.text)), decoded.encoder())


def _srt_slots(text: str) -> Iterator[Slot]:
    for number, block in _cues(_blocks(text, blank=" \t"), _SRT_TIME):
        time_line = 0 if _SRT_TIME.match(block[0].text) else 1
        if len(block) <= time_line or not _SRT_TIME.match(block[time_line].text):
            raise FileError(
                f"line {number + time_line}: expected the times of a cue, such as 00:00:01,000 --> 00:00:02,000"
            )
        lines = block[time_line + 1 :]
        yield from _cue(text, lines, is_escaped=any(has_reference(line.text) for line in lines))


def read_vtt(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse WebVTT. Raises FileError if the first line is not WEBVTT, or with the line of a cue without times."""
    decoded = decode(data)
    if not re.match(r"WEBVTT(?:[ \t\r\n]|$)", decoded.text):
        raise FileError("line 1: a WebVTT file must begin with WEBVTT")
    return SlottedText(decoded.text, limits.bounded(_vtt_slots(decoded.text)), decoded.encoder())


def _vtt_slots(text: str) -> Iterator[Slot]:
    for number, block in _cues(_vtt_blocks(text), _VTT_TIME):
        time_line = 0 if "-->" in block[0].text else 1
        if len(block) <= time_line or not _VTT_TIME.match(block[time_line].text):
            if _NO_CUE.match(block[0].text):
                continue
            raise FileError(
                f"line {number + time_line}: expected the times of a cue, such as 00:01.000 --> 00:02.000"
            )
        yield from _cue(text, block[time_line + 1 :], is_escaped=True)


def _vtt_blocks(text: str) -> Iterator[tuple[int, list[_Line]]]:
    """Yield the blocks after the header. The header ends at a blank line, or where a cue begins."""
    blocks = _blocks(text, blank="")
    number, header = next(blocks)
    begin = next((index for index, line in enumerate(header) if _VTT_TIME.match(line.text)), None)
    if begin is not None:
        yield number + begin, header[begin:]
    yield from blocks


def _cues(
    blocks: Iterable[tuple[int, list[_Line]]], times: re.Pattern[str]
) -> Iterator[tuple[int, list[_Line]]]:
    """Yield the cues of the blocks. times: matches a line with times.

    A block has several cues if a cue follows another without a blank line. A line of digits before the times of a cue
    is the number of that cue.
    """
    for number, block in blocks:
        begin = 0
        # The first line with times is the first or second line of its cue.
        for index in range(1 if times.match(block[0].text) else 2, len(block)):
            if times.match(block[index].text):
                end = index - 1 if _NUMBER.fullmatch(block[index - 1].text) else index
                yield number + begin, block[begin:end]
                begin = end
        yield number + begin, block[begin:]


def _blocks(text: str, *, blank: str) -> Iterator[tuple[int, list[_Line]]]:
    """Yield runs of lines that are not blank, each with the number of its first line.

    blank: the characters that a blank line may have. A run never begins with a line of white space.
    """
    block: list[_Line] = []
    # The last match is the empty line at the end of the text, which ends the last block.
    for number, match in enumerate(_LINE.finditer(text), start=1):
        line = _Line(match.start(), match[1], match[2])
        if line.text.strip() or (block and line.text.strip(blank)):
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []


def _cue(text: str, lines: list[_Line], *, is_escaped: bool) -> list[Slot]:
    """The slot of a cue, if it has text to translate. A line of white space in the cue is kept as it is.

    text: the whole file. is_escaped: whether the cue has character references.
    """
    lines = [line for line in lines if line.text.strip()]
    if not lines:
        return []
    tagged = TaggedText.of(_pieces("\n".join(line.text for line in lines), is_escaped=is_escaped))
    if not is_translatable(tagged.plain):
        return []
    endings = tuple(text[line.stop : following.start] for line, following in pairwise(lines))
    is_dialogue = _DIALOGUE.search(tagged.plain) is not None
    if is_dialogue:
        tagged = TaggedText.of(list(_with_dashes(tagged.pieces)))
    unit = tagged.unit(is_wrapped=len(lines) > 1 and not is_dialogue)
    writer = _CueWriter(tagged, endings, is_escaped, is_dialogue)
    return [Slot(lines[0].start, lines[-1].stop, unit, writer)]


def _pieces(text: str, *, is_escaped: bool) -> list[Piece[str]]:
    pieces: list[Piece[str]] = []
    done = 0
    for match in _MARK.finditer(text):
        before = text[done : match.start()]
        pieces.append(unescape(before) if is_escaped else before)
        pieces.append(_mark(match))
        done = match.end()
    return [*pieces, unescape(text[done:]) if is_escaped else text[done:]]


def _mark(match: re.Match[str]) -> Mark[str]:
    """The mark of a match of `_MARK`.

    Times have a name, so that they keep their order. A reading has none, because it moves with its base.
    """
    if match["name"]:
        kind, name = MarkKind.CLOSE if match["close"] else MarkKind.OPEN, match["name"].lower()
    elif match["overrides"]:
        overrides: list[tuple[str, str]] = _OVERRIDE.findall(match["overrides"])
        # An override without a value restores the style of the cue, and 0 switches italics and the like off.
        is_end = all(value in {"", "0"} for _, value in overrides)
        kind, name = MarkKind.CLOSE if is_end else MarkKind.OPEN, "".join(name for name, _ in overrides)
    else:
        kind, name = MarkKind.POINT, "time" if match["time"] else ""
    return Mark(kind, match.group(), name)


def _with_dashes(pieces: Iterable[Piece[str]]) -> Iterator[Piece[str]]:
    """Yield the pieces. The dashes at the start of a line and the spaces around them become a mark."""
    begins_line = True
    for piece in pieces:
        if isinstance(piece, Mark):
            yield piece
            continue
        done = 0
        for match in _DASH.finditer(piece, 0 if begins_line else piece.find("\n") + 1 or len(piece)):
            yield piece[done : match.start()]
            yield Mark(MarkKind.BREAK, match.group())
            done = match.end()
        yield piece[done:]
        _, line_break, line = piece.rpartition("\n")
        begins_line = not line.strip() and (begins_line or line_break != "")


@dataclass(frozen=True)
class _CueWriter:
    """Writes a cue. endings: what separates its lines. is_escaped: as for `_cue`.

    is_dialogue: whether a line begins with a dash, so that its words stay in their lines.
    """

    tagged: TaggedText[str]
    endings: tuple[str, ...]
    is_escaped: bool
    is_dialogue: bool

    def __call__(self, translation: str) -> str:
        """The cue's text with a translation."""
        parts = [
            piece.raw if isinstance(piece, Mark) else self._written(piece)
            for piece in self.tagged.read(translation)
        ]
        lines = [line for line in "".join(parts).splitlines() if line.strip()]
        wanted = len(self.endings) + 1
        if len(lines) < wanted and not self.is_dialogue:
            lines = [line for line in balanced(" ".join(lines), wanted) if line.strip()]
        # Further lines have the line ending of the cue's last line but one. A cue of one line stays on one line.
        endings = [*self.endings, *[self.endings[-1] if self.endings else " "] * len(lines)]
        endings = [*endings[: len(lines) - 1], ""]
        return "".join(line + ending for line, ending in zip(lines, endings, strict=True))

    def _written(self, text: str) -> str:
        return escape(text, quote=False) if self.is_escaped else text


def balanced(text: str, num_lines: int) -> list[str]:
    """Break the text at spaces outside tags into at most `num_lines` lines of similar length."""
    spaces = [match.start() for match in _SPACE.finditer(text) if match.group() == " "]
    lines: list[str] = []
    start = first = 0
    while num_lines > 1 and first < len(spaces):
        target = start + (len(text) - start) / num_lines
        after = bisect_left(spaces, target, first)
        near = range(max(first, after - 1), min(after + 1, len(spaces)))
        cut = min(near, key=lambda index: abs(spaces[index] - target))
        lines.append(text[start : spaces[cut]])
        start, first = spaces[cut] + 1, cut + 1
        num_lines -= 1
    return [*lines, text[start:]]
