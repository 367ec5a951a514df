"""A file that a command writes is complete, or as it was before. No other file changes."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from model.lexicon import Entry, read_lexicon, write_lexicon
from model.output_files import write_file
from model.tokenizer_training import add_tags
from tests.model.sentences import write_tokenizer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_vocabulary_replaces_no_file_of_the_user(tmp_path: Path) -> None:
    vocabulary = tmp_path / "x.spm"
    (tmp_path / "x.tmp").write_text("the user's own")
    write_tokenizer(vocabulary)
    add_tags(vocabulary, tmp_path / "deep" / "x.spm", [">>de<<"])
    assert (tmp_path / "x.tmp").read_text() == "the user's own"
    assert names(tmp_path) == ["deep", "x.spm", "x.tmp"]
    assert names(tmp_path / "deep") == ["x.spm"]


def test_a_lexicon_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """The limit on the sizes of files makes the write fail in the middle, as a full disk does."""
    old = [Entry("house", "Haus", 9, 0.8)]
    write_lexicon(tmp_path / "lexicon.tsv", old)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_lexicon(tmp_path / "lexicon.tsv", old * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_lexicon(tmp_path / "lexicon.tsv") == old
    assert names(tmp_path) == ["lexicon.tsv"]


def test_the_file_behind_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file", "link"]


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o660])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)
    write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    assert (tmp_path / "file").read_bytes() == b"new"


def test_nobody_else_can_read_a_private_file_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch(0o600)
    write_bytes, modes = Path.write_bytes, []

    def recorded(path: Path, content: bytes) -> int:
        modes.append(path.stat().st_mode & 0o777)
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", recorded)
    write_file(tmp_path / "file", b"new")
    assert modes == [0o600]


def test_a_file_is_written_on_a_mount_that_refuses_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "chmod", refuse)
    write_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_a_pipe_is_written_directly() -> None:
    reader, writer = os.pipe()
    try:
        write_file(Path(f"/dev/fd/{writer}"), b"new")
        assert os.read(reader, 10) == b"new"
    finally:
        os.close(reader)
        os.close(writer)
