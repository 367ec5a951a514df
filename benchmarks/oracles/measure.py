"""Converts both models for every engine, and runs every task on every engine."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from app.bundle import WEIGHTS, Bundle, Training, load_bundle
from app.decoding.options import EarlyStop
from app.graphs import Precision
from benchmarks.engine.ctranslate2_model import write_ctranslate2
from benchmarks.oracles.answers import Answer, Ids, Oracle, Task
from benchmarks.oracles.comparison import KINDS, compare, score_error, scores_below_limit
from benchmarks.oracles.ctranslate2_oracle import CTranslate2Oracle
from benchmarks.oracles.own_engine import TransduceEngine
from benchmarks.oracles.reference import ReferenceScorer
from benchmarks.oracles.toy import toy_sources, train_toy
from benchmarks.oracles.transformers_oracle import TransformersOracle
from benchmarks.same_answer import read_sources
from export.bundle_writer import BundleRequest, make_manifest, write_variant
from export.model_card import Facts
from export.weights import weights_of
from model.checkpoint import load_model
from model.transformer import Transformer

PRECISION: Precision = "fp32"
FACTS = Facts(
    summary="weights for a comparison of engines",
    good_at=("comparisons",),
    bad_at=("serving",),
    weights_licence="none",
    training=Training(commit="none", num_steps=0, data=()),
)
BEAM_SIZES = (1, 4, 8)


@dataclass(frozen=True)
class Subject:
    """A model, its sentences, and the engines that run it."""

    name: str
    scorer: ReferenceScorer
    sources: Sequence[Ids]
    own: TransduceEngine
    oracles: tuple[Oracle, ...]


def make_subject(
    name: str, model: Transformer, sources: Sequence[Ids], folder: Path, num_threads: int
) -> Subject:
    """Convert a model's weights for every engine."""
    folder.mkdir()
    variants = {PRECISION: write_variant(folder, weights_of(model), PRECISION)}
    request = BundleRequest(name, "0", "en", "de", (PRECISION,), FACTS)
    own = TransduceEngine(
        Bundle(folder, make_manifest(model.config, request, variants, folder), ()), num_threads=num_threads
    )
    peer = folder / "ctranslate2"
    write_ctranslate2(model, peer, "float32")
    oracles = (CTranslate2Oracle(peer, num_threads=num_threads), TransformersOracle(model))
    return Subject(name, ReferenceScorer(model), sources, own, oracles)


def make_subjects(args: argparse.Namespace, folder: Path) -> Iterator[Subject]:
    """The bundle's model with sentences of the data, and the toy model with sentences of its language."""
    bundle = load_bundle(args.bundle)
    sources = read_sources(args.data, bundle, args.num_sentences)
    for name, model, model_sources in (
        (bundle.manifest.name, load_model(args.bundle / WEIGHTS), sources),
        ("post-norm-toy", train_toy(args.toy_steps), toy_sources(args.num_sentences)),
    ):
        yield make_subject(name, model, model_sources, folder / name, args.num_threads)


def tasks(sources: Sequence[Ids], max_target_length: int) -> Iterator[Task]:
    """A task for each beam size and early-stop rule. Greedy search has one task, because the rule has no effect."""
    for beam_size in BEAM_SIZES:
        for early_stop in EarlyStop if beam_size > 1 else (EarlyStop.FIRST,):
            yield Task(sources, beam_size, max_target_length, early_stop)


def run_task(subject: Subject, task: Task, ours: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """Run one task on every other engine, and compare with Transduce's answers. Yields a result row per engine."""
    for oracle in subject.oracles:
        started_at = time.perf_counter()
        found = compare(subject.scorer, task, ours, oracle.answer(task))
        kinds = Counter(difference.kind for difference in found.differences)
        row = {
            "model": subject.name,
            "oracle": oracle.name,
            "beam_size": task.beam_size,
            "early_stop": task.early_stop,
            "oracle_options": oracle.rule(task.early_stop) if task.beam_size > 1 else "greedy",
            "num_sentences": found.num_sentences,
            "num_same": found.num_same,
            "by_kind": {kind: kinds[kind] for kind in KINDS},
            "score_error": found.score_error,
            "differences": [asdict(difference) for difference in found.differences],
            "time_s": round(time.perf_counter() - started_at, 1),
        }
        print({name: value for name, value in row.items() if name != "differences"}, flush=True)
        yield row


def own_scores(subject: Subject, task: Task, ours: Sequence[Answer]) -> dict[str, Any]:
    """Compare Transduce's scores with teacher-forced scores of the same answers, by PyTorch and by Transduce."""
    stated = scores_below_limit(task, ours)
    forced = subject.own.forced_scores([(task.sources[number], ours[number].ids) for number in stated])
    return {
        "model": subject.name,
        "beam_size": task.beam_size,
        "early_stop": task.early_stop,
        "num_compared": len(stated),
        "error_to_torch": score_error(subject.scorer, task, ours),
        "error_to_forced_target": max(
            (abs(one - other) for one, other in zip(stated.values(), forced, strict=True)), default=None
        ),
    }


def compare_rules(
    name: str, answers: Mapping[tuple[int, EarlyStop], Sequence[Answer]]
) -> Iterator[dict[str, Any]]:
    """Compare Transduce's early-stop rules: how many answers differ, and BOUND's gain in log-probability."""
    for beam_size in BEAM_SIZES[1:]:
        pairs = zip(answers[beam_size, EarlyStop.FIRST], answers[beam_size, EarlyStop.BOUND], strict=True)
        gains = [
            (bound.log_probability or 0.0) - (first.log_probability or 0.0)
            for first, bound in pairs
            if first.ids != bound.ids
        ]
        yield {
            "model": name,
            "beam_size": beam_size,
            "num_different": len(gains),
            "least_gain": min(gains, default=0.0),
            "largest_gain": max(gains, default=0.0),
        }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run all tasks on all models and engines. args: the options of `benchmarks.oracles`."""
    torch.set_num_threads(args.num_threads)
    comparisons: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for subject in make_subjects(args, Path(folder)):
            answers: dict[tuple[int, EarlyStop], list[Answer]] = {}
            for task in tasks(subject.sources, args.max_target_length):
                ours = answers[task.beam_size, task.early_stop] = subject.own.answer(task)
                scores.append(own_scores(subject, task, ours))
                comparisons += run_task(subject, task, ours)
            rules += compare_rules(subject.name, answers)
    return {"comparisons": comparisons, "own_scores": scores, "rules": rules}
