"""The tokenizer keeps characters that SentencePiece changes by default, and copies unknown characters."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer, TokenizerError
from model.corpus import Pair
from model.tokenizer_training import train_tokenizer
from tests.model.sentences import pairs

ALTERED_BY_THE_DEFAULT = {
    "zero-width space": "the\u200briver",
    "control character": "the\x07river",
    "superscript": "the river\u00b2",
    "ligature": "the \ufb01sh",
    "full-width letters": "\uff21nna",
    "runs of spaces": "the  old   tree",
    "no-break space": "42\u00a0cats",
    "tab": "the\triver",
    "literal U+2581": "the \u2581 river",
    "soft hyphen": "gar\u00adden",
}


@pytest.mark.parametrize("text", ALTERED_BY_THE_DEFAULT.values(), ids=ALTERED_BY_THE_DEFAULT.keys())
def test_characters_that_the_default_normalisation_alters_are_kept(tokenizer: Tokenizer, text: str) -> None:
    encoded = tokenizer.encode(text)
    decoded = tokenizer.decode(encoded.ids[:-1], encoded.verbatim_spans)
    assert (decoded.text, decoded.num_appended) == (text, 0)


@pytest.mark.parametrize(
    "text",
    [
        "Anna greets \U0001f600",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 in the garden",
        "\u65e5\u672c \u8a9e today",
        "\u05d0\u05d1 \ue000 \ue007",
    ],
)
def test_unknown_characters_are_copied(tokenizer: Tokenizer, text: str) -> None:
    encoded = tokenizer.encode(text)
    assert encoded.verbatim_spans
    assert tokenizer.decode(encoded.ids[:-1], encoded.verbatim_spans).text == text


def test_a_decomposed_letter_is_composed(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Ba\u0308cker") == tokenizer.encode("B\u00e4cker")


def test_special_tokens_as_text_are_text(tokenizer: Tokenizer) -> None:
    for text in ("</s>", "<s>", "<pad>", "<unk>", "<0x41>"):
        ids = tokenizer.encode(text).ids
        assert {tokenizer.pad_id, tokenizer.bos_id, tokenizer.unk_id}.isdisjoint(ids)
        assert ids.index(tokenizer.eos_id) == len(ids) - 1
        assert tokenizer.decode(ids[:-1], tokenizer.encode(text).verbatim_spans).text == text


def test_an_unknown_run_that_the_model_omits_is_appended_once(tokenizer: Tokenizer) -> None:
    encoded = tokenizer.encode("Anna \U0001f600 greets \U0001f680 today.")
    once = tokenizer.encode("\U0001f600").ids[:-1]
    without = tokenizer.encode("Anna greets today.").ids[:-1]
    decoded = tokenizer.decode(without, encoded.verbatim_spans)
    assert (decoded.text, decoded.num_appended) == ("Anna greets today. \U0001f600 \U0001f680", 2)
    twice = tokenizer.decode((*once, *once), encoded.verbatim_spans)
    assert twice.text.count("\U0001f600") == 1
    assert twice.text.count("\U0001f680") == 1


def test_a_placeholder_that_was_not_in_the_source_is_dropped(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Anna \U0001f600").ids[:-1]
    assert tokenizer.decode(ids).text.strip() == "Anna"


def test_a_target_takes_the_placeholder_of_the_equal_run(tokenizer: Tokenizer) -> None:
    source = tokenizer.encode("\U0001f680 Anna \U0001f600")
    target = tokenizer.encode_target("\U0001f600 Anna \U0001f680", source.verbatim_spans)
    assert tokenizer.decode(target[:-1], source.verbatim_spans).text == "\U0001f600 Anna \U0001f680"
    other = tokenizer.encode_target("Anna \U0001f525", source.verbatim_spans)
    assert tokenizer.decode(other[:-1]).text == "Anna \U0001f525"
    with pytest.raises(TokenizerError, match="placeholder characters"):
        tokenizer.encode_target("Anna " + PLACEHOLDER_SYMBOLS[0], ())


def test_more_runs_than_placeholders_is_an_error(tokenizer: Tokenizer) -> None:
    text = " ".join(
        "\U0001f600\U0001f680\U0001f525\U0001f308\U0001f335\U0001f40c\U0001f9ed\U0001f9f2\U0001f52d"
    )
    assert tokenizer.num_verbatim_spans(text) == 9
    with pytest.raises(TokenizerError, match="more than 8 runs"):
        tokenizer.encode(text)
    assert len(tokenizer.encode(text[:-2]).verbatim_spans) == len(PLACEHOLDER_SYMBOLS)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(0, 2**32))
def test_any_text_with_few_unknown_runs_comes_back_composed(
    tokenizer: Tokenizer, text: str, seed: int
) -> None:
    composed = unicodedata.normalize("NFC", text)
    if tokenizer.num_verbatim_spans(text) > len(PLACEHOLDER_SYMBOLS):
        return
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids[:-1], encoded.verbatim_spans).text == composed
    shuffled = list(encoded.ids[:-1])
    random.Random(seed).shuffle(shuffled)
    scrambled = tokenizer.decode(shuffled, encoded.verbatim_spans).text
    assert all(scrambled.count(run) >= 1 for run in encoded.verbatim_spans)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.spm"
    path.write_bytes(b"not a model")
    with pytest.raises(TokenizerError, match=r"broken\.spm is not a SentencePiece model"):
        Tokenizer(path)


def test_a_vocabulary_is_learnt_from_a_sample_of_a_large_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is ordered by domain, and both domains are in the sample."""
    train = sentencepiece.SentencePieceTrainer.train
    texts: list[str] = []

    def record(*, sentence_iterator: Iterator[str], **options: Any) -> None:
        texts.extend(sentence_iterator)
        train(sentence_iterator=iter(texts), **options)

    monkeypatch.setattr("sentencepiece.SentencePieceTrainer.train", record)
    monkeypatch.setattr("model.tokenizer_training.MAX_PAIRS", 200)
    ordered = [*pairs(), *(Pair("qqq zzz qqq", "zzz qqq zzz", "second") for _ in pairs())]
    train_tokenizer(ordered, tmp_path / "new.spm", vocab_size=400, character_coverage=1.0)
    assert len(texts) == 2 * 200
    tokenizer = Tokenizer(tmp_path / "new.spm")
    assert tokenizer.has_word("qqq")
    assert tokenizer.has_word("the")


def test_a_vocabulary_of_decomposed_text_has_the_composed_letters(tmp_path: Path) -> None:
    vocabularies = []
    for form in ("NFC", "NFD"):
        path = tmp_path / f"{form}.spm"
        text = [
            Pair(unicodedata.normalize(form, pair.source), unicodedata.normalize(form, pair.target), "")
            for pair in pairs()
        ]
        train_tokenizer(text, path, vocab_size=400, character_coverage=1.0)
        vocabularies.append(path.read_bytes())
    assert vocabularies[0] == vocabularies[1]
    assert Tokenizer(tmp_path / "NFD.spm").encode("der Ba\u0308cker").verbatim_spans == ()


def test_a_text_without_a_sentence_that_sentencepiece_takes_is_an_error(tmp_path: Path) -> None:
    message = "the vocabulary cannot be trained: the text has no sentence of at most 4,192 bytes"
    for text in ([], [Pair("a " * 3000, "b " * 3000, "")]):
        with pytest.raises(ValueError, match=message):
            train_tokenizer(text, tmp_path / "new.spm", vocab_size=400)


def test_a_text_that_is_too_small_for_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    message = r"the vocabulary cannot be trained: Vocabulary size too high \(20000\)\. Please set it to a value <= \d+"
    with pytest.raises(ValueError, match=message):
        train_tokenizer(pairs(), tmp_path / "new.spm", vocab_size=20_000)
    assert not (tmp_path / "new.spm").exists()


def test_a_vocabulary_that_is_too_small_names_the_options_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Increase --vocab-size or decrease --character-coverage\.$"):
        train_tokenizer(pairs(), tmp_path / "new.spm", vocab_size=280)


def test_known_characters_that_the_default_rule_folds_are_unchanged(tmp_path: Path) -> None:
    folded = "\u2026\u00b2\ufb01\uff21\u00bd\u2122\u00a0"
    known = [Pair(f"{pair.source} {folded}", pair.target, pair.domain) for pair in pairs()]
    train_tokenizer(known, tmp_path / "folded.spm", vocab_size=420, character_coverage=1.0)
    tokenizer = Tokenizer(tmp_path / "folded.spm")
    text = f"the river{folded}"
    encoded = tokenizer.encode(text)
    assert encoded.verbatim_spans == ()
    assert tokenizer.decode(encoded.ids[:-1]).text == text
