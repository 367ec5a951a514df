"""`transduce distill`: both directions, resuming, and sentences without a translation."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.corpus import Pair, read_data
from tests.transduce.asgi_server import asgi_server, read_body
from transduce.cli import main
from transduce.distill_output import ResumableOutput
from transduce.errors import ExitCode

PAIRS = [Pair(f"word {n}", f"Wort {n}", ("a", "b")[n % 2]) for n in range(50)]


def refusal(status: int, code: str, field: str) -> tuple[int, object]:
    return status, {"error": {"code": code, "message": "bad", "field": field}}


def translated(texts: list[str], version: str = "1") -> tuple[int, object]:
    model = {"name": "first", "version": version}
    return 200, {"translations": [{"text": text} for text in texts], "model": model}


class UpperCaseServer:
    """A server from en to de and back. Its translation of a text is the text in capitals, without `MUTE`.

    It answers a request with `refusal` if one of the texts contains `bad`.
    num_left: how many more requests are translated; all later ones are answered with `later`. None means no limit.
    -n means that n requests were answered with `later`.
    """

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.num_left: int | None = None
        self.later: tuple[int, object] = (500, {"error": {"code": "internal", "message": "broken"}})
        self.refusal = refusal(422, "invalid_request", "text[0]")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await read_body(receive)
        status, answer = self.models() if scope["method"] == "GET" else self.translate(json.loads(body))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def models(self) -> tuple[int, object]:
        pairs = [{"source": "en", "target": "de"}, {"source": "de", "target": "en"}]
        model = {"version": "1", "language_pairs": pairs, "precision": "int8"}
        sizes = {"max_source_length": 100, "max_target_length": 100}
        return 200, {"models": [{"name": name, **model, **sizes} for name in ("first", "second")]}

    def translate(self, body: dict[str, Any]) -> tuple[int, object]:
        self.bodies.append(body)
        if self.num_left is not None:
            self.num_left -= 1
            if self.num_left < 0:
                return self.later
        if any("bad" in text for text in body["text"]):
            return self.refusal
        return translated([text.upper().replace("MUTE", "") for text in body["text"]])


@pytest.fixture
def server() -> Iterator[UpperCaseServer]:
    app = UpperCaseServer()
    with asgi_server(app) as app.url:
        yield app


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{pair.domain}\t{pair.source}\t{pair.target}\n" for pair in PAIRS), "utf-8")
    return path


def distill(
    server: UpperCaseServer, output: Path, *arguments: object, languages: tuple[str, str] = ("en", "de")
) -> int:
    source, target = languages
    options = ["--url", server.url, "--source", source, "--target", target, "--output", str(output)]
    return main(["distill", *options, "--batch-size", "8", *map(str, arguments)])


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--timeout=0", "'0' is not above 0"),
        ("--timeout=nan", "'nan' is not a finite number"),
        ("--max-wait=-1", "'-1' is negative"),
    ],
)
def test_an_invalid_time_is_refused(
    option: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    languages = ("--source", "en", "--target", "de")
    with pytest.raises(SystemExit) as ended:
        main(["distill", "--url", "http://x", *languages, "--output", str(tmp_path / "x.tsv"), option])
    assert ended.value.code == 2
    assert f"argument {option.partition('=')[0]}: {problem}" in capsys.readouterr().err


def test_the_translation_becomes_the_target(server: UpperCaseServer, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.tsv.gz"
    assert distill(server, output, "--data", data, "--beam-size", 5) == 0
    assert list(read_data(str(output))) == [Pair(p.source, p.source.upper(), p.domain) for p in PAIRS]
    assert {body["beam_size"] for body in server.bodies} == {5}
    assert {(body["source"], body["target"]) for body in server.bodies} == {("en", "de")}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.tsv.gz", "pairs.tsv"]


def test_back_translation_of_pairs_and_of_monolingual_text(
    server: UpperCaseServer, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "news.de.gz").write_bytes(gzip.compress(b"Ein Satz.\nwiki\tNoch einer.\n"))
    options = ("--back-translation", "--source-tag", "<BT>", "--domain-tag", "bt", "--limit", 52)
    texts = ("--data", data, "--text", tmp_path / "news.de.gz")
    assert distill(server, tmp_path / "bt.tsv", *texts, *options, languages=("de", "en")) == 0
    assert list(read_data(str(tmp_path / "bt.tsv"))) == [
        *(Pair(f"<BT> {p.target.upper()}", p.target, f"{p.domain}-bt") for p in PAIRS),
        Pair("<BT> EIN SATZ.", "Ein Satz.", "news-bt"),
        Pair("<BT> NOCH EINER.", "Noch einer.", "wiki-bt"),
    ]
    assert "beam_size" not in server.bodies[0]


def test_sampling_has_another_seed_for_each_batch(
    server: UpperCaseServer, data: Path, tmp_path: Path
) -> None:
    options = ("--sample", "--top-k", 10, "--seed", 100, "--limit", 20)
    assert distill(server, tmp_path / "out.tsv", "--data", data, *options) == 0
    found = {body["text"][0]: body["sampling"] for body in server.bodies}
    assert found == {f"word {n}": {"temperature": 1.0, "top_k": 10, "seed": 100 + n} for n in (0, 8, 16)}
    assert {body["beam_size"] for body in server.bodies} == {1}


def test_sampling_accepts_a_beam_of_one_and_the_largest_seed(
    server: UpperCaseServer, data: Path, tmp_path: Path
) -> None:
    options = ("--sample", "--beam-size", 1, "--seed", 2**62, "--limit", 1)
    assert distill(server, tmp_path / "out.tsv", "--data", data, *options) == 0
    assert [body["sampling"]["seed"] for body in server.bodies] == [2**62]


@pytest.mark.parametrize(
    "refused",
    [
        refusal(422, "invalid_request", "text[0]"),
        refusal(422, "source_too_long", "text"),
        refusal(413, "payload_too_large", "text"),
    ],
)
def test_sentences_without_a_translation_are_left_out_and_counted(
    server: UpperCaseServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: tuple[int, object]
) -> None:
    server.refusal = refused
    lines = ["fine", "", "   ", "x" * 6000, "all right", "a bad one", "mute mute", "last one"]
    (tmp_path / "mono.txt").write_text("".join(f"{line}\n" for line in ["first"] * 8 + lines), "utf-8")
    # The requests run one at a time, so the first texts are answered before a text is rejected.
    arguments = ("--text", tmp_path / "mono.txt", "--concurrency", 1)
    assert distill(server, tmp_path / "out.tsv", *arguments) == 0
    found = [pair.source for pair in read_data(str(tmp_path / "out.tsv"))]
    assert found == ["first"] * 8 + ["fine", "all right", "last one"]
    error = capsys.readouterr().err
    assert "16 sentences, " in error
    assert "5 without a translation" in error
    assert error.splitlines()[-1].endswith("out.tsv: 11 pairs of 16 sentences")


def test_rejection_of_the_first_texts_ends_the_run(
    server: UpperCaseServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mono.txt").write_text("bad\n", "utf-8")
    assert distill(server, tmp_path / "out.tsv", "--text", tmp_path / "mono.txt") == 1
    assert capsys.readouterr().err == "transduce distill: the server answered 422: bad\n"


@pytest.mark.parametrize("num_answers", [1, 3, 6])
def test_the_same_command_resumes(
    server: UpperCaseServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], num_answers: int
) -> None:
    expected = tmp_path / "whole.tsv"
    assert distill(server, expected, "--data", data) == 0
    output, arguments = tmp_path / "out.tsv", ("--data", data, "--concurrency", 1)
    server.num_left = num_answers
    assert distill(server, output, *arguments) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "the server answered 500" in error
    assert error.endswith("run the same command again to resume")
    assert not output.exists()
    # The file as it is after a kill during a write.
    part = tmp_path / "out.tsv.part"
    with part.open("ab") as file:
        file.write(b"a\tword 48\tWORD 48\na\twor")
    server.num_left, server.bodies = None, []
    assert distill(server, output, *arguments) == 0
    assert output.read_bytes() == expected.read_bytes()
    assert len(server.bodies) == 7 - num_answers
    assert not part.exists()


def test_a_resumed_run_succeeds_if_the_server_refuses_all_remaining_texts(
    server: UpperCaseServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "mono.txt").write_text("fine\n" * 8 + "bad\n", "utf-8")
    arguments = ("--text", tmp_path / "mono.txt", "--concurrency", 1)

    def interrupt(_output: ResumableOutput) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ResumableOutput, "finish", interrupt)
        assert distill(server, tmp_path / "out.tsv", *arguments) == ExitCode.INTERRUPTED
    assert distill(server, tmp_path / "out.tsv", *arguments) == 0
    assert capsys.readouterr().err.endswith("out.tsv: 8 pairs of 9 sentences\n")


@pytest.mark.seconds
def test_a_signal_ends_the_command_while_requests_wait_to_be_repeated(
    server: UpperCaseServer, data: Path, tmp_path: Path
) -> None:
    server.num_left, server.later = 2, refusal(503, "not_ready", "")
    languages = ("--source", "en", "--target", "de")
    options = ("--url", server.url, *languages, "--data", data, "--batch-size", 8, "--max-wait", 600)
    command = [sys.executable, "-m", "transduce", "distill", *options, "--output", tmp_path / "out.tsv"]
    with subprocess.Popen(list(map(str, command))) as process:
        try:
            until = time.monotonic() + 240
            while server.num_left > -2 and process.poll() is None:
                assert time.monotonic() < until
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)  # a background job of a script ignores SIGINT
            assert process.wait(timeout=30) == ExitCode.INTERRUPTED
        finally:
            process.kill()
    server.num_left = None
    assert distill(server, tmp_path / "out.tsv", "--data", data) == 0
    assert len(list(read_data(str(tmp_path / "out.tsv")))) == len(PAIRS)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (refusal(422, "unsupported_languages", "target"), "the server answered 422: bad"),
        (refusal(422, "invalid_request", "sampling.seed"), "the server answered 422: bad"),
        (translated(["X"] * 8, version="2"), "the server now translates with first 2 instead of first 1"),
    ],
)
def test_a_server_that_is_replaced_ends_the_run(
    server: UpperCaseServer,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    later: tuple[int, object],
    message: str,
) -> None:
    server.num_left, server.later = 2, later
    assert distill(server, tmp_path / "out.tsv", "--data", data, "--concurrency", 1) == 1
    assert f": {message}; run the same command again to resume" in capsys.readouterr().err
    kept = (tmp_path / "out.tsv.part").read_text("utf-8").splitlines()
    assert [line.split("\t")[2] for line in kept] == [pair.source.upper() for pair in PAIRS[:16]]


def test_codes_match_the_served_languages_as_on_the_server(
    server: UpperCaseServer, data: Path, tmp_path: Path
) -> None:
    assert distill(server, tmp_path / "out.tsv", "--data", data, languages=("EN", "de-AT")) == 0
    assert {(body["source"], body["target"]) for body in server.bodies} == {("EN", "de-AT")}


def test_other_options_do_not_resume(
    server: UpperCaseServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.num_left = 2
    arguments = ("--data", data, "--concurrency", 1)
    assert distill(server, tmp_path / "out.tsv", *arguments) == 1
    server.num_left = None
    before = (tmp_path / "out.tsv.part").read_bytes()
    head = json.loads((tmp_path / "out.tsv.part.json").read_text("utf-8"))
    assert head["model"]["name"] == "first", "the server translates a pair with its first model"
    capsys.readouterr()
    assert distill(server, tmp_path / "out.tsv", *arguments, "--beam-size", 2) == 1
    assert "out.tsv.part belongs to a run with another beam_size; delete it" in capsys.readouterr().err
    assert (tmp_path / "out.tsv.part").read_bytes() == before


def test_a_run_resumes_with_another_batch_size_unless_it_samples(
    server: UpperCaseServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = tmp_path / "whole.tsv"
    assert distill(server, expected, "--data", data) == 0
    server.num_left = 3
    arguments = ("--data", data, "--concurrency", 1)
    assert distill(server, tmp_path / "out.tsv", *arguments) == 1
    server.num_left, server.bodies = None, []
    assert distill(server, tmp_path / "out.tsv", *arguments, "--batch-size", 5) == 0
    assert server.bodies[0]["text"][0] == "word 20", "of 24 sentences, 20 are in complete batches of 5"
    assert (tmp_path / "out.tsv").read_bytes() == expected.read_bytes()
    server.num_left = 3
    assert distill(server, tmp_path / "samples.tsv", *arguments, "--sample") == 1
    server.num_left = None
    capsys.readouterr()
    assert distill(server, tmp_path / "samples.tsv", *arguments, "--sample", "--batch-size", 5) == 1
    assert "samples.tsv.part belongs to a run with another batch_size; delete it" in capsys.readouterr().err


def test_an_edited_input_of_the_same_size_does_not_resume(
    server: UpperCaseServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "mono.txt"
    texts.write_text("One word.\nTwo words.\n", "utf-8")
    server.num_left = 1
    arguments = ("--text", texts, "--concurrency", 1, "--batch-size", 1)
    assert distill(server, tmp_path / "out.tsv", *arguments) == 1
    server.num_left = None
    texts.write_text("One word.\nTwo birds.\n", "utf-8")
    capsys.readouterr()
    assert distill(server, tmp_path / "out.tsv", *arguments) == 1
    assert "out.tsv.part belongs to a run with another input; delete it" in capsys.readouterr().err


def test_an_error_is_one_line(
    server: UpperCaseServer, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.tsv").touch()
    (tmp_path / "wide.txt").write_text("a\tb\tc\n", "utf-8")
    new = tmp_path / "new.tsv"
    for output, arguments, languages, code, message in (
        (new, (), ("en", "de"), 2, "give --data, --text or both"),
        (new, ("--data", data, "--top-k", 3), ("en", "de"), 2, "--top-k needs --sample"),
        (new, ("--data", data, "--sample", "--beam-size", 4), ("en", "de"), 2, "--sample excludes --beam-"),
        (new, ("--data", data, "--sample", "--seed", -1), ("en", "de"), 2, "--seed is not from 0 to 2**62"),
        (new, ("--data", data, "--sample", "--seed", 2**63 - 8), ("en", "de"), 2, "--seed is not from 0 to"),
        (tmp_path / "x.tsv.zst", ("--data", data), ("en", "de"), 1, "does not end with .tsv, .tsv.gz or"),
        (new, ("--data", tmp_path / "none.tsv"), ("en", "de"), 1, "none.tsv does not exist"),
        (new, ("--text", tmp_path), ("en", "de"), 1, "is a folder; name its files"),
        (new, ("--text", tmp_path / "wide.txt"), ("en", "de"), 1, "wide.txt, line 1: more than 2 columns"),
        (new, ("--data", data), ("en", "fr"), 1, "has no model for en to fr: it has en to de, de to en"),
        (tmp_path / "old.tsv", ("--data", data), ("en", "de"), 1, "old.tsv exists already"),
        (tmp_path / "no" / "x.tsv", ("--data", data), ("en", "de"), 1, "no does not exist"),
    ):
        assert distill(server, output, *arguments, languages=languages) == code
        error = capsys.readouterr().err
        assert error.startswith("transduce distill: ")
        assert message in error
        assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_a_bundle_is_served_during_the_command(
    tiny: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The server of the command must not inherit this setting. The case of its name does not matter.
    monkeypatch.setenv("transduce_api_keys", "a-key-of-another-server")
    # The command does not read this key, which no header can carry.
    monkeypatch.setenv("TRANSDUCE_API_KEY", "a\tb")
    options = ["--bundle", str(tiny / "bundle"), "--source", "en", "--target", "de", "--data", str(data)]
    assert main(["distill", *options, "--limit", "6", "--output", str(tmp_path / "out.tsv")]) == 0
    found = list(read_data(str(tmp_path / "out.tsv")))
    assert {pair.source for pair in found} <= {pair.source for pair in PAIRS[:6]}
    assert "pairs of 6 sentences" in capsys.readouterr().err
    options[1] = str(tmp_path)
    assert main(["distill", *options, "--output", str(tmp_path / "other.tsv")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("transduce distill: no server could be started with")
    assert len(error.splitlines()) == 1
