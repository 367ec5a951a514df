"""The file formats, by name and suffix."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath


class FileFormat(StrEnum):
    """A supported file format."""

    TXT = "txt"
    SRT = "srt"
    VTT = "vtt"
    HTML = "html"
    MARKDOWN = "md"
    PO = "po"
    JSON = "json"
    XLIFF = "xliff"
    DOCX = "docx"
    PPTX = "pptx"
    ODT = "odt"
    ODP = "odp"


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
    ".xlf": FileFormat.XLIFF,
    ".xliff": FileFormat.XLIFF,
    ".docx": FileFormat.DOCX,
    ".pptx": FileFormat.PPTX,
    ".odt": FileFormat.ODT,
    ".odp": FileFormat.ODP,
}


def format_of(name: str) -> FileFormat | None:
    """The format of a file name's suffix; None if it is unknown."""
    return SUFFIXES.get(PurePath(name).suffix.lower())
