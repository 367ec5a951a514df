"""Log lines wait in a bounded queue, and a slow reader blocks no other thread."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.observability import log_writer
from app.observability.log_writer import LogWriter
from tests.api.server_process import HANG_TIMEOUT_S


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        for descriptor in (reader, writer):
            with suppress(OSError):  # the test may have closed it
                os.close(descriptor)


def new_writer(descriptor: int) -> LogWriter:
    return LogWriter(descriptor, format_dropped=lambda count: f"{count} dropped")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fill(descriptor: int) -> int:
    """Fill a pipe. Returns the number of bytes written."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    count = 0
    try:
        while True:
            count += os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return count


def test_the_thread_blocks_signals() -> None:
    """Otherwise an early SIGTERM would end a process that blocks SIGTERM in its main thread only."""
    with pipe() as (_, descriptor):
        writer = new_writer(descriptor)
        writer.start()
        (thread,) = [each for each in threading.enumerate() if each.name == "log"]
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text("ascii")
        writer.close()
    (blocked,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        assert int(blocked, 16) >> (number - 1) & 1
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_lines_are_written_in_order_and_flushed_at_the_end() -> None:
    with pipe() as (reader, descriptor):
        writer = new_writer(descriptor)
        writer.put("before the thread")
        writer.start()
        for number in range(100):
            writer.put(str(number))
        writer.close()
        lines = os.read(reader, 65536).decode().splitlines()
        assert lines == ["before the thread", *map(str, range(100))]
        assert writer.num_dropped == 0


def test_writers_that_share_a_full_pipe_cut_no_line() -> None:
    """The server and its workers each have a writer, and the same stdout."""
    lines = {name: [f"{name} {number} " + name * 200 for number in range(200)] for name in "ab"}
    with pipe() as (reader, descriptor):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, select.PIPE_BUF)
        writers = []
        for own in lines.values():
            writers.append(new_writer(descriptor))
            for line in own:
                writers[-1].put(line)
        for writer in writers:
            writer.start()
        received = b""
        while received.count(b"\n") < 400:
            received += os.read(reader, 1000)
        for writer in writers:
            writer.close()
    read = received.decode().splitlines()
    for name, own in lines.items():
        assert [line for line in read if line.startswith(name)] == own


def test_a_write_has_whole_lines_and_only_a_write_of_one_line_exceeds_pipe_buf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["short", "x" * (2 * select.PIPE_BUF), *("y" * length for length in range(0, 1000, 2))]
    written: list[bytes] = []
    write = os.write
    with pipe() as (_, descriptor):

        def record(to: int, data: memoryview) -> int:
            if to != descriptor:
                return write(to, data)
            written.append(bytes(data))
            return len(data)

        writer = new_writer(descriptor)
        for line in lines:
            writer.put(line)
        monkeypatch.setattr(os, "write", record)
        writer.start()
        writer.close()
        monkeypatch.undo()
    assert b"".join(written).decode().splitlines() == lines
    for data in written:
        assert data.endswith(b"\n")
        assert len(data) <= select.PIPE_BUF or data.count(b"\n") == 1
    assert len(written) < len(lines) / 4, "lines share a write"


def test_flush_writes_the_lines_and_later_lines_follow() -> None:
    with pipe() as (reader, descriptor):
        writer = new_writer(descriptor)
        writer.start()
        for line in ("one", "two"):
            writer.put(line)
            writer.flush()
            assert os.read(reader, 100).decode() == f"{line}\n"
        writer.close()


def test_the_writer_goes_on_after_a_flush_that_timed_out() -> None:
    with pipe() as (reader, descriptor):
        filled = fill(descriptor)
        writer = new_writer(descriptor)
        writer.start()
        writer.put("one")
        writer.flush(timeout_s=0.05)
        while filled > 0:
            filled -= len(os.read(reader, min(filled, 65536)))
        assert os.read(reader, 100) == b"one\n"
        time.sleep(5 * log_writer.BATCH_S)
        writer.put("two")
        assert select.select([reader], [], [], HANG_TIMEOUT_S)[0], "no further line is written"
        assert os.read(reader, 100) == b"two\n"
        writer.close()


def test_a_full_pipe_blocks_no_thread_and_dropped_lines_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "MAX_WAITING_BYTES", 1000)
    with pipe() as (reader, descriptor):
        filled = fill(descriptor)
        writer = new_writer(descriptor)
        writer.start()
        started_at = time.monotonic()
        for _ in range(50):
            writer.put("y" * 99)  # ten lines fit
        assert writer.num_dropped == 40
        writer.close(timeout_s=0.1)  # times out
        assert time.monotonic() - started_at < HANG_TIMEOUT_S / 2
        while filled > 0:
            filled -= len(os.read(reader, min(filled, 65536)))
        lines = b""
        while lines.count(b"\n") < 11:
            lines += os.read(reader, 65536)
        # The report precedes the first batch that the thread takes after a line was dropped.
        kept = ["y" * 99] * 10
        assert lines.decode().splitlines() in [[*kept[:n], "40 dropped", *kept[n:]] for n in range(10)]


def test_lines_dropped_after_the_last_written_line_are_reported_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "MAX_WAITING_BYTES", 10)
    with pipe() as (reader, descriptor):
        writer = new_writer(descriptor)
        writer.start()
        writer.put("last")
        writer.flush()
        writer.put("too long for the queue")
        writer.close()
        os.close(descriptor)
        assert os.read(reader, 100) == b"last\n1 dropped\n"


def test_a_report_of_dropped_lines_that_cannot_be_written_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "MAX_WAITING_BYTES", 10)
    write = os.write
    with pipe() as (reader, descriptor):

        def write_except_here(to: int, data: memoryview) -> int:
            if to == descriptor:
                raise OSError("no room")
            return write(to, data)

        writer = new_writer(descriptor)
        writer.put("first")
        writer.put("too long for the queue")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write_except_here)
            writer.start()
            writer.flush()
            wait_for(lambda: writer.num_dropped == 2)
        writer.put("last")
        writer.close()
        assert os.read(reader, 100) == b"2 dropped\nlast\n"


def test_a_line_that_arrives_between_the_look_at_the_empty_queue_and_the_end_is_written() -> None:
    class Ending(threading.Event):
        """When the thread has found no line and asks whether to end, puts a line and ends the writer."""

        def is_set(self) -> bool:
            if threading.current_thread().name == "log" and not super().is_set():
                writer.put("last")
                self.set()
            return super().is_set()

    with pipe() as (reader, descriptor):
        writer = new_writer(descriptor)
        writer._is_closing = Ending()
        writer._has_work.set()  # so that the thread looks for lines
        writer.start()
        wait_for(writer._is_closing.is_set)
        writer.close()
        os.close(descriptor)
        assert os.read(reader, 100) == b"last\n"


def test_a_closed_pipe_drops_lines_and_raises_no_error() -> None:
    with pipe() as (reader, descriptor):
        writer = new_writer(descriptor)
        writer.start()
        os.close(reader)
        writer.put("nobody reads this")
        wait_for(lambda: writer.num_dropped == 1)
        writer.put("nor this")
        wait_for(lambda: writer.num_dropped == 2)
        writer.close()


def test_a_non_blocking_descriptor_is_polled() -> None:
    with pipe() as (reader, descriptor):
        filled = fill(descriptor)
        os.set_blocking(descriptor, False)
        writer = new_writer(descriptor)
        writer.start()
        writer.put("z" * 100)
        time.sleep(5 * log_writer.BATCH_S)
        while filled > 0:
            filled -= len(os.read(reader, min(filled, 65536)))
        assert os.read(reader, 200).decode() == "z" * 100 + "\n"
        writer.close()


def test_waiting_lines_are_written_at_exit() -> None:
    program = (
        "import logging\n"
        "from app.observability.logging import configure_logging, log_event\n"
        "configure_logging('info')\n"
        "log_event(logging.getLogger('app.x'), logging.INFO, 'last words')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert '"event": "last words"' in done.stdout


def test_dropped_lines_are_counted_under_the_lock() -> None:
    """Threads that put lines and the thread that writes them change the same number."""
    are_locked: list[bool] = []

    class Observed(LogWriter):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "num_dropped" and value:
                are_locked.append(self._lock.locked())
            super().__setattr__(name, value)

    with pipe() as (reader, descriptor):
        writer = Observed(descriptor, format_dropped=str)
        os.close(reader)
        writer.put("x" * log_writer.MAX_WAITING_BYTES)
        writer.put("a line that cannot be written")
        writer.start()
        wait_for(lambda: writer.num_dropped == 2)
        writer.close()
    assert set(are_locked) == {True}


def test_a_line_that_is_cut_counts_as_dropped_and_spoils_no_other(tmp_path: Path) -> None:
    """The file may grow to 100 bytes at first, as on a full disk. Each line has 30 bytes."""
    path = tmp_path / "log"
    program = (
        "import os, resource, signal, sys\n"
        "from app.observability.log_writer import LogWriter\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))\n"
        "file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
        "writer = LogWriter(file, format_dropped=lambda count: f'{count} dropped')\n"
        "for number in range(10):\n"
        "    writer.put(f'line {number} ' + 'x' * 22)\n"
        "writer.start()\n"
        "writer.flush()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "writer.put('later')\n"
        "writer.close()\n"
        "print(writer.num_dropped)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True
    )
    whole = [f"line {number} {'x' * 22}" for number in range(3)]
    assert path.read_text().splitlines() == [*whole, "line 3 xxx", "7 dropped", "later"]
    assert done.stdout == "7\n"
