"""Glossary terms. The first input has the words of the source. In a retry, placeholders replace the missing terms."""

from __future__ import annotations

import re
from html import unescape

import pytest

from app.decoding.option_changes import OptionChanges
from app.text.glossary import Term
from app.text.parsed_text import TextFormat
from app.text.segments import Fallback
from app.text.tokenizer import Tokenizer
from app.translator import Translation
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import NO_END, FakeModel, RecordingObserver, ScriptedTranslator

GREEDY = OptionChanges.of(beam_size=1, max_target_length=60)
CAT = (Term("cat", "Kater"),)
BAG = (Term("bag", "Kater"),)
SYMBOL = "\ue000"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("terms") / "tokenizer.spm"))


def as_dictionary(**words: str) -> FakeModel:
    """A fake model that translates these words and copies all other words."""

    def translate(source: str) -> str:
        for word, translation in words.items():
            source = source.replace(word, translation)
        return source

    return translate


def check_hits(text: str, translation: Translation, expected: list[tuple[str, str]]) -> None:
    """expected: pairs of surface form and replacement."""
    found = [(hit.surface, hit.replacement) for hit in translation.glossary_hits]
    assert found == expected
    assert [hit.span.of(text) for hit in translation.glossary_hits] == [surface for surface, _ in expected]


def test_a_translation_with_all_terms_is_not_decoded_again(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Kater"), has_alignment=True)
    text = "Anna draws the cat."
    translation = script(text, terms=CAT)
    assert translation.text == "Anna draws the Kater."
    assert script.sources == [text]
    assert not script.engine.submitted[0][1].alignment, "the first attempt is decoded as without a glossary"
    check_hits(text, translation, [("cat", "Kater")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", "Kater"),
        ("Cats!", "Kater!"),
        ("CAT, bag", "KATER, Kater"),
        ("1. Cat\n12", "1. Kater\n12"),
        ("{x}: cat", "{x}: Kater"),
    ],
)
def test_a_text_of_terms_alone_needs_no_model(tokenizer: Tokenizer, text: str, expected: str) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary())
    watcher = RecordingObserver()
    options = GREEDY.updated(beam_size=2, num_hypotheses=2)
    translation = script(text, watcher, terms=(*CAT, *BAG), options=options)
    assert translation.hypotheses == (expected, expected)
    assert [hit.surface for hit in translation.glossary_hits] == re.findall("cats?|bag", text, re.IGNORECASE)
    assert translation.segments == ()
    assert (script.sources, watcher.spans) == ([], [[]])


def test_a_markup_of_terms_alone_needs_no_model(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary())
    text = "<li>Cat</li><li>a &lt; <b>bag</b></li>"
    terms = (*CAT, *BAG, Term("a", "ein"))
    translation = script(text, terms=terms, text_format=TextFormat.HTML)
    assert translation.text == "<li>Kater</li><li>ein &lt; <b>Kater</b></li>"
    assert len(translation.glossary_hits) == 3


def test_a_sentence_with_a_term_counts_as_two_decodings(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Kater"))
    text = "Anna draws the cat."
    for terms in ((), CAT):
        script(text, terms=terms)
    (_, without_term), (_, with_term) = script.engine.costs
    assert with_term == 2 * without_term


def test_a_missing_term_is_decoded_as_a_placeholder(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Maus"), has_alignment=True)
    text = "Anna draws the cat. Anna sees it."
    translation = script(text, terms=CAT)
    assert translation.text == "Anna draws the Kater. Anna sees it."
    assert script.sources == ["Anna draws the cat.", "Anna sees it.", f"Anna draws the {SYMBOL}."]
    assert script.engine.prioritized == script.sources[2:]
    assert translation.segments[0].fallbacks == ()
    check_hits(text, translation, [("cat", "Kater")])


@pytest.mark.parametrize(
    ("terms", "text", "output", "is_accepted"),
    [
        (CAT, "Anna sees the cat.", "Anna sieht des Katers.", True),
        (CAT, "Anna sees the cats.", "Anna sieht Kater.", True),
        (CAT, "Anna sees the cat.", "Anna sieht die Katerin.", False),
        (CAT, "Anna sees the cat.", "Anna sieht den kater.", False),
        (CAT, "Anna sees the cat.", "Anna sieht den KATER.", True),
        (BAG, "Anna sees the BAG.", "Anna sieht den Kater.", False),
        (BAG, "Anna sees the BAG.", "Anna sieht den KATER.", True),
        (CAT, "A cat sees the cat.", "Der Kater sieht den Hund.", False),
        (CAT, "A cat sees the cat.", "Der Kater sieht den Kater.", True),
        ((*CAT, Term("tree", "Kater")), "A cat sees the tree.", "Der Kater sieht.", False),
        ((Term("bakery", "laden"),), "Bakery of Anna", "Anna hat den laden", True),
        ((Term("old", "alt"),), "Anna is old", "Alter Baum", True),
        ((Term("old tree", "Alter Baum"),), "Anna sees old  trees", "Der Alter Baum", True),
        ((Term("old tree", "Alter Baum"),), "Anna sees old trees", "Der Baum, Alter", False),
        ((Term("Anna", "Anna"),), "Anna draws.", "Anna malt.", True),
        ((Term("Anna", "Anna"),), "Annas tree", "Ein Baum, Anna", True),
        ((Term("Anna", "Anna"),), "Annas tree", "Ein Baum", False),
    ],
)
def test_which_words_count_as_the_term(
    tokenizer: Tokenizer, terms: tuple[Term, ...], text: str, output: str, *, is_accepted: bool
) -> None:
    answers = iter([output])
    script = ScriptedTranslator(tokenizer, lambda source: next(answers, source), has_alignment=True)
    translation = script(text, terms=terms)
    assert len(script.engine.submitted) in ((1,) if is_accepted else (2, 3))
    if is_accepted:
        assert translation.text == output
    else:
        assert all(hit.replacement in translation.text for hit in translation.glossary_hits)


def test_a_sentence_in_capitals_is_checked_in_its_final_casing(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Kater"))
    translation = script("ANNA SEES THE CAT.", terms=CAT)
    assert translation.text == "ANNA SEES THE KATER."
    assert script.sources == ["Anna sees the cat."]
    script = ScriptedTranslator(tokenizer, as_dictionary(bakery="laden"))
    assert script("A BAKERY", terms=(Term("bakery", "Laden"),)).text == "A LADEN"
    assert script.sources == ["A bakery"], "`A` alone is no sentence in capitals: the word of the term counts"


@pytest.mark.parametrize(("word", "num_decodings"), [("Kater", 1), ("Maus", 2)])
def test_a_term_in_an_inline_tag(tokenizer: Tokenizer, word: str, num_decodings: int) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat=word), has_alignment=True)
    text = "<p>Anna &amp; <b>nobody</b> see the <i>cat</i> today.</p>"
    translation = script(text, terms=CAT, text_format=TextFormat.HTML)
    assert translation.text == text.replace("cat", "Kater")
    assert len(script.engine.submitted) == num_decodings
    check_hits(text, translation, [("cat", "Kater")])


def test_tags_after_a_term_placeholder(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(bakery="haus"), has_alignment=True)
    text = "<p>Anna sees the bakery <i>and</i> <b>it</b> is old today.</p>"
    translation = script(text, terms=(Term("bakery", "Laden"),), text_format=TextFormat.HTML)
    assert translation.text == text.replace("bakery", "Laden")
    assert len(script.engine.submitted) == 2


def test_the_parts_around_a_lost_term_placeholder_are_translated_separately(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(
        tokenizer, lambda source: "Anna" if "cat" in source or SYMBOL in source else source
    )
    translation = script("Anna draws a cat today.", terms=CAT)
    assert translation.text == "Anna draws a Kater today."
    assert translation.segments[0].fallbacks == (Fallback.PLACEHOLDER_SPLIT,)
    assert script.sources[1:] == [f"Anna draws a {SYMBOL} today.", "Anna draws a", "today."]


def test_a_term_with_a_tag_inside_or_a_digit_is_a_placeholder_at_once(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(), has_alignment=True)
    terms = (Term("old tree", "Baum"), Term("the old tree", "Eiche"), Term("route 7", "Weg"))
    script("<p>Anna sees <b>old</b> tree.</p>", terms=terms, text_format=TextFormat.HTML)
    translation = script("<p>Anna sees the <b>old</b> tree.</p>", terms=terms, text_format=TextFormat.HTML)
    script("Anna sees route 7 today.", terms=terms)
    assert script.sources == [f"Anna sees {SYMBOL}.", f"Anna sees {SYMBOL}.", f"Anna sees {SYMBOL} today."]
    assert translation.text == "<p>Anna sees <b>Eiche</b>.</p>"


@pytest.mark.parametrize("text", ["Anna draws {name} cat.", "Anna draws {name}cat.", "Anna draws cat{name}."])
@pytest.mark.parametrize(("word", "num_decodings"), [("Kater", 1), ("Maus", 2)])
def test_a_term_next_to_a_placeholder(tokenizer: Tokenizer, text: str, word: str, num_decodings: int) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat=word), has_alignment=True)
    translation = script(text, terms=CAT)
    assert translation.text == text.replace("cat", "Kater")
    assert len(script.engine.submitted) == num_decodings
    assert "cat" in script.sources[0]


def test_a_term_inside_a_placeholder_does_not_count(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Maus"), has_alignment=True)
    translation = script("Anna sees {Kater} and the cat.", terms=CAT)
    assert translation.text == "Anna sees {Kater} and the Kater."


def test_one_hypothesis_without_a_term_makes_all_terms_placeholders(tokenizer: Tokenizer) -> None:
    options = GREEDY.updated(beam_size=2, num_hypotheses=2)

    def translate(source: str) -> str:
        return f"{source}\nSo {source}" if SYMBOL in source else "Der Kater\nDie Maus"

    script = ScriptedTranslator(tokenizer, translate, has_alignment=True)
    translation = script("Anna draws the cat", terms=CAT, options=options)
    assert translation.hypotheses == ("Anna draws the Kater", "So Anna draws the Kater")
    assert len(script.engine.submitted) == 2
    alone = ScriptedTranslator(tokenizer, translate, has_alignment=True)
    assert alone("Anna draws the cat", terms=CAT, options=GREEDY).text == "Der Kater"
    assert len(alone.engine.submitted) == 1


def test_streamed_text_without_the_term_is_replaced(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Maus"), has_alignment=True)
    watcher = RecordingObserver()
    translation = script("Anna draws the cat. Anna sees it.", watcher, terms=CAT, options=GREEDY)
    assert translation.text == "Anna draws the Kater. Anna sees it."
    assert watcher.shown == watcher.ended == {(0, 0): "Anna draws the Kater.", (0, 1): "Anna sees it."}
    assert watcher.replacements == [((0, 0), "")], "only the segment that is decoded again is replaced"


def test_numbers_and_terms_become_placeholders_together(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Kater", **{"2": "4"}), has_alignment=True)
    translation = script("Anna draws 2 cats.", terms=CAT)
    assert translation.text == "Anna draws 2 Kater."
    assert script.sources == ["Anna draws 2 cats.", "Anna draws \ue000 \ue001."]
    assert translation.segments[0].fallbacks == (Fallback.NUMBERS_CARRIED,)
    assert not translation.segments[0].changed_numbers


def test_a_term_is_searched_in_all_parts_together(tokenizer: Tokenizer) -> None:
    def translate(source: str) -> str:
        is_short = len(source.split()) <= 3 or SYMBOL in source
        return source.replace("cat", "Maus") if is_short else NO_END

    script = ScriptedTranslator(tokenizer, translate, has_alignment=True)
    translation = script("Anna draws the old cat today.", terms=CAT)
    assert translation.text == "Anna draws the old Kater today."
    assert script.sources[-1] == f"Anna draws the old {SYMBOL} today."
    assert translation.segments[0].fallbacks == ()


def test_a_sentence_with_too_many_terms_is_split(tokenizer: Tokenizer) -> None:
    text = "Anna sees the cat " + "and a cat " * 9
    script = ScriptedTranslator(tokenizer, as_dictionary(cat="Maus"), has_alignment=True)
    translation = script(text, terms=CAT)
    assert translation.text == text.replace("cat", "Kater")
    assert all(segment.is_part for segment in translation.segments)


def test_positions_of_subwords_inside_a_term(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, as_dictionary(), has_alignment=True)
    terms = (Term("old tree", "old tree"),)
    text = "<p>Anna sees  the old  tr&#101;e today.</p>"
    options = GREEDY.updated(alignment=True)
    translation = script(text, terms=terms, options=options, token_scores=True, text_format=TextFormat.HTML)
    assert script.sources == ["Anna sees the old tree today."]
    (segment,) = translation.segments
    tokens = [token for token in segment.hypotheses[0].tokens if token.text]
    for token in tokens:
        assert token.source is not None
        assert token.text is not None
        assert unescape(text[slice(*token.source)]).split() == unescape(token.text).split()
