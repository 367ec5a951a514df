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
def test_files_are_unpacked_and_an_only_folder_is_returned(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    flat = unpack(write(tmp_path / name, {"a": b"1", "b": b"2"}), tmp_path / "flat")
    assert {path.name: path.read_bytes() for path in flat.iterdir()} == {"a": b"1", "b": b"2"}
    inner = unpack(write(tmp_path / name, {"top/a": b"1", "top/b": b"2"}), tmp_path / "inner")
    assert inner == tmp_path / "inner" / "top"
    assert unpack(write(tmp_path / name, {"a": b"1"}), tmp_path / "file") == tmp_path / "file"


MACOS = ["__MACOSX/top/._a", "__MACOSX/._top", "top/._a", "top/.DS_Store", ".DS_Store", "._top"]


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_files_that_macos_adds_are_left_out(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    files = {"top/a": b"1", "top/b": b"2", **dict.fromkeys(MACOS, b"x")}
    found = unpack(write(tmp_path / name, files), tmp_path / "out")
    assert found == tmp_path / "out" / "top"
    assert {path.name: path.read_bytes() for path in found.iterdir()} == {"a": b"1", "b": b"2"}
    with pytest.raises(ArchiveError, match="has no files"):
        unpack(write(tmp_path / name, dict.fromkeys(MACOS, b"x")), tmp_path / "none")


def test_an_error_of_an_archives_model_names_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_zip(tmp_path / "m.zip", {"top/config.json.gz": gzip.compress(b"{}")})
    assert main(["import", str(path), "--output", str(tmp_path / "out"), "--licence", "MIT"]) == 1
    assert f"transduce import: {path} cannot be imported: " in capsys.readouterr().err


@pytest.mark.parametrize(("write", "name"), WRITERS)
@pytest.mark.parametrize("evil", ["../out", "/tmp/transduce-out", "a/../../out"])
def test_a_file_outside_the_folder_is_refused(write: object, name: str, evil: str, tmp_path: Path) -> None:
    assert callable(write)
    path = write(tmp_path / name, {"good": b"1", evil: b"2"})
    with pytest.raises(ArchiveError, match="has a file outside its folder"):
        unpack(path, tmp_path / "folder" / "inner")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_bounds_are_checked_before_a_file_is_written(write: object, name: str, tmp_path: Path) -> None:
    assert callable(write)
    path = write(tmp_path / name, {"a": bytes(10_000), "b": bytes(10_000)})
    with pytest.raises(ArchiveError, match="unpacks to more than 19999 bytes"):
        unpack(path, tmp_path / "out", max_bytes=19_999)
    with pytest.raises(ArchiveError, match="has more than 1 files"):
        unpack(path, tmp_path / "out", max_files=1)
    assert not (tmp_path / "out").exists()
    assert len(list(unpack(path, tmp_path / "out", max_bytes=20_000, max_files=2).iterdir())) == 2


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
    "damage", [{"pax_headers": {"path": "a\0b"}}, {"size": -512}], ids=["zero byte", "negative size"]
)
def test_a_tar_with_an_unusable_header_is_an_error(damage: dict[str, Any], tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    for name, value in damage.items():
        setattr(member, name, value)
    (tmp_path / "m.tar").write_bytes(member.tobuf(tarfile.PAX_FORMAT))
    with pytest.raises(ArchiveError, match=r"m\.tar cannot be unpacked"):
        unpack(tmp_path / "m.tar", tmp_path / "out")


def linked(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """A member that is no file: a link to `target`, or a device."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "member",
    [
        linked("weights", "/etc/passwd"),
        linked("weights", "vocab"),
        linked("weights", "vocab", tarfile.LNKTYPE),
        linked("weights", "", tarfile.CHRTYPE),
        linked("weights", "", tarfile.FIFOTYPE),
    ],
    ids=["absolute link", "relative link", "hard link", "device", "pipe"],
)
def test_links_and_devices_are_refused(member: tarfile.TarInfo, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("vocab"))
        archive.addfile(member)
    with pytest.raises(ArchiveError, match="has 'weights', which is neither a file nor a folder"):
        unpack(tmp_path / "m.tar", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_chain_of_links_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    """The chain is longer than a path can be. tarfile's "data" filter of Python 3.11.7 stops before the end."""
    folder, links = "", "abcdefghijklmnop"
    victim = tmp_path / "victim"
    victim.write_text("old")
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        for link in links:
            name = f"{folder}{'d' * 247}"
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
            archive.addfile(linked(f"{folder}{link}", "d" * 247))
            folder = f"{name}/"
        last = "/".join((*links, "l" * 254))
        archive.addfile(linked(last, "../" * len(links)))
        archive.addfile(linked("escape", f"{last}/../victim"))
        content = tarfile.TarInfo("escape")
        content.size = 3
        archive.addfile(content, io.BytesIO(b"new"))
    with pytest.raises(ArchiveError, match="has 'a', which is neither a file nor a folder"):
        unpack(tmp_path / "m.tar", tmp_path / "out")
    assert victim.read_text() == "old"


@pytest.mark.parametrize(
    ("limits", "message"), [({"max_files": 1}, "more than 1 files"), ({"max_bytes": 1}, "more than 1 bytes")]
)
def test_a_tar_is_read_up_to_the_file_that_exceeds_a_limit(
    limits: dict[str, int], message: str, tmp_path: Path
) -> None:
    member = tarfile.TarInfo("b")
    member.size = 1 << 40
    # The content of `b` is missing, so what follows its header cannot be read.
    (tmp_path / "m.tar").write_bytes(tarfile.TarInfo("a").tobuf() + member.tobuf())
    with pytest.raises(ArchiveError, match=message):
        unpack(tmp_path / "m.tar", tmp_path / "out", **limits)


def test_folders_of_a_tar_are_made_and_modes_are_not_kept(tmp_path: Path) -> None:
    folder, program = tarfile.TarInfo("./top/empty"), tarfile.TarInfo("./top/program")
    folder.type, program.mode, program.size = tarfile.DIRTYPE, 0o4777, 1
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.addfile(folder)
        archive.addfile(program, io.BytesIO(b"1"))
    top = unpack(tmp_path / "m.tar", tmp_path / "out")
    assert (top, (top / "empty").is_dir()) == (tmp_path / "out" / "top", True)
    assert not (top / "program").stat().st_mode & 0o7133


def test_an_archive_is_recognised_by_its_name() -> None:
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
