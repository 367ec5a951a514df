"""What `transduce translate` shows on stderr: the progress bar, and the hint if no server answers."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from transduce.client import ConnectionFailed
from transduce.translate import progress_bar
from transduce.translate_batch import error_line


class Stream(io.StringIO):
    """A standard stream. is_terminal: what `isatty` returns."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("has_file", "is_stdout_terminal", "is_stderr_terminal", "is_shown"),
    [
        (True, False, True, True),
        (True, True, True, False),
        (True, False, False, False),
        (False, False, True, False),
    ],
)
def test_the_bar_is_shown_only_for_a_file_and_if_stderr_alone_is_a_terminal(
    has_file: bool,
    is_stdout_terminal: bool,
    is_stderr_terminal: bool,
    is_shown: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    shown = Stream(is_terminal=is_stderr_terminal)
    monkeypatch.setattr(sys, "stdout", Stream(is_terminal=is_stdout_terminal))
    monkeypatch.setattr(sys, "stderr", shown)
    with progress_bar(file if has_file else None) as bar:
        bar.update(4)
    assert ("translating" in shown.getvalue()) == is_shown


@pytest.mark.parametrize(
    ("message", "has_hint"),
    [
        ("no server answers at http://127.0.0.1:8000 ([Errno 111] Connection refused)", True),
        ("no server answers at http://localhost:8000/translate within 5 s", True),
        ("no server answers at http://[::1]:8000 (refused)", True),
        ("no server answers at https://translate.example.org (refused)", False),
        ("http://127.0.0.1:8000: ReadError", False),
    ],
)
def test_the_hint_is_given_only_for_a_server_of_this_machine(message: str, has_hint: bool) -> None:
    hint = "; `transduce serve` starts one"
    assert error_line(ConnectionFailed(message)) == message + (hint if has_hint else "")
