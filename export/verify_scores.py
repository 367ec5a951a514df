"""Scores a bundle's translations of test sets, for `verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from app.bundle import Manifest, Score
from app.bundle_shortlist import shortlists_of
from app.graphs import Precision
from app.language_pairs import LanguagePair
from app.runtime.kernels import usable_kernels
from app.runtime.ort_runner import LoadedRunner
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from export.golden import golden_options, start_id_of, translate_ids
from export.report import Check
from model.corpus import CorpusError, read_data
from model.evaluate import score

# BLEU points that int8 may lose against fp32.
MAX_BLEU_LOSS = 0.3
# BLEU points that int8 with a shortlist may lose against int8 with the whole vocabulary.
MAX_SHORTLIST_LOSS = 0.3


def bleu_check(name: str, *, int8: float, fp32: float) -> Check:
    """The check of int8's loss on a test set. A gain, which chance may cause, passes."""
    loss = fp32 - int8
    detail = f"{int8:.2f}, fp32 {fp32:.2f}, largest loss {MAX_BLEU_LOSS}"
    return Check(f"int8 BLEU on {name}", loss <= MAX_BLEU_LOSS, detail, loss, MAX_BLEU_LOSS)


def shortlist_check(name: str, *, listed: float, whole: float) -> Check:
    """The check of what int8 loses by a shortlist on a test set.

    listed, whole: BLEU with the shortlist, and BLEU with the whole vocabulary.
    """
    loss = whole - listed
    detail = f"{listed:.2f}, whole vocabulary {whole:.2f}, largest loss {MAX_SHORTLIST_LOSS}"
    return Check(
        f"int8 BLEU on {name} with the shortlist",
        loss <= MAX_SHORTLIST_LOSS,
        detail,
        loss,
        MAX_SHORTLIST_LOSS,
    )


def skipped_scores(manifest: Manifest) -> tuple[str, ...]:
    """The scores that this machine cannot compute: those with the shortlist, unless native kernels can run int8."""
    int8 = manifest.variants.get("int8")
    if manifest.shortlist is None or (int8 is not None and "native" in usable_kernels(int8)):
        return ()
    return ("BLEU with the shortlist: it needs int8 and native kernels",)


def truncated(ids: tuple[int, ...], limit: int, *, num_last: int) -> tuple[int, ...]:
    """A source's ids, at most `limit` of them. The last `num_last` ids (the end token and the tag) are kept."""
    return ids if len(ids) <= limit else (*ids[: limit - num_last], *ids[len(ids) - num_last :])


@dataclass(frozen=True)
class TestSet:
    """Encoded sources of one language pair, and a reference translation of each."""

    name: str
    pair: LanguagePair
    sources: list[Encoded]
    references: list[str]


def read_test_sets(
    manifest: Manifest, tokenizer: Tokenizer, data: Sequence[str], *, limit: int | None
) -> list[TestSet]:
    """The first `limit` pairs of each test set, encoded for each language pair that it fits.

    A test set fits the first language pair of the manifest, whose source and target are its columns. It also fits the
    reverse of this pair, with the columns swapped. tokenizer: the tokenizer of sources.
    Raises CorpusError for a test set that cannot be read or is empty, and TokenizerError, with the test set's name, for
    a source that cannot be encoded.
    """
    pairs, found = manifest.language_pairs, []
    languages = pairs[0].source, pairs[0].target
    for specification in data:
        texts = list(islice(read_data(specification), limit))
        if not texts:
            raise CorpusError(f"{specification} holds no pair")
        name = Path(specification).name.removesuffix(".gz").removesuffix(".xz").removesuffix(".tsv")
        columns = [text.source for text in texts], [text.target for text in texts]
        for pair in pairs:
            label = name if len(pairs) == 1 else f"{name}, {pair.source} to {pair.target}"
            if (pair.source, pair.target) == languages:
                sources, references = columns
            elif (pair.target, pair.source) == languages:
                references, sources = columns
            else:
                continue
            found.append(TestSet(label, pair, _encoded(tokenizer, sources, pair, label), references))
    return found


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], pair: LanguagePair, name: str) -> list[Encoded]:
    """The subwords of each text. Raises TokenizerError with the text's number in the test set."""
    encoded = []
    for number, text in enumerate(texts, start=1):
        try:
            encoded.append(tokenizer.encode_tagged(text, pair.source_prefix))
        except TokenizerError as error:
            raise TokenizerError(f"{name}: text {number}: {error}") from error
    return encoded


class Scorer:
    """Scores translations of test sets."""

    def __init__(
        self,
        manifest: Manifest,
        target_tokenizer: Tokenizer,
        runners: Mapping[Precision, LoadedRunner],
        *,
        beam_size: int,
    ) -> None:
        """runners: by precision; fp32's is the reference. If there is a shortlist, int8's native runner has it."""
        self._manifest = manifest
        self._target_tokenizer = target_tokenizer
        self._runners = runners
        self._beam_size = beam_size
        self._shortlists = shortlists_of(manifest.shortlist, manifest.language_pairs)

    def scores_and_checks(self, test_sets: Sequence[TestSet]) -> tuple[list[Score], list[Check]]:
        """Scores of int8 and of the fp32 reference on each test set, and checks of int8's loss.

        If the test set's pair has a shortlist, int8 is also scored with the shortlist.
        """
        scores: list[Score] = []
        checks: list[Check] = []
        for test_set in test_sets:
            found = self._scores(test_set)
            scores += found.values()
            if "int8" in found:
                whole, runner = found["int8"].bleu, self._runners["int8"]
                checks.append(bleu_check(test_set.name, int8=whole, fp32=found["fp32"].bleu))
                table = self._shortlists.get(test_set.pair)
                if table is not None and runner.limits.num_shortlists:
                    named = replace(test_set, name=f"{test_set.name} with the shortlist")
                    scores.append(self._score(named, "int8", runner, shortlist=table))
                    checks.append(shortlist_check(test_set.name, listed=scores[-1].bleu, whole=whole))
        return scores, checks

    def _scores(self, test_set: TestSet) -> dict[Precision, Score]:
        """Scores of each precision except fp16, which is for GPUs."""
        return {
            precision: self._score(test_set, precision, runner)
            for precision, runner in self._runners.items()
            if precision != "fp16"
        }

    def _score(
        self, test_set: TestSet, precision: Precision, runner: LoadedRunner, *, shortlist: int | None = None
    ) -> Score:
        """Translate a test set with the server's engine, each text as one sentence, and score the translations.

        shortlist: the number of the table to search with; None for the whole vocabulary.
        """
        manifest, pair, beam_size = self._manifest, test_set.pair, self._beam_size
        num_last = manifest.ends_source + (manifest.tag_follows_source and pair.source_prefix is not None)
        fitting = [
            truncated(source.ids, manifest.max_source_length, num_last=num_last)
            for source in test_set.sources
        ]
        options = replace(golden_options(manifest, beam_size), shortlist=shortlist)
        starts = [start_id_of(self._target_tokenizer, pair)] * len(fitting)
        found = translate_ids(
            runner, fitting, options, starts=starts, progress=f"{test_set.name} {precision}"
        )
        texts = [
            self._target_tokenizer.decode(ids, source.verbatim_spans).text
            for ids, source in zip(found, test_set.sources, strict=True)
        ]
        scores = score(texts, test_set.references)
        return Score(test_set=test_set.name, precision=precision, beam_size=beam_size, **vars(scores))
