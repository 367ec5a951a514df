"""Benchmarks say why they fail, and do not measure something else instead."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import lzma
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from app.language_pairs import LanguagePair
from app.text.tokenizer import Encoded
from benchmarks import bleu, cache, detection, fairness, glossary, glossary_many, native, shortlist, step
from benchmarks.engine.__main__ import sizes_of
from benchmarks.engine.worker import Worker, WorkerError
from benchmarks.fairness import LOUD, Body, Case, Client, Results
from benchmarks.load import LoadError, make_request

PAIRS = [
    LanguagePair(source=source, target=target)
    for source, target in (("en", "de"), ("en", "fr"), ("de", "en"), ("fr", "en"), ("de", "fr"))
]


def body(_: Iterator[str]) -> Body:
    return {}


@pytest.mark.parametrize("command", [glossary, glossary_many], ids=lambda command: command.__name__)
def test_a_folder_without_test_sets_is_refused(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "result.json"
    with pytest.raises(SystemExit):
        command.main(["--data", str(tmp_path), "--output", str(output)])
    assert f"--data: {tmp_path} has no en-de/test.*.tsv.xz" in capsys.readouterr().err
    assert not output.exists()


def test_test_sets_without_a_sentence_of_four_terms_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "en-de").mkdir()
    with lzma.open(tmp_path / "en-de" / "test.a.tsv.xz", "wt", encoding="utf-8") as file:
        file.write("It is late.\tEs ist spät.\n")
    with pytest.raises(SystemExit):
        glossary_many.main(["--data", str(tmp_path), "--output", str(tmp_path / "result.json")])
    assert "--data: no sentence has 4 terms" in capsys.readouterr().err


@pytest.mark.parametrize("missing", detection.PAIRS)
def test_detection_needs_the_test_sets_of_all_pairs(
    missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without en-de, German and English would be compared on English texts only."""
    for pair in set(detection.PAIRS) - {missing}:
        (tmp_path / pair).mkdir()
        (tmp_path / pair / "test.a.tsv.xz").touch()
    output = tmp_path / "result.json"
    with pytest.raises(SystemExit):
        detection.main(["--data", str(tmp_path), "--output", str(output)])
    assert f"--data: {tmp_path} has no {missing}/test.*.tsv.xz" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("failing", [LOUD, ""], ids=["the loud caller fails", "no caller fails"])
def test_a_failing_client_fails_the_run(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeClient(Client):
        """A client whose requests are answered after a millisecond, or fail."""

        def __init__(self, port: int, caller: str, *, has_keys: bool) -> None:
            super().__init__(port, caller, has_keys=has_keys)
            self._caller = caller

        async def open(self) -> None:
            pass

        def close(self) -> None:
            pass

        async def post(self, body: Body) -> tuple[int, float]:
            await asyncio.sleep(0.001)
            if self._caller == failing:
                raise ConnectionResetError
            return 200, 0.0

    monkeypatch.setattr(fairness, "Client", FakeClient)
    results = Results()
    run = fairness.send_lines_beside_load(1, Case("", 2, body), ["A line."], results, seconds=0.5)
    if failing:
        with pytest.raises(ConnectionResetError):
            asyncio.run(run)
    else:
        asyncio.run(run)
        assert results.loud[200] > 0
    assert results.statuses[200] > 0


def test_no_case_has_the_number_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["fairness", "--case", "0"])
    with pytest.raises(SystemExit):
        fairness.main()
    assert "invalid choice: 0" in capsys.readouterr().err


def test_a_request_to_a_worker_that_has_ended_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(subprocess.Popen[str]):
        """A process that is ready, and then ends."""

        def __init__(self, _: object, **options: object) -> None:
            super().__init__([sys.executable, "-c", "print('{}'); raise SystemExit(3)"], **options)  # type: ignore[call-overload]
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Ended)
    with pytest.raises(WorkerError, match="exit code 3"), Worker("ours", {}) as worker:
        worker.profile()


def test_a_missing_bundle_has_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        step.main(["--bundle", str(tmp_path / "none")])
    assert "none" in capsys.readouterr().err


def test_only_the_two_directions_of_the_test_sets_are_scored() -> None:
    assert bleu.directions(PAIRS) == [PAIRS[0], PAIRS[2]]
    assert bleu.directions(PAIRS[:2]) == PAIRS[:1]


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n10\r\nevent: delta",
        b"",
    ],
)
def test_a_stream_that_fails_fails_the_run(response: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.readuntil(b"}")
            writer.write(response)
            if b"429" in response:
                await reader.read()  # until the client closes the connection

    async def run() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            request = make_request(1, "It is late.", pair=("en", "de"), beam_size=1)
            with pytest.raises(LoadError):
                await asyncio.wait_for(cache.measure_stream(port, [request]), 60.0)

    asyncio.run(run())


def test_more_sentences_than_those_of_the_warm_up_are_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["cache", "--num-sentences", "20"])
    with pytest.raises(SystemExit):
        cache.main()
    assert "--num-sentences must be above 20" in capsys.readouterr().err


def test_the_sizes_of_groups_ascend() -> None:
    """A larger group tries only the settings of CTranslate2 that were best for a smaller group."""
    assert sizes_of(argparse.Namespace(sizes="32,1,8")) == (1, 8, 32)


def test_the_help_keeps_the_lines_of_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        native.main(["--help"])
    assert "\n    python -m benchmarks.native --rows 8 " in capsys.readouterr().out


def test_a_short_test_set_is_timed_for_each_of_its_sentences() -> None:
    class SlowModel:
        """Takes a millisecond for each sentence."""

        async def decode(
            self, sources: Sequence[str], _beam_size: int, _shortlist: int | None, _start_id: int | None
        ) -> None:
            await asyncio.sleep(len(sources) / 1000)

    sources = cast(list[Encoded], ["A line."] * 4)
    direction = shortlist.Direction("en-de", table=0, start_id=None, sources=sources, references=[])
    for row in asyncio.run(shortlist.times(cast(shortlist.Model, SlowModel()), direction, num_rounds=1)):
        assert row["whole_ms"] > 0.5
