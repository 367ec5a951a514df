"""The choice among ways to compute steps on a GPU: real graphs on a CPU, and a clock that only steps advance."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import EngineFailure
from app.graphs import GraphSpec
from app.runtime.cuda_choice import SWITCHES, Switch, choose_switches, switched
from app.runtime.cuda_runner import CudaRunner
from app.runtime.interface import StepInput, StepOutput
from app.runtime.ort_runner import OrtRunner
from app.runtime.session import SLOW_FUSION, Session, SessionOptions
from model.config import BOS_ID, EOS_ID
from tests.export.tiny import random_model
from tests.runtime.host_cuda import RecordingSession, load_both, one_variant
from tests.runtime.test_cuda_threads import another_thread_can_capture

NUM_ROWS = 6
FIRST, SECOND = Switch("the first way"), Switch("the second way")


@dataclass
class Gpu:
    """Two runners of one model, and sessions that take a given time for a step.

    step_s: seconds of a step by the names of its switches. loaded: the switches of each loaded decoder.
    """

    expected: OrtRunner
    runner: CudaRunner
    make_session: Callable[[], RecordingSession]
    spec: GraphSpec
    step_s: dict[tuple[str, ...], float]
    now_s: float = 0.0
    loaded: list[tuple[str, ...]] = field(default_factory=list)

    def load(self, switches: Sequence[Switch]) -> Session:
        names = tuple(switch.name for switch in switches)
        self.loaded.append(names)
        made = self.make_session()
        run = made.run

        def timed(binding: Any, run_options: Any = None) -> None:
            if names not in self.step_s:
                raise EngineFailure("no such kernel")
            self.now_s += self.step_s[names]
            run(binding, run_options)

        made.run = timed  # type: ignore[method-assign]
        return made

    def choose(self) -> tuple[Switch, ...]:
        self.runner.use_decoder(self.load(()))
        return choose_switches(self.runner, self.load, switches=(FIRST, SECOND), clock=lambda: self.now_s)


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    bundle = one_variant(random_model(max_length=24), "fp32", tmp_path)
    expected, runner, decoder = load_both(bundle, num_rows=NUM_ROWS)

    def make_session() -> RecordingSession:
        options = SessionOptions("cpu", num_threads=1)
        return RecordingSession(bundle.path, decoder.spec, options, cuda=decoder.cuda)

    return Gpu(expected, runner, make_session, decoder.spec, {})


def test_a_switch_that_saves_more_than_3_percent_is_chosen_and_used(
    gpu: Gpu, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.step_s = {(): 0.01, (FIRST.name,): 0.0098, (SECOND.name,): 0.005}
    with caplog.at_level(logging.INFO):
        assert gpu.choose() == (SECOND,)
    assert gpu.loaded[-1] == (SECOND.name,)
    assert "without switches 1: 10.000, 6: 10.000; the first way 1: 9.800, 6: 9.800;" in caplog.text
    assert "the second way 1: 5.000, 6: 5.000 (chosen)" in caplog.text
    before_s, step = gpu.now_s, StepInput(np.full(3, BOS_ID, np.int32), np.zeros(3, np.int32), 2)
    for runner in (gpu.expected, gpu.runner):
        runner.encode([np.array([7, 8, EOS_ID], np.int32)] * 3, [0, 1, 2])
    np.testing.assert_array_equal(gpu.runner.decode(step).ids, gpu.expected.decode(step).ids)
    assert gpu.now_s - before_s == pytest.approx(0.005), "the step ran with the chosen switch"


def test_a_second_switch_is_measured_together_with_the_chosen_first(gpu: Gpu) -> None:
    names = (FIRST.name, SECOND.name)
    gpu.step_s = {(): 0.01, names[:1]: 0.009, names: 0.008}
    assert gpu.choose() == (FIRST, SECOND)


def test_a_second_switch_is_compared_with_the_chosen_first(gpu: Gpu) -> None:
    gpu.step_s = {(): 0.01, (FIRST.name,): 0.005, (FIRST.name, SECOND.name): 0.0055}
    assert gpu.choose() == (FIRST,)
    assert gpu.loaded[-1] == (FIRST.name,), "the runner uses the chosen switches, not the last measured"


def test_without_a_faster_switch_the_runner_uses_none(gpu: Gpu) -> None:
    gpu.step_s = {(): 0.01, (FIRST.name,): 0.01, (SECOND.name,): 0.02}
    assert gpu.choose() == ()
    assert gpu.loaded[-1] == ()


def test_a_switch_with_which_steps_fail_is_not_chosen(gpu: Gpu, caplog: pytest.LogCaptureFixture) -> None:
    gpu.step_s = {(): 0.01, (SECOND.name,): 0.005}
    with caplog.at_level(logging.INFO):
        assert gpu.choose() == (SECOND,)
    assert "the first way fails (no such kernel)" in caplog.text


@pytest.mark.parametrize("difference", [0.3, float("nan")])
def test_a_switch_with_other_results_is_not_chosen(
    difference: float, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.step_s = {(): 0.01, (FIRST.name,): 0.005, (SECOND.name,): 0.009}
    decode = gpu.runner.decode

    def decode_wrongly(step: StepInput) -> StepOutput:
        output = decode(step)
        is_wrong = gpu.loaded[-1] == (FIRST.name,)
        wrong = replace(output, log_probabilities=output.log_probabilities - difference)
        return wrong if is_wrong else output

    monkeypatch.setattr(gpu.runner, "decode", decode_wrongly)
    with caplog.at_level(logging.INFO):
        assert gpu.choose() == (SECOND,)
    assert f"the first way has other results (log-probabilities {difference} apart)" in caplog.text


def test_no_other_thread_captures_during_the_first_step_of_a_new_decoder(gpu: Gpu) -> None:
    gpu.step_s = {(): 0.0}
    can_capture: list[bool] = []

    def load() -> Session:
        decoder = gpu.load(())
        run = decoder.run

        def recorded(binding: Any, run_options: Any = None) -> None:
            can_capture.append(another_thread_can_capture())
            run(binding, run_options)

        decoder.run = recorded  # type: ignore[method-assign]
        return decoder

    step = StepInput(np.full(3, BOS_ID, np.int32), np.zeros(3, np.int32), 2)
    for _ in range(2):
        gpu.runner.use_decoder(load())
        for _ in range(2):
            gpu.runner.decode(step)
    assert can_capture == [False, True] * 2


def test_steps_that_fail_without_a_switch_are_an_error(gpu: Gpu) -> None:
    with pytest.raises(EngineFailure, match="no such kernel"):
        gpu.choose()


def test_a_session_has_the_options_of_its_switches(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, Any] = {}

    def make(_path: str, options: Any, **arguments: Any) -> None:
        seen["xqa"] = os.environ.get("ORT_ENABLE_XQA")
        seen["tuned"] = options.get_session_config_entry("ep.cuda.enable_gemm_auto_tune")
        seen["disabled"] = arguments["disabled_optimizers"]
        raise RuntimeError("enough seen")

    monkeypatch.setattr("onnxruntime.InferenceSession", make)
    monkeypatch.delenv("ORT_ENABLE_XQA", raising=False)
    options = switched(SessionOptions("cpu", num_threads=1), SWITCHES)
    with pytest.raises(Exception, match="enough seen"):
        Session(tmp_path, gpu.spec, options)
    assert seen == {"xqa": "0", "tuned": "1", "disabled": [SLOW_FUSION, "MatMulAddFusion"]}
    assert "ORT_ENABLE_XQA" not in os.environ
