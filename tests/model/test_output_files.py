"""A file that a command writes is complete, or as it was before. No other file changes."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from model.checkpoint import Saved, save
from model.corpus import Corpus
from model.corpus_cache import cached_corpus
from model.lexicon import Entry, read_lexicon, write_lexicon
from model.output_files import naming, write_file
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


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Writes beyond this size fail in the block, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "x.spm")
    saved = Saved({"w": torch.zeros(50_000)}, {"model": {}}, {}, {})
    before = names(tmp_path)
    with largest_file(20_000), pytest.raises(OSError, match=r"step-7 cannot be written .*File too large"):
        save(tmp_path / "step-7", saved, tmp_path / "x.spm")
    assert names(tmp_path) == before


def test_a_corpus_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    ids, starts, domains = np.zeros(50_000, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int16)
    corpus = Corpus(ids, starts, domains, ("a",), Counter(), ())
    with largest_file(20_000), pytest.raises(OSError, match=r"corpus cannot be written \(.*requested"):
        cached_corpus(tmp_path / "corpus", {}, lambda: corpus)
    assert names(tmp_path) == []


def test_a_copy_that_cannot_be_written_is_named_with_one_reason(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "old" / folder).mkdir(parents=True)
        (tmp_path / "old" / folder / "file").write_bytes(bytes(50_000))
    with (
        largest_file(20_000),
        pytest.raises(OSError, match=r"/new cannot be written \(\S+ 27\] File too") as caught,
        naming(tmp_path / "new"),
    ):
        shutil.copytree(tmp_path / "old", tmp_path / "new", copy_function=shutil.copyfile)
    assert str(caught.value).count("File too large") == 1


def test_an_error_of_a_write_names_the_output_and_keeps_its_type(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError, match=f"'{tmp_path}'"), naming(tmp_path):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    with pytest.raises(FileNotFoundError, match="none"), naming(tmp_path):
        (tmp_path / "none").read_bytes()
    with Path("/dev/full").open("wb") as full, pytest.raises(OSError, match=f"device: '{tmp_path}'"):  # noqa: SIM117
        with naming(tmp_path):
            os.write(full.fileno(), b"x")
