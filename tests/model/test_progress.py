"""The progress of long commands: lines, or a bar on a terminal."""

from __future__ import annotations

import io
import re
import time

import pytest

from model.progress import LINE_EVERY_S, Progress


def test_lines_are_written_at_intervals_and_at_the_end() -> None:
    now = 0.0
    file = io.StringIO()
    with Progress("read", unit="pairs", total=4000, file=file, clock=lambda: now) as progress:
        progress.start_at(1000)
        progress.advance(500)
        assert not file.getvalue()
        now = LINE_EVERY_S
        progress.advance(1000, "7 dropped")
        now += 1.0
        progress.advance(500, "8 dropped")
        assert len(file.getvalue().splitlines()) == 1
        now += 28.0
        assert now < 2 * LINE_EVERY_S
        progress.advance(1000, "9 dropped")
    assert file.getvalue().splitlines() == [
        "read: 2,500 of 4,000 pairs, 50/s, 30 s left, 7 dropped",
        "read: 4,000 of 4,000 pairs, 51/s, 9 dropped",
    ]


def test_the_end_does_not_repeat_the_last_line() -> None:
    now = 0.0
    file = io.StringIO()
    with Progress("read", unit="pairs", file=file, clock=lambda: now) as progress:
        now = LINE_EVERY_S
        progress.advance(300)
    assert file.getvalue() == "read: 300 pairs, 10/s\n"


def test_an_error_writes_no_closing_line() -> None:
    file = io.StringIO()
    with pytest.raises(OSError, match="gone"), Progress("read", unit="pairs", file=file):
        raise OSError("gone")
    assert not file.getvalue()


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_speed_of_a_bar_leaves_out_what_was_done_earlier() -> None:
    file = Terminal()
    with Progress("distill", unit="sentences", total=2_000_000, file=file) as progress:
        progress.start_at(1_000_000)
        for _ in range(3):
            time.sleep(0.2)
            progress.advance(64)
    speeds = [float(speed) for speed in re.findall(r"([\d.]+) sentences/s", file.getvalue())]
    assert len(speeds) >= 3, "the bar moves"
    assert max(speeds) <= 64 / 0.2
