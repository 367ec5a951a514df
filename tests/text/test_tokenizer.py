"""A text that is cut word by word has the subwords that it has when it is cut at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text import tokenizer as module
from app.text.tokenizer import PLACEHOLDERS, Tokenizer, WordCache
from tests.model.sentences import pairs

BUNDLED = Path(__file__).parents[2] / "bundles" / "en-de" / "source.spm"
LETTERS = "abcdefghnorstuvAEST\u00e4\u00df.,'-19\u00a0\t" + PLACEHOLDERS[0] + PLACEHOLDERS[3]


@pytest.fixture(scope="module")
def whole() -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(BUNDLED))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(BUNDLED)


@settings(max_examples=500, deadline=None)
@given(text=st.text(alphabet=LETTERS + "      ", max_size=60))
def test_word_by_word_is_as_at_once(
    tokenizer: Tokenizer, whole: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    assert tokenizer._words is not None
    assert tokenizer._words.encode(text) == whole.encode(text)


def test_only_so_many_words_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_WORDS", 3)
    asked: list[str] = []

    def encode(word: str) -> list[int]:
        asked.append(word)
        return [len(word)]

    words = WordCache(encode)
    assert words.encode("a bb a ccc a") == [1, 2, 1, 3, 1]
    assert asked == ["a", "bb", "ccc"]
    words.encode("dddd " + "e" * 100 + " " + "e" * 100)
    assert asked[3:] == ["dddd", "e" * 100, "e" * 100]
    assert set(words._kept) == {"dddd"}


def test_a_model_that_may_weigh_words_together_cuts_the_text_at_once(tmp_path: Path) -> None:
    path = tmp_path / "unigram.spm"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([pair.source for pair in pairs()] * 5),
        model_prefix=str(path.with_suffix("")),
        model_type="unigram",
        vocab_size=60,
        hard_vocab_limit=False,
        user_defined_symbols=list(PLACEHOLDERS),
        minloglevel=2,
    )
    path.with_suffix(".model").rename(path)
    assert Tokenizer(path)._words is None
