"""Compare a decoder of SSRUs with a decoder of self-attention: the time of a decoder step and of whole sentences.

Both models have the sizes of one preset and random weights. No sentence ends early, so both take the same steps. Each
model runs in a process of its own with the native kernels, on one thread. They take turns.

    python -m benchmarks.ssru --preset small --output benchmarks/results/ssru_small.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from app.bundle import MANIFEST
from benchmarks.engine.jobs import Job, JobResult
from benchmarks.engine.page_tables import ssru_table
from benchmarks.engine.worker import Worker
from benchmarks.machine import describe_run
from benchmarks.step import random_bundle
from model.config import EOS_ID, Decoder

KINDS: tuple[Decoder, Decoder] = ("attention", "ssru")
VOCAB_SIZE = 8000
# Subwords of a source without its end token, and steps of a target: a sentence of about 20 words.
SOURCE_LENGTH, NUM_STEPS = 25, 28
BEAM_SIZES, NUM_SENTENCES = (1, 4), (1, 8, 32)
NUM_ROWS = 128
# The minimum number of sentences that a model translates in a turn. A case with fewer sentences repeats its call within
# a turn, because a single short call is noisy.
SENTENCES_A_TURN = 8


@dataclass(frozen=True)
class Comparison:
    """Medians over the turns of one case, by kind of decoder.

    call_ms: the time to translate all sentences. step_ms: the time of a decoder step. time_saved, step_time_saved: the
    share of the call's and of the step's time with self-attention that SSRUs save, as medians over pairs of turns. A
    pair is one turn of each decoder.
    """

    beam_size: int
    num_sentences: int
    num_steps: int
    call_ms: dict[Decoder, float]
    step_ms: dict[Decoder, float]
    time_saved: float
    step_time_saved: float


def job_of(beam_size: int, num_sentences: int) -> Job:
    """One turn of one case."""
    random_numbers = np.random.default_rng(num_sentences)
    sources = [
        [*random_numbers.integers(EOS_ID + 1, VOCAB_SIZE, SOURCE_LENGTH).tolist(), EOS_ID]
        for _ in range(num_sentences)
    ]
    num_calls = max(1, SENTENCES_A_TURN // num_sentences)
    return Job([sources], beam_size, NUM_STEPS, is_forced=True, num_calls=num_calls)


def measure_case(workers: dict[Decoder, Worker], job: Job, num_turns: int) -> Comparison:
    """The figures of a case. The workers take turns. Raises WorkerError if a sentence takes another number of steps."""
    turns: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for number in range(num_turns):
        for kind in KINDS if number % 2 else KINDS[::-1]:
            turns[kind].append(_times_ms(workers[kind].translate(job)))
    pairs = [*zip(*(turns[kind] for kind in KINDS), strict=True)]
    call_saved, step_saved = (
        round(statistics.median(1 - ssru[column] / attention[column] for attention, ssru in pairs), 4)
        for column in (0, 1)
    )
    call_ms, step_ms = (
        {kind: round(statistics.median(turn[column] for turn in turns[kind]), 3) for kind in KINDS}
        for column in (0, 1)
    )
    return Comparison(job.beam_size, len(job.groups[0]), NUM_STEPS, call_ms, step_ms, call_saved, step_saved)


def _times_ms(result: JobResult) -> tuple[float, float]:
    """Milliseconds of a call, and of a decoder step."""
    spent = result.spent
    step_s = (spent.step_s - spent.encode_s) / spent.num_steps
    return statistics.median(result.times_s) * 1e3, step_s * 1e3


def measure(preset: str, num_turns: int) -> list[Comparison]:
    """Measure every case."""
    with tempfile.TemporaryDirectory() as folder:
        workers: dict[Decoder, Worker] = {}
        for kind in KINDS:
            path = Path(folder) / kind
            path.mkdir()
            bundle = random_bundle(preset, VOCAB_SIZE, ("int8",), path, decoder=kind)
            (path / MANIFEST).write_text(bundle.manifest.model_dump_json(), "utf-8")
            arguments = {"bundle": str(path), "precision": "int8", "num_rows": NUM_ROWS, "num_threads": 1}
            workers[kind] = Worker("ours", arguments)
        try:
            cases = [(beam_size, count) for beam_size in BEAM_SIZES for count in NUM_SENTENCES]
            return [measure_case(workers, job_of(*case), num_turns) for case in tqdm(cases, unit=" cases")]
        finally:
            for worker in workers.values():
                worker.close()


def main() -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="small", help="sizes of both models (default: small)")
    parser.add_argument(
        "--num-turns", type=int, default=11, help="turns of each model in a case (default: 11)"
    )
    parser.add_argument("--output", type=Path, help="JSON file")
    args = parser.parse_args()
    head: dict[str, Any] = describe_run("benchmarks.ssru")
    found = measure(args.preset, args.num_turns)
    result = {**head, "preset": args.preset, "comparisons": [asdict(one) for one in found]}
    print(ssru_table(result))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
