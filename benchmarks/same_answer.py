"""Check that a sentence gets the same ids alone and in any batch, in the engine without HTTP.

Every sentence has a random beam size of 1 to 8. Each sentence is decoded alone. Then all are decoded in random order at
Poisson times, together with requests that are cancelled early. In int8 the ids and scores of all hypotheses must be the
same. In fp32 only the ids of the best hypothesis are judged. If they differ, there must be a tie of the two scores, or
of a decision in the search. PyTorch checks the decisions. The exit code is 1 if a sentence fails its precision's rule.

    python -m benchmarks.same_answer --data newstest2013.tsv.xz tatoeba2020.tsv.xz
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from app.bundle import Bundle, load_bundle
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, Hypothesis
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.engine.sequence import SequenceResult
from app.graphs import KernelChoice, Precision
from app.runtime.interface import Runner
from app.runtime.ort_runner import load_runner
from app.workers.thread_worker import ThreadWorker
from benchmarks.machine import ROOT, describe_run
from benchmarks.reference_bundle import NoReferenceError, reference_bundle
from benchmarks.tagged_tokenizer import TaggedTokenizer

RESULT = Path(__file__).with_name("results") / "same_answer.json"
BUNDLE = ROOT / "bundles" / "en-de"
BEAM_SIZES = range(1, 9)
NUM_ROWS = 64
DEADLINE_S = 3600.0
# Two scores, or two sums between which a search decides, are a tie if they differ by less than this.
TIE = 1e-5
# The share of sentences after which a request that will be cancelled is sent, and the mean time until it is cancelled.
# Some of these requests are cancelled before they are encoded.
CANCELLED_SHARE, CANCEL_AFTER_S = 0.25, 0.02

Ids = tuple[int, ...]
Hypotheses = tuple[Hypothesis, ...]


@dataclass(frozen=True)
class BeamRequest:
    """A source with its end token, and its beam size. The result has all hypotheses of the beam."""

    source: Ids
    beam_size: int

    def options(self, runner: Runner) -> DecodingOptions:
        """The default search options, with the length limit that the server would set."""
        longest = min(len(self.source) + EXTRA_TARGET_LENGTH, runner.limits.max_target_length - 1)
        return DecodingOptions(
            beam_size=self.beam_size, num_hypotheses=self.beam_size, max_target_length=longest
        )


@dataclass(frozen=True)
class Difference:
    """A sentence whose best hypothesis differs in a batch.

    score_gap: between the scores of the best hypothesis alone and in the batch. margin: the smallest change of a score
    sum that changes a decision of the search, by PyTorch; None if the scores are a tie.
    """

    sentence: int
    beam_size: int
    score_gap: float
    margin: float | None = None

    @property
    def is_tie(self) -> bool:
        """Whether the scores, or a decision in the search, are a tie."""
        return self.score_gap < TIE or (self.margin is not None and self.margin < TIE)


@dataclass(frozen=True)
class Comparison:
    """The result of one precision.

    num_same_ids: sentences with the same ids of the best hypothesis. num_same: sentences whose hypotheses and scores
    are all the same, bit for bit. score_gap: the largest gap of best scores among sentences with the same ids.
    num_cancelled: requests cancelled before their answer. most_running: the largest number of rows in a batched step.
    """

    precision: Precision
    num_sentences: int
    num_same_ids: int
    num_same: int
    score_gap: float
    num_cancelled: int
    most_running: int
    alone_s: float
    batched_s: float
    differences: tuple[Difference, ...]

    @property
    def has_passed(self) -> bool:
        """Whether the exit code is 0."""
        if self.precision == "int8":
            return self.num_same == self.num_sentences
        return all(one.is_tie for one in self.differences)


class Decoding:
    """An engine on the event loop, the largest number of its rows in a step, and the number of cancelled requests."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.most_running = 0
        self.num_cancelled = 0
        self._engine = Engine(
            [ThreadWorker(runner)],
            settings=EngineLimits(),
            on_steps=lambda steps: self._record(max(step.num_rows for step in steps)),
        )

    def _record(self, num_rows: int) -> None:
        self.most_running = max(self.most_running, num_rows)

    async def __aenter__(self) -> Decoding:
        self._engine.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.close(drain_timeout_s=0.0)

    def submit(self, request: BeamRequest) -> asyncio.Future[SequenceResult]:
        """Submit a sentence as its own request."""
        return self._engine.submit(
            request.source,
            request.options(self.runner),
            request_id=str(id(request)),
            caller="",
            deadline=time.monotonic() + DEADLINE_S,
        )

    async def submit_and_cancel(self, request: BeamRequest, delay_s: float) -> None:
        """Submit a sentence, and cancel it after delay_s seconds."""
        future = self.submit(request)
        await asyncio.sleep(delay_s)
        self.num_cancelled += future.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await future


async def decode_alone(decoding: Decoding, requests: Sequence[BeamRequest]) -> list[Hypotheses]:
    """Decode one sentence after another."""
    return [tuple((await decoding.submit(one)).hypotheses) for one in requests]


async def decode_batched(
    decoding: Decoding, requests: Sequence[BeamRequest], *, rate: float, seed: int
) -> list[Hypotheses]:
    """Decode all sentences in random order at Poisson times; returns the results in the order of `requests`."""
    random_numbers = random.Random(seed)
    order = random_numbers.sample(range(len(requests)), len(requests))
    futures: dict[int, asyncio.Future[SequenceResult]] = {}
    cancellations: list[asyncio.Task[None]] = []
    due = time.monotonic()
    for number in order:
        due += random_numbers.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        futures[number] = decoding.submit(requests[number])
        if random_numbers.random() < CANCELLED_SHARE:
            cancelled_request = BeamRequest(
                random_numbers.choice(requests).source, random_numbers.choice(BEAM_SIZES)
            )
            delay_s = random_numbers.expovariate(1 / CANCEL_AFTER_S)
            cancellations.append(asyncio.create_task(decoding.submit_and_cancel(cancelled_request, delay_s)))
    await asyncio.gather(*cancellations)
    return [tuple((await futures[number]).hypotheses) for number in range(len(requests))]


async def compare(
    runner: Runner, requests: Sequence[BeamRequest], precision: Precision, *, seed: int
) -> Comparison:
    """Decode alone, then batched at twice the rate of sequential decoding."""
    started_at = time.monotonic()
    async with Decoding(runner) as decoding:
        alone = await decode_alone(decoding, requests)
    alone_s = time.monotonic() - started_at
    started_at = time.monotonic()
    async with Decoding(runner) as decoding:
        batched = await decode_batched(decoding, requests, rate=2 * len(requests) / alone_s, seed=seed)
    is_same_ids = [one[0].ids == other[0].ids for one, other in zip(alone, batched, strict=True)]
    gaps = [abs(one[0].score - other[0].score) for one, other in zip(alone, batched, strict=True)]
    return Comparison(
        precision=precision,
        num_sentences=len(requests),
        num_same_ids=sum(is_same_ids),
        num_same=sum(one == other for one, other in zip(alone, batched, strict=True)),
        score_gap=max((gap for gap, is_same in zip(gaps, is_same_ids, strict=True) if is_same), default=0.0),
        num_cancelled=decoding.num_cancelled,
        most_running=decoding.most_running,
        alone_s=round(alone_s, 1),
        batched_s=round(time.monotonic() - started_at, 1),
        differences=tuple(
            Difference(number, requests[number].beam_size, gaps[number])
            for number, is_same in enumerate(is_same_ids)
            if not is_same
        ),
    )


def explain(bundle: Bundle, runner: Runner, requests: Sequence[BeamRequest], found: Comparison) -> Comparison:
    """Add the margin to each difference in fp32 whose scores are not a tie.

    If there is such a difference, this needs PyTorch and the bundle's weights.
    """
    unexplained = [one for one in found.differences if one.score_gap >= TIE]
    if not unexplained or found.precision != "fp32":
        return found
    from benchmarks.oracles.answers import Task
    from benchmarks.oracles.reference import decision_margin
    from model.checkpoint import load_model

    model = load_model(bundle.path / "weights")
    margins = {}
    for one in unexplained:
        request = requests[one.sentence]
        longest = request.options(runner).max_target_length
        task = Task([request.source], one.beam_size, longest)
        margins[one.sentence] = decision_margin(model, request.source, task)
    differences = tuple(replace(one, margin=margins.get(one.sentence)) for one in found.differences)
    return replace(found, differences=differences)


def read_sources(files: Sequence[str], bundle: Bundle, count: int) -> list[Ids]:
    """Distinct sources that fit the model unsplit, the same in each run. files: TSV, plain, .gz or .xz."""
    from model.corpus import read_data

    texts = list(dict.fromkeys(pair.source for name in files for pair in read_data(name)))
    random.Random(1).shuffle(texts)
    tokenizer = TaggedTokenizer(bundle)
    sources = (tuple(tokenizer.encode(text).ids) for text in texts)
    fitting = (source for source in sources if len(source) <= bundle.manifest.max_source_length)
    return list(itertools.islice(fitting, count))


def make_requests(sources: Sequence[Ids], *, seed: int) -> list[BeamRequest]:
    """Each source with a random beam size."""
    random_numbers = random.Random(seed)
    return [BeamRequest(source, random_numbers.choice(BEAM_SIZES)) for source in sources]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--data", nargs="+", required=True, help="TSV files of sentences and translations, plain, .gz or .xz")
    add("--bundle", type=Path, default=BUNDLE, help="the bundle that is checked (default: the bundled model)")
    add(
        "--precisions",
        nargs="+",
        default=["int8", "fp32"],
        choices=["int8", "fp32"],
        help="precisions to check (default: both)",
    )
    add(
        "--kernels",
        default="auto",
        choices=get_args(KernelChoice),
        help="operators, as in the server's setting (default: auto)",
    )
    add(
        "--num-sentences",
        type=int,
        default=2000,
        help="sentences, drawn from all of the data (default: 2000)",
    )
    add("--num-threads", type=int, default=1, help="threads of an operator (default: 1)")
    add(
        "--seed",
        type=int,
        default=1,
        help="seed of beam sizes, order, arrivals and cancelled requests (default: 1)",
    )
    add("--json", type=Path, default=RESULT, help="write the result to this file")


def measure(args: argparse.Namespace, precision: Precision, folder: Path) -> Comparison:
    """Compare one precision. Raises NoReferenceError if fp32 must be exported and cannot be, ValueError if no source
    fits the model.
    """
    bundle = load_bundle(args.bundle)
    requests = make_requests(read_sources(args.data, bundle, args.num_sentences), seed=args.seed)
    if not requests:
        raise ValueError("the data has no sentence that fits the model")
    runner = load_runner(
        load_bundle(reference_bundle(bundle, folder)) if precision == "fp32" else bundle,
        precision=precision,
        device="cpu",
        num_rows=NUM_ROWS,
        num_threads=args.num_threads,
        kernels=args.kernels,
    )
    return explain(
        bundle, runner, requests, asyncio.run(compare(runner, requests, precision, seed=args.seed))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Decode, print what differs, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_answer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    args = parser.parse_args(arguments)
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    # The recorded command has data files without their folder, which differs between machines.
    shown = [Path(word).name if word in args.data else word for word in command_line]
    run = describe_run("benchmarks.same_answer", shown)
    found = []
    for precision in args.precisions:
        try:
            with tempfile.TemporaryDirectory() as folder:
                found.append(measure(args, precision, Path(folder)))
        except NoReferenceError as error:
            parser.error(f"fp32: {error}")
        except ValueError as error:
            parser.error(str(error))
        print(json.dumps(asdict(found[-1])), flush=True)
    result = {
        **run,
        "tie": TIE,
        "by_precision": [asdict(one) | {"has_passed": one.has_passed} for one in found],
    }
    args.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0 if all(one.has_passed for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
