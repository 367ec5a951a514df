"""Unpacks a model's archive or gzip files, limited in size and number, and never outside a folder."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

GZIP = ".gz"
SUFFIXES = (".zip", ".argosmodel", ".tar.gz", ".tgz", ".tar")
# Limits above any model that can be imported. An archive can claim any size.
MAX_BYTES = 16 * 1024**3
MAX_FILES = 1000
CHUNK_BYTES = 1024**2


class ArchiveError(ValueError):
    """The file is no archive, is damaged, empty or too large, or has too many files or a file that is not allowed."""


def is_archive(path: Path) -> bool:
    """Whether the file has an archive's name."""
    return path.name.lower().endswith(SUFFIXES)


def unpack(path: Path, folder: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> Path:
    """Unpack into `folder`. Return the only entry of `folder` if that is a folder, else `folder`.

    Files that macOS adds are left out. Raises ArchiveError. Limits and names are checked before a file is written. A
    damaged archive may leave files.
    """
    try:
        if path.name.lower().endswith((".zip", ".argosmodel")):
            with zipfile.ZipFile(path) as archive:
                entries = ((entry.filename, entry.file_size) for entry in archive.infolist())
                _check(path, entries, max_bytes, max_files)
                archive.extractall(folder, [name for name in archive.namelist() if not _is_of_macos(name)])
        else:
            with tarfile.open(path) as archive:
                _check(path, _tar_files(path, archive), max_bytes, max_files)
                _extract(archive, folder)
    except ArchiveError:
        raise
    except (
        OSError,
        EOFError,
        zipfile.BadZipFile,
        tarfile.TarError,
        RuntimeError,
        NotImplementedError,
        ValueError,
        IndexError,
        OverflowError,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise ArchiveError(f"{path} cannot be unpacked ({type(error).__name__}: {error})") from error
    found = list(folder.iterdir())
    return found[0] if len(found) == 1 and found[0].is_dir() else folder


def with_gzip_unpacked(folder: Path, output: Path, *, max_bytes: int = MAX_BYTES) -> Path:
    """A folder with the files of `folder`, gzip files such as `vocab.spm.gz` unpacked. Archives stay packed.

    Returns `folder` itself if there are no gzip files, else `output`, with links to the other files and folders. A gzip
    file is left out if the folder has the unpacked file, too. max_bytes: for all unpacked files. Raises ArchiveError.
    """
    paths = list(folder.iterdir())
    packed = [path for path in paths if path.name.endswith(GZIP) and path.is_file() and not is_archive(path)]
    if not packed:
        return folder
    output.mkdir()
    for path in paths:
        if path not in packed:
            (output / path.name).symlink_to(path.resolve())
    num_left = max_bytes
    for path in packed:
        target = output / path.name.removesuffix(GZIP)
        if not target.exists():
            num_left -= _gunzip(path, target, num_left)
    return output


def _gunzip(path: Path, target: Path, max_bytes: int) -> int:
    """Unpack a gzip file. Returns the number of bytes. Raises ArchiveError for a damaged file and above max_bytes."""
    num_bytes = 0
    try:
        with gzip.open(path) as source, target.open("wb") as written:
            while chunk := source.read(CHUNK_BYTES):
                num_bytes += len(chunk)
                if num_bytes > max_bytes:
                    raise ArchiveError(f"{path} unpacks to more than {max_bytes} bytes")
                written.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"{path} cannot be unpacked ({type(error).__name__}: {error})") from error
    return num_bytes


def _check(path: Path, files: Iterable[tuple[str, int]], max_bytes: int, max_files: int) -> None:
    """Raise ArchiveError for no files, too many files, too large files, or a name that leads out of the folder.

    files: names and sizes. No name is read after the first one that exceeds a limit.
    """
    num_bytes, is_empty = 0, True
    for num_files, (name, size) in enumerate(files, start=1):
        is_empty = is_empty and _is_of_macos(name)
        num_bytes += size
        if num_files > max_files:
            raise ArchiveError(f"{path} has more than {max_files} files")
        if num_bytes > max_bytes:
            raise ArchiveError(f"{path} unpacks to more than {max_bytes} bytes")
        if Path(name).anchor or ".." in Path(name).parts or "\\" in name:
            raise ArchiveError(f"{path} has a file outside its folder: {name!r}")
    if is_empty:
        raise ArchiveError(f"{path} has no files")


def _is_of_macos(name: str) -> bool:
    """Whether macOS adds a file of this name to an archive: a file's attributes (`._*`), or the look of a folder."""
    parts = Path(name).parts
    return "__MACOSX" in parts or any(part.startswith("._") or part == ".DS_Store" for part in parts)


def _tar_files(path: Path, archive: tarfile.TarFile) -> Iterator[tuple[str, int]]:
    """The names and sizes of a tar archive. Raises ArchiveError for a link or a device.

    A link can lead out of the folder, and a later file is written through it.
    """
    for member in archive:
        if not (member.isfile() or member.isdir()):
            raise ArchiveError(f"{path} has {member.name!r}, which is neither a file nor a folder")
        if member.size < 0:  # it leads back to an earlier place of the archive
            raise tarfile.ReadError(f"{member.name!r} has a negative size")
        yield member.name, member.size


def _extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files and folders of an archive that has been checked. Modes, owners and times are not kept."""
    for member in archive:
        if _is_of_macos(member.name):
            continue
        target = folder / member.name
        content = archive.extractfile(member)
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with content, target.open("wb") as written:
            shutil.copyfileobj(content, written, CHUNK_BYTES)
