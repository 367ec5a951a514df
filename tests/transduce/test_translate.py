"""`transduce translate` over a real socket: line structure, limits, retries, error messages."""

from __future__ import annotations

import io
import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transduce.conftest import Answer, ScriptedServer
from transduce.cli import main
from transduce.client import Translation
from transduce.translate_batch import Part
from transduce.translate_lines import (
    MAX_ITEM_CHARACTERS,
    MAX_ITEMS,
    MAX_REQUEST_CHARACTERS,
    read_lines,
    requests,
    split_text,
    translated_line,
)

LANGUAGES = ["--source", "en", "--target", "de"]


def translate(server: ScriptedServer, path: Path, *options: str) -> int:
    return main(["translate", "--url", server.url, *LANGUAGES, *options, str(path)])


def written(folder: Path, content: bytes) -> Path:
    file = folder / "source.txt"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"one\ntwo\n", b"ONE\nTWO\n"),
        (b"one\r\n\r\n  two  \r\nlast", b"ONE\r\n\r\n  TWO  \r\nLAST"),
        (b"", b""),
        (b"\n\n \n", b"\n\n \n"),
        ("\ufeffone\nzw\u00f6lf\n".encode(), "\ufeffONE\nZW\u00d6LF\n".encode()),
        ("a\u2028b\x0bc\n".encode(), "A\u2028B\x0bC\n".encode()),
        ("\u3000wide\u00a0\n".encode(), "\u3000WIDE\u00a0\n".encode()),
    ],
)
def test_line_structure_is_kept(
    server: ScriptedServer,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    content: bytes,
    expected: bytes,
) -> None:
    assert translate(server, written(tmp_path, content)) == 0
    captured = capsysbinary.readouterr()
    assert captured.out == expected
    assert captured.err == b""


def test_blank_lines_send_no_request(server: ScriptedServer, tmp_path: Path) -> None:
    assert translate(server, written(tmp_path, b"\n  \none\n")) == 0
    assert [request["text"] for request in server.requests] == [["one"]]


def test_a_request_has_the_texts_the_options_and_the_key(server: ScriptedServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    file = written(tmp_path, b"one\n")
    assert translate(server, file) == 0
    assert translate(server, file, "--beam-size", "2", "--api-key-file", str(key)) == 0
    first, second = server.requests
    assert first == {"text": ["one"], "source": "en", "target": "de"}
    assert second == {**first, "beam_size": 2}
    assert server.paths == ["POST /v1/translate"] * 2
    assert "authorization" not in server.headers[0]
    assert server.headers[1]["authorization"] == "Bearer secret"


def test_every_option_is_sent_under_its_api_name(server: ScriptedServer, tmp_path: Path) -> None:
    options = (
        "--beam-size 3 --patience 1.5 --early-stop bound --length-penalty power:0.5 --coverage-penalty 0.2 "
        "--min-target-length 2 --max-target-length 9 --min-target-ratio 0.5 --max-target-ratio 2 "
        "--no-repeat-ngram-size 3 --repetition-penalty 1.2 --temperature 0.7 --top-k 5 --top-p 0.9 --seed 0 "
        "--loop-guard --suppress nie --suppress nimmer --target-prefix Heute --json --num-hypotheses 2 "
        "--num-alternatives 4 --token-scores --alignment --attention --model opus --no-pivot"
    )
    assert translate(server, written(tmp_path, b"one\ntwo\n"), *options.split()) == 0
    assert server.requests == [
        {
            "text": ["one", "two"],
            "source": "en",
            "target": "de",
            "beam_size": 3,
            "patience": 1.5,
            "early_stop": "bound",
            "length_penalty": {"formula": "power", "alpha": 0.5},
            "coverage_penalty": 0.2,
            "min_target_length": 2,
            "max_target_length": 9,
            "min_target_ratio": 0.5,
            "max_target_ratio": 2.0,
            "no_repeat_ngram_size": 3,
            "repetition_penalty": 1.2,
            "sampling": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 0},
            "loop_guard": True,
            "suppress": ["nie", "nimmer"],
            "target_prefix": ["Heute", "Heute"],
            "model": "opus",
            "pivot": False,
            "num_hypotheses": 2,
            "num_alternatives": 4,
            "token_scores": True,
            "alignment": True,
            "attention": True,
        }
    ]


def test_0_turns_an_option_off(server: ScriptedServer, tmp_path: Path) -> None:
    options = "--min-target-length 0 --no-repeat-ngram-size 0 --num-alternatives 0 --json"
    assert translate(server, written(tmp_path, b"one\n"), *options.split()) == 0
    sent = {"min_target_length": 0, "no_repeat_ngram_size": 0, "num_alternatives": 0}
    assert server.requests == [{"text": ["one"], "source": "en", "target": "de", **sent}]


def test_json_output_holds_the_full_result(
    server: ScriptedServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    translations = [
        {"text": "eins", "alternatives": [{"score": -0.5}]},
        {"text": "zw\u00f6lf\nzw\u00f6lf", "segments": []},
    ]
    server.answers.append(Answer(200, json.dumps({"translations": translations}).encode()))
    assert translate(server, written(tmp_path, b"one\n\n twelve"), "--json", "--length-penalty", "1") == 0
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [json.loads(line) for line in lines] == [[translations[0]], [], [translations[1]]]
    assert server.requests[0]["length_penalty"] == 1.0


@pytest.mark.parametrize(
    "option", ["--num-hypotheses=2", "--num-alternatives=1", "--token-scores", "--alignment", "--attention"]
)
def test_detail_options_need_json(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert translate(server, written(tmp_path, b"one\n"), option) == 2
    assert f"{option.partition('=')[0]} needs --json" in capsys.readouterr().err
    assert server.requests == []


@pytest.mark.parametrize(
    "option",
    [
        "--patience=nan", "--patience=much", "--length-penalty=wu:", "--length-penalty=wu:inf", "--early-stop=late",
        "--top-k=1.5", "--beam-size=0", "--min-target-length=-1", "--temperature=inf",
        "--timeout=nan", "--timeout=0", "--timeout=-1", "--max-wait=nan", "--max-wait=-1",
    ],
)  # fmt: skip
def test_an_invalid_option_value(server: ScriptedServer, tmp_path: Path, option: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        translate(server, written(tmp_path, b"one\n"), option)
    assert stopped.value.code == 2


def test_the_environment_names_server_and_key(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSDUCE_URL", server.url)
    monkeypatch.setenv("TRANSDUCE_API_KEY", "other")
    assert main(["translate", *LANGUAGES, str(written(tmp_path, b"one\n"))]) == 0
    assert server.headers[0]["authorization"] == "Bearer other"


def test_an_api_key_that_no_header_can_carry(
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRANSDUCE_API_KEY", "schl\u00fcssel")
    assert translate(server, written(tmp_path, b"one\n")) == 1
    assert "TRANSDUCE_API_KEY does not hold an API key" in capsys.readouterr().err
    assert server.requests == []


def test_stdin(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo")))
    assert main(["translate", "--url", f"{server.url}/", *LANGUAGES]) == 0
    assert capsysbinary.readouterr().out == b"ONE\nTWO"


def test_lines_are_sent_in_batches(
    server: ScriptedServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = [f"line {number}\n".encode() for number in range(300)]
    assert translate(server, written(tmp_path, b"".join(lines)), "--batch-size", "128") == 0
    assert [len(request["text"]) for request in server.requests] == [128, 128, 44]
    assert capsysbinary.readouterr().out == b"".join(lines).upper()


def test_every_request_keeps_the_servers_limits(
    server: ScriptedServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Lines of 12,006 and 120,000 characters are split into several items, and all items are divided into requests."""
    lines = ["a" * 4_999] * 12 + ["short words here. " * 667] + ["x y" * 40_000, "end"]
    content = "\n".join(lines).encode()
    assert translate(server, written(tmp_path, content), "--batch-size", "128") == 0
    sizes = [[len(text) for text in request["text"]] for request in server.requests]
    assert max(max(texts) for texts in sizes) <= MAX_ITEM_CHARACTERS
    assert max(sum(texts) for texts in sizes) <= MAX_REQUEST_CHARACTERS
    assert max(map(len, sizes)) <= MAX_ITEMS
    assert capsysbinary.readouterr().out == content.upper()


def test_an_overloaded_server_is_retried_after_retry_after(
    server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("transduce.client.sync_client.time", SimpleNamespace(sleep=waits.append))
    server.answers = [
        Answer(429, headers={"retry-after": "7"}),
        Answer(503),
        Answer(429, headers={"retry-after": "nan"}),
    ]
    assert translate(server, written(tmp_path, b"one\n")) == 0
    assert 7 <= waits[0] <= 7 * 1.25
    assert all(1 <= wait <= 1.25 for wait in waits[1:])
    assert len(waits) == 3
    assert len(set(waits)) == 3, "clients that are rejected together must not retry at the same time"
    assert len(server.requests) == 4
    assert capsysbinary.readouterr().out == b"ONE\n"


@pytest.mark.parametrize("status", [413, 504])
def test_a_batch_that_is_too_large_or_too_slow_is_halved(
    server: ScriptedServer, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], status: int
) -> None:
    server.answers = [Answer(status)]
    assert translate(server, written(tmp_path, b"one\ntwo\nthree\n")) == 0
    assert [request["text"] for request in server.requests] == [
        ["one", "two", "three"],
        ["one"],
        ["two", "three"],
    ]
    assert capsysbinary.readouterr().out == b"ONE\nTWO\nTHREE\n"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            Answer(422, json.dumps({"error": {"type": "x", "message": "no pair\n en-xx"}}).encode()),
            "the server answered 422: no pair en-xx",
        ),
        (Answer(401, json.dumps({"error": "key missing"}).encode()), "the server answered 401: key missing"),
        (Answer(504, b"<html>late</html>"), "the server answered 504: <html>late</html>"),
        (Answer(500, b""), "the server answered 500: Internal Server Error"),
        (Answer(200, b"hello"), "the response is not JSON (JSONDecodeError)"),
        (Answer(200, b'{"translations": []}'), "the response holds 0 translations for 1 texts"),
        (Answer(200, b'{"translations": [{"text": 5}]}'), "the response is not a translation (TypeError)"),
    ],
)
def test_errors_are_one_line(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: Answer, line: str
) -> None:
    # The client repeats the request once after a 500 whose body is no error of Transduce.
    server.answers = [answer] * 2
    assert translate(server, written(tmp_path, b"one\n")) == 1
    assert capsys.readouterr().err == f"transduce translate: {line}\n"


@pytest.mark.parametrize("size", [1, 2, 3, 32])
def test_a_line_that_is_not_utf8_is_named_after_the_lines_before_it(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    assert translate(server, written(tmp_path, b"one\ntwo\ntw\xff\n"), f"--batch-size={size}") == 1
    captured = capsys.readouterr()
    assert captured.out == "ONE\nTWO\n"
    assert captured.err == "transduce translate: line 3 is not UTF-8 (byte 3 of the line)\n"


def test_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    assert main(["translate", "--url", url, *LANGUAGES, str(written(tmp_path, b"one\n"))]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"transduce translate: no server answers at {url}")
    assert error.endswith("; `transduce serve` starts one\n")
    assert error.count("\n") == 1


def test_a_silent_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        arguments = [
            "translate",
            "--url",
            url,
            *LANGUAGES,
            "--timeout",
            "0.2",
            str(written(tmp_path, b"one\n")),
        ]
        assert main(arguments) == 1
    assert "no response" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://"])
def test_an_invalid_url(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["translate", "--url", url, *LANGUAGES, str(written(tmp_path, b"one\n"))])
    assert stopped.value.code == 2
    assert "http://host:port" in capsys.readouterr().err


def test_loopback_ignores_the_proxy_variables(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert translate(server, written(tmp_path, b"one\n")) == 0


def test_a_translation_never_adds_a_line() -> None:
    (line,) = read_lines(io.BytesIO(b" one\r\n"))
    parts = [Part("one", Translation("eins\nzwei", "en"))]
    assert translated_line(line, iter([parts])) == " eins zwei\r\n"


def test_a_gap_is_put_between_translations_of_pieces_without_white_space() -> None:
    text = "\u4ed6\u6765\u3002" * 2_000
    (line,) = read_lines(io.BytesIO(text.encode()))
    assert len(line.pieces) == 2
    answers = zip(line.pieces, ("He comes.", "He goes."), strict=True)
    parts = [[Part(piece, Translation(each, "zh"))] for piece, each in answers]
    assert translated_line(line, iter(parts), " ") == "He comes. He goes."


@given(st.text(alphabet="ab .!?\u3002\u2028", max_size=60), st.integers(1, 12))
def test_pieces_join_to_the_text(text: str, max_characters: int) -> None:
    pieces = list(split_text(text, max_characters=max_characters))
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= max_characters for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("One. Two three. Four", ["One. Two three. ", "Four"]),
        ("one two three four", ["one two three ", "four"]),
        ("x" * 20, ["x" * 16, "x" * 4]),
        (
            "\u4ed6\u8bf4\u300c\u597d\u3002\u300d" * 3,
            ["\u4ed6\u8bf4\u300c\u597d\u3002\u300d" * 2, "\u4ed6\u8bf4\u300c\u597d\u3002\u300d"],
        ),
        ("short", ["short"]),
    ],
)
def test_a_long_line_is_split_at_sentences_then_at_white_space(text: str, pieces: list[str]) -> None:
    assert list(split_text(text, max_characters=16)) == pieces


@given(st.lists(st.integers(1, MAX_ITEM_CHARACTERS), max_size=300))
def test_requests_keep_order_and_limits(lengths: list[int]) -> None:
    texts = ["x" * length for length in lengths]
    grouped = list(requests(texts))
    assert [text for request in grouped for text in request] == texts
    assert all(len(request) <= MAX_ITEMS for request in grouped)
    assert all(sum(map(len, request)) <= MAX_REQUEST_CHARACTERS for request in grouped)


@given(st.binary(max_size=80).filter(lambda raw: b"\xff" not in raw))
def test_lines_lose_no_byte(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace").encode()
    lines = list(read_lines(io.BytesIO(text)))
    joined = "".join(line.before + "".join(line.pieces) + line.after for line in lines)
    assert joined.encode() == text
    assert sum(line.num_bytes for line in lines) == len(text)
