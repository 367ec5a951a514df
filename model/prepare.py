"""Prepares parallel text for training. It normalises, filters, removes duplicates, and samples by domain.

Pairs are processed in blocks. Only a block and the hashes of all earlier pairs are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path

import numpy as np

from model.corpus import CorpusError, Pair, check_domains, check_num_domains, read_lines
from model.language_check import LanguageCheck
from model.pair_filter import Reason, Rules
from model.prepare_report import Report
from model.seen_hashes import SeenHashes, UInt64s
from model.text_cleaning import hash64, letters_key, near_key, normalise

# Pairs of a block. If larger, a block takes more memory, about 1 kB for each pair. If smaller, each pair takes more
# calls of numpy.
BLOCK_PAIRS = 16_384


@dataclass(frozen=True)
class Preparation:
    """The options of preparing a parallel text.

    weights: how often a pair of a domain is written, on average; 1 for domains that are not named.
    excluded: `letters_key` hashes of sentences that no pair may have on either side, sorted.
    seed: selects the pairs that a fractional weight keeps. The choice depends only on the seed and the pair's text, and
    is the same for near-duplicates.
    """

    rules: Rules
    weights: Mapping[str, float] = field(default_factory=dict)
    excluded: UInt64s = field(default_factory=lambda: np.zeros(0, np.uint64))
    seed: int = 1


@dataclass(frozen=True)
class _Candidate:
    """A normalised pair that no rule has dropped yet.

    copies: how many times the pair is written; the weight of its domain decides.
    """

    pair: Pair
    copies: int


def prepare(pairs: Iterable[Pair], preparation: Preparation, report: Report) -> Iterator[Pair]:
    """Yield the pairs to write, in order, and count all in `report`.

    Raises CorpusError if there are more than MAX_DOMAINS domains; after the last pair, if `weights` names a domain that
    no pair has, or if no pair is left.
    """
    chain = _Chain(preparation, report)
    remaining = iter(pairs)
    while block := list(islice(remaining, BLOCK_PAIRS)):
        yield from chain.kept_of(block)
    if report.read:
        check_domains(preparation.weights, report.read)
    if not report.written:
        raise CorpusError("no pair is left")


class _Chain:
    """The steps for each block of pairs, mostly the cheap ones first, and the hashes of all earlier pairs."""

    def __init__(self, preparation: Preparation, report: Report) -> None:
        self._preparation, self._report = preparation, report
        self._exact, self._near = SeenHashes(), SeenHashes()
        ignored = preparation.rules.ignored
        self._language = None if Reason.LANGUAGE in ignored else LanguageCheck()
        if self._language is not None:
            self._report.notes += [
                f"the detector does not know {language}: its column is not checked for other languages"
                for language in (preparation.rules.source, preparation.rules.target)
                if not self._language.knows(language)
            ]
        self._duplicates = [
            (reason, seen, hash_of)
            for reason, seen, hash_of in (
                (Reason.DUPLICATE, self._exact, _hash),
                (Reason.NEAR_DUPLICATE, self._near, _near_hash),
            )
            if reason not in ignored
        ]

    def kept_of(self, block: Sequence[Pair]) -> Iterator[Pair]:
        """The pairs of a block that are written, repeated by their domains' weights."""
        candidates = self._without_excluded(list(self._candidates(block)))
        # Sampling comes before the search for duplicates. So a pair that it leaves out does not make an equal pair of
        # another domain a duplicate.
        candidates = self._split(candidates, [each.copies == 0 for each in candidates], Reason.SAMPLING)
        for reason, seen, hash_of in self._duplicates:
            hashes = np.fromiter((hash_of(each.pair) for each in candidates), np.uint64, len(candidates))
            candidates = self._split(candidates, ~seen.add(hashes), reason)
        for candidate in candidates:
            yield from self._written(candidate)

    def _candidates(self, block: Sequence[Pair]) -> Iterator[_Candidate]:
        """Normalise the pairs, and drop those that break a rule for single pairs."""
        rules, weights, report = self._preparation.rules, self._preparation.weights, self._report
        for raw in block:
            report.read[raw.domain] += 1
            check_num_domains(report.read)
            if weights.get(raw.domain, 1.0) == 0:
                report.drop(raw, Reason.DOMAIN)
                continue
            if rules.is_broken(raw.source, raw.target):
                report.drop(raw, Reason.BROKEN)
                continue
            pair = Pair(normalise(raw.source), normalise(raw.target), raw.domain)
            if reason := rules.reason_against(pair.source, pair.target):
                report.drop(pair, reason)
                continue
            yield _Candidate(pair, self._copies(pair))

    def _copies(self, pair: Pair) -> int:
        """The number of copies of the pair, by its domain's weight."""
        weight = self._preparation.weights.get(pair.domain, 1.0)
        draw = hash64(f"{self._preparation.seed}\t{_near_hash(pair)}") / 2**64 if weight % 1 else 0.0
        return int(weight + draw)

    def _without_excluded(self, candidates: list[_Candidate]) -> list[_Candidate]:
        excluded = self._preparation.excluded
        if not len(excluded):
            return candidates
        keys = [hash64(letters_key(text)) for c in candidates for text in (c.pair.source, c.pair.target)]
        is_side_excluded = np.isin(np.array(keys, np.uint64).reshape(-1, 2), excluded)
        return self._split(candidates, map(any, is_side_excluded.tolist()), Reason.EXCLUDED)

    def _split(
        self, candidates: list[_Candidate], is_dropped: Iterable[bool], reason: Reason
    ) -> list[_Candidate]:
        """The candidates that stay. Counts the others."""
        kept = []
        for candidate, drops in zip(candidates, is_dropped, strict=True):
            if drops:
                self._report.drop(candidate.pair, reason)
            else:
                kept.append(candidate)
        return kept

    def _written(self, candidate: _Candidate) -> Iterator[Pair]:
        """The copies of the pair. None if a side is in another language."""
        pair, rules = candidate.pair, self._preparation.rules
        if self._language is not None and (
            self._language.is_other(pair.source, rules.source)
            or self._language.is_other(pair.target, rules.target)
        ):
            self._report.drop(pair, Reason.LANGUAGE)
            return
        self._report.written[pair.domain] += candidate.copies
        yield from repeat(pair, candidate.copies)


def _hash(pair: Pair) -> int:
    """The hash of the pair's text, which duplicates share."""
    return hash64(f"{pair.source}\t{pair.target}")


def _near_hash(pair: Pair) -> int:
    """The hash of the pair's `near_key`s, which near-duplicates share."""
    return hash64(f"{near_key(pair.source)}\t{near_key(pair.target)}")


def excluded_hashes(paths: Iterable[Path]) -> UInt64s:
    """Return the sorted hashes of all sentences of test sets, from the last two columns of each file.

    The first of three columns is a domain. Raises CorpusError for a file that cannot be read, and for a line of more
    than three columns.
    """
    keys: set[int] = set()
    for path in paths:
        for number, line in enumerate(read_lines(path), 1):
            columns = line.split("\t")
            if len(columns) > 3:
                raise CorpusError(
                    f"{path}, line {number}: {len(columns)} columns, where at most 3 are allowed"
                )
            keys.update(hash64(key) for text in columns[-2:] if (key := letters_key(normalise(text))))
    return np.array(sorted(keys), np.uint64)
