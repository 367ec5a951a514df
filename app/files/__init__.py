"""File formats: bytes in, texts to translate, bytes out with the translations in place.

    from app.files.reading import read_file

    file = read_file(data, FileFormat.MARKDOWN)
    ... translate each of file.units by its `format` and `is_wrapped` ...
    data = file.write(translations)

Only translated texts change. If a translation equals its text, the bytes stay unchanged. This package does not import
the readers, because the server only names formats. `app.files.reading` imports them.
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
