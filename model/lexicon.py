"""Learns word translations from parallel text by IBM Model 1 (Brown et al. 1993) in both directions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.corpus import CorpusError, Pair, read_lines
from model.output_files import write_file
from model.words import word_pattern

# Longest sentence, in words. Longer sentences say little about single words. Time and memory grow with the product of
# both lengths.
MAX_WORDS = 24
# Words that occur less often are not aligned, because their probabilities are chance.
MIN_COUNT = 4
NUM_ITERATIONS = 5
# Weight of a form inside a sentence, relative to a form at the start, where every word has a capital.
FORM_WEIGHT = 1000
# Least p(target | source), and least p(source | target), of an entry.
MIN_PROBABILITY = 0.15
# Least probability and count of an entry that is also a training pair, and the domain of these pairs.
MIN_PAIR_PROBABILITY, MIN_PAIR_COUNT = 0.25, 5
LEXICON = "lexicon"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Entry:
    """A word and its translation, each in its most frequent form inside a sentence.

    count: occurrences of the source word. probability: the smaller one of the two directions, 0-1.
    """

    source: str
    target: str
    count: int
    probability: float


class Words:
    """The words of one side: ids from 1, by their lower-case form; 0 is the empty word."""

    def __init__(self, sentences: Iterable[Sequence[str]]) -> None:
        """sentences: the words of each, in order."""
        counts: Counter[str] = Counter()
        self._forms: dict[str, Counter[str]] = {}
        for sentence in sentences:
            counts.update(word.lower() for word in sentence)
            for number, word in enumerate(sentence):
                # The first word of a sentence always has a capital, so its form hardly counts beside another.
                self._forms.setdefault(word.lower(), Counter())[word] += FORM_WEIGHT if number else 1
        self.names = ["", *(word for word, count in counts.items() if count >= MIN_COUNT)]
        self.counts = np.array([0, *(counts[word] for word in self.names[1:])])
        self._ids = {word: index for index, word in enumerate(self.names)}

    def ids(self, sentence: Sequence[str]) -> list[int]:
        """Ids of the words that are frequent enough."""
        return [index for word in sentence if (index := self._ids.get(word.lower(), 0))]

    def form(self, index: int) -> str:
        """The word's most frequent form inside a sentence."""
        return self._forms[self.names[index]].most_common(1)[0][0] if index else ""


def words_of(text: str) -> list[str]:
    """The words of a text, without numbers, punctuation and symbols."""
    return _word().findall(text)


@cache
def _word() -> re.Pattern[str]:
    return re.compile(word_pattern())


def learn_lexicon(pairs: Iterable[Pair]) -> list[Entry]:
    """The word pairs that are each other's most probable translation, the most frequent first.

    Both probabilities are at least MIN_PROBABILITY. Sentence pairs with a side of more than MAX_WORDS words are
    skipped. The memory is about 80 bytes for each pair of a source word and a target word in one sentence pair. Raises
    CorpusError if no sentence pair is left, or none with frequent enough words on both sides.
    """
    sentences = [
        (source, target)
        for pair in pairs
        if 0 < len(source := words_of(pair.source)) <= MAX_WORDS
        and 0 < len(target := words_of(pair.target)) <= MAX_WORDS
    ]
    if not sentences:
        raise CorpusError(f"no pair has between 1 and {MAX_WORDS} words on both sides")
    sources, targets = Words(s for s, _ in sentences), Words(t for _, t in sentences)
    encoded = [(sources.ids(source), targets.ids(target)) for source, target in sentences]
    del sentences
    if not any(source and target for source, target in encoded):
        raise CorpusError(f"no pair has words on both sides that occur at least {MIN_COUNT} times")
    forward = translation_table(encoded)
    backward = translation_table([(target, source) for source, target in encoded])
    return _mutual(forward, backward, sources, targets)


@dataclass(frozen=True)
class Table:
    """Translation probabilities t(f | e), one for each pair of words that occur together in a sentence pair.

    e, f: ids, sorted by e, then f. p: their probabilities.
    """

    e: Ints
    f: Ints
    p: Floats


def translation_table(sentences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Table:
    """EM of IBM Model 1: t(f | e). sentences: ids of the e side, without the empty word 0, and of the f side.

    The empty word is added to each e side. Sentences with an empty side are skipped, and one must be left.
    """
    e, f, position = _links(sentences)
    width = int(f.max()) + 1
    codes, index = np.unique(e * width + f, return_inverse=True)
    del e, f
    table_e, table_f = codes // width, codes % width
    p = np.ones(len(codes))
    for _ in range(NUM_ITERATIONS):
        weight = p[index]
        weight /= np.bincount(position, weight)[position]
        expected = np.bincount(index, weight, len(codes))
        p = expected / np.bincount(table_e, expected)[table_e]
    return Table(table_e, table_f, p)


def _links(sentences: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[Ints, Ints, Ints]:
    """Every pair of an e word and an f word of one sentence, with the f word's index in the whole corpus."""
    all_e, all_f, positions = [], [], []
    start = 0
    for e, f in sentences:
        if not e or not f:
            continue
        with_empty = np.array([0, *e])
        all_e.append(np.tile(with_empty, len(f)))
        all_f.append(np.repeat(np.array(f), len(with_empty)))
        positions.append(np.repeat(np.arange(start, start + len(f)), len(with_empty)))
        start += len(f)
    return np.concatenate(all_e), np.concatenate(all_f), np.concatenate(positions)


def _mutual(forward: Table, backward: Table, sources: Words, targets: Words) -> list[Entry]:
    """The pairs that are the most probable in both directions, and probable enough."""
    best = _likeliest(forward)
    best_back = _likeliest(backward)
    entries = [
        Entry(sources.form(e), targets.form(f), int(sources.counts[e]), min(p, best_back[f][1]))
        for e, (f, p) in best.items()
        if e and f and p >= MIN_PROBABILITY
        if f in best_back and best_back[f][0] == e and best_back[f][1] >= MIN_PROBABILITY
    ]
    return sorted(entries, key=lambda entry: (-entry.count, entry.source))


def _likeliest(table: Table) -> dict[int, tuple[int, float]]:
    """The most probable f of each e, with the probability."""
    order = np.lexsort((table.p, table.e))
    last = np.flatnonzero(np.diff(table.e[order], append=-1))
    return {int(table.e[i]): (int(table.f[i]), float(table.p[i])) for i in order[last].tolist()}


def write_lexicon(path: Path, entries: Iterable[Entry]) -> int:
    """Write entries as TSV atomically: source, target, count, probability. Returns how many there are."""
    lines = [f"{e.source}\t{e.target}\t{e.count}\t{e.probability:.3f}\n" for e in entries]
    write_file(path, "".join(lines).encode())
    return len(lines)


def read_lexicon(path: Path) -> list[Entry]:
    """The entries of a file. Raises CorpusError for a missing or damaged file, and for a line in another format."""
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            source, target, count, probability = line.split("\t")
            entries.append(Entry(source, target, int(count), float(probability)))
        except ValueError as error:
            raise CorpusError(
                f"{path}, line {number}: source, target, count and probability are needed"
            ) from error
    return entries


def translations(entries: Iterable[Entry], *, is_reversed: bool = False) -> dict[str, str]:
    """Each word's translation, of its first entry, both in lower case. is_reversed: the keys are target words."""
    found: dict[str, str] = {}
    for entry in entries:
        word, translation = (entry.target, entry.source) if is_reversed else (entry.source, entry.target)
        found.setdefault(word.lower(), translation.lower())
    return found


class LoneWords:
    """The words that are the only word of a pair's side, such as "Danke!", in lower case."""

    def __init__(self) -> None:
        """Without a word."""
        self._sources: set[str] = set()
        self._targets: set[str] = set()

    def note(self, pair: Pair) -> None:
        """Add the only words of the pair's sides."""
        for text, words in ((pair.source, self._sources), (pair.target, self._targets)):
            if " " not in (stripped := text.strip()) and len(found := words_of(stripped)) == 1:
                words.add(found[0].lower())

    def has_one_of(self, entry: Entry) -> bool:
        """Whether the entry's source is a lone source, or its target a lone target."""
        return entry.source.lower() in self._sources or entry.target.lower() in self._targets


def word_pairs(entries: Iterable[Entry], lone_words: LoneWords) -> Iterator[Pair]:
    """Yield likely entries as training pairs of domain LEXICON: as written, and with a first capital.

    Text on buttons has such capitals. A word that is its own translation is left out. Otherwise a model learns from
    thousands of names to copy any text of one word.
    lone_words: of the other training pairs. An entry with one of them is left out, because these pairs have the word's
    translation where it stands alone, and the lexicon may have another one: "danke" is "thanks", not the "thank" of
    "thank you". Each entry is compared when its pairs are asked for, so the other pairs can be noted until then.
    """
    for entry in entries:
        if entry.source.lower() == entry.target.lower() or lone_words.has_one_of(entry):
            continue
        if entry.probability < MIN_PAIR_PROBABILITY or entry.count < MIN_PAIR_COUNT:
            continue
        yield Pair(entry.source, entry.target, LEXICON)
        yield Pair(_capitalised(entry.source), _capitalised(entry.target), LEXICON)


def _capitalised(word: str) -> str:
    return word[:1].upper() + word[1:]
