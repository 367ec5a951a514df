"""How `transduce translate` divides plain text: into lines, and lines into requests."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tests.transduce.conftest import ScriptedServer
from transduce.cli import main
from transduce.translate_lines import MAX_ITEM_CHARACTERS, MAX_REQUEST_CHARACTERS, requests

LANGUAGES = ["--source", "en", "--target", "de"]


def test_a_request_may_have_exactly_the_maximum_number_of_characters() -> None:
    num_texts = MAX_REQUEST_CHARACTERS // MAX_ITEM_CHARACTERS
    found = list(requests(["x" * MAX_ITEM_CHARACTERS] * (num_texts + 1)))
    assert [len(request) for request in found] == [num_texts, 1]


def test_only_the_first_line_begins_with_a_byte_order_mark(server: ScriptedServer, tmp_path: Path) -> None:
    """In a later line, the same character belongs to the text."""
    file = tmp_path / "source.txt"
    file.write_text("\ufeffone\n\ufefftwo\n", "utf-8")
    assert main(["translate", "--url", server.url, *LANGUAGES, str(file)]) == 0
    assert [request["text"] for request in server.requests] == [["one", "\ufefftwo"]]


def test_a_typed_line_waits_for_no_further_line(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    terminal, program = os.openpty()
    os.write(terminal, b"one\ntwo\n\x04")  # the last character is Ctrl-D
    with os.fdopen(terminal, "wb"), os.fdopen(program) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["translate", "--url", server.url, *LANGUAGES]) == 0
    assert [request["text"] for request in server.requests] == [["one"], ["two"]]
    assert capsysbinary.readouterr().out == b"ONE\nTWO\n"


class Flushed(io.BytesIO):
    """states: what each flush has made visible."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[bytes] = []

    def flush(self) -> None:
        self.states.append(self.getvalue())


def test_each_batch_is_shown_before_the_next_one_is_translated(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, shown = tmp_path / "source.txt", Flushed()
    file.write_text("one\ntwo\n")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, write_through=True))
    assert main(["translate", "--url", server.url, *LANGUAGES, "--batch-size", "1", str(file)]) == 0
    assert shown.states[:2] == [b"ONE\n", b"ONE\nTWO\n"]
