"""The HTTP comparison: repeated trials, long enough closed loops, and Marian on several cores."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.bundle import Bundle, load_bundle
from benchmarks.engine.jobs import PeerSettings
from benchmarks.engine.search import Choice
from benchmarks.http import goodput, traffic
from benchmarks.http.context import QUICK, Context, Cores
from benchmarks.http.marian_engine import MarianSettings, shared
from benchmarks.http.models import ModelFormats
from benchmarks.http.parts import subjects_of
from benchmarks.http.peer_engines import TranslateBatch
from benchmarks.http.subjects import MARIAN_ALONE, MARIAN_WINDOW, echo
from benchmarks.http.traffic import TEXTS, Trial, closed_loop, mixed
from benchmarks.machine import ROOT
from benchmarks.marian.process import MarianFiles
from transduce.loadtest.arrivals import ClosedLoop
from transduce.loadtest.percentiles import distribution
from transduce.loadtest.plan import RunPlan

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(ROOT / "bundles" / "en-de")


@pytest.fixture
def context(bundle: Bundle, tmp_path: Path) -> Context:
    return Context(bundle, tmp_path, replace(QUICK, most_trials=3), sys.executable, None, False, None, 0.1)


def scripted_trial(rate: float, *, holds: bool, is_late: bool) -> Trial:
    return Trial(rate, holds, 1.0, 10.0, 20.0, 100, 100, 6.0, is_tester_late=is_late)


def test_a_trial_with_a_late_tester_is_repeated_once(
    monkeypatch: pytest.MonkeyPatch, context: Context
) -> None:
    """The repetition counts even if its tester is late too."""
    outcomes = [(True, False), (False, True), (True, False), (True, True), (False, True)]
    waiting = list(outcomes)

    def next_trial(*_: object, rate: float, **__: object) -> Trial:
        holds, is_late = waiting.pop(0)
        return scripted_trial(rate, holds=holds, is_late=is_late)

    monkeypatch.setattr(goodput, "open_loop", next_trial)
    server: Any = None
    subject = echo()
    found = goodput.measure_goodput([(subject, server)], {subject.name: 100.0}, context)[subject.name]
    rates = [each["rate"] for each in found["trials"]]
    assert rates == pytest.approx([85.0, 102.0, 102.0, 122.4, 122.4])
    assert [(each["holds"], each["is_tester_late"]) for each in found["trials"]] == outcomes
    assert (found["per_s"], found["failed_at"]) == pytest.approx((102.0, 122.4))


@pytest.mark.parametrize(
    ("answers", "durations"),
    [([99, 100], [1.0, 3.0]), ([100], [1.0]), ([0, 5, 6], [1.0, 3.0, 9.0])],
)
def test_a_closed_loop_is_longer_until_it_has_a_hundred_answers(
    monkeypatch: pytest.MonkeyPatch, answers: list[int], durations: list[float]
) -> None:
    seen: list[float] = []

    def run_once(_: object, plan: RunPlan) -> tuple[Any, float]:
        assert isinstance(plan.load, ClosedLoop)
        seen.append(plan.load.duration_s)
        latency = distribution([0.01] * answers[len(seen) - 1])
        return SimpleNamespace(
            latency=latency, achieved_rate=1.0, num_sent=9, outcomes={"ok": 9}, tester_cpu_share=0.1
        ), 0.5

    monkeypatch.setattr(traffic, "_run_closed_loop", run_once)
    server: Any = SimpleNamespace(url="http://127.0.0.1:1")
    result = closed_loop(server, TEXTS, mixed(), num_clients=1, seconds=1.0)
    assert result.num_answers == answers[-1]
    assert seen == durations


def test_as_many_calls_of_marian_run_at_once_as_there_are_processes() -> None:
    both_run = threading.Barrier(2)
    calls: list[str] = []

    def engine(name: str) -> TranslateBatch:
        def translate(texts: list[str]) -> list[str]:
            calls.append(name)
            both_run.wait(timeout=TIMEOUT_S)
            return texts

        return translate

    translate = shared([engine("a"), engine("b")])
    with ThreadPoolExecutor(2) as executor:
        assert list(executor.map(translate, [["x"], ["y"]])) == [["x"], ["y"]]
    assert sorted(calls) == ["a", "b"]


def test_marian_has_a_process_for_each_core_if_a_request_is_a_call(
    bundle: Bundle, context: Context, tmp_path: Path
) -> None:
    served = ModelFormats(bundle, tmp_path, "no", MarianFiles(tmp_path, tmp_path, tmp_path))
    choice = Choice("CT2_USE_MKL=0", PeerSettings(1, 1))
    context.choices[2] = {1: choice, 32: choice}
    context.once("marian 2", lambda: MarianSettings(num_threads=2, batch_size=8))
    cores = Cores(frozenset({0, 1}), frozenset({0, 1}))
    subjects = {each.name: each for each in subjects_of(served, context, cores)}
    for name, settings, num_workers in (
        (MARIAN_ALONE, "2 x 1, 1 examples", "2"),
        (MARIAN_WINDOW, "1 x 2, 8 examples", "1"),
    ):
        words = subjects[name].command.arguments(1)
        assert subjects[name].settings == settings
        assert words[words.index("--num-workers") + 1] == num_workers
