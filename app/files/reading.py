"""Reads a file of any format."""

from __future__ import annotations

from collections.abc import Callable

from app.files.docx import read_docx
from app.files.formats import FileFormat
from app.files.html_file import read_html_file
from app.files.json_strings import read_json
from app.files.markdown import read_markdown
from app.files.odf import read_odf
from app.files.plain import read_plain
from app.files.po import read_po
from app.files.pptx import read_pptx
from app.files.subtitles import read_srt, read_vtt
from app.files.unit import FileLimits, TranslatableFile
from app.files.xliff import read_xliff

_READERS: dict[FileFormat, Callable[[bytes, FileLimits], TranslatableFile]] = {
    FileFormat.TXT: read_plain,
    FileFormat.SRT: read_srt,
    FileFormat.VTT: read_vtt,
    FileFormat.HTML: read_html_file,
    FileFormat.MARKDOWN: read_markdown,
    FileFormat.PO: read_po,
    FileFormat.JSON: read_json,
    FileFormat.DOCX: read_docx,
    FileFormat.PPTX: read_pptx,
    FileFormat.ODT: read_odf,
    FileFormat.ODP: read_odf,
}


def read_file(
    data: bytes, file_format: FileFormat, limits: FileLimits | None = None, *, target: str | None = None
) -> TranslatableFile:
    """Parse a file. limits: None for the default ones. Raises FileError.

    target: the language that the file will be translated into, if it is known. Only XLIFF names it.
    """
    if file_format is FileFormat.XLIFF:
        return read_xliff(data, limits or FileLimits(), target)
    return _READERS[file_format](data, limits or FileLimits())
