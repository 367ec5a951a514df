"""Files: bytes in, what is to be translated, bytes out with the translations in its place.

    from app.files.reading import read_file

    file = read_file(data, FileFormat.MARKDOWN)
    ... translate each of file.units as its format and splitting say ...
    data = file.write(translations)

Nothing but the translations changes, and a text that came back as it was leaves its bytes as they were. The readers are
loaded by `app.files.reading` alone.
"""

from app.files.formats import SUFFIXES, FileFormat, format_of
from app.files.unit import FileError, FileLimits, TranslatableFile, Unit, UnitFormat

__all__ = [
    "SUFFIXES",
    "FileError",
    "FileFormat",
    "FileLimits",
    "TranslatableFile",
    "Unit",
    "UnitFormat",
    "format_of",
]
