"""Batches of pairs of similar length, within a budget of subwords, in an order that depends on a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.config import BOS_ID, PAD_ID
from model.corpus import Corpus, check_domains

Int64s = NDArray[np.int64]
# Minimum of the mean number of pairs in an epoch. If smaller, it would take long to find an epoch that is not empty.
MIN_EPOCH_PAIRS = 0.001


@dataclass(frozen=True)
class Batch:
    """source (rows, source_length), target and labels (rows, target_length), right-padded.

    target begins with the start token, labels are target shifted left and end with the end token.
    """

    source: Tensor
    target: Tensor
    labels: Tensor

    @property
    def num_target_tokens(self) -> int:
        """Labels that are not padding."""
        return int((self.labels != PAD_ID).sum())


@dataclass(frozen=True)
class Position:
    """The position of training in the data: the next batch is number `batch` of epoch `epoch`, both from 0."""

    epoch: int = 0
    batch: int = 0


def balanced_weights(counts: Int64s, temperature: float) -> NDArray[np.float64]:
    """How often an epoch contains each pair of a domain, so that domains' shares are in proportion to n^(1/T).

    counts: (domains,) pairs n of each domain. temperature: T, at least 1. Each pair of the largest domain occurs once.
    With T = 1, every pair occurs once. As T grows, all domains approach the size of the largest. Arivazhagan et al.
    2019, section 4.2. Returns (domains,).
    """
    shares: NDArray[np.float64] = np.maximum(counts, 1) / counts.max(initial=1)
    return np.power(shares, 1 / temperature - 1)


class Batches:
    """Endless batches of one corpus. The batches of an epoch depend only on the seed and the epoch."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        max_tokens: int,
        seed: int,
        weights: Mapping[str, float] | None = None,
        temperature: float = 1.0,
    ) -> None:
        """max_tokens: maximum number of subwords on a batch's longer side, padding included.

        weights: mean number of times that an epoch contains each pair of a domain; 1 for domains that are not named.
        temperature: T of `balanced_weights`, whose result multiplies the weights.
        Raises CorpusError for a domain that the corpus does not have, and ValueError if an epoch has fewer than
        MIN_EPOCH_PAIRS pairs on average.
        """
        weights = weights or {}
        check_domains(weights, corpus.domain_names)
        self.corpus = corpus
        self.max_tokens = max_tokens
        self.seed = seed
        counts = np.bincount(corpus.domains, minlength=len(corpus.domain_names))
        named = np.array([weights.get(name, 1.0) for name in corpus.domain_names])
        self._weights = named * balanced_weights(counts, temperature)
        if (expected := float(counts @ self._weights)) < MIN_EPOCH_PAIRS:
            raise ValueError(f"an epoch has {expected:g} pairs on average: give the domains larger weights")
        self._lengths = corpus.lengths()

    def only(self, domain: str) -> Batches:
        """The batches of one domain's pairs only."""
        others = {name: 0.0 for name in self.corpus.domain_names if name != domain}
        return Batches(self.corpus, max_tokens=self.max_tokens, seed=self.seed, weights=others)

    def epoch(self, epoch: int) -> list[Int64s]:
        """The indices of each batch of one epoch. Fractional weights may leave it without a batch."""
        generator = np.random.default_rng((self.seed, epoch))
        wanted = self._weights[self.corpus.domains]
        copies = np.floor(wanted + generator.random(len(wanted))).astype(np.int64)
        chosen = np.repeat(np.arange(len(wanted)), copies)
        generator.shuffle(chosen)
        sources, targets = self._lengths
        # Pairs of equal source length are neighbours, so hardly any source is padded, and most batches need no mask.
        order = chosen[np.lexsort((targets[chosen], sources[chosen]))]
        batches = self._cut(order)
        generator.shuffle(batches)
        return batches

    def _cut(self, order: Int64s) -> list[Int64s]:
        """Cut a sorted order into batches of at most max_tokens, padding included, and at least one row."""
        longest = np.maximum(*self._lengths)[order]
        batches, start, widest = [], 0, 0
        for index, length in enumerate(longest.tolist()):
            widest_with = max(widest, length)
            if index > start and widest_with * (index - start + 1) > self.max_tokens:
                batches.append(order[start:index])
                start, widest_with = index, length
            widest = widest_with
        return [*batches, order[start:]] if len(order) else []

    def collate(self, indices: Int64s) -> Batch:
        """The padded tensors of one batch."""
        source, label = self._padded(2 * indices), self._padded(2 * indices + 1)
        target = np.concatenate([np.full((len(indices), 1), BOS_ID), label[:, :-1]], axis=1)
        target[label == PAD_ID] = PAD_ID
        return Batch(torch.from_numpy(source), torch.from_numpy(target), torch.from_numpy(label))

    def _padded(self, sentences: Int64s) -> Int64s:
        """Subwords of sentences of the corpus, right-padded: (sentences, longest)."""
        starts, ends = self.corpus.starts[sentences], self.corpus.starts[sentences + 1]
        places = starts[:, None] + np.arange((ends - starts).max())
        is_padding = places >= ends[:, None]
        places[is_padding] = 0
        return np.where(is_padding, PAD_ID, self.corpus.ids[places]).astype(np.int64)

    def since(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        """The batches from a position on, each with the position after it."""
        epoch = position.epoch
        skip = position.batch
        while True:
            batches = self.epoch(epoch)
            for number in range(skip, len(batches)):
                is_last = number + 1 == len(batches)
                following = Position(epoch + 1, 0) if is_last else Position(epoch, number + 1)
                yield self.collate(batches[number]), following
            epoch, skip = epoch + 1, 0
