"""CTranslate2's settings in the engine comparison, and what the reports say of them and of arrivals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.engine import __main__ as command
from benchmarks.engine import page_tables, report
from benchmarks.engine.cases import synthetic_cases
from benchmarks.engine.compare import ComparisonOptions, arguments_of
from benchmarks.engine.goals import LEAST_TRIAL_S, goal_lines, least_ratio
from benchmarks.engine.jobs import ArrivalResult, Arrivals, PeerSettings
from benchmarks.engine.rates import choose_peer
from benchmarks.engine.search import AVX512_FLAGS, BACKENDS, LIMITS, PeerPool, backends_of
from benchmarks.engine.weights import ModelPair

# CTranslate2's fastest settings for the corpus, that is for all sentences in one call.
OF_CORPUS = PeerSettings(1, 2, 64, "tokens")


def test_every_backend_is_another_choice_of_mkl_and_instructions() -> None:
    """By default, CTranslate2 has MKL on Intel's processors only, and AVX2 even where there is AVX-512."""
    choices = {(each.get("CT2_USE_MKL"), each.get("CT2_FORCE_CPU_ISA", "AVX2")) for each in BACKENDS.values()}
    assert choices == {("1", "AVX2"), ("0", "AVX2"), ("1", "AVX512"), ("0", "AVX512")}
    assert len(BACKENDS) == len(choices)


def test_avx512_is_forced_only_where_ctranslate2_accepts_it() -> None:
    assert backends_of(AVX512_FLAGS | {"avx2"}) == list(BACKENDS)
    assert backends_of(AVX512_FLAGS - {"avx512dq"} | {"avx2"}) == ["CT2_USE_MKL=1", "CT2_USE_MKL=0"]


class RankedPool:
    """A fake of CTranslate2's processes. seconds: the latency with each of these settings. Others have 0.9 s."""

    def __init__(self, seconds: dict[PeerSettings, float]) -> None:
        self._seconds = seconds
        self.tried: list[tuple[str, PeerSettings]] = []
        self._backend = ""

    def worker(self, backend: str) -> RankedPool:
        self._backend = backend
        return self

    def arrive(self, arrivals: Arrivals, settings: PeerSettings) -> ArrivalResult:
        self.tried.append((self._backend, settings))
        return ArrivalResult([self._seconds.get(settings, 0.9)] * len(arrivals.gaps_s), [])


@pytest.mark.parametrize(
    "best", [PeerSettings(1, 2), PeerSettings(2, 1), OF_CORPUS, PeerSettings(2, 1, 64, "tokens")]
)
def test_arrivals_are_tried_with_the_backend_and_the_batches_of_the_corpus(best: PeerSettings) -> None:
    pool = RankedPool({best: 0.1})
    row = {
        "peer_sentences_per_s": 100.0,
        "peer_backend": "CT2_USE_MKL=0",
        "peer_settings": asdict(OF_CORPUS),
        "peer_tried": [{"backend": "CT2_USE_MKL=1"}],
    }
    options = {"sentences": [[5, 2]], "beam_size": 1, "max_target_length": 9}
    choice = choose_peer(cast("PeerPool", pool), row, options, seconds=1.0, num_threads=2)
    assert choice.settings == best
    assert choice.backend == "CT2_USE_MKL=0"
    assert {backend for backend, _ in pool.tried} == {"CT2_USE_MKL=0"}
    assert len(pool.tried) == 4


@pytest.mark.parametrize("seconds", [-1.0, 2.0, LEAST_TRIAL_S - 0.1])
def test_a_short_trial_of_arrivals_is_refused(
    seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([f"--arrivals={seconds}", "--bundle", str(tmp_path)])
    assert ended.value.code == 2
    assert "--arrivals must be 0 or at least 10" in capsys.readouterr().err


def result_of(vendor: str, *backends: str, **arrivals: float) -> dict[str, Any]:
    """A result in which the first backend is the fastest backend of the only case."""
    arrived = {
        "model": "m", "precision": "int8", "beam_size": 1, "ours_per_s": 90.0, "peer_per_s": 30.0, "ratio": 3.0,
        "peer_choice": "c", **arrivals,
    }  # fmt: skip
    tried = [{"backend": backend} for backend in backends]
    return {
        "plan": {},
        "machine": {"cpu": "a processor (AVX2)", "vendor": vendor},
        "cases": [{"precision": "int8", "beam_size": 2, "case": "c", "num_sentences": 1, "peer_tried": tried,
                   "peer_choice": f"{backends[0]}: 1 x 2"}],
        "arrivals": [arrived],
    }  # fmt: skip


@pytest.mark.parametrize("target", ["avx2", "avxvnni"])
def test_a_limit_of_instructions_applies_to_both_engines(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CTranslate2 is not tried with AVX-512, and its libraries are told the limit by name."""
    started: list[tuple[str, dict[str, str]]] = []

    class Recorder:
        def __init__(self, kind: str, arguments: object, environment: dict[str, str]) -> None:
            started.append((kind, environment))

    monkeypatch.setattr("benchmarks.engine.search.Worker", Recorder)
    pool = PeerPool("model", "int8", num_threads=2, is_quick=False, target=target)
    for choice in pool._choices(synthetic_cases(100, sizes=(1,))[0]):
        pool.worker(choice.backend)
    assert [environment.pop("CT2_USE_MKL") for _, environment in started] == ["1", "0"]
    assert all(environment == LIMITS[target] for _, environment in started)
    pair = ModelPair("m", "int8", Path("ours"), Path("peer"))
    options = ComparisonOptions(2, 128, num_rounds=1, case_budget_s=0.0, is_quick=False, target=target)
    assert arguments_of(pair, options)["kernels"] == target


def test_a_run_limited_to_avx2_has_the_goals_of_avx2() -> None:
    machine = {"cpu": "a processor (AVX-512, AVX-512 VNNI)"}
    assert least_ratio("many", "int8", {"machine": machine, "plan": {}}) == 2.0
    assert least_ratio("many", "int8", {"machine": machine, "plan": {"target": "avx2"}}) == 1.5


def test_a_result_without_a_rate_of_products_has_no_lower_bounds() -> None:
    row = {
        "model": "m", "precision": "int8", "case": "c", "num_sentences": 1, "num_groups": 1, "beam_size": 1,
        "alone_ms": 2.0, "where": {"step_ms": 1.0, "step_python_share": 0.1, "python_share": 0.1, "idle_share": 0.0},
    }  # fmt: skip
    assert "| 2.0 |  |  | 1.00 |" in report.where_table([row])
    assert "| 2.0 | 1.0 | 50% | 1.00 |" in report.where_table([row | {"floor": {"seconds": 0.001}}])


INTEL, AMD = "GenuineIntel", "AuthenticAMD"


@pytest.mark.parametrize(
    ("vendor", "backends", "words"),
    [
        (AMD, ("default", "CT2_USE_MKL=0"), "This run did not try MKL."),
        (INTEL, ("default", "CT2_USE_MKL=0"), "The fastest settings have MKL in 1 of 1 cases."),
        (INTEL, ("CT2_USE_MKL=0", "default"), "The fastest settings have MKL in 0 of 1 cases."),
        (AMD, ("CT2_USE_MKL=1", "CT2_USE_MKL=0"), "The fastest settings have MKL in 1 of 1 cases."),
    ],
)
def test_the_report_counts_the_cases_whose_fastest_settings_have_mkl(
    vendor: str, backends: tuple[str, ...], words: str
) -> None:
    assert report.packing(result_of(vendor, *backends)).endswith(words)


def test_the_tried_backends_are_listed() -> None:
    assert report.tried_backends(result_of(AMD, "default", "CT2_USE_MKL=0")) == "`CT2_USE_MKL=0`, default"


@pytest.mark.parametrize("arrivals", [{}, {"trial_s": 2.0}])
def test_rates_of_short_trials_are_left_out(arrivals: dict[str, float]) -> None:
    result = result_of(AMD, "default", **arrivals)
    assert page_tables.arrivals_table(result).startswith("The rates of arrivals of this run are left out.")
    assert "arrivals, highest rate" not in [line[0] for line in goal_lines(result, "int8")]


def test_rates_of_long_trials_are_shown() -> None:
    result = result_of(AMD, "default", trial_s=LEAST_TRIAL_S)
    assert "| m int8 | 1 | 90 | 30 | 3.00 |" in page_tables.arrivals_table(result)
    assert "arrivals, highest rate" in [line[0] for line in goal_lines(result, "int8")]
    assert "| m | int8 | 1 | 90 | 30 | **3.00** | c |" in report.arrivals_text(result, report.arrivals_table)
