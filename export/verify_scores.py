"""Scores a bundle's translations of test sets, for `verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from app.bundle import Manifest, Score
from app.graphs import Precision
from app.language_pairs import LanguagePair
from app.runtime.ort_runner import LoadedRunner
from app.text.tokenizer import Tokenizer
from export.golden import golden_options, start_id_of, translate_ids
from export.report import Check
from model.corpus import Pair as TextPair
from model.corpus import read_data
from model.evaluate import score

if TYPE_CHECKING:
    from export.verify import VerifyOptions

# BLEU points that int8 may lose against fp32.
MAX_BLEU_LOSS = 0.3


def bleu_check(name: str, *, int8: float, fp32: float) -> Check:
    """The check of int8's loss on a test set. A gain, which chance may cause, passes."""
    loss = fp32 - int8
    detail = f"{int8:.2f}, fp32 {fp32:.2f}, largest loss {MAX_BLEU_LOSS}"
    return Check(f"int8 BLEU on {name}", loss <= MAX_BLEU_LOSS, detail, loss, MAX_BLEU_LOSS)


def truncated(ids: tuple[int, ...], limit: int, *, num_last: int) -> tuple[int, ...]:
    """A source's ids, at most `limit` of them. The last `num_last`, the end token and the tag, are kept."""
    return ids if len(ids) <= limit else (*ids[: limit - num_last], *ids[len(ids) - num_last :])


@dataclass(frozen=True)
class _TestSet:
    """Source texts of one direction, and a reference translation of each."""

    name: str
    sources: list[str]
    references: list[str]


class Scorer:
    """Scores translations of the test sets that the options name."""

    def __init__(
        self,
        manifest: Manifest,
        tokenizers: tuple[Tokenizer, Tokenizer],
        runners: Mapping[Precision, LoadedRunner],
        options: VerifyOptions,
    ) -> None:
        """tokenizers: of sources and of targets. runners: of the variants, and the reference as fp32."""
        self._manifest = manifest
        self._source_tokenizer, self._target_tokenizer = tokenizers
        self._runners = runners
        self._options = options

    def test_sets(self) -> tuple[list[Score], list[Check]]:
        """Scores of int8 and of the fp32 reference on each test set, and checks of int8's loss.

        A test set's columns are source and target of the first language pair. They are swapped for a pair that is the
        reverse of the first one.
        """
        scores: list[Score] = []
        checks: list[Check] = []
        for specification in self._options.data:
            texts = list(islice(read_data(specification), self._options.limit))
            name = Path(specification).name.removesuffix(".gz").removesuffix(".xz").removesuffix(".tsv")
            for number, pair in enumerate(self._manifest.language_pairs):
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
        pairs = self._manifest.language_pairs
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
        return {
            precision: self._score(test_set, pair, precision, runner)
            for precision, runner in self._runners.items()
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
        manifest = self._manifest
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
