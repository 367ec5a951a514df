"""The measured cases: a text, a number of sentences and a beam size each."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.engine.jobs import Job
from benchmarks.serving import read_sentences
from benchmarks.tagged_tokenizer import TaggedTokenizer
from model.corpus import read_tsv

SOURCE_LENGTH, TARGET_LENGTH = 25, 30
BEAM_SIZES = (1, 4)
MAX_WARMED_ROWS = 64  # trials of a case with more rows have no warm-up
# A call translates as many groups as hold NUM_GROUPED real sentences, but at least MIN_GROUPS and at most
# MAX_GROUPS. So even a call with groups of one sentence has mixed lengths.
NUM_GROUPED, MAX_GROUPS, MIN_GROUPS = 64, 24, 2
SEED = 3


@dataclass(frozen=True)
class Case:
    """One row of the table.

    name: the text that is translated. num_sentences: sentences in one group, which an engine translates at once.
    """

    name: str
    num_sentences: int
    job: Job

    @property
    def beam_size(self) -> int:
        """The beam size of its job."""
        return self.job.beam_size

    @property
    def num_groups(self) -> int:
        """The number of groups in one call."""
        return len(self.job.groups)

    @property
    def is_long(self) -> bool:
        """Whether a call is so long that cold caches hardly change its time. Its trials have no warm-up."""
        return self.num_sentences * self.beam_size > MAX_WARMED_ROWS

    @property
    def is_corpus(self) -> bool:
        """Whether one call translates a whole corpus."""
        return self.name.startswith("corpus")


def synthetic_cases(vocab_size: int, *, sizes: tuple[int, ...]) -> list[Case]:
    """Cases with sentences of 25 random subwords and forced targets of 30 subwords."""
    rng = np.random.default_rng(SEED)
    sentences = rng.integers(8, vocab_size, (max(sizes), SOURCE_LENGTH)).tolist()
    return [
        Case("25 to 30", size, Job([sentences[:size]], beam_size, TARGET_LENGTH, is_forced=True))
        for beam_size in BEAM_SIZES
        for size in sizes
    ]


def real_cases(sentences: list[list[int]], max_target_length: int, *, sizes: tuple[int, ...]) -> list[Case]:
    """Cases with real sentences, shuffled once, in groups of each size. A target ends at its end token."""
    shuffled = shuffle(sentences)
    cases = []
    for beam_size in BEAM_SIZES:
        for size in sizes:
            num_groups = max(MIN_GROUPS, min(MAX_GROUPS, NUM_GROUPED // size))
            starts = range(0, min(num_groups * size, len(shuffled)), size)
            groups = [shuffled[start : start + size] for start in starts]
            cases.append(Case("sentences", size, Job(groups, beam_size, max_target_length, is_forced=False)))
    return cases


def corpus_cases(corpora: dict[str, list[list[int]]], max_target_length: int) -> list[Case]:
    """Cases that translate a whole corpus in one call."""
    return [
        Case(
            f"corpus {name}",
            len(sentences),
            Job([shuffle(sentences)], beam_size, max_target_length, is_forced=False),
        )
        for name, sentences in corpora.items()
        for beam_size in BEAM_SIZES
    ]


def trial_job(case: Case) -> Job:
    """A shorter job of a case for comparing settings: a third of the forced length, or some of its sentences."""
    job = replace(case.job, is_warmed=not case.is_long)
    if job.is_forced:
        return replace(job, max_target_length=job.max_target_length // 3)
    if case.is_corpus:
        return replace(job, groups=[job.groups[0][:192]])
    return replace(job, groups=job.groups[: max(1, len(job.groups) // 4)])


def shuffle(sentences: list[list[int]]) -> list[list[int]]:
    """The sentences in one fixed random order."""
    shuffled = list(sentences)
    random.Random(SEED).shuffle(shuffled)
    return shuffled


def read_corpora(data: Path | None, *, limit: int) -> dict[str, list[str]]:
    """The first `limit` sentences of `sentences.tsv`, as `own`, and of each `test.NAME.tsv.xz` in `data`, as `NAME`."""
    corpora = {"own": read_sentences()[:limit]}
    for path in sorted(data.glob("test.*.tsv.xz")) if data else ():
        corpora[path.name.split(".")[1]] = [source for source, _ in read_pairs(path)][:limit]
    return corpora


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Source and target of each line of a table, as `read_tsv` reads it. Raises CorpusError."""
    return [(pair.source, pair.target) for pair in read_tsv(path)]


def encode(tokenizer: TaggedTokenizer, texts: list[str], *, max_subwords: int) -> list[list[int]]:
    """The ids of each text that fits the model.

    Texts with more runs of unknown characters than there are placeholder symbols are left out.
    """
    encoded = [list(tokenizer.encode(text).ids) for text in texts if tokenizer.can_encode(text)]
    return [ids for ids in encoded if len(ids) <= max_subwords]
