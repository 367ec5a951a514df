"""Subtitles, SubRip (.srt) and WebVTT (.vtt): one unit per cue. Numbers, times, settings, notes and styles are kept.

The tags of a cue are marks. A cue of several lines is one running text, unless a line begins with a dash. A translation
with fewer lines than the cue is broken into as many lines as the cue has, of similar length, if it has enough words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape, unescape

from app.files.encoding import decode
from app.files.tagged_text import Mark, MarkKind, Piece, TaggedText
from app.files.unit import FileError, FileLimits, Slot, SlottedText, is_translatable

_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|$)")
_SRT_TIME = re.compile(r"\s*\d+:\d\d:\d\d[,.]\d+\s*-->\s*\d+:\d\d:\d\d[,.]\d+")
_VTT_TIME = re.compile(r"\s*(?:\d+:)?\d\d:\d\d\.\d{3}\s+-->\s+(?:\d+:)?\d\d:\d\d\.\d{3}")
# Tags, and overrides in braces, such as the position {\an8} or the italics {\i1}.
_MARK = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z]\w*+)[^<>]*+>|<[\d:.]+>|\{\\[^{}]*\}")
# A tag, or a space outside tags.
_SPACE = re.compile(r"<[^<>]*+>| ")
_DIALOGUE = re.compile(r"^\s*[-–—]", re.MULTILINE)


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

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


def read_srt(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse SubRip. Raises FileError with the line of a cue without times."""
    decoded = decode(data)
    return SlottedText(decoded.text, limits.bounded(_srt_slots(decoded.text)), decoded.encoder())


def _srt_slots(text: str) -> Iterator[Slot]:
    for number, block in _blocks(text):
        time_line = 0 if _SRT_TIME.match(block[0].text) else 1
        if len(block) <= time_line or not _SRT_TIME.match(block[time_line].text):
            raise FileError(
                f"line {number + time_line}: expected the times of a cue, such as 00:00:01,000 --> 00:00:02,000"
            )
        yield from _cue(block[time_line + 1 :], is_escaped=False)


def read_vtt(data: bytes, limits: FileLimits) -> SlottedText:
    """Parse WebVTT. Raises FileError if the first line is not WEBVTT, or with the line of a cue without times."""
    decoded = decode(data)
    if not re.match(r"WEBVTT(?:[ \t\r\n]|$)", decoded.text):
        raise FileError("line 1: a WebVTT file must begin with WEBVTT")
    return SlottedText(decoded.text, limits.bounded(_vtt_slots(decoded.text)), decoded.encoder())


def _vtt_slots(text: str) -> Iterator[Slot]:
    for number, block in _vtt_blocks(text):
        if re.match(r"(?:NOTE|STYLE|REGION)(?:[ \t]|$)", block[0].text):
            continue
        time_line = 0 if "-->" in block[0].text else 1
        if len(block) <= time_line or not _VTT_TIME.match(block[time_line].text):
            raise FileError(
                f"line {number + time_line}: expected the times of a cue, such as 00:01.000 --> 00:02.000"
            )
        yield from _cue(block[time_line + 1 :], is_escaped=True)


def _vtt_blocks(text: str) -> Iterator[tuple[int, list[_Line]]]:
    """Yield the blocks after the header. The header ends at a blank line, or where a cue begins."""
    blocks = _blocks(text)
    number, header = next(blocks)
    begin = next((index for index, line in enumerate(header) if index and _VTT_TIME.match(line.text)), None)
    if begin is not None:
        yield number + begin, header[begin:]
    yield from blocks


def _blocks(text: str) -> Iterator[tuple[int, list[_Line]]]:
    """Yield runs of lines that are not blank, with the line number of the first."""
    block: list[_Line] = []
    # The last match is the empty line at the end of the text, which ends the last block.
    for number, match in enumerate(_LINE.finditer(text), start=1):
        line = _Line(match.start(), match[1], match[2])
        if not line.is_blank:
            block.append(line)
        elif block:
            yield number - len(block), block
            block = []


def _cue(lines: list[_Line], *, is_escaped: bool) -> list[Slot]:
    """The slot of a cue, if it has text to translate. is_escaped: whether the format has character references."""
    if not lines:
        return []
    text = "\n".join(line.text for line in lines)
    tagged = TaggedText.of(_pieces(text, is_escaped=is_escaped))
    if not is_translatable(tagged.plain):
        return []
    writer = _CueWriter(tagged, tuple(line.ending for line in lines[:-1]), is_escaped)
    unit = tagged.unit(is_wrapped=len(lines) > 1 and not _DIALOGUE.search(tagged.plain))
    return [Slot(lines[0].start, lines[-1].stop, unit, writer)]


def _pieces(text: str, *, is_escaped: bool) -> list[Piece[str]]:
    pieces: list[Piece[str]] = []
    done = 0
    for match in _MARK.finditer(text):
        before = text[done : match.start()]
        pieces.append(unescape(before) if is_escaped else before)
        kind = MarkKind.POINT
        if match["name"]:
            kind = MarkKind.CLOSE if match["close"] else MarkKind.OPEN
        pieces.append(Mark(kind, match.group(), (match["name"] or "").lower()))
        done = match.end()
    return [*pieces, unescape(text[done:]) if is_escaped else text[done:]]


@dataclass(frozen=True)
class _CueWriter:
    """Writes a cue. endings: the line endings of the cue except the last. is_escaped: as for `_cue`."""

    tagged: TaggedText[str]
    endings: tuple[str, ...]
    is_escaped: bool

    def __call__(self, translation: str) -> str:
        """The cue's text with a translation."""
        parts = [
            piece.raw if isinstance(piece, Mark) else self._written(piece)
            for piece in self.tagged.read(translation)
        ]
        lines = [line for line in "".join(parts).splitlines() if line.strip()]
        wanted = len(self.endings) + 1
        if len(lines) < wanted:
            lines = balanced(" ".join(lines), wanted)
        # Further lines end as the cue's last line but one. A cue of one line stays on one line.
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
