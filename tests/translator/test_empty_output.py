"""A text with letters or digits has a translation with letters or digits.

The translation of a text with words has more than the digits of the text. Repetitions and endless output are reported.
"""

from __future__ import annotations

import pytest

from app.decoding.option_changes import OptionChanges
from app.decoding.options import FinishReason, Sampling
from app.decoding.validation import MAX_SUPPRESSED_TOKENS
from app.text.parsed_text import TextFormat
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from app.text.wordless import is_wordless
from app.translator import Translation
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import NO_END, ScriptedTranslator


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("output") / "tokenizer.spm"))


def reasons(translation: Translation) -> list[FinishReason]:
    return [segment.hypotheses[0].finish_reason for segment in translation.segments]


# Output without words: no text, a space, a placeholder symbol that the source does not have, a punctuation mark.
@pytest.mark.parametrize("nothing", ["", " ", "\ue003", "."])
def test_output_without_words_is_suppressed_and_decoded_again(tokenizer: Tokenizer, nothing: str) -> None:
    answers = iter([nothing])
    script = ScriptedTranslator(tokenizer, lambda _: next(answers, "Anna"))
    translation = script("Garten")
    assert translation.text == "Anna"
    assert reasons(translation) == [FinishReason.STOP]
    assert script.sources == ["Garten", "Garten"]
    wordless = set(tokenizer.encode_target(nothing, PLACEHOLDER_SYMBOLS)[:-1])
    assert {run[0] for run in script.engine.submitted[1][1].suppress_sequences} >= wordless


def test_a_retry_suppresses_no_more_subwords_than_the_engine_takes(tokenizer: Tokenizer) -> None:
    """The output has two subwords. The request leaves room for one of them."""
    output = tokenizer.encode_target(".")[:-1]
    assert len(set(output)) == 2
    phrase = " ".join("a" * (MAX_SUPPRESSED_TOKENS - 1))
    answers = iter(["."])
    script = ScriptedTranslator(tokenizer, lambda _: next(answers, "Anna"))
    assert script("Garten", suppress=(phrase,)).text == "Anna"
    first, second = (options.suppress_sequences for _, options in script.engine.submitted)
    assert second == (*first, (min(output),))
    assert sum(map(len, second)) == MAX_SUPPRESSED_TOKENS


def test_the_source_replaces_a_second_output_without_words(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: "" if "Garten" in source else source)
    translation = script("Garten. Anna draws.")
    assert translation.text == "Garten. Anna draws."
    assert reasons(translation) == [FinishReason.SOURCE, FinishReason.STOP]
    assert len(script.engine.submitted) == 3


# Emphasis, numbers, invisible characters, references and tags: the model reads these sources in another form.
@pytest.mark.parametrize(
    "text",
    [
        "do NOT draw %s",
        "<p>do NOT <b>{n}</b>the&shy; 2&nbsp;cats <i>draw</i></p>",
        "<p>always  draw\n<b>{n}</b> in the garden at&#32;the 2.5</p>",
    ],
)
def test_a_source_that_replaces_the_translation_is_exactly_as_written(
    tokenizer: Tokenizer, text: str
) -> None:
    text_format = TextFormat.HTML if "<" in text else TextFormat.PLAIN
    script = ScriptedTranslator(tokenizer, lambda _: "", has_alignment=True)
    translation = script(text, text_format=text_format, token_scores=True)
    assert translation.text == text
    assert reasons(translation) == [FinishReason.SOURCE]


def test_output_with_only_the_digits_of_its_source_is_decoded_again_with_a_longer_output(
    tokenizer: Tokenizer,
) -> None:
    answers = iter(["2"])
    script = ScriptedTranslator(tokenizer, lambda _: next(answers, "2 Anna"))
    translation = script("2 Garten")
    assert translation.text == "2 Anna"
    assert reasons(translation) == [FinishReason.STOP]
    first, second = (options for _, options in script.engine.submitted)
    num_tokens = len(tokenizer.encode_target("2")) - 1
    assert (first.min_target_length, second.min_target_length) == (0, num_tokens + 1)


def test_the_source_replaces_a_second_output_with_only_its_digits(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "2")
    translation = script("2 Garten")
    assert translation.text == "2 Garten"
    assert reasons(translation) == [FinishReason.SOURCE]
    assert len(script.engine.submitted) == 2


def test_the_retry_for_a_longer_output_keeps_max_target_ratio(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "2")
    options = OptionChanges.of(max_target_ratio=0.5)
    assert script("2 Garten", options=options, extra_target_length=None).text == "2 Garten"
    longest = (len(tokenizer.encode("2 Garten").ids) - 1) // 2
    limits = [(each.min_target_length, each.max_target_length) for _, each in script.engine.submitted]
    assert limits == [(0, longest), (longest, longest)]


# The sources: a time, a percentage, a range, an ordinal, a number word and numbers without words.
@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("3 pm", "15:00"),
        ("5 percent", "5 %"),
        ("5 to 6", "5-6"),
        ("5th", "5."),
        ("five", "5"),
        ("5, 6", "5, 6"),
    ],
)
def test_a_translation_without_letters_can_be_right(source: str, output: str) -> None:
    assert not is_wordless(source, output)


@pytest.mark.parametrize(("source", "output"), [("1 item", "1"), ("Item 1.", "1."), ("1,200 cats", "1.200")])
def test_the_digits_alone_are_no_translation_of_words(source: str, output: str) -> None:
    assert is_wordless(source, output)


def test_a_button_and_a_heading_keep_their_words(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "", has_alignment=True)
    for text in (
        "<button>Garten</button>",
        "<table><tr><th>Kater</th><th>2 cats</th></tr></table>",
        "<p>a <b>b</b></p>",
    ):
        assert script(text, text_format=TextFormat.HTML).text == text


def test_a_hypothesis_without_words_is_replaced_with_all_its_tokens(tokenizer: Tokenizer) -> None:
    options = OptionChanges.of(beam_size=4, num_hypotheses=2, max_target_length=60)
    script = ScriptedTranslator(tokenizer, lambda _: ".\nAnna")
    translation = script("Garten", options=options, token_scores=True)
    assert translation.hypotheses == ("Garten", "Anna")
    first = translation.segments[0].hypotheses[0]
    num_tokens = len(tokenizer.encode_target("."))
    assert [token.text for token in first.tokens] == [""] * (num_tokens - 1) + [None], (
        "no token has a part of the source"
    )
    assert reasons(translation) == [FinishReason.SOURCE]


@pytest.mark.parametrize("text", ["...", "\U0001f600", "{name}", "?!"])
def test_a_text_without_words_is_decoded_at_most_once(tokenizer: Tokenizer, text: str) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "")
    script(text)
    assert len(script.engine.submitted) <= 1


def test_the_parts_of_an_endless_sentence_share_its_length_limit(tokenizer: Tokenizer) -> None:
    """With a high temperature no part ends. The limits of all parts add up to about the limit of the sentence."""
    script = ScriptedTranslator(tokenizer, lambda source: f"{source}{NO_END}")
    source = (
        "Anna draws the cat and the tree and the bakery and the old house near the big bridge of the town"
    )
    options = OptionChanges.of(beam_size=1, max_target_length=70, sampling=Sampling(temperature=5.0))
    translation = script(source, options=options)
    assert reasons(translation) == [FinishReason.LENGTH]
    num_tokens = len(tokenizer.encode(source).ids)
    assert script.engine.submitted[0][1].max_target_length == min(70, num_tokens + 50)
    last = script.engine.submitted[-16:]
    assert (
        sum(submitted.max_target_length for _, submitted in last) <= max(num_tokens + 50, 2 * num_tokens) + 64
    )


def test_each_part_of_an_endless_sentence_may_have_twice_the_length_of_its_source(
    tokenizer: Tokenizer,
) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: f"{source}{NO_END}")
    script("Anna draws the cat and the tree and the bakery and the old house near the big bridge of the town")
    parts = script.engine.submitted[1:]
    assert len(parts) > 16, "parts are halved up to four times"
    for source, options in parts:
        assert options.max_target_length >= 2 * len(tokenizer.encode(source).ids)


def test_a_shortened_repetition_is_reported(tokenizer: Tokenizer) -> None:
    text = "very " * 60 + "old"
    short = ScriptedTranslator(tokenizer, lambda _: "very old")
    assert set(reasons(short(text))) == {FinishReason.REPETITION}
    same = ScriptedTranslator(tokenizer, lambda source: source)
    assert set(reasons(same(text))) == {FinishReason.STOP}
    plain = ScriptedTranslator(tokenizer, lambda _: "Anna draws.")
    assert reasons(plain("Anna draws the cat near the old house.")) == [FinishReason.STOP]
