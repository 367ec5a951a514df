"""Offsets of subwords are positions in the caller's text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text.spans import source_offsets, target_offsets
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, SPACE, Tokenizer, TokenizerError
from tests.model.sentences import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("spans") / "tokenizer.spm"))


def parts(text: str, offsets: list[tuple[int, int]]) -> list[str]:
    return [text[start:end] for start, end in offsets]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="Anna sees 42 cats.\u00fcu\u0308\u4f60\U0001f600\ue000\n", max_size=60))
def test_source_subwords_cover_the_text_in_order(tokenizer: Tokenizer, text: str) -> None:
    try:
        ids = tokenizer.encode(text).ids
    except TokenizerError:
        return
    offsets = source_offsets(tokenizer, text)
    assert len(offsets) == len(ids) - 1
    assert "".join(parts(text, offsets)) == text
    assert all(start <= end for start, end in offsets)


def test_offsets_of_a_subword_are_those_of_its_characters(tokenizer: Tokenizer) -> None:
    text = "Anna sees 42 cats."
    for part, identity in zip(
        parts(text, source_offsets(tokenizer, text)), tokenizer.encode(text).ids, strict=False
    ):
        assert tokenizer.decode((identity,)).text == part.lstrip()


def test_a_verbatim_span_belongs_to_its_placeholder_symbol(tokenizer: Tokenizer) -> None:
    text = "Anna sees \U0001f600\U0001f600 and \u4f60\u597d."
    encoded = tokenizer.encode(text)
    found = dict(zip(encoded.ids, parts(text, source_offsets(tokenizer, text)), strict=False))
    assert [found[tokenizer.id_of(character)] for character in PLACEHOLDER_SYMBOLS[:2]] == [
        "\U0001f600\U0001f600",
        "\u4f60\u597d",
    ]


def test_offsets_count_decomposed_letters(tokenizer: Tokenizer) -> None:
    text = unicodedata.normalize("NFD", "Anna s\u00fce\u00fc cats")
    assert "".join(parts(text, source_offsets(tokenizer, text))) == text
    assert not any(
        unicodedata.combining(part[0]) for part in parts(text, source_offsets(tokenizer, text)) if part
    )


def test_offsets_in_a_translation_with_repeated_placeholder_symbols(tokenizer: Tokenizer) -> None:
    placeholders = [tokenizer.id_of(character) for character in PLACEHOLDER_SYMBOLS[:2]]
    word, space = tokenizer.encode("cats").ids[:-1], tokenizer.id_of(SPACE)
    ids = (*word, space, placeholders[1], placeholders[0], placeholders[1])
    verbatim_spans = ("\U0001f600!", "\u4f60")
    text = tokenizer.decode(ids, verbatim_spans).text
    assert text == "cats \u4f60\U0001f600!"
    found = parts(text, target_offsets(tokenizer, ids, verbatim_spans))
    assert "".join(found) == text
    assert found[len(word) :] == [" ", "\u4f60", "\U0001f600!", ""]


def test_an_appended_span_belongs_to_no_subword(tokenizer: Tokenizer) -> None:
    space = tokenizer.id_of(SPACE)
    ids = (space, space, *tokenizer.encode("cats").ids[:-1], space)
    text = tokenizer.decode(ids, ("\U0001f600",)).text
    assert text == "cats \U0001f600"
    offsets = target_offsets(tokenizer, ids, ("\U0001f600",))
    assert "".join(parts(text, offsets)) == "cats"
    assert offsets[-1] == (4, 4)
