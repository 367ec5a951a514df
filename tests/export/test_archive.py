"""Archives of models are unpacked within bounds, and never outside their folder."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from export.archive import ArchiveError, is_archive, unpack


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


WRITERS = [(write_zip, "m.zip"), (write_tar, "m.tar.gz")]


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_files_and_the_only_folder_are_found(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    flat = unpack(write(tmp_path / name, {"a": b"1", "b": b"2"}), tmp_path / "flat")
    assert {path.name: path.read_bytes() for path in flat.iterdir()} == {"a": b"1", "b": b"2"}
    inner = unpack(write(tmp_path / name, {"top/a": b"1", "top/b": b"2"}), tmp_path / "inner")
    assert inner == tmp_path / "inner" / "top"


@pytest.mark.parametrize(("write", "name"), WRITERS)
@pytest.mark.parametrize("evil", ["../out", "/tmp/transduce-out", "a/../../out"])
def test_a_file_outside_the_folder_is_refused(write: object, name: str, evil: str, tmp_path: Path) -> None:
    assert callable(write)
    path = write(tmp_path / name, {"good": b"1", evil: b"2"})
    with pytest.raises(ArchiveError, match="has a file outside its folder"):
        unpack(path, tmp_path / "folder" / "inner")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_bounds_are_kept_before_a_file_is_written(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    path = write(tmp_path / name, {"a": bytes(10_000), "b": bytes(10_000)})
    with pytest.raises(ArchiveError, match="unpacks to 20000 bytes, more than 19999"):
        unpack(path, tmp_path / "out", max_bytes=19_999)
    with pytest.raises(ArchiveError, match="has 2 files, more than 1"):
        unpack(path, tmp_path / "out", max_files=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_a_damaged_archive_is_an_error(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    path = write(tmp_path / name, {"a": bytes(range(256)) * 100})
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        member = tarfile.TarInfo("weights")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(ArchiveError, match="AbsoluteLinkError"):
        unpack(tmp_path / "m.tar", tmp_path / "out")


def test_names_of_archives() -> None:
    assert [is_archive(Path(name)) for name in ("m.zip", "M.TAR.GZ", "m.tgz", "opus-mt-en-de")] == [
        True,
        True,
        True,
        False,
    ]
