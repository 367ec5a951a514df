"""`transduce size` on a real server whose model takes a known time for a step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.api.server_process import ServerProcess
from tests.model.sentences import write_tokenizer
from tests.sizing.test_simulation import COSTS
from transduce.cli import main
from transduce.sizing.costs import Costs

pytestmark = pytest.mark.server
STEP_S = 0.004


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("echo") / "tokenizer.spm")
    command = ["tests.api.echo_server", str(tokenizer), f"step_s={STEP_S}"]
    with ServerProcess(command, {"sentence_cache_bytes": 0}) as process:
        yield process.ready()


def test_a_server_is_measured_once_and_sized_twice(
    server: ServerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("transduce.sizing.capacity.NUM_REQUESTS", 600)
    file = tmp_path / "costs.json"
    measuring = ["size", server.url, "--seconds", "0.5", "--save", str(file), "--workload", "short"]
    assert main([*measuring, "--rate", "1", "--slo", "p99=20s"]) == 0
    assert "need 1 servers" in capsys.readouterr().out
    costs = json.loads(file.read_text("utf-8"))
    first, last = costs["levels"][0], costs["levels"][-1]
    assert first["rows"] == pytest.approx(costs["beam_size"], rel=0.3)
    assert last["rows"] > 4 * first["rows"]
    assert first["step_s"] >= STEP_S
    assert costs["num_workers"] == 1
    saved = ["size", "--costs", str(file), "--workload", "short"]
    assert main([*saved, "--rate", "100000", "--slo", "p99=20s", "--price", "0.5", "--spare", "2"]) == 0
    printed = capsys.readouterr().out
    number = int(re.search(r"need (\d+) servers, 2 of which may fail", printed)[1])  # type: ignore[index]
    assert number > 100
    assert f"{number * 0.5:.2f} an hour" in printed


def test_the_result_is_printed_if_the_times_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong path is an error before the measurement. If the file cannot be written later, the result is printed.

    If no result can be found, the measured times are still saved.
    """
    measured = Mock(return_value=COSTS)
    monkeypatch.setattr("transduce.sizing.command.measure", measured)
    monkeypatch.setattr("transduce.sizing.capacity.NUM_REQUESTS", 600)
    arguments = ["size", "http://127.0.0.1:1", "--rate", "1", "--slo", "p99=20s", "--words", "3"]
    assert main([*arguments, "--save", str(tmp_path)]) == 1
    assert "Is a directory" in capsys.readouterr().err
    measured.assert_not_called()
    assert main([*arguments, "--save", "/dev/full"]) == 1
    printed = capsys.readouterr()
    assert "No space left on device: '/dev/full'" in printed.err
    assert "need 1 servers" in printed.out
    file = tmp_path / "new" / "costs.json"
    assert main([*arguments, "--slo", "p99=1ms", "--save", str(file)]) == 1
    assert "even a server without load misses p99=1ms" in capsys.readouterr().err
    assert Costs.load(file) == COSTS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "5"], "name either the URL of a server or --costs"),
        (["http://127.0.0.1:9", "--rate", "5"], "cannot be read"),
        (["--costs", "missing.json", "--rate", "5"], "missing.json"),
        (["http://127.0.0.1:9", "--rate", "5", "--spare", "-1"], "--spare must be at least 0"),
    ],
)
def test_a_wrong_command_line_gives_one_line_of_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", *arguments]) != 0
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--rate", "0"], ["--rate", "5", "--slo", "first.p99=1s"], ["--slo", "x"]]
)
def test_an_argument_out_of_range_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["size", "http://127.0.0.1:9", *arguments])
    assert "transduce size: error" in capsys.readouterr().err
