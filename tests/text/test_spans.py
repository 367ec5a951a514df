"""Offsets of subwords are positions in the caller's text."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.text.spans import MAX_CLUSTER_LENGTH, as_sent, scored_offsets, source_offsets, target_offsets
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, SPACE, Tokenizer, TokenizerError
from tests.model.sentences import pairs, write_tokenizer
from tests.text.growth import check_near_linear

# NFC turns U+0958 into two characters, and U+0344 into two marks.
DECOMPOSED = "".join(
    unicodedata.normalize("NFD", each)
    for each in ("Größe", "Tiếng Việt được", "한국", "नमस्ते ो", "\u1e69\u1e38", "\u0390\U0001f44d\U0001f3fd")
)
BUNDLED = Path(__file__).parents[2] / "bundles" / "en-de" / "source.spm"
COMPOSING = DECOMPOSED + "é각가\u0958\u093c\u0344\u0f73\u0315"


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


def test_the_offsets_of_a_subword_enclose_its_characters(tokenizer: Tokenizer) -> None:
    text = "Anna sees 42 cats."
    for part, identity in zip(
        parts(text, source_offsets(tokenizer, text)), tokenizer.encode(text).ids, strict=False
    ):
        assert tokenizer.decode((identity,)).text == part.lstrip()


@pytest.fixture(scope="module")
def normalising(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary with SentencePiece's default normalisation, as imported models have."""
    path = tmp_path_factory.mktemp("spans") / "source.spm"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(
            [*(f"{pair.source} {pair.target}" for pair in pairs()), "fi fl 1/2 \u2044 ... A"]
        ),
        model_prefix=str(path.with_suffix("")),
        vocab_size=400,
        hard_vocab_limit=False,
        user_defined_symbols=list(PLACEHOLDER_SYMBOLS),
        minloglevel=2,
    )
    return Tokenizer(path.with_suffix(".model"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Anna\u2026 sees the cats.", id="an ellipsis becomes three full stops"),
        pytest.param("The \ufb01rst \ufb02oor of Anna.", id="ligatures become letters"),
        pytest.param("\u00bd of \uff21nna\u00a0sees it.", id="a fraction and a full-width letter"),
        pytest.param("Anna  sees   the cats.", id="spaces are merged"),
        pytest.param("Anna \U0001f600 sees\u2026 \u4f60\u597d cats.", id="with verbatim spans"),
    ],
)
def test_offsets_are_positions_before_the_normalisation(normalising: Tokenizer, text: str) -> None:
    offsets = source_offsets(normalising, text)
    assert len(offsets) == len(normalising.encode(text).ids) - 1
    assert "".join(parts(text, offsets)) == text
    assert parts(text, offsets)[-1] == "."
    starts = {start for start, _ in offsets}
    # A subword begins at the first space before each word.
    assert {
        index for index, character in enumerate(text) if character == " " and text[index - 1] != " "
    } <= starts
    spans = normalising.encode(text).verbatim_spans
    assert scored_offsets(normalising, text, spans) == offsets


def test_an_unknown_run_of_a_scored_text_has_its_own_place(tokenizer: Tokenizer) -> None:
    text = "Anna \U0001f600\U0001f600 sees \u4f60\u597d cats."
    offsets = scored_offsets(tokenizer, text, ("\u4f60\u597d",))
    assert len(offsets) == len(tokenizer.encode_target(text, ("\u4f60\u597d",))) - 1
    assert "".join(parts(text, offsets)) == text
    assert parts(text, offsets)[-1] == "."


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


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=sorted(set(COMPOSING)), max_size=MAX_CLUSTER_LENGTH))
@example(DECOMPOSED)
@example(COMPOSING)
@example("L\u0304\u0323")  # the second mark and the letter compose first, then the other mark
def test_a_position_in_the_composed_text_leads_to_the_text_as_sent(text: str) -> None:
    """Index i leads to the last position before which the text composes to at most i characters."""
    lengths = [len(unicodedata.normalize("NFC", text[:end])) for end in range(len(text) + 1)]
    for index in range(lengths[-1] + 1):
        last = max(end for end, length in enumerate(lengths) if length <= index)
        assert as_sent(text, [(index, index)]) == [(last, last)]


def test_positions_after_a_long_run_of_marks_are_exact() -> None:
    text = "xa" + "\u0315\u0344\u0323" * 40 + "e\u0301y"
    num_composed = len(unicodedata.normalize("NFC", text))
    offsets = as_sent(text, [(index, index + 1) for index in range(num_composed)])
    assert "".join(parts(text, offsets)) == text
    assert parts(text, offsets)[0] == "x"
    assert parts(text, offsets)[-2:] == ["e\u0301", "y"]
    # After MAX_CLUSTER_LENGTH characters of the run, positions are not exact: they are at the end of the run.
    cut, run_end = 1 + MAX_CLUSTER_LENGTH, text.index("e")
    assert {end for _, end in offsets if cut < end <= run_end} == {run_end}


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param("\u0315\u0300", id="reordered marks"),
        pytest.param("\u0300", id="marks in order"),
        pytest.param("\u0f73", id="marks that become several"),
        pytest.param("a" + "\u0315\u0300" * MAX_CLUSTER_LENGTH, id="long clusters"),
        pytest.param("\u1112\u1161\u11ab", id="jamo"),
        pytest.param("\u1112", id="jamo that do not compose"),
        pytest.param("\u0958\u093f", id="letters that become several"),
        pytest.param("e\u0302\u0323n", id="letters with marks"),
    ],
)
def test_the_time_for_offsets_is_linear(repeated: str) -> None:
    def convert(size: int) -> None:
        as_sent("e\u0301" + repeated * (size // len(repeated)), [(0, 1)])

    for size in (1_600, 16_000):  # a cubic function fails at the first size; the second would take an hour
        check_near_linear(convert, size)


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


@pytest.mark.parametrize("byte", ["<0x04>", "<0x0A>", "<0x7F>"])
def test_a_control_character_that_the_model_writes_is_a_space(byte: str) -> None:
    tokenizer = Tokenizer(BUNDLED)
    cats = tokenizer.encode("cats").ids[:-1]
    ids = (*cats, tokenizer.id_of(byte), tokenizer.id_of(PLACEHOLDER_SYMBOLS[0]))
    text = tokenizer.decode(ids, ("\x04",)).text
    assert text == "cats \x04"
    assert parts(text, target_offsets(tokenizer, ids, ("\x04",)))[len(cats) :] == [" ", "\x04"]
    assert tokenizer.decode(ids[:-1]).text == "cats "
    assert tokenizer.decode(ids[:-1], ("X",)).text == "cats X"
    assert target_offsets(tokenizer, ids[:-1], ("X",))[-1] == (4, 4)
