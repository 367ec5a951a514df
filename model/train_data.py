"""The text of a training run: its pairs as the arguments of `transduce train` choose them, in batches."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import numpy as np

from app.text.tokenizer import Tokenizer
from model.batches import Batches
from model.config import ModelConfig
from model.corpus import (
    Corpus,
    CorpusError,
    Filter,
    NoPairError,
    Pair,
    check_domains,
    counts_by_reason,
    encode_corpus,
)
from model.corpus_cache import cached_corpus, file_facts
from model.data_arguments import directions_of, files_of, one_way_pairs, pairs_of, with_lexicon
from model.lexicon import LoneWords, read_lexicon, word_pairs


def batches_of(
    args: argparse.Namespace, tokenizer: Tokenizer, config: ModelConfig
) -> tuple[Batches, Batches]:
    """The batches of training and of dev data. Prints on stderr how many pairs were left out, by reason.

    Raises CorpusError for a file that cannot be read, for --data or --dev if all of its pairs are left out, and for a
    domain of --domain that has no pair, or whose pairs are all left out.
    """
    weights = dict(args.domain)
    dev_keep = dev_filter(args, config)
    keep = Filter(
        max_length=dev_keep.max_length,
        strange_share=args.strange_share,
        typed_share=args.typed_share,
        excluded=dev_keep.excluded,
    )
    entries = [] if args.lexicon is None else read_lexicon(args.lexicon)
    directions = directions_of(args)
    with_words = with_lexicon(directions, entries)
    # All three are made first: each raises for a missing file before any pair is read.
    data_pairs, one_way, dev_pairs = pairs_of(args.data), one_way_pairs(args, with_words), pairs_of(args.dev)
    files = [*files_of(args.data), args.tokenizer, *([] if args.lexicon is None else [args.lexicon])]
    key = {
        "specifications": [args.data, args.one_way, args.one_way_reverse],
        "files": file_facts(files),
        "filter": {**dataclasses.asdict(keep), "excluded": sorted(keep.excluded)},
        "seed": args.seed,
        "tags": [one.tag for one in directions],
        "one_way": file_facts(files_of(args.one_way)),
        "one_way_reverse": file_facts(files_of(args.one_way_reverse)),
    }

    seen: set[str] = set()
    lone_words = LoneWords()

    def noted(pair: Pair) -> Pair:
        seen.add(pair.domain)
        return pair

    def noted_with_words(pair: Pair) -> Pair:
        if pair.domain not in keep.excluded:
            lone_words.note(pair)
        return noted(pair)

    with _naming("--dev"):
        dev = encode_corpus(map(noted, dev_pairs), tokenizer, keep=dev_keep, directions=directions)

    def encode() -> Corpus:
        encoded = encode_corpus(
            chain(
                map(noted_with_words if entries else noted, data_pairs),
                map(noted, word_pairs(entries, lone_words)),
            ),
            tokenizer,
            keep=keep,
            seed=args.seed,
            directions=with_words,
            one_way=((noted(pair), direction) for pair, direction in one_way),
        )
        check_domains(keep.excluded, seen)  # Batches checks the other domains of --domain
        return encoded

    with _naming("--data"):
        corpus = cached_corpus(args.run / "corpus", key, encode)
    for name, one in (("data", corpus), ("dev", dev)):
        longest = one.lengths()[0].max()
        counts = f"{len(one):,} pairs, {len(one.ids):,} subwords, longest source {longest}"
        print(f"{name}: {counts}; left out: {counts_by_reason(one.dropped)}", file=sys.stderr)
    kept = {name: weight for name, weight in weights.items() if weight > 0}
    if lost := sorted(set(kept).intersection(corpus.lost_domains)):
        raise CorpusError(f"--data: no pair of the domain {', '.join(lost)} is left")
    return (
        Batches(
            corpus,
            max_tokens=args.batch_tokens,
            seed=args.seed,
            weights=kept,
            temperature=args.domain_temperature,
        ),
        Batches(dev, max_tokens=args.batch_tokens, seed=0),
    )


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Put an option before the message if no pair of its text is left."""
    try:
        yield
    except NoPairError as error:
        raise CorpusError(f"{option}: {error}") from error


def domain_counts(batches: Batches) -> dict[str, int]:
    """The number of training pairs of each domain. A pair counts once for each direction."""
    counts = np.bincount(batches.corpus.domains, minlength=len(batches.corpus.domain_names))
    return dict(zip(batches.corpus.domain_names, counts.tolist(), strict=True))


def dev_filter(args: argparse.Namespace, config: ModelConfig) -> Filter:
    """The filter that selects the dev pairs for the loss and for BLEU."""
    excluded = frozenset(name for name, weight in dict(args.domain).items() if weight == 0)
    return Filter(
        max_length=min(128, config.max_length), max_ratio=100.0, strange_share=0.0, excluded=excluded
    )
