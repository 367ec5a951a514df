"""A pair without a model, through another language: each half is a scripted model, from en to fr and from fr to de."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from app.decoding.option_changes import OptionChanges
from app.decoding.options import EarlyStop, FinishReason, Sampling
from app.errors import DeadlineExceeded, InvalidRequest, Overloaded, PayloadTooLarge, UnsupportedLanguages
from app.text.glossary import Term
from app.text.parsed_text import TextFormat
from app.text.segments import Fallback
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from app.translator import Models, Observer, ServedModel, Translation, TranslationResult
from app.translator.pivot_results import Attention
from tests.api.echo import MAX_LENGTH, Behaviour
from tests.api.server_process import ROOT
from tests.translator.scripted import NO_END, FakeModel, RecordingObserver, ScriptedTranslator, request

GREEDY = OptionChanges.of(beam_size=1, max_target_length=60)
SYMBOL = PLACEHOLDER_SYMBOLS[0]
URL = "https://example.org/a?b=1"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(ROOT / "bundles" / "en-de" / "source.spm")


def copy_of(source: str) -> str:
    return source


class Pivoted:
    """Two scripted models that translate from en to de together.

    into: the model from en into the pivot language. out_of: the model from the pivot language into de.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        into: FakeModel = copy_of,
        out_of: FakeModel = copy_of,
        *,
        has_alignment: tuple[bool, bool] = (True, True),
    ) -> None:
        self.first, self.last = (
            ScriptedTranslator(
                tokenizer,
                model,
                has_alignment=is_aligned,
                behaviour=Behaviour(pairs=(pair,), name="-".join(pair)),
            )
            for model, is_aligned, pair in zip(
                (into, out_of), has_alignment, (("en", "fr"), ("fr", "de")), strict=True
            )
        )
        served = [ServedModel(each.translator, "fp32") for each in (self.first, self.last)]
        self.models = Models(served, pivots=("fr",))

    def result(self, *texts: str, observer: Observer | None = None, **changes: Any) -> TranslationResult:
        translation_request = request(texts, **changes)
        if observer is None:
            return asyncio.run(self.models.translate(translation_request))
        return asyncio.run(self.models.pivoted["en", "de"].translate(translation_request, observer))

    def __call__(self, text: str, observer: Observer | None = None, **changes: Any) -> Translation:
        (translation,) = self.result(text, observer=observer, **changes).translations
        return translation


def test_each_segment_goes_through_both_models(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(
        tokenizer, lambda text: text.replace("river", "letter"), lambda text: text.replace("letter", "tree")
    )
    text = "Anna sees the river. Nobody sees it.\n\nAnna forgets the river."
    result = pivoted.result(text)
    (translation,) = result.translations
    assert translation.text == "Anna sees the tree. Nobody sees it.\n\nAnna forgets the tree."
    assert (translation.source, translation.pivot) == ("en", "fr")
    assert [model.name for model in result.models] == ["en-fr", "fr-de"]
    assert result.model.name == "fr-de"
    assert pivoted.last.sources == ["Anna sees the letter.", "Nobody sees it.", "Anna forgets the letter."]
    spans = [(segment.source, segment.target) for segment in translation.segments]
    assert spans == [((0, 20), (0, 19)), ((21, 36), (20, 35)), ((38, 61), (37, 59))]
    assert (result.num_sentences, result.num_cached) == (3, 0)


def test_the_pivot_text_of_a_sentence_is_not_split_again(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer, lambda _: "Anna sees it. Nobody draws. Anna forgets it.")
    translation = pivoted("Anna sees the river.")
    assert pivoted.last.sources == ["Anna sees it. Nobody draws. Anna forgets it."]
    assert len(translation.segments) == 1


def test_a_pivot_text_that_is_too_long_is_translated_in_parts(tokenizer: Tokenizer) -> None:
    words = [f"brother {number}" for number in range(10, 34)]
    pivoted = Pivoted(tokenizer, lambda _: ", ".join(words))
    translation = pivoted("Anna sees 10 brothers and many more of them today, and so on.")
    assert len(pivoted.last.sources) > 1
    assert all(len(tokenizer.encode(source).ids) <= MAX_LENGTH for source in pivoted.last.sources)
    assert translation.text == ", ".join(words)
    assert Fallback.LENGTH_SPLIT in translation.segments[0].fallbacks
    assert len(translation.segments) == 1


def test_the_pair_is_refused_if_the_server_or_the_request_has_no_pivot(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    for models, changes in ((Models([*pivoted.models]), {}), (pivoted.models, {"pivot": False})):
        with pytest.raises(UnsupportedLanguages, match=r"supported: en to fr, fr to de$"):
            asyncio.run(models.translate(request(["Anna draws."], **changes)))


def test_a_placeholder_that_either_model_loses_is_kept(tokenizer: Tokenizer) -> None:
    text = f"Anna sees {URL} today."

    def loses(source: str) -> str:
        return source.replace(SYMBOL, "it")

    for into, out_of in ((loses, copy_of), (copy_of, loses), (loses, loses)):
        for has_alignment in ((True, True), (False, False)):
            translation = Pivoted(tokenizer, into, out_of, has_alignment=has_alignment)(text)
            assert translation.text.count(URL) == 1
            assert SYMBOL not in translation.text
            assert translation.segments[0].fallbacks != ()


def test_the_repairs_of_both_models_are_reported(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(
        tokenizer,
        lambda source: source.replace(SYMBOL, "it"),
        lambda source: source.replace(SYMBOL, "it"),
        has_alignment=(False, True),
    )
    (segment,) = pivoted(f"Anna sees {URL} today.").segments
    assert segment.fallbacks == (Fallback.PLACEHOLDER_SPLIT, Fallback.PLACEHOLDER_ALIGNED)


def test_terms_are_placeholders_in_both_halves(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    text = "Anna draws the cat. Nobody sees cats."
    translation = pivoted(text, terms=(Term("cat", "Kater"), Term("Nobody", "Niemand")))
    assert translation.text == "Anna draws the Kater. Niemand sees Kater."
    assert pivoted.first.sources == [f"Anna draws the {SYMBOL}.", f"{SYMBOL} sees {PLACEHOLDER_SYMBOLS[1]}."]
    assert pivoted.last.sources == pivoted.first.sources
    assert [hit.span.of(text) for hit in translation.glossary_hits] == ["cat", "Nobody", "cats"]


def test_numbers_are_kept_and_written_as_in_the_target_language(tokenizer: Tokenizer) -> None:
    text = "Anna sees 1,234.5 cats."
    assert Pivoted(tokenizer)(text).text == "Anna sees 1.234,5 cats."

    def changes(source: str) -> str:
        return source.replace("1,234.5", "99").replace("1 234,5", "77")

    for into, out_of in ((changes, copy_of), (copy_of, changes), (changes, changes)):
        (segment,) = (translation := Pivoted(tokenizer, into, out_of)(text)).segments
        assert translation.text == "Anna sees 1.234,5 cats."
        assert segment.fallbacks == (Fallback.NUMBERS_CARRIED,)
        assert not segment.changed_numbers


def test_the_pivot_text_has_plain_spaces_and_numbers_as_in_the_pivot_language(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    text = "Anna sees 10\u00a0{unit} and 777,123,456\u00a0cats\u00a0to\u00adday."
    assert pivoted(text).text == "Anna sees 10\u00a0{unit} and 777.123.456\u00a0cats\u00a0today."
    assert pivoted.first.sources == [f"Anna sees 10 {SYMBOL} and 777,123,456 cats today."]
    assert pivoted.last.sources == [f"Anna sees 10 {SYMBOL} and 777 123 456 cats today."]
    assert pivoted("It is 10\u00a0km and 10 km.").text == "It is 10\u00a0km and 10 km."


@pytest.mark.parametrize("half", [0, 1])
def test_a_text_without_a_translation_is_returned(tokenizer: Tokenizer, half: int) -> None:
    models: list[FakeModel] = [lambda _: "pivot", lambda _: "pivot"]
    models[half] = lambda _: "..!"
    pivoted = Pivoted(tokenizer, *models)
    (segment,) = (translation := pivoted("Anna sees 42 cats.", token_scores=True)).segments
    assert translation.text == "Anna sees 42 cats."
    assert segment.hypotheses[0].finish_reason is FinishReason.SOURCE
    assert segment.hypotheses[0].tokens


def test_a_first_half_without_an_end_is_reported(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer, lambda source: source + NO_END)
    (segment,) = pivoted("Anna.").segments
    assert segment.hypotheses[0].finish_reason is FinishReason.LENGTH
    assert Fallback.LENGTH_SPLIT in segment.fallbacks


def test_capitals_are_restored(tokenizer: Tokenizer) -> None:
    assert Pivoted(tokenizer)("ANNA SEES THE RIVER").text == "ANNA SEES THE RIVER"


def test_tags_follow_the_joined_alignment(tokenizer: Tokenizer) -> None:
    markup = "<p>Anna <b>draws</b> the <i>river</i> today</p>"
    pivoted = Pivoted(tokenizer)
    assert pivoted(markup, text_format=TextFormat.HTML).text == markup
    submitted = [*pivoted.first.engine.submitted, *pivoted.last.engine.submitted]
    assert all(options.alignment for _, options in submitted)
    unaligned = Pivoted(tokenizer, has_alignment=(True, False))(markup, text_format=TextFormat.HTML)
    assert sorted(unaligned.text) == sorted(markup)
    assert unaligned.segments[0].fallbacks == (Fallback.TAGS_UNSURE,)


def test_escapes_are_written_again(tokenizer: Tokenizer) -> None:
    markup = "<p>Anna &amp; Nobody see 1 &lt; 2 today.</p>"
    assert Pivoted(tokenizer)(markup, text_format=TextFormat.HTML).text == markup


def test_the_joined_attention_is_the_product_of_both_halves(tokenizer: Tokenizer) -> None:
    """Text `ab cd` -> pivot `xyz w` -> target `pq`."""
    first = Attention(
        source=((0, 2), (2, 5), (5, 5)),
        target=((0, 3), (3, 5), (5, 5)),
        weights=np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]),
    )
    last = Attention(  # its source has a prefix, and other subwords for the same pivot text
        source=((0, 0), (0, 1), (1, 4), (4, 5), (5, 5)),
        target=((0, 2), (2, 2)),
        weights=np.array([[0.0, 0.5, 0.5, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0, 0.9]]),
    )
    joined = last.after(first)
    assert (joined.source, joined.target) == (first.source, last.target)
    middle = (2 * first.weights[0] + first.weights[1]) / 3  # two characters of `xyz`, one of ` w`
    expected = [0.5 * first.weights[0] + 0.5 * middle, first.weights[2]]
    assert np.allclose(joined.weights, expected)


def test_tokens_refer_to_the_callers_text(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    text = "  Anna draws the river.  Nobody sees it."
    translation = pivoted(text, options=GREEDY.updated(alignment=True), attention=True)
    assert translation.text == text
    for segment in translation.segments:
        best = segment.hypotheses[0]
        assert [token.text for token in best.tokens][-1] is None
        assert len(segment.source_tokens) == len(best.tokens)
        for index, token in enumerate(best.tokens[:-1]):
            assert len(token.weights) == len(segment.source_tokens)
            assert sum(token.weights) == pytest.approx(1, abs=1e-3)
            assert token.source == segment.source_tokens[index], "both halves are aligned one to one"
            start, end = token.source
            assert text[start:end].strip() == (token.text or "").strip()


def test_options_of_the_answer_apply_only_to_the_second_half(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    options = GREEDY.updated(
        beam_size=5,
        num_hypotheses=3,
        num_alternatives=2,
        early_stop=EarlyStop.BOUND,
        min_target_length=3,
        alpha=1.0,
    )
    translation = pivoted("Anna draws.", options=options, suppress=("cat",), target_prefixes=("Anna",))
    (_, first), (_, last) = pivoted.first.engine.submitted[0], pivoted.last.engine.submitted[0]
    assert (first.beam_size, first.alpha, first.early_stop) == (5, 1.0, EarlyStop.BOUND)
    assert (first.num_hypotheses, first.num_alternatives, first.min_target_length) == (1, 0, 0)
    assert (first.suppress_sequences, first.target_prefix) == ((), ())
    assert (last.beam_size, last.num_hypotheses, last.num_alternatives) == (5, 3, 2)
    assert last.suppress_sequences
    assert last.target_prefix
    assert len(translation.hypotheses) == 3
    pivoted("Anna draws.", options=GREEDY.updated(sampling=Sampling(seed=3), num_hypotheses=2))
    (_, first), (_, last) = pivoted.first.engine.submitted[-1], pivoted.last.engine.submitted[-1]
    assert first.sampling is None
    assert last.sampling is not None


def test_the_prefix_of_the_second_half_has_symbols_for_placeholders_and_terms(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    pivoted("Anna sees {a} and the cat.", terms=(Term("cat", "Kater"),), target_prefixes=("Anna {a} Kater",))
    ((_, last),) = pivoted.last.engine.submitted
    assert tokenizer.offsets(last.target_prefix)[0] == "Anna \ue000 \ue001"


def test_only_the_second_model_draws_samples(tokenizer: Tokenizer) -> None:
    """The first one searches with its own default beam, although the second one has a beam of 1."""
    pivoted = Pivoted(tokenizer)
    for options in (OptionChanges.of(max_target_length=60), GREEDY):
        pivoted("Anna draws.", options=options.updated(sampling=Sampling(seed=3)))
        (_, first), (_, last) = pivoted.first.engine.submitted[-1], pivoted.last.engine.submitted[-1]
        assert (first.sampling, first.beam_size) == (None, pivoted.first.translator.default_options.beam_size)
        assert first.beam_size > 1
        assert (last.sampling, last.beam_size) == (Sampling(seed=3), 1)


def test_an_option_that_one_model_lacks_is_refused(tokenizer: Tokenizer) -> None:
    for has_alignment in ((False, True), (True, False)):
        pivoted = Pivoted(tokenizer, has_alignment=has_alignment)
        with pytest.raises(InvalidRequest, match="alignment") as raised:
            pivoted("Anna draws.", options=GREEDY.updated(alignment=True))
        assert raised.value.field == "alignment"


def test_the_answer_limits_of_a_single_model_apply_to_a_pivot(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    with pytest.raises(PayloadTooLarge):
        pivoted("Anna draws. " * 1001)
    with pytest.raises(PayloadTooLarge):
        pivoted("Anna draws. " * 100, options=GREEDY.updated(num_alternatives=16))


def test_admission_counts_both_halves(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer, lambda source: source + " Nobody sees it.")
    pivoted("Anna draws.")
    for script in (pivoted.first, pivoted.last):
        ((cost, _),) = script.engine.costs
        assert cost.num_sentences == 1
        assert cost.num_tokens == len(tokenizer.encode(script.sources[0]).ids)


@pytest.mark.parametrize(
    "options",
    [
        OptionChanges.of(num_hypotheses=16, sampling=Sampling(seed=3)),
        OptionChanges.of(num_hypotheses=1, sampling=Sampling(seed=3)),
        OptionChanges.of(num_hypotheses=6),
        OptionChanges.of(min_target_length=40),
    ],
)
def test_a_stream_reserves_the_second_half_as_a_request_without_a_stream_does(
    tokenizer: Tokenizer, options: OptionChanges
) -> None:
    costs = []
    for observer in (None, RecordingObserver()):
        pivoted = Pivoted(tokenizer)
        pivoted.result("Anna sees the river. Nobody sees it.", observer=observer, options=options)
        costs.append(pivoted.last.engine.costs)
    assert costs[0] == costs[1]


def test_a_full_queue_of_the_second_model_refuses_nothing_that_the_first_one_has_decoded(
    tokenizer: Tokenizer,
) -> None:
    pivoted = Pivoted(tokenizer)
    pivoted.last.engine.is_full = True
    assert pivoted("Anna draws. Nobody sees it.").text == "Anna draws. Nobody sees it."


def test_a_full_queue_of_the_second_model_refuses_a_stream_before_it_begins(tokenizer: Tokenizer) -> None:
    pivoted, observer = Pivoted(tokenizer), RecordingObserver()
    pivoted.last.engine.is_full = True
    with pytest.raises(Overloaded):
        pivoted("Anna draws. Nobody sees it.", observer=observer)
    assert (observer.spans, pivoted.first.engine.submitted) == ([], [])


def test_both_halves_use_the_shortlists_of_their_models(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    for table, script in enumerate((pivoted.first, pivoted.last)):
        translator = script.translator
        translator.planner._shortlists = dict.fromkeys(translator.languages._pairs.values(), table)
    pivoted("Anna sees the river.")
    for table, script in enumerate((pivoted.first, pivoted.last)):
        assert [options.shortlist for _, options in script.engine.submitted] == [table]


@pytest.mark.parametrize("half", [0, 1])
def test_a_deadline_that_passes_in_either_half_ends_the_request(tokenizer: Tokenizer, half: int) -> None:
    deadline = time.monotonic() + 0.2

    def late(source: str) -> str:
        time.sleep(max(0.0, deadline - time.monotonic()) + 0.01)
        return source

    models: list[FakeModel] = [copy_of, copy_of]
    models[half] = late
    pivoted = Pivoted(tokenizer, *models)
    with pytest.raises(DeadlineExceeded):
        pivoted("Anna draws.", deadline=deadline)
    assert len(pivoted.last.sources) == half


def test_a_stream_shows_the_second_half(tokenizer: Tokenizer) -> None:
    text = f"Anna draws the river. Nobody sees {URL} 42 times.\nAnna sees it."
    pivoted = Pivoted(tokenizer, out_of=lambda source: source.replace("river", "tree").replace("42", "43"))
    seen = RecordingObserver()
    translation = pivoted(text, seen, options=GREEDY)
    assert translation.text == text.replace("river", "tree")
    assert seen.ended == seen.shown
    assert seen.ended == {
        (0, index): segment.hypotheses[0].text for index, segment in enumerate(translation.segments)
    }
    assert seen.spans == [[segment.source for segment in translation.segments]]


def test_texts_that_need_no_model(tokenizer: Tokenizer) -> None:
    pivoted = Pivoted(tokenizer)
    result = pivoted.result("", " \n 42 \n", "... cat", terms=(Term("cat", "Kater"),))
    assert [each.text for each in result.translations] == ["", " \n 42 \n", "... Kater"]
    assert pivoted.first.sources == []
