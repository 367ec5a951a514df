"""Training in several processes gives the same losses as training in one process with the same batches."""

from __future__ import annotations

import contextlib
import csv
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from model import checkpoint
from model.parallel import ParallelError, ProcessGroup
from tests.forked import CONTEXT, ForkedProcess, run_forked, run_transduce, start_fork
from tests.model.sentences import pairs, write_tsv
from transduce.cli import main

pytestmark = pytest.mark.training

TIMEOUT_S = 120.0
BATCHES = ("--accumulate", 4, "--batch-tokens", 300, "--dropout", 0)


def arguments(folder: Path, tokenizer: Path, run: str, *more: object) -> list[str]:
    """Options of a short run with two evaluations and a checkpoint at each."""
    data = write_tsv(folder / "train.tsv", pairs())
    dev = write_tsv(folder / "dev.tsv", pairs()[:16])
    run_options = ("--data", data, "--dev", dev, "--tokenizer", tokenizer, "--run", folder / run)
    options = ("--preset", "tiny", "--max-length", 64, "--threads", 1, "--precision", "fp32")
    step_options = ("--evaluate-every", 4, "--save-every", 4, "--max-steps", 8)
    return [str(value) for value in ("train", *run_options, *options, *step_options, *more)]


def train(command: list[str]) -> None:
    done = run_transduce(*command)
    assert done.returncode == 0, done.stderr


def losses(run: Path) -> list[tuple[float, float]]:
    with (run / "train.csv").open() as file:
        return [(float(row["train_loss"]), float(row["dev_loss"])) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path, tokenizer_path: Path) -> None:
    train(arguments(tmp_path, tokenizer_path, "one", *BATCHES))
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["transduce", *arguments(tmp_path, tokenizer_path, "two", *BATCHES)]
    # Without --, torchrun would read --run as an option of its own.
    done = run_forked(
        *torchrun, "-m", "--", *command, env={**os.environ, "OMP_NUM_THREADS": "1"}, warnings_action="default"
    )
    assert done.returncode == 0, done.stderr
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert len(one) == 2
    for expected, found in zip(one, two, strict=True):
        assert found == pytest.approx(expected, abs=1e-3)
    train(arguments(tmp_path, tokenizer_path, "two", *BATCHES, "--resume", "--max-steps", 10))
    assert checkpoint.step_folders(tmp_path / "two")[-1].name == "step-10"


def test_batches_divide_evenly_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    ProcessGroup().check(accumulate=4)
    with pytest.raises(ParallelError, match=r"accumulate is 3: with 2 processes it must be a multiple of 2"):
        ProcessGroup().check(accumulate=3)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_only_the_first_process_imports_matplotlib(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str
) -> None:
    """The runs end before the first update, as after a signal."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("model.interrupt.stop_signals", lambda: contextlib.nullcontext(lambda: True))
    monkeypatch.delitem(sys.modules, "model.run_figures", raising=False)
    assert main(arguments(tmp_path, tokenizer_path, "run")) == 0
    assert ("model.run_figures" in sys.modules) == (rank == "0")


def environments() -> list[dict[str, str]]:
    """The environment variables that `torchrun` sets, for each of two processes."""
    # Systems give ports above 32,000 to other processes, which could take such a port before the process group does.
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            break
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**common, "RANK": str(rank)} for rank in range(2)]


def fail_first(environment: dict[str, str], parent: Connection) -> None:
    """Fail in the first process, and send the error that each process sees."""
    os.environ.update(environment)
    with ProcessGroup() as group:
        try:
            with group.first_before_others():
                raise ValueError("no such file")
        except ValueError as error:
            parent.send(f"{type(error).__name__} {error}")
        parent.recv()  # the process stays alive: its end, too, would end the wait of the others


def test_if_the_first_process_fails_the_others_do_not_wait_for_it() -> None:
    pipes = [CONTEXT.Pipe() for _ in range(2)]
    processes = [
        start_fork(fail_first, environment, child)
        for environment, (_, child) in zip(environments(), pipes, strict=True)
    ]
    try:
        second, _ = pipes[1]
        assert second.poll(TIMEOUT_S), "the second process waits"
        assert second.recv() == "ParallelError the first process of the run has failed"
    finally:
        for process in processes:
            process.kill()
            process.join()
        for end in (end for pipe in pipes for end in pipe):
            end.close()


def exit_codes_of(check: Callable[[dict[str, str]], None]) -> list[int | None]:
    """Call a function in each of two processes, and wait for their ends."""
    processes = [start_fork(check, environment) for environment in environments()]
    for process in processes:
        process.join(TIMEOUT_S)
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def check_timeout(environment: dict[str, str]) -> None:
    """Join the group, and check how long its processes wait for each other."""
    os.environ.update(environment)
    with ProcessGroup() as group:
        assert dist.group.WORLD is not None
        cpu = torch.device("cpu")
        assert dist.group.WORLD._get_backend(cpu).options._timeout >= timedelta(hours=12)
        group.any(False, cpu)  # no process leaves while the other one still connects


def test_processes_wait_for_hours_while_the_first_encodes_or_evaluates() -> None:
    assert exit_codes_of(check_timeout) == [0, 0]


def check_mean(environment: dict[str, str]) -> None:
    """Join the group, and check what its processes know of each other's values."""
    os.environ.update(environment)
    with ProcessGroup() as group:
        cpu = torch.device("cpu")
        assert group.mean(1.0 + group.rank, cpu) == 1.5
        assert group.any(group.rank == 1, cpu)
        assert not group.any(False, cpu)


def test_processes_have_a_common_mean_and_know_what_is_true_in_any_of_them() -> None:
    assert exit_codes_of(check_mean) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_the_run(
    number: signal.Signals, tmp_path: Path, tokenizer_path: Path
) -> None:
    command = arguments(tmp_path, tokenizer_path, "run", "--max-steps", 100_000)
    run = tmp_path / "run"
    process = ForkedProcess(["transduce", *command], warnings_action="default")
    try:
        end = time.monotonic() + TIMEOUT_S
        while not checkpoint.step_folders(run) and time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert f"{number.name}: saving after this update" in errors
    assert "nats a subword" in errors
    newest = checkpoint.step_folders(run)[-1]
    assert checkpoint.load(newest).state["step"] == int(newest.name.removeprefix("step-"))


def test_a_run_that_starts_from_weights_takes_its_sizes_from_them(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    first = arguments(tmp_path, tokenizer_path, "first", "--d-ff", 96, "--max-steps", 2)
    train(first)
    weights = tmp_path / "first" / "step-2"
    command = arguments(
        tmp_path, tokenizer_path, "second", "--start-from", weights, "--max-steps", 1, "--dropout", 0.25
    )
    without_sizes = [
        argument for argument in command if argument not in ("--preset", "tiny", "--max-length", "64")
    ]
    train(without_sizes)
    config = checkpoint.load_model(tmp_path / "second" / "step-1").config
    assert (config.d_ff, config.dropout) == (96, 0.25), "only the dropout may change"
    wrong = run_transduce(*without_sizes, "--run", tmp_path / "third", "--d-ff", "64")
    assert wrong.returncode != 0
    assert "d_ff is 64, the weights of" in wrong.stderr
