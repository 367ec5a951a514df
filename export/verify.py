"""Compares a bundle with PyTorch: the server's runner and engine must give the model's results."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from app.bundle import WEIGHTS, Bundle, Golden, Score, load_bundle
from app.bundle_tokenizers import source_tokenizer
from app.decoding.options import EXTRA_TARGET_LENGTH, DecodingOptions, LengthPenalty
from app.graphs import Precision
from app.language_pairs import LanguagePair
from app.runtime.kernels import Kernels, usable_kernels
from app.runtime.ort_runner import LoadedRunner, load_runner
from app.text.tokenizer import Tokenizer
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
from export.parity import ParityPair, largest_difference, mean_target_difference, random_pairs
from export.report import Check, Report
from export.weights import weights_of
from model.checkpoint import CheckpointError, load_model
from model.config import BOS_ID
from model.corpus import Pair as TextPair
from model.corpus import read_data
from model.evaluate import score
from model.search import Penalty, Started, beam_search, greedy_search
from model.transformer import Transformer

# The largest allowed difference of a log-probability from PyTorch's fp32, by the precision of the graphs. The whole
# distribution after random subwords is compared. Random subwords have larger hidden values than a text. fp16 has 11
# bits of precision, so a hidden value of 50 can be 0.016 off. If a limit is larger, a wrong graph may pass.
TOLERANCES: dict[Precision, float] = {"fp32": 1e-4, "fp16": 5e-2}
# The largest allowed mean difference of int8, over the golden translations' subwords. Graphs with wrong weights exceed
# it by far.
MAX_MEAN_DIFFERENCE = 0.1
# BLEU points that int8 may lose against fp32.
MAX_BLEU_LOSS = 0.3
# Share of golden sentences that the native kernels may decode differently. The server's start has the same limit by
# default (TRANSDUCE_GOLDEN_MIN_SHARE).
MAX_NATIVE_DIFFERENT = 0.2
# Random batches, pairs of each, and the most ids of a source or target. If larger, `verify` takes longer.
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
    """Make every comparison that the bundle and the options allow.

    Raises BundleError, CheckpointError, CorpusError and TokenizerError for an unusable bundle, checkpoint, test set or
    sentence of a test set.
    """
    torch.set_num_threads(options.num_threads)
    bundle = load_bundle(path)
    model = load_model(options.checkpoint or path / WEIGHTS)
    if dimensions_of(model.config) != bundle.manifest.dimensions:
        raise CheckpointError("the checkpoint and the bundle have different dimensions")
    with tempfile.TemporaryDirectory() as folder:
        verification = _Verification(bundle, _reference(bundle, model, options, Path(folder)), model, options)
        checks = list(tqdm(verification.checks(), desc="verify", unit=" checks"))
        scores, data_checks = verification.test_sets()
    checks += data_checks
    skipped = () if options.data else ("BLEU of int8 against fp32: no --data was given",)
    manifest = bundle.manifest
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
    update = {"variants": {"fp32": variant}, "files": file_entries(folder)}
    return Bundle(folder, bundle.manifest.model_copy(update=update), ())


def bleu_check(name: str, *, int8: float, fp32: float) -> Check:
    """The check of int8's loss on a test set. A gain, which chance may cause, passes."""
    loss = fp32 - int8
    detail = f"{int8:.2f}, fp32 {fp32:.2f}, largest loss {MAX_BLEU_LOSS}"
    return Check(f"int8 BLEU on {name}", loss <= MAX_BLEU_LOSS, detail, loss, MAX_BLEU_LOSS)


def truncated(ids: tuple[int, ...], limit: int, *, num_last: int) -> tuple[int, ...]:
    """A source's ids, at most `limit` of them. The last `num_last`, the end token and the tag, are kept."""
    return ids if len(ids) <= limit else (*ids[: limit - num_last], *ids[len(ids) - num_last :])


def _name(check: str, kernels: Kernels) -> str:
    return f"{check}, native kernels" if kernels == "native" else check


@dataclass(frozen=True)
class _TestSet:
    """Source texts of one direction, and a reference translation of each."""

    name: str
    sources: list[str]
    references: list[str]


class _Verification:
    """The comparisons of one bundle with one model."""

    def __init__(self, bundle: Bundle, reference: Bundle, model: Transformer, options: VerifyOptions) -> None:
        self._bundle = bundle
        self._model = model
        self._options = options
        self._source_tokenizer = source_tokenizer(bundle)
        self._target_tokenizer = Tokenizer(bundle.file("target.spm"))
        # A bundle of a small max_source_length may have golden sentences of its own.
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

    def _load(self, bundle: Bundle, precision: Precision, kernels: Kernels) -> LoadedRunner:
        return load_runner(
            bundle,
            precision=precision,
            device="cpu",
            kernels=kernels,
            num_rows=NUM_ROWS,
            num_threads=self._options.num_threads,
        )

    def checks(self) -> Iterator[Check]:
        """Comparisons that need no test set, with all kernels that can run on this machine."""
        for kernels, runner in self._references.items():
            yield self._log_probabilities("fp32", kernels, runner)
        for (precision, kernels), runner in self._runners.items():
            if precision == "fp16":
                yield self._log_probabilities(precision, kernels, runner)
        for kernels, runner in self._references.items():
            for beam_size in (1, 4):
                yield self._same_ids(beam_size, kernels, runner)
        for (precision, kernels), runner in self._runners.items():
            yield self._golden(precision, kernels, runner)
        for (precision, kernels), runner in self._runners.items():
            if precision == "int8":
                yield self._golden_scores(kernels, runner)
                yield self._alone_and_batched(kernels, runner)

    def _log_probabilities(self, precision: Precision, kernels: Kernels, runner: LoadedRunner) -> Check:
        """Compare log-probabilities on random batches: the runner step by step, PyTorch in one forward pass."""
        random_numbers = np.random.default_rng(self._options.seed)
        config = self._model.config
        value = 0.0
        for _ in range(NUM_BATCHES):
            pairs = random_pairs(
                random_numbers,
                num_pairs=PAIRS_A_BATCH,
                vocab_size=config.vocab_size,
                max_length=min(MAX_RANDOM_LENGTH, self._bundle.manifest.max_target_length),
                max_first_step=8,
            )
            pairs = [replace(pair, start_id=self._golden_sources[0].start_id) for pair in pairs]
            value = float(np.maximum(value, largest_difference(self._model, runner, pairs)))
        limit = TOLERANCES[precision]
        detail = (
            f"largest difference {value:.1e}, limit {limit:.0e}, {NUM_BATCHES * PAIRS_A_BATCH} ragged pairs"
        )
        return Check(_name(f"{precision} log-probabilities", kernels), value <= limit, detail, value, limit)

    def _same_ids(self, beam_size: int, kernels: Kernels, runner: LoadedRunner) -> Check:
        """Compare the reference search in PyTorch with the engine over the fp32 graphs, on the golden sentences."""
        decoding = self._bundle.manifest.decoding
        different = 0
        for golden in self._golden_sources:
            source, start_id = golden.ids, golden.start_id
            start = (BOS_ID,) if start_id is None else (BOS_ID, start_id)
            model = Started(self._model, start)
            limit = min(self._bundle.manifest.max_target_length - 1, len(source) + EXTRA_TARGET_LENGTH)
            formula: Penalty = "wu" if decoding.length_penalty is LengthPenalty.WU else "power"
            alpha = decoding.alpha
            if beam_size == 1:
                expected = greedy_search(
                    model, source, max_target_length=limit, alpha=alpha, formula=formula
                ).ids
            else:
                expected = beam_search(
                    *(model, source),
                    beam_size=beam_size,
                    max_target_length=limit,
                    alpha=alpha,
                    formula=formula,
                )[0].ids
            search = DecodingOptions(
                beam_size=beam_size,
                length_penalty=decoding.length_penalty,
                alpha=alpha,
                max_target_length=limit,
            )
            different += translate_ids(runner, [source], search, starts=[start_id]) != [expected]
        detail = f"{different} of {len(self._golden_sources)} golden sentences differ from PyTorch's"
        return Check(_name(f"fp32 ids, beam {beam_size}", kernels), different == 0, detail, different, 0)

    def _golden(self, precision: Precision, kernels: Kernels, runner: LoadedRunner) -> Check:
        """Compare with the ids in golden.jsonl, which ONNX Runtime's standard operators decoded.

        Native kernels may choose another subword where two log-probabilities are nearly equal.
        """
        lines = [line for line in self._bundle.golden if precision in line.ids]
        cases = [(self._golden_source(line), line.beam_size) for line in lines]
        found = translate_golden(runner, self._bundle.manifest, cases)
        different = sum(ids != line.ids[precision] for ids, line in zip(found, lines, strict=True))
        detail = (
            f"{different} of {len(lines)} differ from golden.jsonl" if lines else "golden.jsonl has no ids"
        )
        limit = 0 if kernels == "standard" else int(MAX_NATIVE_DIFFERENT * len(lines))
        name = _name(f"{precision} golden ids", kernels)
        return Check(name, bool(lines) and different <= limit, detail, different, limit)

    def _golden_source(self, line: Golden) -> GoldenSource:
        return GoldenSource(line.source, line.pair, self._ids_of(line), self._start_id_of(line))

    def _ids_of(self, line: Golden) -> tuple[int, ...]:
        """The ids of a golden sentence; see `source_ids`."""
        pair = self._bundle.manifest.language_pairs[line.pair]
        return source_ids(self._source_tokenizer, line.source, pair)

    def _start_id_of(self, line: Golden) -> int | None:
        """The start token of a golden sentence's pair, if it has one."""
        return start_id_of(self._target_tokenizer, self._bundle.manifest.language_pairs[line.pair])

    def _golden_scores(self, kernels: Kernels, runner: LoadedRunner) -> Check:
        """Compare the scores of int8's golden translations with PyTorch's scores of them."""
        lines = [line for line in self._bundle.golden if "int8" in line.ids]
        pairs = [
            ParityPair(
                np.array(self._ids_of(line), np.int32),
                np.array(line.ids["int8"], np.int32),
                first_step=0,
                start_id=self._start_id_of(line),
            )
            for line in lines
        ]
        value = mean_target_difference(self._model, runner, pairs) if pairs else float("nan")
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

    def test_sets(self) -> tuple[list[Score], list[Check]]:
        """Scores of int8 and of the fp32 reference on each test set, and checks of int8's loss.

        Uses the kernels that a server on this machine uses. A test set's columns are source and target of the first
        language pair. They are swapped for a pair that is the reverse of the first one.
        """
        scores: list[Score] = []
        checks: list[Check] = []
        for specification in self._options.data:
            texts = list(islice(read_data(specification), self._options.limit))
            name = Path(specification).name.removesuffix(".gz").removesuffix(".xz").removesuffix(".tsv")
            for number, pair in enumerate(self._bundle.manifest.language_pairs):
                test_set = self._test_set(name, number, texts)
                if test_set is None:
                    continue
                found = self._scores(test_set, pair)
                scores += found.values()
                if "int8" in found:
                    checks.append(bleu_check(test_set.name, int8=found["int8"].bleu, fp32=found["fp32"].bleu))
        return scores, checks

    def _test_set(self, name: str, number: int, texts: Sequence[TextPair]) -> _TestSet | None:
        """The test set for one of the manifest's pairs; None if the pair has other languages."""
        pairs = self._bundle.manifest.language_pairs
        first, pair = pairs[0], pairs[number]
        label = name if len(pairs) == 1 else f"{name}, {pair.source} to {pair.target}"
        sources, targets = [text.source for text in texts], [text.target for text in texts]
        if (pair.source, pair.target) == (first.source, first.target):
            return _TestSet(label, sources, targets)
        if (pair.source, pair.target) == (first.target, first.source):
            return _TestSet(label, targets, sources)
        return None

    def _scores(self, test_set: _TestSet, pair: LanguagePair) -> dict[Precision, Score]:
        """Scores of each precision except fp16, which is for GPUs."""
        runners = {precision: runner for (precision, _), runner in self._runners.items()}
        runners = {**runners, "fp32": [*self._references.values()][-1]}
        return {
            precision: self._score(test_set, pair, precision, runner)
            for precision, runner in runners.items()
            if precision != "fp16"
        }

    def _score(
        self, test_set: _TestSet, pair: LanguagePair, precision: Precision, runner: LoadedRunner
    ) -> Score:
        """Translate a test set with the server's engine, its sentences unsplit, and score it."""
        beam_size = self._options.beam_size
        encoded = [
            self._source_tokenizer.encode_tagged(text, pair.source_prefix) for text in test_set.sources
        ]
        manifest = self._bundle.manifest
        num_last = manifest.ends_source + (manifest.tag_follows_source and pair.source_prefix is not None)
        fitting = [truncated(e.ids, manifest.max_source_length, num_last=num_last) for e in encoded]
        options = golden_options(manifest, beam_size)
        starts = [start_id_of(self._target_tokenizer, pair)] * len(fitting)
        found = translate_ids(
            runner, fitting, options, starts=starts, progress=f"{test_set.name} {precision}"
        )
        texts = [
            self._target_tokenizer.decode(ids, source.verbatim_spans).text
            for ids, source in zip(found, encoded, strict=True)
        ]
        scores = score(texts, test_set.references)
        return Score(test_set=test_set.name, precision=precision, beam_size=beam_size, **vars(scores))
