"""The golden sentences of models of one and of several language pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece

from app.decoding.options import DecodingOptions
from app.engine.limits import EngineLimits
from app.language_pairs import LanguagePair
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from export.cli import run_export
from export.golden import (
    BEAM_SIZES,
    ENGLISH,
    NUM_ROWS,
    GoldenSource,
    golden_cases,
    golden_pairs,
    golden_sources,
    num_golden_rows,
    translate_ids,
)
from export.output_folder import ExportError
from tests.engine.fake_runner import EOS, LIMITS, FakeRunner
from tests.export.tiny import MAX_LENGTH, export_arguments, random_model, write_checkpoint


def sources(num_pairs: int) -> list[GoldenSource]:
    return [GoldenSource(f"{pair}-{place}", pair, (4, 2)) for pair in range(num_pairs) for place in range(12)]


def test_one_pair_has_each_sentence_with_each_beam_size() -> None:
    cases = golden_cases(sources(1))
    assert len(set(cases)) == len(cases) == 12 * len(BEAM_SIZES)


def test_several_pairs_have_each_sentence_once_and_each_beam_size_equally_often() -> None:
    cases = golden_cases(sources(4))
    assert [source for source, _ in cases] == sources(4)
    for pair in range(4):
        sizes = [beam_size for source, beam_size in cases if source.pair == pair]
        assert all(sizes.count(beam_size) == 12 / len(BEAM_SIZES) for beam_size in BEAM_SIZES)
    uneven = golden_cases(sources(2)[1:])  # the first pair lacks a sentence
    assert uneven[11] == (GoldenSource("1-0", 1, (4, 2)), 4)
    first_sizes = [cases[12 * pair][1] for pair in range(4)]
    assert first_sizes == [1, 4, 1, 4]


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        ("fr en de fr", [0, 1, 2, 3]),
        ("en fr de fr en fr de", [0, 2, 4, 6]),
        ("en fr de fr en", [0, 1, 2, 3]),
        ("en de fr en de fr en de fr", [0, 1, 4, 6]),
    ],
    ids=["four pairs", "four with own sentences", "three with own sentences", "six with own sentences"],
)
def test_at_most_four_pairs_have_golden_sentences_and_mostly_those_with_their_own(
    languages: str, expected: list[int]
) -> None:
    assert golden_pairs([LanguagePair(source=each, target="it") for each in languages.split()]) == expected


@pytest.mark.parametrize(
    ("num_layers", "num_rows"), [(1, NUM_ROWS), (4, 11), (12, 4)], ids=["small", "medium", "large"]
)
def test_the_caches_of_golden_sentences_hold_the_widest_beam_in_a_model_of_any_size(
    num_layers: int, num_rows: int
) -> None:
    dimensions = SimpleNamespace(num_decoder_layers=num_layers, d_model=256 if num_rows == NUM_ROWS else 512)
    manifest: Any = SimpleNamespace(dimensions=dimensions, max_target_length=256)
    assert num_golden_rows(manifest) == num_rows


def test_a_model_may_take_longer_sources_than_an_engine_by_default() -> None:
    limits = replace(LIMITS, max_source_length=2 * EngineLimits().max_pending_tokens)
    options = DecodingOptions(max_target_length=limits.max_target_length - 1)
    assert len(translate_ids(FakeRunner(limits), [(5, 6, EOS)], options)) == 1


def test_sentences_that_the_vocabulary_cannot_encode_are_left_out(tmp_path: Path) -> None:
    """A vocabulary without Latin letters: each word is a run of unknown characters."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["\u0430\u043d\u043d\u0430 \u0438 \u0440\u0435\u043a\u0430."] * 9),
        model_prefix=str(tmp_path / "source"),
        vocab_size=40,
        hard_vocab_limit=False,
        user_defined_symbols=list(PLACEHOLDER_SYMBOLS),
        minloglevel=2,
    )
    manifest: Any = SimpleNamespace(
        language_pairs=[LanguagePair(source="ru", target="en")], max_source_length=256
    )
    found = golden_sources(Tokenizer(tmp_path / "source.model"), manifest)
    texts = [source.text for source in found]
    assert set(texts) < {*ENGLISH}
    assert "Where is the station?" in texts
    assert ENGLISH[2] not in texts


@pytest.mark.parametrize(
    ("max_length", "more", "option"),
    [(MAX_LENGTH, ("--max-source-length", "2"), "--max-source-length"), (2, (), "--max-length")],
)
def test_an_export_without_a_golden_sentence_within_its_limit_names_the_option(
    max_length: int, more: tuple[str, ...], option: str, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path, random_model(max_length=max_length))
    arguments = export_arguments(
        checkpoint, tmp_path / "new", tmp_path / "facts.toml", "--precisions", "int8", *more
    )
    with pytest.raises(ExportError, match=f"^no golden sentence has at most 2 subwords: raise {option}$"):
        run_export(arguments)
    assert not (tmp_path / "new").exists()
