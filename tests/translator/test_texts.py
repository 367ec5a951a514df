"""What the translator does around the model: separators, placeholders, markup, numbers and retries."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.decoding.option_changes import OptionChanges
from app.decoding.options import FinishReason
from app.errors import InvalidRequest
from app.stores.glossaries import GlossaryStore
from app.text.glossary import Term
from app.text.model_input import without_invisible
from app.text.parsed_text import TextFormat
from app.text.segments import Fallback
from app.text.tokenizer import Tokenizer
from app.translator import TextSpan, Translation
from app.translator.retry import MAX_SPLITS
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import NO_END, RecordingObserver, ScriptedTranslator, request

WORDS = [
    "Anna",
    "draws",
    "cats",
    "7",
    "1/200",
    "WHO",
    "{name}",
    "\U0001f600",
    "e\u0301",
    "NEVER",
    "again.",
    "and",
]
SEPARATORS = [" ", "  ", "\n", "\r\n", "\n\n", "\t", "\u2028", " - ", "\n- ", "\n1. ", "\u00a0", ". ", "! "]
TEXTS = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SEPARATORS)), max_size=12).map(
    lambda parts: "".join(word + separator for word, separator in parts)
)
TAG = re.compile(r"<[^<>]*>")
GREEDY = OptionChanges.of(beam_size=1, max_target_length=60)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("translator") / "tokenizer.spm"))


def echo(source: str) -> str:
    return source


def backwards(source: str) -> str:
    return " ".join(reversed(source.split()))


def between(text: str, spans: list[TextSpan]) -> list[str]:
    """Return the text before, between and after the spans."""
    edges = [0, *(edge for span in spans for edge in span), len(text)]
    return [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


@pytest.mark.seconds
@settings(deadline=None, max_examples=150)
@given(text=TEXTS)
def test_text_outside_of_segments_is_unchanged(tokenizer: Tokenizer, text: str) -> None:
    translation = ScriptedTranslator(tokenizer, backwards)(text)
    sources = [segment.source for segment in translation.segments]
    targets = [segment.target for segment in translation.segments]
    assert between(text, sources) == between(translation.text, targets)
    untouched = "".join(between(text, sources)).replace("{name}", "")
    assert not any(map(str.isalpha, untouched))
    for segment in translation.segments:
        assert translation.text[slice(*segment.target)] == segment.hypotheses[0].text


@pytest.mark.seconds
@settings(deadline=None, max_examples=150)
@given(text=TEXTS)
def test_a_model_that_copies_changes_nothing(tokenizer: Tokenizer, text: str) -> None:
    found = ScriptedTranslator(tokenizer, echo)(text).text
    # The translator lower-cases English titles for the model.
    assert found.casefold() == unicodedata.normalize("NFC", text).casefold()


@pytest.mark.parametrize(
    "text", ["", "  \n\t ", "42", "1.\n- \n...", "\U0001f600", "{name}", "https://a.example/b"]
)
def test_a_text_without_letters_is_not_submitted(tokenizer: Tokenizer, text: str) -> None:
    script = ScriptedTranslator(tokenizer, echo)
    assert script(text) == Translation(text, (text,), (), "en")
    assert script.engine.submitted == []


def test_only_sentences_with_tags_request_attention_at_once(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, echo, has_alignment=True)
    script.result(["Anna draws.", "See {name} here.", "Anna sees \U0001f600 here."])
    script("<p>Anna <b>draws</b> cats.</p><p>Anna draws.</p>", text_format=TextFormat.HTML)
    assert [options.alignment for _, options in script.engine.submitted] == [False, False, False, True, False]


def test_a_long_request_uses_a_thread_twice_and_a_short_one_never(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, echo, has_alignment=True)
    script.result(["Anna draws.", "See {name} here at 7." * 12])
    assert script.text_threads.num_submits == 2
    script.result(["Anna draws.", "See {name} here at 7."])
    assert script.text_threads.num_submits == 2


def test_the_parts_around_a_lost_placeholder_are_translated_separately(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: "Anna" if "\ue000" in source else source)
    translation = script("Anna draws {name} and nobody sees it.")
    assert translation.text == "Anna draws {name} and nobody sees it."
    assert translation.segments[0].fallbacks == (Fallback.PLACEHOLDER_SPLIT,)
    assert script.sources[1:] == ["Anna draws", "and nobody sees it."]
    assert script.engine.prioritized == script.sources[1:]


@pytest.mark.parametrize("lost", ["{name}", "\U0001f600"])
def test_a_lost_span_is_placed_by_the_attention_of_a_second_decoding(tokenizer: Tokenizer, lost: str) -> None:
    script = ScriptedTranslator(
        tokenizer, lambda source: source.replace(f" {source.split()[2]}", ""), has_alignment=True
    )
    translation = script(f"Anna draws {lost} and nobody sees it.")
    assert lost in translation.text
    assert translation.segments[0].fallbacks == (Fallback.PLACEHOLDER_ALIGNED,)
    (first, plain), (again, aligned) = script.engine.submitted
    assert (again, aligned) == (first, replace(plain, alignment=True))
    assert script.engine.prioritized == [again]


def test_a_lost_span_is_not_decoded_again_if_attention_was_requested(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source.replace(" \ue000", ""), has_alignment=True)
    translation = script("Anna draws {name} and nobody sees it.", options=GREEDY.updated(alignment=True))
    assert translation.segments[0].fallbacks == (Fallback.PLACEHOLDER_ALIGNED,)
    assert len(script.engine.submitted) == 1


def test_a_sentence_with_numbers_is_expected_to_take_twice_as_long(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, echo)
    script.result(["Anna draws."])
    script.result(["Anna draws 2 cats."])
    script.result(["Anna draws. Anna draws 2 cats."])
    (plain, once), (numbered, twice), (both, longest) = script.engine.costs
    assert plain.num_tokens == once
    assert numbered.num_tokens == twice // 2
    assert (both, longest) == (plain.plus(numbered), twice)


def test_a_changed_number_is_decoded_as_a_placeholder(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source.replace("2", "4"))
    translation = script("Anna draws 2 cats.")
    assert translation.text == "Anna draws 2 cats."
    (segment,) = translation.segments
    assert segment.fallbacks == (Fallback.NUMBERS_CARRIED,)
    assert not segment.changed_numbers
    assert script.sources == ["Anna draws 2 cats.", "Anna draws \ue000 cats."]
    assert script.engine.prioritized == script.sources[1:], "a retry is the next sentence in the queue"


def test_a_changed_number_is_reported_if_no_retry_is_possible(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source.replace("2", "4"))
    translation = script("Anna draws 2 cats.", target_prefixes=("Anna",))
    assert translation.text == "Anna draws 4 cats."
    assert translation.segments[0].changed_numbers.missing == ("2",)
    assert translation.segments[0].changed_numbers.added == ("4",)
    assert len(script.engine.submitted) == 1


def test_a_number_that_the_model_adds_is_suppressed(tokenizer: Tokenizer) -> None:
    """If a source has no digit but its translation has one, the sentence is decoded again without digits."""
    answers = iter(["Anna 7 draws 12 cats.", "Anna draws cats."])
    script = ScriptedTranslator(tokenizer, lambda _: next(answers))
    translation = script("Anna draws cats.")
    assert translation.text == "Anna draws cats."
    assert not translation.segments[0].changed_numbers
    assert translation.segments[0].fallbacks == (Fallback.DIGITS_SUPPRESSED,)
    (_, first), (_, second) = script.engine.submitted
    assert first.suppress_sequences == ()
    suppressed = {identity for (identity,) in second.suppress_sequences}
    assert all(suppressed.intersection(tokenizer.encode_target(digit)) for digit in "0123456789")
    assert suppressed.isdisjoint(tokenizer.encode_target("Anna draws cats. ÄÖÜ €")), (
        "only digits are suppressed"
    )
    assert script.engine.prioritized == script.sources[1:]


def test_digits_may_stand_for_a_number_word(tokenizer: Tokenizer) -> None:
    """The digits may be another number than the word: half past two is "halb 3" in German."""
    script = ScriptedTranslator(tokenizer, lambda _: "Anna draws 3 cats.")
    assert script("Anna draws two cats.").text == "Anna draws 3 cats."
    assert all(options.suppress_sequences == () for _, options in script.engine.submitted)


class TestNoEnd:
    """Translations that reach the server's length limit."""

    SENTENCE = "Anna draws the cats and nobody sees the old tree today."

    def script(self, tokenizer: Tokenizer, num_words: int) -> ScriptedTranslator:
        """A model that ends its translation if the source has at most num_words words."""
        return ScriptedTranslator(
            tokenizer,
            lambda source: source if len(source.split()) <= num_words else f"Anna Anna{NO_END}",
            has_alignment=True,
        )

    def test_of_one_letter_is_not_divided(self, tokenizer: Tokenizer) -> None:
        script = self.script(tokenizer, 0)
        script("A")
        assert script.sources == ["A"]

    def test_is_translated_in_parts(self, tokenizer: Tokenizer) -> None:
        script = self.script(tokenizer, 5)
        translation = script(self.SENTENCE)
        assert translation.text == self.SENTENCE
        (segment,) = translation.segments
        assert segment.fallbacks == (Fallback.LENGTH_SPLIT,)
        assert segment.hypotheses[0].finish_reason is FinishReason.STOP
        assert script.sources == [
            self.SENTENCE,
            "Anna draws the cats and nobody",
            "sees the old tree today.",
            "Anna draws the",
            "cats and nobody",
        ]

    def test_stops_after_the_maximum_of_splits(self, tokenizer: Tokenizer) -> None:
        script = self.script(tokenizer, 0)
        (segment,) = script(self.SENTENCE).segments
        assert segment.fallbacks == (Fallback.LENGTH_SPLIT,)
        assert segment.hypotheses[0].finish_reason is FinishReason.LENGTH
        assert len(script.engine.submitted) <= 2 ** (MAX_SPLITS + 1) - 1

    @pytest.mark.parametrize(
        "changes",
        [
            {"extra_target_length": None, "options": GREEDY.updated(max_target_length=5)},
            {"options": GREEDY.updated(min_target_length=2)},
            {"options": GREEDY.updated(min_target_ratio=0.5)},
            {"target_prefixes": ("Anna",)},
        ],
    )
    def test_is_not_split_if_the_request_sets_the_length(
        self, tokenizer: Tokenizer, changes: dict[str, Any]
    ) -> None:
        script = self.script(tokenizer, 5)
        (segment,) = script(self.SENTENCE, **changes).segments
        assert segment.hypotheses[0].finish_reason is FinishReason.LENGTH
        assert segment.fallbacks == ()
        assert len(script.engine.submitted) == 1

    def test_keeps_the_positions_of_tags_and_tokens(self, tokenizer: Tokenizer) -> None:
        script = self.script(tokenizer, 5)
        source = "Anna draws the <b>cats</b> and nobody sees the <i>old</i> {name} tree today."
        translation = script(source, text_format=TextFormat.HTML, token_scores=True)
        assert translation.text == source
        check_tokens(translation)


def check_tokens(translation: Translation) -> None:
    """Check the positions of all tokens. Together they cover the text except tags and spaces."""
    for segment in translation.segments:
        start = segment.target.start
        best = segment.hypotheses[0]
        assert best.tokens
        places = [token.target.moved(start) for token in best.tokens]
        assert [translation.text[slice(*place)] for place in places] == [
            token.text or "" for token in best.tokens
        ]
        token_text = TAG.sub("", "".join(token.text or "" for token in best.tokens))
        # No token contains the space between two parts of a sentence.
        assert "".join(token_text.split()) == "".join(
            TAG.sub("", translation.text[slice(*segment.target)]).split()
        )
        ends = [edge for place in places for edge in place]
        assert ends == sorted(ends)


@pytest.mark.parametrize(
    ("text", "text_format"),
    [
        ("See {name} and \U0001f600 at https://a.example/b?c=1 today.", TextFormat.PLAIN),
        ("NOBODY SEES THE {name} OF ANNA!", TextFormat.PLAIN),
        ("<p>Anna &amp; <b>nobody</b> see <a href='x'>the <i>old</i> tree</a>.</p>", TextFormat.HTML),
        ("Anna\u00a0sees 10\u202f{unit} of the\u00adtree\u200b today.", TextFormat.PLAIN),
        ("<p>Anna&nbsp;sees the&nbsp;<b>old</b> tr&shy;ee.</p>", TextFormat.HTML),
    ],
)
@pytest.mark.parametrize("has_alignment", [True, False])
def test_tokens_have_their_positions(
    tokenizer: Tokenizer, text: str, text_format: TextFormat, has_alignment: bool
) -> None:
    script = ScriptedTranslator(tokenizer, echo, has_alignment=has_alignment)
    options = GREEDY.updated(alignment=has_alignment)
    translation = script(text, text_format=text_format, token_scores=True, options=options)
    check_tokens(translation)
    for segment in translation.segments:
        for token in segment.hypotheses[0].tokens:
            if has_alignment and token.text and text_format is TextFormat.PLAIN:
                assert token.source is not None
                # A soft hyphen after a subword is in the translation's token only.
                target = without_invisible(token.text).lower()
                assert without_invisible(text[slice(*token.source)]).lower() == target


def test_every_hypothesis_has_all_tags(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, echo, has_alignment=True)
    source = "<p>Anna <b>draws</b> cats.</p>"
    options = GREEDY.updated(beam_size=2, num_hypotheses=2)
    translation = script(source, text_format=TextFormat.HTML, options=options)
    assert translation.hypotheses == (source, source)
    assert [each.text for each in translation.segments[0].hypotheses] == ["Anna <b>draws</b> cats."] * 2


def test_the_error_for_malformed_xml_names_its_text(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, echo)
    with pytest.raises(InvalidRequest, match=r"text\[1\]: malformed XML at line 1, column 4") as caught:
        script.result(["<a/>", "<a>"], text_format=TextFormat.XML)
    assert caught.value.field == "text[1]"
    assert script.engine.submitted == []


def test_terms_stand_in_the_translation(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, echo, has_alignment=True)
    translation = script("Anna draws cats.\nNobody sees the cat.", terms=(Term("cat", "Kater"),))
    assert translation.text == "Anna draws Kater.\nNobody sees the Kater."
    spans = [hit.span.of("Anna draws cats.\nNobody sees the cat.") for hit in translation.glossary_hits]
    assert spans == ["cats", "cat"]


def test_a_stored_glossary_serves_its_owner_and_its_pair_only(tokenizer: Tokenizer, tmp_path: Path) -> None:
    store = GlossaryStore(tmp_path / "glossaries.sqlite")
    mine = store.create("mine", "cats", ("en", "de"), [Term("cat", "Kater")]).glossary_id
    other = store.create("mine", "cats", ("de", "en"), [Term("cat", "Kater")]).glossary_id
    script = ScriptedTranslator(tokenizer, echo, has_alignment=True, glossaries=store)
    assert script("Anna draws cats.", glossary_id=mine, caller="mine").text == "Anna draws Kater."
    for glossary_id, caller in ((mine, "yours"), (other, "mine"), ("none", "mine")):
        with pytest.raises(InvalidRequest, match=r"^glossary\.id: ") as caught:
            script("Anna draws cats.", glossary_id=glossary_id, caller=caller)
        assert caught.value.field == "glossary.id"


def test_an_observer_receives_every_segment(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source.replace("2", "4"))
    watcher = RecordingObserver()
    texts = ["Anna draws 2 cats. Nobody sees it.", "42", "Anna draws."]
    result = script.result(texts, watcher, options=GREEDY)
    assert watcher.spans == [[(0, 18), (19, 34)], [], [(0, 11)]]
    assert watcher.ended == {
        (index, place): segment.hypotheses[0].text
        for index, translation in enumerate(result.translations)
        for place, segment in enumerate(translation.segments)
    }
    assert watcher.shown == watcher.ended
    assert result.translations[0].text == "Anna draws 2 cats. Nobody sees it."


@pytest.mark.parametrize(("ends_source", "longest"), [(True, 56), (False, 60)])
def test_the_default_limit_allows_the_minimum_ratio(tmp_path: Path, ends_source: bool, longest: int) -> None:
    """The limit is the 6 source tokens + 50, or more if the ratio needs more.

    The ratio counts the source without its end token: 10 * 5 is below 56. Some models have no end token in the source:
    10 * 6 is above 56.
    """
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"), ends_source=ends_source)
    script = ScriptedTranslator(tokenizer, str)
    options = OptionChanges.of(min_target_ratio=10.0)
    chosen = script.translator.options(request([""], options=options), num_source_tokens=6)
    assert chosen.max_target_length == longest
