"""The engine against CTranslate2 and Hugging Face's models: the same weights, the same sentences, the same rules.

Two models in fp32: a bundle's own, which is pre-norm, and a small post-norm one with a made-up language, trained
within a minute, for Marian has no other form. Each with beams of 1, 4 and 8, no length penalty, and both of our rules
for the end of a beam. Every answer that differs is judged by PyTorch. Exit code 1 where fewer than 99 % are the
same, where a difference is unexplained, or where a stated score is not the teacher-forced one.

    python -m benchmarks.oracles --data newstest2013.tsv.xz tatoeba2020.tsv.xz --json benchmarks/results/oracles.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from app.bundle import Bundle, Precision, Training, load_bundle
from app.decoding.options import EarlyStop
from app.text.tokenizer import Tokenizer
from benchmarks.engine.ctranslate2_model import write_ctranslate2
from benchmarks.machine import commit, describe_machine, versions
from benchmarks.oracles.answers import Ids, Oracle, Task
from benchmarks.oracles.comparison import KINDS, TIE, Comparison, compare, score_error
from benchmarks.oracles.ctranslate2_oracle import CTranslate2Oracle
from benchmarks.oracles.own_engine import OwnEngine
from benchmarks.oracles.toy import toy_sources, train_toy
from benchmarks.oracles.transformers_oracle import TransformersOracle
from export.bundle_writer import WEIGHTS_FOLDER, BundleRequest, make_manifest, write_variant
from export.model_card import Facts
from export.weights import weights_of
from model.checkpoint import load_model
from model.corpus import Pair, read_data
from model.transformer import Transformer

BUNDLE = Path("bundles/en-de")
PRECISION: Precision = "fp32"
FACTS = Facts(
    summary="weights that are compared",
    good_at=("being compared",),
    bad_at=("being served",),
    weights_licence="none",
    training=Training(commit="none", num_steps=0, data=()),
)
BEAM_SIZES = (1, 4, 8)
LEAST_SAME = 0.99
# Of a sum of up to --max-target-length logarithms in fp32, each of which is off by a few 1e-6.
SCORE_TOLERANCE = 1e-3
PEERS = ("ctranslate2", "transformers", "torch")


@dataclass(frozen=True)
class Subject:
    """A model, and everybody who runs it."""

    name: str
    model: Transformer
    sources: Sequence[Ids]
    own: OwnEngine
    oracles: tuple[Oracle, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--data", nargs="+", required=True, help="parallel text: TSV files, plain, .gz or .xz")
    add("--bundle", type=Path, default=BUNDLE, help=f"its weights and its tokenizer (default: {BUNDLE})")
    add("--num-sentences", type=int, default=1000, help="drawn from all of the data (default: 1000)")
    add("--max-target-length", type=int, default=120, help="in subwords (default: 120)")
    add("--toy-steps", type=int, default=800, help="updates of the post-norm model (default: 800)")
    add("--num-threads", type=int, default=2, help="of each engine (default: 2)")
    add("--json", type=Path, help="write the result there")


def draw_sources(pairs: Sequence[Pair], tokenizer: Tokenizer, *, count: int, max_length: int) -> list[Ids]:
    """Distinct sentences of at most max_length subwords, the same ones each time."""
    texts = list(dict.fromkeys(pair.source for pair in pairs))
    random.Random(1).shuffle(texts)
    sources = (tuple(tokenizer.encode(text).ids) for text in texts)
    fitting = [source for source in sources if len(source) <= max_length]
    return fitting[:count]


def make_subject(
    name: str, model: Transformer, sources: Sequence[Ids], folder: Path, num_threads: int
) -> Subject:
    """Put a model's weights into everybody's form."""
    folder.mkdir()
    variants = {PRECISION: write_variant(folder, weights_of(model), PRECISION)}
    request = BundleRequest(name, "0", "en", "de", (PRECISION,), FACTS)
    own = OwnEngine(
        Bundle(folder, make_manifest(model, request, variants, folder), ()), num_threads=num_threads
    )
    peer = folder / "ctranslate2"
    write_ctranslate2(model, peer, "float32")
    oracles = (CTranslate2Oracle(peer, num_threads=num_threads), TransformersOracle(model))
    return Subject(name, model, sources, own, oracles)


def make_subjects(args: argparse.Namespace, folder: Path) -> Iterator[Subject]:
    """The bundle's model with sentences of the data, and the toy with its own."""
    bundle = load_bundle(args.bundle)
    sources = draw_sources(
        [pair for name in args.data for pair in read_data(name)],
        Tokenizer(bundle.file("source.spm")),
        count=args.num_sentences,
        max_length=bundle.manifest.max_source_length,
    )
    for name, model, own_sources in (
        (bundle.manifest.name, load_model(args.bundle / WEIGHTS_FOLDER), sources),
        ("post-norm-toy", train_toy(args.toy_steps), toy_sources(args.num_sentences)),
    ):
        yield make_subject(name, model, own_sources, folder / name, args.num_threads)


def tasks(sources: Sequence[Ids], max_target_length: int) -> Iterator[Task]:
    """Each beam with each rule for its end; greedy search has no rule."""
    for beam_size in BEAM_SIZES:
        for early_stop in EarlyStop if beam_size > 1 else (EarlyStop.FIRST,):
            yield Task(sources, beam_size, max_target_length, early_stop)


def run_task(subject: Subject, task: Task) -> Iterator[dict[str, Any]]:
    """Everybody's answers to one task, compared with ours; one row of the result each."""
    started_at = time.perf_counter()
    ours = subject.own.answer(task)
    own_time_s = time.perf_counter() - started_at
    own_error = score_error(subject.model, task, ours)
    for oracle in subject.oracles:
        started_at = time.perf_counter()
        found = compare(subject.model, task, ours, oracle.answer(task))
        row = _row(found)
        print(
            f"{subject.name:<8} {oracle.name:<44} beam {task.beam_size} {task.early_stop:<5} "
            f"{found.num_same}/{found.num_sentences} {row['by_kind']}",
            flush=True,
        )
        yield {
            "model": subject.name,
            "oracle": oracle.name,
            "beam_size": task.beam_size,
            "early_stop": task.early_stop,
            "own_rule": subject.own.rule(task.early_stop) if task.beam_size > 1 else "greedy",
            "its_rule": oracle.rule(task.early_stop) if task.beam_size > 1 else "greedy",
            **row,
            "own_score_error": own_error,
            "own_time_s": round(own_time_s, 1),
            "its_time_s": round(time.perf_counter() - started_at, 1),
        }


def _row(found: Comparison) -> dict[str, Any]:
    kinds = Counter(difference.kind for difference in found.differences)
    return {
        "num_sentences": found.num_sentences,
        "num_same": found.num_same,
        "by_kind": {kind: kinds[kind] for kind in KINDS},
        "its_score_error": found.score_error,
        "differences": [asdict(difference) for difference in found.differences],
    }


def has_passed(row: dict[str, Any]) -> bool:
    """Whether one comparison holds what the command asks."""
    return (
        row["num_same"] >= LEAST_SAME * row["num_sentences"]
        and not row["by_kind"]["unexplained"]
        and all(error < SCORE_TOLERANCE for error in _errors(row))
    )


def _errors(row: dict[str, Any]) -> list[float]:
    """Of our scores and of theirs, where there are any."""
    return [error for error in (row["own_score_error"], row["its_score_error"]) if error is not None]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The result in Markdown."""
    head = (
        "model",
        "compared with",
        "beam",
        "end of a beam",
        "its own options",
        "the same",
        *KINDS,
        "score error",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        errors = [f"{error:.0e}" for error in _errors(row)]
        cells = (
            row["model"],
            row["oracle"],
            row["beam_size"],
            row["early_stop"] if row["beam_size"] > 1 else "",
            row["its_rule"],
            f"{row['num_same']} of {row['num_sentences']}",
            *row["by_kind"].values(),
            ", ".join(errors),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Both models, every task, every oracle."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            row
            for subject in make_subjects(args, Path(folder))
            for task in tasks(subject.sources, args.max_target_length)
            for row in run_task(subject, task)
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print a table, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.oracles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    if missing := [name for name in PEERS if importlib.util.find_spec(name) is None]:
        parser.error(f"this Python has no {', '.join(missing)}: the extra `bench` brings them")
    torch.set_num_threads(args.num_threads)
    rows = measure(args)
    given = sys.argv[1:] if arguments is None else list(arguments)
    result = {
        # Data is named without its folder, which is another one on each machine.
        "command": shlex.join(
            [
                "python",
                "-m",
                "benchmarks.oracles",
                *(Path(word).name if word in args.data else word for word in given),
            ]
        ),
        "commit": commit(),
        "machine": describe_machine(),
        "versions": versions(sys.executable) | {name: metadata.version(name) for name in PEERS},
        "tie": TIE,
        "score_tolerance": SCORE_TOLERANCE,
        "comparisons": rows,
    }
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        args.json.with_suffix(".md").write_text(
            f"# Oracles\n\n```\n{result['command']}\n```\n\n{table(rows)}\n", "utf-8"
        )
    return 0 if all(map(has_passed, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
