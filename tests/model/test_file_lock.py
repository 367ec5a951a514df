"""The lock of a run's output, and how the end of `transduce prepare` replaces the output folder."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import IO

import pytest

from model.corpus import CorpusError, read_data
from model.file_lock import LockedError, locked
from model.shards import ShardWriter
from tests.model.sentences import pairs


def test_a_lock_file_that_the_other_run_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "lock", fcntl.flock
    num_calls = 0

    def flock_late(file: IO[bytes], operation: int) -> None:
        """In the first call, the run that has the lock ends and removes the file that this run has opened."""
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            path.unlink()
        flock(file, operation)

    monkeypatch.setattr("fcntl.flock", flock_late)
    with locked(path, tmp_path):
        assert path.exists()
        with pytest.raises(LockedError, match="another run is writing"), locked(path, tmp_path):
            pass
    assert num_calls == 3
    assert not path.exists()


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_locks_is_written_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(file: IO[bytes], operation: int) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", fail)
    with locked(tmp_path / "lock", tmp_path), locked(tmp_path / "lock", tmp_path):
        pass
    assert not (tmp_path / "lock").exists()


def test_another_error_of_a_lock_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: IO[bytes], operation: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(OSError, match="input/output error"), locked(tmp_path / "lock", tmp_path):
        pass


def test_a_second_run_with_the_same_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".new.lock").touch()  # left by a killed run
    with ShardWriter(tmp_path / "new", pairs_per_shard=2) as writer:
        writer.write(pairs()[:1])
        with (
            pytest.raises(LockedError, match=r"another run is writing .*new$"),
            ShardWriter(tmp_path / "new", pairs_per_shard=2),
        ):
            pass
        writer.write(pairs()[1:2])
    assert list(read_data(str(tmp_path / "new"))) == pairs()[:2]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_the_shards_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".new.tmp").mkdir()
    (tmp_path / ".new.tmp" / "part-00007.tsv.gz").touch()
    with ShardWriter(tmp_path / "new", pairs_per_shard=2) as writer:
        writer.write(pairs()[:1])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["part-00000.tsv.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_that_gets_a_file_during_the_run_stays_and_the_error_names_the_shards(
    tmp_path: Path,
) -> None:
    (tmp_path / "new").mkdir()
    message = r"new cannot be replaced \(Directory not empty\); the shards are in .*/\.new\.tmp$"
    writer = ShardWriter(tmp_path / "new", pairs_per_shard=2).__enter__()
    writer.write(pairs()[:1])
    (tmp_path / "new" / "file").touch()
    with pytest.raises(CorpusError, match=message):
        writer.__exit__(None, None, None)
    assert list(read_data(str(tmp_path / ".new.tmp"))) == pairs()[:1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.tmp", "new"]


def test_a_mount_point_is_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.ismount", lambda path: path == tmp_path)
    (tmp_path / "inner").mkdir()
    ShardWriter(tmp_path / "inner", pairs_per_shard=2)
    (tmp_path / "inner").rmdir()
    with pytest.raises(
        CorpusError, match=r"is a mount point and cannot be replaced; name a new folder in it$"
    ):
        ShardWriter(tmp_path, pairs_per_shard=2)
