"""Loads the bundle, the runner and the sentences of the GPU benchmark, and runs the engine without a server."""

from __future__ import annotations

import json
import lzma
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from app.bundle import MANIFEST, Bundle, Manifest, load_bundle
from app.bundle_tokenizers import source_tokenizer
from app.decoding.options import DecodingOptions
from app.decoding.search import new_search
from app.engine.core import EngineCore
from app.engine.limits import EngineLimits
from app.engine.messages import Report, Submit
from app.engine.sequence import Sequence as Sentence
from app.engine.sequence import SequenceResult
from app.engine.stats import StepStats
from app.runtime.bundle_limits import limits_of
from app.runtime.cuda_choice import Switch
from app.runtime.cuda_memory import Cuda
from app.runtime.interface import Int32s, Runner
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import Tokenizer
from benchmarks.machine import ROOT
from benchmarks.step import random_bundle

SENTENCES = ROOT / "benchmarks" / "sentences.tsv"
EXTRA_TARGET_LENGTH = 50
# The mean number of subwords of a word of `sentences.tsv`, with the vocabulary of the bundled model.
SUBWORDS_OF_A_WORD = 1.6
# A deadline that never passes.
FOREVER = 1e18


class SkipError(Exception):
    """The part cannot be measured here."""


@dataclass(frozen=True)
class GpuBenchmarkOptions:
    """Options of the GPU benchmark.

    bundle: a bundle with an fp16 variant and its weights. data: a TSV of source and target, or None. work: a folder for
    files that later parts use. is_quick: a short test run. memory_s: seconds of the part memory. golden_min_share: the
    server's setting in the part http.
    """

    device: Literal["cpu", "cuda"]
    bundle: Path
    data: Path | None
    work: Path
    is_quick: bool
    memory_s: float
    golden_min_share: float

    def pick(self, whole: int, quick: int) -> int:
        """The first number, or the second in a quick run."""
        return quick if self.is_quick else whole


@dataclass(frozen=True)
class Text:
    """Sentences and their references. targets: None without references."""

    sources: list[str]
    targets: list[str] | None


@dataclass(frozen=True)
class TranslationResult:
    """The engine's results in order. ids: without start and end tokens. num_steps: decoder steps."""

    ids: list[tuple[int, ...]]
    scores: list[float]
    time_s: float
    num_steps: int

    @property
    def num_target_tokens(self) -> int:
        """The number of subwords, without end tokens."""
        return sum(map(len, self.ids))


def read_text(options: GpuBenchmarkOptions, number: int) -> Text:
    """The first sentences of the data. Without data: of `sentences.tsv`, which has no references."""
    if options.data is None:
        lines = SENTENCES.read_text("utf-8").splitlines()
        return Text([line.split("\t")[1] for line in lines][:number], None)
    content = options.data.read_bytes()
    if options.data.suffix == ".xz":
        content = lzma.decompress(content)
    pairs = [line.split("\t") for line in content.decode().split("\n") if line][:number]
    return Text([pair[-2] for pair in pairs], [pair[-1] for pair in pairs])


def encode(bundle: Bundle, text: Text) -> tuple[Tokenizer, list[list[int]], Text]:
    """The target's tokenizer, the ids of the sentences that fit the model, and their texts.

    The ids have the tag of the bundle's first language pair and the end token, if the model has them. Raises SkipError
    for a model with a start token for each target language, because `translate` starts at the bundle's bos.
    """
    manifest = bundle.manifest
    if manifest.has_target_starts:
        raise SkipError("each target language of the bundle has its own start token")
    tokenizer = source_tokenizer(bundle)
    tag = manifest.language_pairs[0].source_prefix
    ids = [list(tokenizer.encode_tagged(source, tag).ids) for source in text.sources]
    fits = [index for index, each in enumerate(ids) if len(each) <= manifest.max_source_length]
    targets = [text.targets[index] for index in fits] if text.targets else None
    fitting = Text([text.sources[index] for index in fits], targets)
    return Tokenizer(bundle.file("target.spm")), [ids[index] for index in fits], fitting


def natural_lengths(number: int) -> tuple[Int32s, Int32s]:
    """Lengths in subwords of `number` sources, end tokens included, and of their targets. They are equal in every run.

    A source is as long as a sentence of `sentences.tsv`, drawn at random. Its target is 0.8 to 1.4 times as long,
    rounded down, and at least 1.
    """
    lines = SENTENCES.read_text("utf-8").splitlines()
    words = [len(line.split("\t")[1].split()) for line in lines]
    random_numbers = np.random.default_rng(1)
    sources = 1 + (SUBWORDS_OF_A_WORD * random_numbers.choice(words, number)).astype(np.int32)
    targets = np.maximum(1, sources * random_numbers.uniform(0.8, 1.4, number)).astype(np.int32)
    return sources, targets


def make_random_bundle(options: GpuBenchmarkOptions) -> Bundle:
    """A model of the base size with random fp16 weights, created once for all parts. In a quick run: the tiny size."""
    folder = options.work / "random"
    if not (folder / MANIFEST).exists():
        shutil.rmtree(folder, ignore_errors=True)  # left by a part that was killed
        folder.mkdir(parents=True)
        name, vocab_size = ("tiny", 1000) if options.is_quick else ("base", 8000)
        bundle = random_bundle(name, vocab_size, ("fp16",), folder)
        (folder / MANIFEST).write_text(bundle.manifest.model_dump_json(), "utf-8")
    manifest = Manifest.model_validate(json.loads((folder / MANIFEST).read_bytes()))
    return Bundle(folder, manifest, ())


def bundled(options: GpuBenchmarkOptions) -> Bundle:
    """Load and check the bundle of the options."""
    return load_bundle(options.bundle)


def load(
    options: GpuBenchmarkOptions,
    bundle: Bundle,
    *,
    num_rows: int,
    has_graphs: bool = True,
    switches: Sequence[Switch] = (),
) -> Runner:
    """Load the fp16 variant on the device, as the server does.

    has_graphs: False turns CUDA graphs off on a GPU. switches: the ways to compute steps (`app.runtime.cuda_choice`)
    without CUDA graphs. With CUDA graphs, this argument has no effect, and the runner itself chooses the switches.
    """
    if options.device == "cpu" or has_graphs:
        return load_runner(
            bundle,
            precision="fp16",
            device=options.device,
            num_rows=num_rows,
            num_threads=2,
            kernels="standard",
        )
    from app.runtime.cuda_runner import load_cuda_runner

    manifest = bundle.manifest
    variant = manifest.variants["fp16"]
    limits = limits_of(manifest, num_rows)
    return load_cuda_runner(bundle.path, variant, limits=limits, has_graphs=False, switches=switches)


def translate(
    runner: Runner,
    sources: Sequence[Sequence[int]],
    *,
    beam_size: int,
    num_target_tokens: Sequence[int] | None = None,
) -> TranslationResult:
    """Translate all sentences with the engine in this thread. Raises the first error of a sentence.

    num_target_tokens: the length limit of each target in subwords. None: the source's length + 50. The model's limit
    also applies.
    """
    ended: list[Sentence] = []
    counted: list[StepStats] = []
    max_encode_tokens = max(4096, runner.limits.max_source_length)

    def report(message: Report) -> None:
        ended.extend(message.ended)
        counted.extend(message.steps)

    core = EngineCore(runner, EngineLimits(max_encode_tokens=max_encode_tokens), report=report)
    sentences = []
    for number, source in enumerate(sources):
        limit = num_target_tokens[number] if num_target_tokens else len(source) + EXTRA_TARGET_LENGTH
        options = DecodingOptions(
            beam_size=beam_size, max_target_length=min(limit, runner.limits.max_target_length - 1)
        )
        search = new_search(options, bos_id=runner.limits.bos_id, eos_id=runner.limits.eos_id)
        ids: Int32s = np.array(source, np.int32)
        sentences.append(Sentence(ids, options, str(number), "", FOREVER, 0.0, search))
        core.inbox.put(Submit(sentences[-1]))
    started_at = time.perf_counter()
    while len(ended) < len(sentences):
        core.step()  # several decoder steps, if the runner takes several in a call
    time_s = time.perf_counter() - started_at
    num_steps = sum(stats.num_steps for stats in counted if stats.num_rows)
    best = []
    for sentence in sentences:
        if not isinstance(sentence.outcome, SequenceResult):
            assert sentence.outcome is not None
            raise sentence.outcome
        best.append(sentence.outcome.hypotheses[0])
    return TranslationResult([tuple(h.ids) for h in best], [float(h.score) for h in best], time_s, num_steps)


@cache
def _observer() -> Cuda:
    """The CUDA handle that reads free memory. It is created once, so that later readings allocate nothing."""
    return Cuda(num_upload_bytes=256)


def free_mb(options: GpuBenchmarkOptions) -> float:
    """Free memory of the GPU in 10^6 bytes. On a CPU: the negative resident memory of this process."""
    if options.device == "cuda":
        return _observer().free_and_total_bytes()[0] / 1e6
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return -pages * 4096 / 1e6
