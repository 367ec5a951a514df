"""`transduce translate` against a real server."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.api.server_process import ServerProcess
from transduce.cli import main

LINES = ["  Where is the station?\r", "", "I am hungry. So are you!", "\tOne more line "]
LANGUAGES = ["--source", "en", "--target", "de"]


def test_a_file_is_translated_line_by_line(
    server: ServerProcess, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A line has the translation that the server gives for it alone, and its own white space and line ending."""
    file = tmp_path / "source.txt"
    file.write_bytes("\n".join(LINES).encode())
    options = ["--beam-size", "2", "--batch-size", "3"]
    assert main(["translate", "--url", server.url, *LANGUAGES, *options, str(file)]) == 0

    def alone(text: str) -> str:
        body = {"text": text, "source": "en", "target": "de", "beam_size": 2}
        answer = httpx.post(
            f"{server.url}/v1/translate", json=body, timeout=60, trust_env=False
        ).raise_for_status()
        # The command replaces the line breaks of a translation by spaces, so that a line stays one line.
        return str(answer.json()["translations"][0]["text"]).replace("\n", " ")

    station, _, hungry, last = LINES
    expected = [f"  {alone(station.strip())}\r", "", alone(hungry), f"\t{alone(last.strip())} "]
    assert capsysbinary.readouterr().out.decode() == "\n".join(expected)


def test_an_unknown_language_is_a_one_line_error(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "source.txt"
    file.write_text("one\n")
    assert main(["translate", "--url", server.url, "--source", "en", "--target", "xx", str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("transduce translate: the server answered 422: ")
    assert error.count("\n") == 1
    assert "{" not in error
