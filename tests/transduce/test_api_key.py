"""Commands read the API key from a file or a variable, and the server's URL from a variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.api_key import find_api_key
from transduce.cli import build_parser, load_subcommand
from transduce.errors import CommandError


@pytest.mark.parametrize("content", [b"secret\n", b" secret", b"\xef\xbb\xbfsecret\r\n"])
def test_white_space_and_a_byte_order_mark_do_not_belong_to_the_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    assert find_api_key(path) == "secret"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"abc\xff", "key is not UTF-8 (byte 4)"),
        (b"\xff\xfea\x00", "key is not UTF-8 (byte 1)"),
        (b"\n", "key does not hold an API key of printable ASCII"),
        ("schl\u00fcssel".encode(), "key does not hold an API key of printable ASCII"),
    ],
)
def test_the_error_names_a_file_without_a_usable_key(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(CommandError) as raised:
        find_api_key(path)
    assert raised.value.message == f"{tmp_path}/{problem}"


@pytest.mark.parametrize("command", [["translate", "--source", "en", "--target", "de"], ["top"]])
def test_an_empty_variable_counts_as_unset(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSDUCE_URL", "")
    monkeypatch.setenv("TRANSDUCE_API_KEY", "")
    parser = build_parser(command[0], load_subcommand(command[0]))
    assert parser.parse_args(command).url == "http://127.0.0.1:8000"
    assert find_api_key(None) is None
