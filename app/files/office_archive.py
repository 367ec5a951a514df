"""ZIP archives of office documents: their limits, the check of their content, and copies with other entries."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from shutil import copyfileobj
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from app.files.unit import FileError, FileLimits

# Bytes per step when an entry is copied or its checksum is verified.
_COPIED_BYTES = 1 << 16
# The exceptions of a damaged or encrypted archive.
_BROKEN = (BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError, OSError)
# The first bytes of a ZIP archive, and those of the file format of encrypted documents and of old versions of Office.
_ZIP_START = b"PK"
_OLE_START = bytes.fromhex("d0cf11e0a1b11ae1")


@dataclass(frozen=True)
class DocumentKind:
    """What messages call a document, such as a Word document.

    plural: for several of them. suffix: of its files. old_suffix: of the files of old versions of its program.
    """

    name: str
    plural: str
    suffix: str
    old_suffix: str


@contextmanager
def opened(data: bytes, kind: DocumentKind, limits: FileLimits) -> Iterator[ZipFile]:
    """Open an archive, and check its directory against the limits.

    Raises FileError, also for the errors of a damaged archive in the block.
    """
    try:
        with ZipFile(BytesIO(data)) as archive:
            _check(archive.infolist(), kind, limits)
            yield archive
    except FileError:
        raise
    except _BROKEN as error:
        raise _unreadable(data, kind, error) from error


def check_size(archive: ZipFile, names: Set[str], limits: FileLimits) -> None:
    """Check the unpacked size of entries whose XML is read. Raises FileError."""
    if sum(archive.getinfo(name).file_size for name in names) > limits.max_part_bytes:
        raise FileError(f"the entries with text exceed the limit of {limits.max_part_bytes} unpacked bytes")


def check_others(archive: ZipFile, names: Set[str]) -> None:
    """Verify the checksums of all entries but those with these names. Raises an error of a damaged archive."""
    for info in archive.infolist():
        if info.filename not in names:
            with archive.open(info) as entry:
                while entry.read(_COPIED_BYTES):
                    pass


def unpacked(archive: ZipFile, name: str) -> bytes:
    """Unpack an entry up to its declared size, and verify its checksum. Raises an error of a damaged archive.

    read() without an argument would also unpack the bytes beyond the declared size.
    """
    info = archive.getinfo(name)
    with archive.open(info) as entry:
        return entry.read(info.file_size)


def copied(data: bytes, kind: DocumentKind, written: Mapping[str, bytes]) -> bytes:
    """The archive with other contents of some entries. written: these contents by name. Raises FileError."""
    archive = BytesIO()
    try:
        with ZipFile(BytesIO(data)) as old, ZipFile(archive, "w") as new:
            for info in old.infolist():
                _copy(old, new, info, written.get(info.filename))
    except _BROKEN as error:
        raise _unreadable(data, kind, error) from error
    return archive.getvalue()


def _copy(old: ZipFile, new: ZipFile, info: ZipInfo, written: bytes | None) -> None:
    """Copy an entry into another archive. written: its new content, if changed."""
    if written is not None:
        new.writestr(copy(info), written)
        return
    with old.open(info) as source, new.open(copy(info), "w") as target:
        copyfileobj(source, target, _COPIED_BYTES)


def _check(infos: Sequence[ZipInfo], kind: DocumentKind, limits: FileLimits) -> None:
    """Check the archive's directory against the limits. Raises FileError."""
    if len(infos) > limits.max_parts:
        raise FileError(f"the archive has {len(infos)} entries and exceeds the limit of {limits.max_parts}")
    if len({info.filename for info in infos}) < len(infos):
        raise FileError("the archive has two entries of the same name")
    if any(info.compress_type not in {ZIP_STORED, ZIP_DEFLATED} for info in infos):
        raise FileError(f"the archive has a compression method that {kind.plural} do not use")
    if sum(info.file_size for info in infos) > limits.max_unpacked_bytes:
        raise FileError(f"the archive exceeds the limit of {limits.max_unpacked_bytes} unpacked bytes")


def _unreadable(data: bytes, kind: DocumentKind, error: Exception) -> FileError:
    """The error for a file that is not a readable archive. error: one of _BROKEN."""
    if not data:
        return FileError("the file is empty")
    if data.startswith(_OLE_START):
        return FileError(
            f"the file is encrypted with a password, or an old {kind.old_suffix}; "
            f"save it as {kind.suffix} without a password"
        )
    if not data.startswith(_ZIP_START):
        return FileError(f"the file is not {kind.name}, because it is not a ZIP archive")
    if isinstance(error, RuntimeError):
        return FileError("the archive is encrypted; save the document without a password")
    return FileError("the file is damaged: its archive cannot be unpacked")
