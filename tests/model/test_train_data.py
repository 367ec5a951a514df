"""The errors of `transduce train` when no sentence pair is left to train on or to evaluate with."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from app.text.tokenizer import Tokenizer
from model.batches import Batches
from model.config import preset
from model.corpus import CorpusError, Pair
from model.train_cli import add_train_arguments
from model.train_data import batches_of
from tests.model.sentences import pairs, write_tsv

BLANK = Pair("", "", "onlyempty")


def made(folder: Path, tokenizer: Tokenizer, *options: str | Path) -> tuple[Batches, Batches]:
    """The batches that these options of `transduce train` select."""
    vocabulary = folder / "t.spm"
    if not vocabulary.exists():  # a new modification time would make another corpus
        vocabulary.touch()
    parser = argparse.ArgumentParser()
    add_train_arguments(parser)
    files = "--run", folder / "run", "--tokenizer", vocabulary
    args = parser.parse_args([str(option) for option in (*files, *options)])
    return batches_of(args, tokenizer, preset("tiny", tokenizer.vocab_size))


def test_the_error_names_the_option_and_why_no_pair_is_left(tmp_path: Path, tokenizer: Tokenizer) -> None:
    data = write_tsv(tmp_path / "data.tsv", pairs()[:8])
    chat = write_tsv(tmp_path / "chat.tsv", [Pair("a", "b", "chat")] * 60)
    blank, none = write_tsv(tmp_path / "blank.tsv", [BLANK] * 2), write_tsv(tmp_path / "none.tsv", [])
    for train, dev, problem in (
        (data, chat, "--dev: no pair is left (left out: 60 excluded domain)"),
        (blank, data, "--data: no pair is left (left out: 2 empty)"),
        (none, data, "--data: there is no pair"),
    ):
        with pytest.raises(CorpusError, match=f"^{re.escape(problem)}$"):
            made(tmp_path, tokenizer, "--data", train, "--dev", dev, "--domain", "chat=0")


def test_a_pair_of_more_than_128_subwords_is_left_out_even_if_the_model_has_more_positions(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    long = Pair("the river " * 60, "den Fluss " * 60, "home")
    assert len(tokenizer.encode(long.source).ids) < preset("tiny", tokenizer.vocab_size).max_length
    data, dev = write_tsv(tmp_path / "data.tsv", [long]), write_tsv(tmp_path / "dev.tsv", pairs()[:2])
    with pytest.raises(CorpusError, match=r"^--data: no pair is left \(left out: 1 too long\)$"):
        made(tmp_path, tokenizer, "--data", data, "--dev", dev)


def test_only_training_leaves_out_pairs_whose_lengths_differ(tmp_path: Path, tokenizer: Tokenizer) -> None:
    odd = write_tsv(tmp_path / "odd.tsv", [Pair("Anna", "Anna sieht heute den alten Baum " * 2, "home")])
    data = write_tsv(tmp_path / "data.tsv", pairs()[:2])
    _, dev = made(tmp_path, tokenizer, "--data", data, "--dev", odd)
    assert len(dev.corpus) == 1
    with pytest.raises(CorpusError, match="left out: 1 lengths differ too much"):
        made(tmp_path, tokenizer, "--data", odd, "--dev", data)


def test_a_domain_without_a_pair_left_has_another_error_than_an_unknown_domain(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """The message is the same if the corpus is read from the run's folder."""
    data, blank = write_tsv(tmp_path / "a.tsv", pairs()[:8]), write_tsv(tmp_path / "b.tsv", [BLANK] * 2)
    options = ("--data", data, "--data", blank, "--dev", data)
    for weights, problem in (
        ("onlyempty=2", "--data: no pair of the domain onlyempty is left"),
        ("onlyempty=3", "--data: no pair of the domain onlyempty is left"),
        ("sea=2", "no pair has the domain sea; the pairs have home"),
    ):
        with pytest.raises(CorpusError, match=f"^{problem}$"):
            made(tmp_path, tokenizer, *options, "--domain", weights)
    assert (tmp_path / "run" / "corpus").is_dir()
    assert made(tmp_path, tokenizer, *options, "--domain", "onlyempty=0")
