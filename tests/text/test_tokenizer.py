"""Encoding a text word by word returns the same subwords as encoding it at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text import tokenizer as tokenizer_module
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer, WordCache
from tests.model.sentences import pairs

BUNDLED = Path(__file__).parents[2] / "bundles" / "en-de" / "source.spm"
LETTERS = "abcdefghnorstuvAEST\u00e4\u00df.,'-19\u00a0\t" + PLACEHOLDER_SYMBOLS[0] + PLACEHOLDER_SYMBOLS[3]


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
    path = tmp_path / "other.spm"
    sentences = [pair.source for pair in pairs()] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_prefix=str(path.with_suffix("")),
        hard_vocab_limit=False,
        user_defined_symbols=list(PLACEHOLDER_SYMBOLS),
        minloglevel=2,
        **options,
    )
    path.with_suffix(".model").rename(path)
    tokenizer = Tokenizer(path, ends_source=False)
    assert tokenizer._words is None
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert list(tokenizer.encode(sentences[0]).ids) == processor.encode(sentences[0])
