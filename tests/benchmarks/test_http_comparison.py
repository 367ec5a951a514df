"""The HTTP comparison: rate search, workloads, thread layouts, fitted models, and real servers of the peers."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from app.bundle import Bundle, load_bundle
from app.settings import Settings
from benchmarks.engine.jobs import PeerSettings
from benchmarks.engine.search import Choice
from benchmarks.http import traffic
from benchmarks.http.context import (
    QUICK,
    CachedAnswerError,
    Context,
    Cores,
    cached_share,
    rotated,
    running_servers,
)
from benchmarks.http.libretranslate_setup import REQUIREMENT, ensure_environment, write_packages
from benchmarks.http.models import LibreTranslate, ModelFormats, choices_as_json, read_choices
from benchmarks.http.overhead import bodies_of, requests
from benchmarks.http.parts import best_layout, subjects_of
from benchmarks.http.peer_engines import search_of
from benchmarks.http.process_tree import ProcessTree
from benchmarks.http.rate_search import PRECISION, RateSearch
from benchmarks.http.scaling import RowsModel, fit_rows, parallel_share
from benchmarks.http.subjects import (
    ALONE,
    LIBRETRANSLATE,
    OURS,
    WINDOW,
    ctranslate2,
    echo,
    ours,
)
from benchmarks.http.traffic import (
    LONG_WORDS,
    NUM_SEEDS,
    SEED,
    SHORT_WORDS,
    TEXTS,
    bimodal,
    closed_loop,
    mixed,
    plan_of,
    ten_words,
)
from benchmarks.machine import ROOT
from benchmarks.server_process import ALL_CORES, NO_CACHE
from tests.loadtest.steady_server import SteadyServer
from transduce.loadtest.arrivals import Arrivals, ClosedLoop
from transduce.loadtest.workload import from_texts

TIMEOUT_S = 30.0
SHARED = Cores(ALL_CORES, ALL_CORES)


def searched(sustained: float, *, first: float, most: int = 30) -> RateSearch:
    """A finished search of at most `most` trials, on a server that meets its objective up to the rate `sustained`."""
    search = RateSearch(first, most=most)
    while not search.is_done:
        search.record(holds=search.rate <= sustained)
    return search


@pytest.mark.parametrize("first", [10.0, 57.0, 100.0, 400.0])
@pytest.mark.parametrize("sustained", [57.0, 100.0, 149.0])
def test_the_highest_rate_is_found_from_both_sides(sustained: float, first: float) -> None:
    search = searched(sustained, first=first)
    assert sustained / (1 + PRECISION) <= search.highest <= sustained
    assert search.lowest_failed is not None
    assert sustained < search.lowest_failed <= search.highest * (1 + PRECISION)


def test_a_search_ends_after_the_maximum_number_of_trials() -> None:
    search = searched(1e9, first=10.0, most=3)
    assert search.highest == pytest.approx(10.0 * 1.2**2)
    assert search.lowest_failed is None
    assert searched(0.0, first=10.0, most=4).highest == 0.0


def test_the_workloads_have_the_documented_lengths() -> None:
    words = [len(request_spec.texts[0].split()) for request_spec in mixed().requests]
    assert len(words) == 500
    assert (min(words), max(words)) == (2, 58)
    two = bimodal().requests
    num_short = len(two) * 4 // 5
    assert all(len(request_spec.texts[0].split()) <= SHORT_WORDS for request_spec in two[:num_short])
    assert all(len(request_spec.texts[0].split()) >= LONG_WORDS for request_spec in two[num_short:])
    assert len(ten_words()) >= 10
    for seed in range(SEED, SEED + NUM_SEEDS):
        sequence = mixed().sequence(seed)
        lengths = [sequence(index).num_words for index in range(len(words))]
        means = [sum(lengths[:number]) / number for number in range(60, len(lengths))]
        assert max(abs(mean / (sum(words) / len(words)) - 1) for mean in means) < 0.1, seed
    request_spec = requests(ten_words(), 4, 16).requests[0]
    assert request_spec.options == {"beam_size": 4, "max_target_length": 16}


def test_every_server_divides_scores_by_the_same_power_of_the_length(bundle: Bundle) -> None:
    """The peers have no other divisor than a power of the length."""
    (body,) = bodies_of(TEXTS, from_texts(["A cat."]))
    assert json.loads(body)["length_penalty"] == {"formula": "power", "alpha": search_of(bundle.path).alpha}


def test_a_timed_run_has_a_warm_up_and_a_counted_run_has_none() -> None:
    """A counted run sends a fixed number of requests. If a warm-up sent some of them, they would not be measured."""
    server: Any = ProcessTree(echo().command)
    server.port = 1
    for load, is_warmed in (
        (ClosedLoop(32, 4.0), True),
        (ClosedLoop(1, 60.0, 10), False),
        (Arrivals.at(5.0, 2.0), True),
    ):
        assert (plan_of(server, TEXTS, mixed(), load).warm_up_s > 0) is is_warmed


@pytest.mark.load
def test_a_server_slower_than_the_run_gets_a_longer_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the short run, the only answer belongs to a request from before the measured time."""
    monkeypatch.setattr(traffic, "LEAST_ANSWERS", 1)
    monkeypatch.setattr(traffic, "WARM_UP_S", 0.4)
    with SteadyServer(service_ms=600.0) as slow:
        server: Any = StartedServer(slow.url)
        result = closed_loop(server, TEXTS, mixed(), num_clients=1, seconds=0.16)
    assert result.num_answers >= 1
    assert result.p50_ms > 560
    assert 0.7 < result.per_s < 2.3


class StartedServer:
    """A server that an outer scope has started."""

    def __init__(self, url: str) -> None:
        self.url = url

    def cpu_time_s(self) -> float:
        return 0.0


def test_every_peer_is_measured_with_one_call_on_all_threads_and_with_a_call_on_each_thread(
    bundle: Bundle, tmp_path: Path
) -> None:
    found = LibreTranslate(Path("python"), Path("packages"), tmp_path)
    served = ModelFormats(bundle, Path("converted"), found)
    context = Context(bundle, tmp_path, QUICK, sys.executable, None, True, None, 0.1)
    for cores, workers in (
        (Cores(frozenset({0}), frozenset({1})), [1]),
        (Cores(frozenset({0, 1}), frozenset({0, 1})), [1, 2]),
    ):
        num = len(cores.server)
        alone = Choice("CT2_USE_MKL=1", PeerSettings(1, num))
        window = Choice("CT2_USE_MKL=0", PeerSettings(num, 1, 16))
        context.choices.update(read_choices(choices_as_json({num: {1: alone, 32: window}})))
        settings = {each.name: each.settings for each in subjects_of(served, context, cores)}
        for each in workers:
            layout = f"@{each} x {num // each}" if num > 1 else ""
            assert settings[ALONE + layout] == f"CT2_USE_MKL=1: {each} x {num // each}"
            assert settings[WINDOW + layout] == f"CT2_USE_MKL=0: {each} x {num // each}, 16 examples"
            assert (
                settings[LIBRETRANSLATE + layout] == f"4 HTTP threads, CT2_USE_MKL=1: {each} x {num // each}"
            )
        assert len(settings) == 1 + 3 * len(workers)


def test_each_round_begins_with_the_next_server() -> None:
    servers: Any = ["a", "b", "c"]
    first: list[Any] = [rotated(servers, number)[0] for number in range(4)]
    assert first == ["a", "b", "c", "a"]
    order: Any = rotated(servers, 1)
    assert order == ["b", "c", "a"]


def test_the_rows_model_finds_its_own_parameters() -> None:
    true = RowsModel(a=0.02, b=0.001, worst=0.0)
    points = [(rows, true.per_s(rows)) for rows in (4, 16, 64, 128)]
    found = fit_rows(points)
    assert (found.a, found.b) == pytest.approx((0.02, 0.001))
    assert found.worst < 1e-6
    off = fit_rows([*points[:3], (128, points[3][1] * 0.8)])
    assert 0.03 < off.worst < 0.2


def test_the_parallel_share_follows_amdahls_law() -> None:
    assert parallel_share(100.0, 200.0) == pytest.approx(1.0)
    assert parallel_share(100.0, 100.0) == pytest.approx(0.0)
    speed_up = 1 / (1 - 0.8 + 0.8 / 2)
    assert parallel_share(100.0, 100.0 * speed_up) == pytest.approx(0.8)


def test_the_layout_with_the_higher_throughput_is_the_best() -> None:
    saturated = {OURS: {"per_s": 9.0}, f"{WINDOW}@1 x 2": {"per_s": 3.0}, f"{WINDOW}@2 x 1": {"per_s": 4.0}}
    assert [best_layout(name, saturated) for name in saturated] == [
        OURS,
        f"{WINDOW}@2 x 1",
        f"{WINDOW}@2 x 1",
    ]


def test_our_server_is_measured_without_cache_and_coalescing() -> None:
    assert NO_CACHE.keys() <= Settings.model_fields.keys()
    environment = ours(Path("bundles/en-de"), settings={"num_rows": "8"}).command.environment
    assert environment["TRANSDUCE_SENTENCE_CACHE_BYTES"] == "0"
    assert environment["TRANSDUCE_COALESCE"] == "false"
    assert environment["TRANSDUCE_NUM_ROWS"] == "8"


class Metrics:
    """A server with these metrics."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get(self, _: str) -> bytes:
        return self.text.encode()


def test_a_cached_answer_is_an_error() -> None:
    metrics_format = (
        'transduce_sentence_cache_lookups_total{{result="hit"}} {hits}\n'
        'transduce_sentence_cache_lookups_total{{result="miss"}} 5.0\n'
        "transduce_coalesced_sentences_total {shared}\ntransduce_sentences_total 10.0\n"
    )
    server: Any = Metrics(metrics_format.format(hits=0.0, shared=0.0))
    assert cached_share(server) == 0.0
    for hits, shared in ((1.0, 0.0), (0.0, 1.0)):
        server.text = metrics_format.format(hits=hits, shared=shared)
        with pytest.raises(CachedAnswerError, match=r"10\.00%"):
            cached_share(server)
    server.text = "transduce_sentences_total 10.0\n"
    with pytest.raises(CachedAnswerError, match="lack the number of cached"):
        cached_share(server)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle(ROOT / "bundles" / "en-de")


@pytest.fixture(scope="module")
def served(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> ModelFormats:
    pytest.importorskip("torch")
    pytest.importorskip("ctranslate2")
    from benchmarks.http.models import prepare

    return prepare(bundle, tmp_path_factory.mktemp("models"), with_libretranslate=False)


def answer(server: ProcessTree, text: str) -> str:
    body = json.dumps({"text": text, "source": "en", "target": "de"}).encode()
    request = urllib.request.Request(
        f"{server.url}/v1/translate", data=body, headers={"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT_S) as found:
        (translation,) = json.loads(found.read())["translations"]
    return str(translation["text"])


@pytest.mark.server
def test_ctranslate2_translates_the_same_with_and_without_a_window(
    served: ModelFormats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "LEAST_ANSWERS", 1)
    monkeypatch.setattr(traffic, "FEW_ANSWERS", 1)
    monkeypatch.setattr(traffic, "WARM_UP_S", 0.05)
    texts = [request_spec.texts[0] for request_spec in mixed().requests[:40]]
    choice = Choice("CT2_USE_MKL=0", PeerSettings(1, 1))
    subjects = [
        ctranslate2(served, choice, has_window=has_window, name=name)
        for name, has_window in ((ALONE, False), (WINDOW, True))
    ]
    with running_servers(subjects, SHARED) as servers:
        alone, window = (server for _, server in servers)
        first = answer(alone, texts[0])
        assert first != texts[0]
        assert answer(window, texts[0]) == first
        results = [
            closed_loop(server, TEXTS, mixed(), num_clients=4, seconds=0.15) for server in (alone, window)
        ]
        assert all(each.num_answers and not each.num_failed for each in results)
        assert all(server.memory().pss_mb > 20 for server in (alone, window))


@pytest.mark.server
def test_the_echo_server_returns_the_text() -> None:
    with ProcessTree(echo().command) as server:
        assert answer(server, "Please shut the gate.") == "Please shut the gate."


@pytest.mark.seconds
def test_a_package_of_libretranslate_translates_as_the_weights_do(
    served: ModelFormats, tmp_path: Path
) -> None:
    """CTranslate2 reads the package as Argos Translate does: pieces in, no end token, pieces out."""
    import ctranslate2 as library  # type: ignore[import-untyped]
    import sentencepiece

    write_packages(served.bundle, served.converted, tmp_path)
    folder = tmp_path / "en_de"
    metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
    assert (metadata["from_code"], metadata["to_code"]) == ("en", "de")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    by_pieces = library.Translator(
        str(folder / "model"), compute_type="int8", inter_threads=1, intra_threads=1
    )
    by_ids = library.Translator(str(served.converted), compute_type="int8", inter_threads=1, intra_threads=1)
    text = "The kettle is already boiling."
    pieces = by_pieces.translate_batch([processor.encode(text, out_type=str)])[0].hypotheses[0]
    ids = [*map(str, processor.encode(text)), str(processor.eos_id())]
    expected = by_ids.translate_batch([ids])[0].hypotheses[0]
    assert [processor.piece_to_id(piece) for piece in pieces] == [int(token) for token in expected]


@pytest.mark.parametrize("problem", [PermissionError(), subprocess.TimeoutExpired("python", 60)])
def test_an_environment_whose_python_does_not_run_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if command[1] == "-c":
            raise problem
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setattr(subprocess, "run", run)
    ensure_environment(tmp_path)
    assert [command[-1] for command in commands] == [str(tmp_path), REQUIREMENT]
