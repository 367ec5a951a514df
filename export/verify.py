"""Compares a bundle with PyTorch: the server's runner and engine must give the model's results."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from app.bundle import GOLDEN, WEIGHTS, Bundle, Golden, Score, load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, LengthPenalty
from app.errors import BundleError, EngineFailure, RequestError
from app.graphs import Precision
from app.runtime.bundle_limits import limits_of
from app.runtime.interface import Floats
from app.runtime.kernels import Kernels, usable_kernels
from app.runtime.ort_runner import LoadedRunner, RunnerConfig, load_variant
from export.bundle_writer import dimensions_of, file_entries, write_variant
from export.golden import (
    NUM_ROWS,
    GoldenSource,
    golden_options,
    golden_sources,
    source_ids,
    start_id_of,
    translate_golden,
    translate_ids,
)
from export.parity import (
    ParityPair,
    mean_target_difference,
    one_shots_of,
    random_pairs,
    summed_differences,
    target_scores,
)
from export.report import Check, Report
from export.verify_scores import Scorer, read_test_sets, skipped_scores
from export.weights import weights_of
from model.checkpoint import CheckpointError, load_model
from model.config import BOS_ID
from model.search import ModelWithStart, Penalty, beam_search, greedy_search
from model.transformer import Transformer

# The largest allowed mean difference of int8, over the golden translations' subwords. Graphs with another model's
# weights exceed it by far. Wrong weights of subwords that the golden sentences lack do not change it.
MAX_MEAN_DIFFERENCE = 0.1
# The largest allowed mean difference for any one subword, over the positions of random batches, by the precision of
# the rounding. The largest single difference is no measure: in the fp16 of one bundle it varies from 0.03 to 0.06
# with the random subwords, and in models that were trained on few sentences, PyTorch's own fp32 and fp64 differ by up
# to 1e-3 at single positions. In fp32, a graph that is wrong by 0.2 at one position exceeds the limit. With right
# weights, the largest mean of fp16 was 0.003 in the bundled model. That of int8 was 0.1 in the bundled model, and in
# the imported models of the tests 0.05 (Marian, M2M-100, NLLB, CTranslate2) and 0.08 (Firefox, random weights). With
# one wrong row of the output's weights, it was at least 2.5 in the bundled model, 1.3 in trained imported models and
# 0.29 in models of random weights, where a wrong row may pass in int8.
MAX_SUBWORD_DIFFERENCES: dict[Precision, float] = {"fp32": 1e-4, "fp16": 0.02, "int8": 0.4}
# Share of golden sentences that the native kernels may decode differently. The server's start has the same limit by
# default (TRANSDUCE_GOLDEN_MIN_SHARE).
MAX_NATIVE_DIFFERENT = 0.2
_OTHER_VOCABULARY = "perhaps source.spm is the vocabulary of another model"
# Number of random batches, pairs of each, and maximum number of ids of a source or target. If larger, `verify` takes
# longer.
NUM_BATCHES, PAIRS_A_BATCH, MAX_RANDOM_LENGTH = 4, 12, 60


@dataclass(frozen=True)
class VerifyOptions:
    """The model to compare with, and the data.

    checkpoint: folder; None for the bundle's own fp16 weights. data: TSV test sets, may be empty.
    limit: use only this many first pairs of each test set; None for all. beam_size: the beam size for the test sets.
    num_threads: of ONNX Runtime and of PyTorch. seed: the seed of the random batches.
    """

    checkpoint: Path | None = None
    data: tuple[str, ...] = ()
    limit: int | None = None
    beam_size: int = 4
    num_threads: int = 1
    seed: int = 1


def verify(path: Path, options: VerifyOptions) -> Report:
    """Make every comparison that the bundle and the options allow. Test sets are read and encoded first.

    Raises BundleError, CheckpointError, CorpusError and TokenizerError for an unusable bundle, checkpoint, test set or
    sentence of a test set. A golden sentence that cannot be translated is a BundleError with its line.
    """
    torch.set_num_threads(options.num_threads)
    bundle = load_bundle(path)
    model = load_model(options.checkpoint or path / WEIGHTS)
    manifest = bundle.manifest
    if dimensions_of(model.config) != manifest.dimensions:
        raise CheckpointError("the checkpoint and the bundle have different dimensions")
    longest = max(manifest.max_source_length, manifest.max_target_length + manifest.has_target_starts)
    if model.config.max_length < longest:
        raise CheckpointError(
            f"the checkpoint has {model.config.max_length} positions, and the bundle needs {longest}"
        )
    with tempfile.TemporaryDirectory() as folder:
        verification = _Verification(bundle, _reference(bundle, model, options, Path(folder)), model, options)
        checks = list(tqdm(verification.checks(), desc="verify", unit=" checks"))
        scores, data_checks = verification.scores_and_checks()
    checks += data_checks
    skipped = (
        skipped_scores(manifest) if options.data else ("BLEU of int8 against fp32: no --data was given",)
    )
    return Report(manifest.name, manifest.version, tuple(checks), skipped, tuple(scores))


def _reference(bundle: Bundle, model: Transformer, options: VerifyOptions, folder: Path) -> Bundle:
    """The bundle whose fp32 graphs are compared with `model`.

    With --checkpoint this is `bundle`, if it has an fp32 variant. Otherwise fp32 graphs with the weights of `model` are
    built in `folder`. Without --checkpoint, these weights are rounded to fp16, so the bundle's fp32 graphs would
    differ.
    """
    if options.checkpoint is not None and "fp32" in bundle.manifest.variants:
        return bundle
    variant = write_variant(folder, weights_of(model), "fp32")
    update = {"variants": {"fp32": variant}, "files": file_entries(folder), "shortlist": None}
    return Bundle(folder, bundle.manifest.model_copy(update=update), ())


def _name(check: str, kernels: Kernels) -> str:
    return f"{check}, native kernels" if kernels == "native" else check


@dataclass
class _Compared:
    """The log-probabilities of a runner on random batches, compared with PyTorch's.

    PyTorch scores a pair in one forward pass, and the runner step by step.
    rounding: the precision to which the runner's weights or PyTorch's are rounded; fp32 for none.
    sums: each subword's sum of differences over num_positions positions.
    """

    precision: Precision
    kernels: Kernels
    runner: LoadedRunner
    rounding: Precision
    sums: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    num_positions: int = 0

    def add(self, one_shots: Sequence[Floats], pairs: Sequence[ParityPair]) -> None:
        """Compare one more batch. one_shots: PyTorch's log-probabilities of the pairs."""
        sums, num_positions = summed_differences(one_shots, self.runner, pairs)
        self.sums, self.num_positions = self.sums + sums, self.num_positions + num_positions

    def check(self) -> Check:
        is_own = self.precision == "fp32" != self.rounding
        name = f"{self.precision} log-probabilities" + ", the bundle's own graphs" * is_own
        value, limit = float(np.max(self.sums / self.num_positions)), MAX_SUBWORD_DIFFERENCES[self.rounding]
        detail = f"the worst subword's log-probability differs by {value:.2g} on average, limit {limit:g}"
        return Check(_name(name, self.kernels), value <= limit, detail, value, limit)


class _Verification:
    """The comparisons of one bundle with one model."""

    def __init__(self, bundle: Bundle, reference: Bundle, model: Transformer, options: VerifyOptions) -> None:
        self._bundle = bundle
        self._model = model
        self._options = options
        self._is_rounded = reference is not bundle and options.checkpoint is None
        self._source_tokenizer, self._target_tokenizer = load_tokenizers(bundle)
        self._check_golden_lengths()
        self._test_sets = read_test_sets(
            bundle.manifest, self._source_tokenizer, options.data, limit=options.limit
        )
        # If max_source_length is too small for all of `golden_sources`, the sentences of golden.jsonl are used.
        self._golden_sources = golden_sources(self._source_tokenizer, bundle.manifest) or [
            self._golden_source(line) for line in bundle.golden
        ]
        self._runners = {
            (name, kernels): self._load(bundle, name, kernels)
            for name, variant in bundle.manifest.variants.items()
            for kernels in usable_kernels(variant)
        }
        self._references = {
            kernels: self._load(reference, "fp32", kernels)
            for kernels in usable_kernels(reference.manifest.variants["fp32"])
        }

    def scores_and_checks(self) -> tuple[list[Score], list[Check]]:
        """Scores and checks of the test sets, with the kernels that a server on this machine uses."""
        runners = {precision: runner for (precision, _), runner in self._runners.items()}
        runners = {**runners, "fp32": [*self._references.values()][-1]}
        scorer = Scorer(
            self._bundle.manifest, self._target_tokenizer, runners, beam_size=self._options.beam_size
        )
        return scorer.scores_and_checks(self._test_sets)

    def _load(self, bundle: Bundle, precision: Precision, kernels: Kernels) -> LoadedRunner:
        manifest, num_threads = bundle.manifest, self._options.num_threads
        limits, has_shortlist = limits_of(manifest, NUM_ROWS), manifest.shortlist is not None
        config = RunnerConfig(precision, manifest.variants[precision], limits, has_shortlist=has_shortlist)
        return load_variant(bundle.path, config, device="cpu", kernels=kernels, num_threads=num_threads)

    def checks(self) -> Iterator[Check]:
        """Comparisons that need no test set, with all kernels that can run on this machine."""
        yield from self._log_probabilities()
        expected = {beam_size: self._pytorch_ids(beam_size) for beam_size in (1, 4)}
        for kernels, runner in self._references.items():
            for beam_size, ids in expected.items():
                yield self._same_ids(beam_size, ids, kernels, runner)
        for (precision, kernels), runner in self._runners.items():
            yield self._golden(precision, kernels, runner)
        pairs = self._golden_pairs()
        scores = target_scores(self._model, pairs)
        for (precision, kernels), runner in self._runners.items():
            if precision == "int8":
                yield self._golden_scores(scores, pairs, kernels, runner)
                yield self._alone_and_batched(kernels, runner)

    def _log_probabilities(self) -> Iterator[Check]:
        """Comparisons on random batches. The bundle's fp32 graphs are left out if they are the reference."""
        compared = [
            _Compared("fp32", kernels, runner, "fp32") for kernels, runner in self._references.items()
        ]
        compared += [
            _Compared(precision, kernels, runner, "fp16" if precision == "fp32" else precision)
            for (precision, kernels), runner in self._runners.items()
            if precision != "fp32" or self._is_rounded
        ]
        for pairs in self._random_batches():
            one_shots = one_shots_of(self._model, pairs)
            for each in compared:
                each.add(one_shots, pairs)
        yield from (each.check() for each in compared)

    def _random_batches(self) -> Iterator[list[ParityPair]]:
        """The same NUM_BATCHES batches in every run."""
        random_numbers = np.random.default_rng(self._options.seed)
        manifest = self._bundle.manifest
        longest = min(MAX_RANDOM_LENGTH, manifest.max_source_length, manifest.max_target_length)
        for _ in range(NUM_BATCHES):
            pairs = random_pairs(
                random_numbers,
                num_pairs=PAIRS_A_BATCH,
                vocab_size=self._model.config.vocab_size,
                max_length=longest,
                max_first_step=8,
            )
            yield [replace(pair, start_id=self._golden_sources[0].start_id) for pair in pairs]

    def _pytorch_ids(self, beam_size: int) -> list[tuple[int, ...]]:
        """The ids of the reference search in PyTorch, for each golden sentence."""
        decoding, found = self._bundle.manifest.decoding, []
        formula: Penalty = "wu" if decoding.length_penalty is LengthPenalty.WU else "power"
        for golden in self._golden_sources:
            start = (BOS_ID,) if golden.start_id is None else (BOS_ID, golden.start_id)
            model, limit = ModelWithStart(self._model, start), self._max_target_length(golden)
            if beam_size == 1:
                best = greedy_search(
                    model, golden.ids, max_target_length=limit, alpha=decoding.alpha, formula=formula
                )
            else:
                best, *_ = beam_search(
                    *(model, golden.ids),
                    beam_size=beam_size,
                    max_target_length=limit,
                    alpha=decoding.alpha,
                    formula=formula,
                )
            found.append(best.ids)
        return found

    def _max_target_length(self, golden: GoldenSource) -> int:
        """The maximum number of subwords of a sentence's translation, without the end token."""
        return min(self._bundle.manifest.max_target_length - 1, len(golden.ids) + EXTRA_TARGET_LENGTH)

    def _same_ids(
        self, beam_size: int, expected: Sequence[tuple[int, ...]], kernels: Kernels, runner: LoadedRunner
    ) -> Check:
        """Compare the ids of the search in PyTorch with the ids of the engine on the fp32 graphs."""
        decoding, different = self._bundle.manifest.decoding, 0
        for golden, ids in zip(self._golden_sources, expected, strict=True):
            search = DecodingOptions(
                beam_size=beam_size,
                length_penalty=decoding.length_penalty,
                alpha=decoding.alpha,
                max_target_length=self._max_target_length(golden),
            )
            different += translate_ids(runner, [golden.ids], search, starts=[golden.start_id]) != [ids]
        detail = f"{different} of {len(self._golden_sources)} golden sentences differ from PyTorch's"
        return Check(_name(f"fp32 ids, beam {beam_size}", kernels), different == 0, detail, different, 0)

    def _golden(self, precision: Precision, kernels: Kernels, runner: LoadedRunner) -> Check:
        """Compare with the ids in golden.jsonl, which ONNX Runtime's standard operators decoded.

        Native kernels may choose another subword where two log-probabilities are nearly equal.
        """
        lines = self._bundle.golden
        found = self._translated(runner, [(self._golden_source(line), line.beam_size) for line in lines])
        different = sum(ids != line.ids[precision] for ids, line in zip(found, lines, strict=True))
        detail = f"{different} of {len(lines)} differ from {GOLDEN}"
        if different == len(lines):
            detail += f"; {_OTHER_VOCABULARY}"
        limit = 0 if kernels == "standard" else int(MAX_NATIVE_DIFFERENT * len(lines))
        name = _name(f"{precision} golden ids", kernels)
        return Check(name, different <= limit, detail, different, limit)

    def _translated(
        self, runner: LoadedRunner, cases: Sequence[tuple[GoldenSource, int]]
    ) -> list[tuple[int, ...]]:
        """The translations of all golden lines. Raises BundleError with the first line that cannot be translated."""
        manifest = self._bundle.manifest
        try:
            return translate_golden(runner, manifest, cases)
        except (RequestError, EngineFailure) as failure:
            for number, case in enumerate(cases, start=1):
                try:
                    translate_golden(runner, manifest, [case])
                except (RequestError, EngineFailure) as error:
                    raise self._line_error(number, error.message) from error
            raise BundleError(self._bundle.path.name, [f"{GOLDEN}: {failure.message}"]) from failure

    def _check_golden_lengths(self) -> None:
        """Raise BundleError for a golden sentence or a golden translation that is longer than the model takes."""
        manifest = self._bundle.manifest
        limits = manifest.max_source_length, manifest.max_target_length - 1
        for number, line in enumerate(self._bundle.golden, start=1):
            lengths = len(self._ids_of(line)), max(map(len, line.ids.values()))
            for name, length, limit in zip(("source", "ids"), lengths, limits, strict=True):
                if length > limit:
                    problem = f"{name} has {length} subwords: the model takes at most {limit}"
                    if name == "source":
                        problem += f"; {_OTHER_VOCABULARY}"
                    raise self._line_error(number, problem)

    def _line_error(self, number: int, problem: str) -> BundleError:
        return BundleError(self._bundle.path.name, [f"{GOLDEN}: line {number}: {problem}"])

    def _golden_source(self, line: Golden) -> GoldenSource:
        return GoldenSource(line.source, line.pair, self._ids_of(line), self._start_id_of(line))

    def _ids_of(self, line: Golden) -> tuple[int, ...]:
        """The ids of a golden sentence; see `source_ids`."""
        pair = self._bundle.manifest.language_pairs[line.pair]
        return source_ids(self._source_tokenizer, line.source, pair)

    def _start_id_of(self, line: Golden) -> int | None:
        """The start token of a golden sentence's pair, if it has one."""
        return start_id_of(self._target_tokenizer, self._bundle.manifest.language_pairs[line.pair])

    def _golden_pairs(self) -> list[ParityPair]:
        """The golden sentences with their int8 translations; none without an int8 variant."""
        lines = self._bundle.golden if "int8" in self._bundle.manifest.variants else ()
        return [
            ParityPair(
                np.array(self._ids_of(line), np.int32),
                np.array(line.ids["int8"], np.int32),
                first_step=0,
                start_id=self._start_id_of(line),
            )
            for line in lines
        ]

    def _golden_scores(
        self, scores: Sequence[Floats], pairs: Sequence[ParityPair], kernels: Kernels, runner: LoadedRunner
    ) -> Check:
        """Compare int8's and PyTorch's log-probabilities of the subwords of int8's golden translations."""
        value = mean_target_difference(scores, runner, pairs)
        detail = f"a subword's log-probability differs by {value:.3f} on average, limit {MAX_MEAN_DIFFERENCE}"
        name, limit = _name("int8 golden scores", kernels), MAX_MEAN_DIFFERENCE
        return Check(name, value <= limit, detail, value, limit)

    def _alone_and_batched(self, kernels: Kernels, runner: LoadedRunner) -> Check:
        """Check that a sentence's int8 ids do not depend on the others in its batch."""
        sources = [source.ids for source in self._golden_sources]
        starts = [source.start_id for source in self._golden_sources]
        options = golden_options(self._bundle.manifest, beam_size=4)
        together = translate_ids(runner, sources, options, starts=starts)
        different = sum(
            translate_ids(runner, [source], options, starts=[start]) != [ids]
            for source, start, ids in zip(sources, starts, together, strict=True)
        )
        detail = f"{different} of {len(sources)} sentences differ alone and in a batch"
        return Check(_name("int8 alone and in a batch", kernels), different == 0, detail, different, 0)
