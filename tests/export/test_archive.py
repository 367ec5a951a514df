"""Archives of models are unpacked within bounds, and never outside their folder."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from export.archive import ArchiveError, is_archive, unpack, with_gzip_unpacked
from transduce.cli import main


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


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_an_empty_archive_is_an_error(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    path = write(tmp_path / name, {})
    with pytest.raises(ArchiveError) as caught:
        unpack(path, tmp_path / "out")
    assert str(caught.value) == f"{path} has no files"


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_with_damaged_content_is_an_error(method: int, tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", " ".join(map(str, range(1000))))
    content = bytearray(path.read_bytes())
    content[40:80] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")


def test_a_zip_with_a_name_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ö", b"1")  # a name that is flagged as UTF-8
    path.write_bytes(path.read_bytes().replace("ö".encode(), b"\xff\xff"))
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")


def test_a_zip_with_an_empty_name_is_an_error(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.zip", {"weights": b"1"})
    path.write_bytes(path.read_bytes().replace(b"weights", b"\0eights"))  # zipfile ends a name at a zero byte
    with pytest.raises(ArchiveError, match=r"m\.zip cannot be unpacked"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize(
    "damage", [{"pax_headers": {"path": "a\0b"}}, {"mtime": 1e300}], ids=["zero byte", "late time"]
)
def test_a_tar_with_an_unusable_header_is_an_error(damage: dict[str, Any], tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    for name, value in damage.items():
        setattr(member, name, value)
    with tarfile.open(tmp_path / "m.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member)
    with pytest.raises(ArchiveError, match=r"m\.tar cannot be unpacked"):
        unpack(tmp_path / "m.tar", tmp_path / "out")


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


def test_gzip_files_of_a_folder_are_unpacked_beside_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.bin.gz").write_bytes(gzip.compress(b"1"))
    (folder / "b.spm").write_bytes(b"2")
    (folder / "c.bin").write_bytes(b"3")
    (folder / "c.bin.gz").write_bytes(gzip.compress(b"older"))
    write_tar(folder / "d.tar.gz", {"e": b"5"})
    (folder / "model").mkdir()
    (folder / "model" / "model.bin").write_bytes(b"6")
    found = with_gzip_unpacked(folder, tmp_path / "out")
    contents = {path.name: path.read_bytes() for path in found.iterdir() if path.suffix in {".bin", ".spm"}}
    assert contents == {"a.bin": b"1", "b.spm": b"2", "c.bin": b"3"}
    assert (found / "model" / "model.bin").read_bytes() == b"6"
    assert (found / "d.tar.gz").is_file()
    assert len(list(folder.iterdir())) == 6, "the folder is not changed"


def test_a_folder_without_gzip_files_stays_as_it_is(tmp_path: Path) -> None:
    write_tar(tmp_path / "d.tar.gz", {"e": b"5"})
    assert with_gzip_unpacked(tmp_path, tmp_path / "out") == tmp_path
    assert not (tmp_path / "out").exists()


# The tests' names do not contain the bytes: gzip's header has the time, and all processes of pytest-xdist must find
# the same tests.
@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(bytes(5000))[:-12], gzip.compress(b"1")[:3]],
    ids=["no gzip", "cut content", "cut header"],
)
def test_a_damaged_gzip_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.bin.gz").write_bytes(content)
    with pytest.raises(ArchiveError, match=r"a\.bin\.gz cannot be unpacked"):
        with_gzip_unpacked(tmp_path, tmp_path / "out")


def test_gzip_files_are_bounded_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.bin.gz").write_bytes(gzip.compress(bytes(10_000)))
    found = with_gzip_unpacked(tmp_path, tmp_path / "out", max_bytes=20_000)
    assert sum(path.stat().st_size for path in found.iterdir()) == 20_000
    with pytest.raises(ArchiveError, match=r"\.bin\.gz unpacks to more than 9999 bytes"):
        with_gzip_unpacked(tmp_path, tmp_path / "less", max_bytes=19_999)


def test_a_file_that_is_no_archive_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.bin").write_bytes(b"1")
    options = ["--output", str(tmp_path / "out"), "--licence", "MIT"]
    assert main(["import", str(tmp_path / "model.bin"), *options]) == 1
    message = "model.bin is neither a folder nor an archive (.zip, .argosmodel, .tar.gz, .tgz, .tar)"
    assert message in capsys.readouterr().err
