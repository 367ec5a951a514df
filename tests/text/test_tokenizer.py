"""Encoding a text word by word returns the same subwords as encoding it at once."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text import tokenizer as tokenizer_module
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer, TokenizerError, WordCache
from tests.model.sentences import pairs

BUNDLED = Path(__file__).parents[2] / "bundles" / "en-de" / "source.spm"
LETTERS = "abcdefghnorstuvAEST\u00e4\u00df.,'-19\u00a0\t" + PLACEHOLDER_SYMBOLS[0] + PLACEHOLDER_SYMBOLS[3]
SENTENCES = [pair.source for pair in pairs()] * 5


def train(folder: Path, **options: Any) -> Path:
    """Train a SentencePiece model with the library's own defaults, except for the placeholder symbols."""
    path = folder / "other.spm"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_prefix=str(path.with_suffix("")),
        hard_vocab_limit=False,
        user_defined_symbols=list(PLACEHOLDER_SYMBOLS),
        minloglevel=2,
        **options,
    )
    path.with_suffix(".model").rename(path)
    return path


@pytest.fixture(scope="module")
def whole() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(BUNDLED))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(BUNDLED)


@settings(max_examples=500, deadline=None)
@given(text=st.text(alphabet=LETTERS + "      ", max_size=60))
def test_encoding_by_word_equals_encoding_at_once(
    tokenizer: Tokenizer, whole: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    assert tokenizer._words is not None
    assert tokenizer._words.encode(text) == whole.encode(text)


def test_the_word_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "MAX_CACHED_WORDS", 3)
    encoded: list[str] = []

    def encode(word: str) -> list[int]:
        encoded.append(word)
        return [len(word)]

    words = WordCache(encode)
    assert words.encode("a bb a ccc a") == [1, 2, 1, 3, 1]
    assert encoded == ["a", "bb", "ccc"]
    words.encode("dddd " + "e" * 100 + " " + "e" * 100)
    assert encoded[3:] == ["dddd", "e" * 100, "e" * 100]
    assert set(words._cached) == {"dddd"}


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", "vocab_size": 60},
        {"model_type": "bpe", "vocab_size": 120, "add_dummy_prefix": False},
    ],
    ids=["unigram", "BPE without a space before the first word"],
)
def test_other_models_encode_the_text_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    path = train(tmp_path, **options)
    tokenizer = Tokenizer(path, ends_source=False)
    assert tokenizer._words is None
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert list(tokenizer.encode(SENTENCES[0]).ids) == processor.encode(SENTENCES[0])


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf"])
def test_characters_that_the_normalisation_turns_into_known_ones_are_known(tmp_path: Path, rule: str) -> None:
    path = train(tmp_path, model_type="unigram", vocab_size=60, normalization_rule_name=rule)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = Tokenizer(path)
    known = 0
    for character in map(chr, (*range(0x21, 0x3000), *range(0xF900, 0x10000))):
        if not unicodedata.is_normalized("NFC", character):
            continue  # the tokenizer encodes its normal form
        text = processor.normalize(character).replace("\u2581", " ").strip(" ")
        is_known = processor.unk_id() not in processor.encode(character) and bool(text or character.isspace())
        assert tokenizer.encode(f"Anna {character}").verbatim_spans == (() if is_known else (character,))
        known += is_known
    assert known > 150


def test_a_normalisation_that_adds_placeholder_symbols_is_an_error(tmp_path: Path) -> None:
    rules = tmp_path / "rules.tsv"
    rules.write_text(f"FB01\t{ord(PLACEHOLDER_SYMBOLS[0]):X}\nA0\t20\n", "utf-8")
    path = train(tmp_path, model_type="unigram", vocab_size=60, normalization_rule_tsv=str(rules))
    with pytest.raises(
        TokenizerError, match=r"other\.spm: the normalisation adds or removes placeholder symbols"
    ):
        Tokenizer(path)


def test_a_sentence_has_at_most_as_many_verbatim_spans_as_there_are_symbols(tokenizer: Tokenizer) -> None:
    spans = tuple(chr(0x4E00 + index) for index in range(len(PLACEHOLDER_SYMBOLS)))
    text = " and ".join(spans)
    assert tokenizer.encode(text).verbatim_spans == spans
    with pytest.raises(TokenizerError, match=f"more than {len(spans)} runs of unknown characters"):
        tokenizer.encode(f"{text} and \u4f60")
