"""Prepares the measured models: the bundled weights in each server's format, and a model of the base size."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from app.bundle import Bundle, Training
from benchmarks.engine.cases import Case, encode, real_cases
from benchmarks.engine.ctranslate2_model import write_ctranslate2
from benchmarks.engine.jobs import PeerSettings
from benchmarks.engine.search import Choice, PeerPool
from benchmarks.engine.weights import random_model, trained_model
from benchmarks.http.libretranslate_setup import UnavailableError, ensure_environment, write_packages
from benchmarks.http.marian_engine import MarianEngine, MarianSettings
from benchmarks.http.peer_engines import search_of
from benchmarks.marian.process import MarianFiles
from benchmarks.marian.trained import write_trained
from benchmarks.server_process import ALL_CORES
from benchmarks.serving import read_sentences
from benchmarks.tagged_tokenizer import TaggedTokenizer
from export.bundle_writer import BundleRequest, write_bundle
from export.model_card import Facts
from model.checkpoint import Saved, save

BASE_VOCABULARY = 8000
# Batch sizes that are tried. CTranslate2 and Marian split larger calls into such batches, after sorting by length.
BATCHES = (8, 16)
# The maximum number of sentences that the peers' server puts into a call.
LARGEST_CALL = 32
# Sentences from which the scales of Marian's activations are found.
NUM_CALIBRATION = 100
NUM_ROUNDS = 2


@dataclass(frozen=True)
class LibreTranslate:
    """An installed LibreTranslate: its Python, its packages, and a folder that it may write to."""

    python: Path
    packages: Path
    home: Path


@dataclass(frozen=True)
class ModelFormats:
    """The same weights in every server's format.

    libretranslate: a string says why it is not measured. marian: None if it is not measured.
    """

    bundle: Bundle
    converted: Path
    libretranslate: LibreTranslate | str
    marian: MarianFiles | None = None


def prepare(
    bundle: Bundle, folder: Path, *, with_libretranslate: bool = True, marian_programs: Path | None = None
) -> ModelFormats:
    """Convert the bundle's weights into `folder`. Raises MarianError."""
    converted = folder / "ctranslate2"
    write_ctranslate2(trained_model(bundle), converted, "int8")
    return ModelFormats(
        bundle,
        converted,
        _libretranslate(bundle, converted, folder)
        if with_libretranslate
        else "left out by the option --no-libretranslate",
        None if marian_programs is None else _marian(bundle, folder / "marian", marian_programs),
    )


def _libretranslate(bundle: Bundle, converted: Path, folder: Path) -> LibreTranslate | str:
    """LibreTranslate with the weights, or why it cannot be measured."""
    try:
        python = ensure_environment()
        write_packages(bundle, converted, folder / "packages")
    except UnavailableError as error:
        return str(error)
    return LibreTranslate(python, folder / "packages", folder / "home")


def _marian(bundle: Bundle, folder: Path, programs: Path) -> MarianFiles:
    """The weights in Marian's format."""
    tokenizer = TaggedTokenizer(bundle)
    calibration = [tokenizer.encode(text).ids for text in read_sentences()[:NUM_CALIBRATION]]
    return write_trained(trained_model(bundle), calibration, folder, programs)


def best_marian_settings(served: ModelFormats, *, num_threads: int) -> MarianSettings:
    """The size of batches with which Marian is fastest for 32 sentences, on the cores that this process may use."""
    assert served.marian is not None
    texts = read_sentences()[:LARGEST_CALL]
    times: dict[MarianSettings, float] = {}
    for size in sorted({*BATCHES, LARGEST_CALL // num_threads}):
        settings = MarianSettings(num_threads, size)
        tokenizer, search = TaggedTokenizer(served.bundle), search_of(served.bundle.path)
        with closing(MarianEngine(served.marian, tokenizer, search, settings)) as engine:
            for _ in range(NUM_ROUNDS + 1):
                started_at = time.perf_counter()
                engine.translate(texts)
                times[settings] = min(times.get(settings, math.inf), time.perf_counter() - started_at)
    return min(times, key=lambda each: times[each])


def best_choices(served: ModelFormats, *, num_threads: int, is_quick: bool) -> dict[int, Choice]:
    """CTranslate2's fastest settings for calls of 1 and of 32 sentences, on the cores that this process may use.

    CTranslate2 may split a call of 32 sentences into smaller batches of similar length, and run one batch per worker.
    """
    bundle = served.bundle
    tokenizer = TaggedTokenizer(bundle)
    longest = bundle.manifest.max_source_length
    sentences = encode(tokenizer, read_sentences(), max_subwords=longest)
    cases = [
        case
        for case in real_cases(sentences, bundle.manifest.max_target_length, sizes=(1, 32))
        if case.beam_size == bundle.manifest.decoding.beam_size
    ]
    pool = PeerPool(str(served.converted), "int8", num_threads=num_threads, is_quick=is_quick)
    try:
        found = {case.num_sentences: pool.search(case).choice for case in cases}
        largest = max(cases, key=lambda case: case.num_sentences)
        return {**found, largest.num_sentences: _best_batch_size(pool, largest, found[largest.num_sentences])}
    finally:
        pool.close()


def _best_batch_size(pool: PeerPool, case: Case, choice: Choice) -> Choice:
    """The choice with the fastest batch size: its own, or one of BATCHES. Trials alternate."""
    sizes = sorted({choice.settings.max_batch_size, *BATCHES})
    choices = [replace(choice, settings=replace(choice.settings, max_batch_size=size)) for size in sizes]
    job = replace(case.job, num_calls=1)
    times = [[pool.translate(job, each).times_s[0] for each in choices] for _ in range(NUM_ROUNDS)]
    best = [min(of_choice) for of_choice in zip(*times, strict=True)]
    return choices[best.index(min(best))]


def choices_as_json(choices: dict[int, dict[int, Choice]]) -> list[dict[str, Any]]:
    """The choices by threads and sentences in a call."""
    return [
        {"num_threads": threads, "num_sentences": size, **asdict(choice)}
        for threads, by_size in choices.items()
        for size, choice in by_size.items()
    ]


def read_choices(rows: Iterable[dict[str, Any]]) -> dict[int, dict[int, Choice]]:
    """The inverse of `choices_as_json`."""
    found: dict[int, dict[int, Choice]] = {}
    for row in rows:
        choice = Choice(row["backend"], PeerSettings(**row["settings"]))
        found.setdefault(row["num_threads"], {})[row["num_sentences"]] = choice
    return found


def base_bundle(bundle: Bundle, folder: Path) -> Path:
    """Write an int8 bundle of the paper's base size, with random weights and the tokenizer of `bundle`."""
    checkpoint = folder / "checkpoint"
    model = random_model("base", BASE_VOCABULARY)
    save(
        checkpoint,
        Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}),
        bundle.file("source.spm"),
    )
    facts = Facts(
        summary="random weights",
        good_at=("benchmarks",),
        bad_at=("translating",),
        weights_licence="none",
        training=Training(commit="none", num_steps=0, data=()),
    )
    write_bundle(checkpoint, folder / "base", BundleRequest("random-base", "0", "en", "de", ("int8",), facts))
    shutil.rmtree(checkpoint)
    return folder / "base"


@contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Let this thread, and the processes that it starts, use only these cores. Afterwards it may use all cores."""
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ALL_CORES)
