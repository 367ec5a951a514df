"""A run stores its encoded corpus. A run with the same key reads it; a run with another key encodes again."""

from __future__ import annotations

import argparse
import os
import resource
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from app.text.tokenizer import Tokenizer
from model.batches import Batches
from model.config import preset
from model.corpus import Corpus, CorpusError, Filter, Pair, encode_corpus
from model.corpus_cache import cached_corpus, file_facts
from model.train_cli import add_train_arguments
from model.train_data import batches_of
from tests.model.sentences import pairs, write_tsv

PAIRS = [Pair("the dog sees a cat", "der hund sieht eine katze", "d"), Pair("", "leer", "d")]


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.num_calls = 0

    def __call__(self) -> Corpus:
        self.num_calls += 1
        return encode_corpus(PAIRS * 3, self.tokenizer, keep=Filter(strange_share=0.0))


def test_an_unchanged_corpus_is_read_and_equal(tmp_path: Path, tokenizer: Tokenizer) -> None:
    encode = Encoder(tokenizer)
    made = cached_corpus(tmp_path / "corpus", {"seed": 1, "tags": (None,)}, encode)
    read = cached_corpus(tmp_path / "corpus", {"seed": 1, "tags": (None,)}, encode)
    assert encode.num_calls == 1
    assert isinstance(read.ids, np.memmap)
    assert (read.domain_names, read.dropped) == (made.domain_names, made.dropped)
    assert read.dropped["empty"] == 3
    batches = [Batches(corpus, max_tokens=64, seed=1) for corpus in (made, read)]
    one, other = (each.collate(each.epoch(0)[0]) for each in batches)
    assert one.source.tolist() == other.source.tolist()
    assert one.labels.tolist() == other.labels.tolist()


@pytest.mark.parametrize("broken", [False, True])
def test_a_corpus_with_another_key_or_a_broken_file_is_encoded_again(
    tmp_path: Path, tokenizer: Tokenizer, broken: bool
) -> None:
    encode = Encoder(tokenizer)
    cached_corpus(tmp_path / "corpus", {"seed": 1}, encode)
    if broken:
        (tmp_path / "corpus" / "ids.npy").write_bytes(b"")
    corpus = cached_corpus(tmp_path / "corpus", {"seed": 1 if broken else 2}, encode)
    assert encode.num_calls == 2
    assert len(corpus) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_a_failed_encoding_leaves_the_old_corpus(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def fail() -> Corpus:
        raise CorpusError("no pair is left")

    encode = Encoder(tokenizer)
    cached_corpus(tmp_path / "corpus", {"seed": 1}, encode)
    with pytest.raises(CorpusError):
        cached_corpus(tmp_path / "corpus", {"seed": 2}, fail)
    cached_corpus(tmp_path / "corpus", {"seed": 1}, encode)
    assert encode.num_calls == 1


def test_a_full_disk_leaves_the_old_corpus_and_no_other_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The limit on the sizes of files makes writes fail, as a full disk does."""
    encode = Encoder(tokenizer)
    cached_corpus(tmp_path / "corpus", {"seed": 1}, encode)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with pytest.raises(OSError):  # noqa: PT011 - its message is the system's
            cached_corpus(tmp_path / "corpus", {"seed": 2}, encode)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    cached_corpus(tmp_path / "corpus", {"seed": 1}, encode)
    assert encode.num_calls == 2


def test_the_facts_of_a_file_change_with_its_modification_time(tmp_path: Path) -> None:
    path = tmp_path / "data.tsv"
    path.write_text("a\tb\n", "utf-8")
    before = file_facts([path])
    assert file_facts([path]) == before
    os.utime(path, ns=(1, 1))
    assert file_facts([path]) != before


def pairs_by_domain(folder: Path, tokenizer: Tokenizer, *options: str) -> list[dict[str, int]]:
    """For the training corpus and then for the dev corpus: the number of pairs of each domain."""
    parser = argparse.ArgumentParser()
    add_train_arguments(parser)
    args = parser.parse_args(["--run", str(folder), "--tokenizer", str(folder / "t.spm"), *options])
    found = batches_of(args, tokenizer, preset("tiny", tokenizer.vocab_size))
    corpora = [batches.corpus for batches in found]
    return [dict(Counter(corpus.domain_names[number] for number in corpus.domains)) for corpus in corpora]


def test_files_that_are_paired_in_another_way_are_another_corpus(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """`A:B` pairs line n of file A with line n of file B. Two `--data` are two files of pairs."""
    (tmp_path / "t.spm").touch()
    one, other = (write_tsv(tmp_path / name, pairs()[:8]) for name in ("one.tsv", "other.tsv"))
    dev = ("--dev", str(one))
    (parallel, _) = pairs_by_domain(tmp_path, tokenizer, "--data", f"{one}:{other}", *dev)
    (separate, _) = pairs_by_domain(tmp_path, tokenizer, "--data", str(one), "--data", str(other), *dev)
    assert (sum(parallel.values()), sum(separate.values())) == (8, 16)


@pytest.mark.parametrize(("weights", "num_pairs"), [(("0", "2"), 8), (("2", "0"), 4)])
def test_the_last_weight_of_a_domain_counts(
    tmp_path: Path, tokenizer: Tokenizer, weights: tuple[str, str], num_pairs: int
) -> None:
    (tmp_path / "t.spm").touch()
    labelled = [Pair(pair.source, pair.target, "ab"[number % 2]) for number, pair in enumerate(pairs()[:8])]
    path = str(write_tsv(tmp_path / "data.tsv", labelled))
    options = [option for weight in weights for option in ("--domain", f"a={weight}")]
    found = pairs_by_domain(tmp_path, tokenizer, "--data", path, "--dev", path, *options)
    assert [sum(each.values()) for each in found] == [num_pairs, num_pairs]


def test_the_error_names_a_left_out_domain_that_no_pair_has(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "t.spm").touch()
    labelled = [Pair(pair.source, pair.target, "ab"[number % 2]) for number, pair in enumerate(pairs()[:8])]
    path = str(write_tsv(tmp_path / "data.tsv", labelled))
    more = str(write_tsv(tmp_path / "more.tsv", [Pair("", "", "blank")]))
    dev = str(write_tsv(tmp_path / "dev.tsv", [*labelled, Pair("dev", "dev", "only in dev")]))
    left_out = ("--domain", "a=0", "--domain", "blank=0", "--domain", "only in dev=0")
    options = ("--data", path, "--dev", dev, "--one-way", more, *left_out)
    assert pairs_by_domain(tmp_path, tokenizer, *options) == [{"b": 4}, {"b": 4}]
    with pytest.raises(
        CorpusError, match="no pair has the domain aa; the pairs have a, b, blank, only in dev"
    ):
        pairs_by_domain(tmp_path, tokenizer, *options, "--domain", "aa=0")
