"""The file formats by name and suffix."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import PurePath

from app.files.docx import read_docx
from app.files.html_file import read_html_file
from app.files.json_strings import read_json
from app.files.markdown import read_markdown
from app.files.plain import read_plain
from app.files.po import read_po
from app.files.subtitles import read_srt, read_vtt
from app.files.unit import FileError, FileLimits, TranslatableFile


class FileFormat(StrEnum):
    """What a file is."""

    TXT = "txt"
    SRT = "srt"
    VTT = "vtt"
    HTML = "html"
    MARKDOWN = "md"
    PO = "po"
    JSON = "json"
    DOCX = "docx"


SUFFIXES = {
    ".txt": FileFormat.TXT,
    ".srt": FileFormat.SRT,
    ".vtt": FileFormat.VTT,
    ".html": FileFormat.HTML,
    ".htm": FileFormat.HTML,
    ".md": FileFormat.MARKDOWN,
    ".markdown": FileFormat.MARKDOWN,
    ".po": FileFormat.PO,
    ".pot": FileFormat.PO,
    ".json": FileFormat.JSON,
    ".docx": FileFormat.DOCX,
}
_READERS: dict[FileFormat, Callable[[bytes], TranslatableFile]] = {
    FileFormat.TXT: read_plain,
    FileFormat.SRT: read_srt,
    FileFormat.VTT: read_vtt,
    FileFormat.HTML: read_html_file,
    FileFormat.MARKDOWN: read_markdown,
    FileFormat.PO: read_po,
    FileFormat.JSON: read_json,
}


def format_of(name: str) -> FileFormat | None:
    """By a file name's suffix; None for one that is not known."""
    return SUFFIXES.get(PurePath(name).suffix.lower())


def read_file(data: bytes, file_format: FileFormat, limits: FileLimits | None = None) -> TranslatableFile:
    """Raises FileError."""
    limits = limits or FileLimits()
    if file_format is FileFormat.DOCX:
        file: TranslatableFile = read_docx(data, limits)
    else:
        file = _READERS[file_format](data)
    if len(file.units) > limits.max_units:
        raise FileError(f"the file has {len(file.units)} texts, and {limits.max_units} are allowed")
    return file
