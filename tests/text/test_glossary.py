"""Glossary terms match whole words, the longest first, in simple inflections and in their case."""

from __future__ import annotations

import unicodedata
from itertools import chain, islice, product
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.glossary import Glossary, Term, missing_terms
from app.text.parsed_text import ParseOptions, parse_text
from app.text.segments import SegmentTranslation
from tests.text.growth import check_near_linear

TERMS = [
    Term("box", "Kiste"), Term("mail box", "Briefkasten"), Term("iPhone", "iPhone"), Term("IT", "EDV"),
    Term("Apple", "Apple"), Term("e-mail", "E-Mail"), Term("C++", "C++"), Term("it department", "EDV-Abteilung"),
]  # fmt: skip


def found(text: str, terms: list[Term] = TERMS, language: str = "en") -> list[tuple[str, str]]:
    hits = list(Glossary(terms, language).hits(text))
    assert all(hit.surface == hit.span.of(text) for hit in hits)
    return [(hit.surface, hit.replacement) for hit in hits]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a box of boxes", [("box", "Kiste"), ("boxes", "Kiste")]),
        ("the box's lid, a boxer, unbox", [("box's", "Kiste")]),
        ("a mail  box", [("mail  box", "Briefkasten")]),
        ("mail\nbox", [("box", "Kiste")]),
        ("Mail boxes and Boxes", [("Mail boxes", "Briefkasten"), ("Boxes", "Kiste")]),
        ("OPEN THE MAIL BOX", [("MAIL BOX", "BRIEFKASTEN")]),
        ("iPhones, iphone, IPHONE", [("iPhones", "iPhones")]),
        ("it is IT", [("IT", "EDV")]),
        ("an apple of Apple's", [("Apple's", "Apple's")]),
        ("E-mails in C++.", [("E-mails", "E-Mail"), ("C++", "C++")]),
        ("the IT department", [("IT department", "EDV-Abteilung")]),
        ("", []),
        ("nothing here", []),
    ],
)
def test_which_terms_are_found_in_a_text(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


def test_the_first_of_two_terms_that_differ_only_in_their_space_is_found() -> None:
    terms = [Term("mail box", "Briefkasten"), Term("mail\tbox", "Postfach")]
    assert found("a mail box", terms) == [("mail box", "Briefkasten")]
    assert found("a mail box", terms[::-1]) == [("mail box", "Postfach")]


@pytest.mark.parametrize("language", ["de", "de-AT"])
def test_german_terms_are_found_with_their_endings(language: str) -> None:
    terms = [Term("Haus", "building"), Term("gro\u00dfer Hund", "big dog")]
    text = "Des Hauses, im Hause, HAUS, Hausboot, h\u00e4user, gro\u00dfer Hunde, haus"
    assert found(text, terms, language) == [
        ("Hauses", "building"),
        ("Hause", "building"),
        ("HAUS", "BUILDING"),
        ("gro\u00dfer Hunde", "big dog"),
    ]


def test_a_capital_letter_alone_is_no_term_in_capitals() -> None:
    assert found("X marks x", [Term("x", "kreuz")]) == [("X", "Kreuz"), ("x", "kreuz")]


def test_a_language_without_endings_has_whole_words_only() -> None:
    assert found("box boxes", [Term("box", "x")], "xx") == [("box", "x")]


@pytest.mark.parametrize(
    ("language", "term", "text", "expected"),
    [
        ("fr", "école", "L’école, l'école, d'école, jusqu'école, une école", ["école"] * 5),
        ("fr", "école", "L'ÉCOLE", ["ÉCOLE"]),
        ("fr", "hui", "aujourd'hui", []),
        ("fr", "l'eau", "L'eau de l'eau", ["L'eau", "l'eau"]),
        ("fr-CA", "école", "l'école", ["école"]),
        ("it", "acqua", "L'acqua dell'acqua", ["acqua", "acqua"]),
        ("tr", "İstanbul", "İstanbul'da ve İstanbul’un", ["İstanbul", "İstanbul"]),
        ("tr", "İstanbul'da", "İstanbul'da", ["İstanbul'da"]),
        ("en", "t", "don't", []),
        ("en", "école", "l'école", []),
    ],
)
def test_the_language_decides_whether_a_term_is_found_at_an_apostrophe(
    language: str, term: str, text: str, expected: list[str]
) -> None:
    hits = Glossary([Term(term, "x")], language).hits(text)
    assert [hit.surface for hit in hits] == expected


def test_terms_of_a_translation_are_found_at_an_apostrophe() -> None:
    for language, translation, text in (
        ("fr", "école", "L'école est fermée."),
        ("it", "scuola", "all'scuola"),
        ("tr", "İstanbul", "İstanbul'da."),
    ):
        hits = list(Glossary([Term("place", translation)], "en").hits("a place"))
        assert missing_terms(hits, text, language) == []


@pytest.mark.parametrize("language", ["tr", "az-AZ"])
def test_turkish_has_two_letters_i_in_either_case(language: str) -> None:
    assert found("IŞIK, Işık, ışık", [Term("ışık", "light")], language) == [
        ("IŞIK", "LIGHT"),
        ("Işık", "Light"),
        ("ışık", "light"),
    ]
    assert found("DİYARBAKIR DIYARBAKIR", [Term("Diyarbakır", "x")], language) == [("DİYARBAKIR", "X")]
    terms = [Term("cat", "kedi"), Term("icon", "ikon")]
    hits = list(Glossary(terms, "en").hits("CAT, Icon", language))
    assert [hit.replacement for hit in hits] == ["KEDİ", "İkon"]
    assert missing_terms(hits, "KEDİ, İkon", language) == []


def test_greek_replacements_have_no_tonos_in_capitals() -> None:
    hits = Glossary([Term("other", "άλλο")], "en").hits("OTHER Other", "el")
    assert [hit.replacement for hit in hits] == ["ΑΛΛΟ", "Άλλο"]


def test_greek_terms_have_no_tonos_in_capitals() -> None:
    hits = list(Glossary([Term("EU", "Ευρωπαϊκή Ένωση"), Term("May", "Μάιος")], "en").hits("EU, May"))
    assert missing_terms(hits, "Η ΕΥΡΩΠΑΪΚΗ ΕΝΩΣΗ, ΜΑΪΟΣ", "el") == []
    assert missing_terms(hits, "Η Ευρωπαϊκή Ένωση, Μάιος", "el-GR") == []
    assert missing_terms(hits, "Η ευρωπαϊκή Ένωση, ΜΑΙΟΣ", "el") == hits
    text = "ΝΟΜΟΣ ΝΌΜΟΣ Νόμος νόμος νομός ΝΟΜΌΣ"
    for term in ("νόμος", unicodedata.normalize("NFD", "νόμος")):
        assert [hit[0] for hit in found(text, [Term(term, "law")], "el")] == text.split()[:4]


def test_a_glossary_takes_the_rules_of_another_language() -> None:
    glossary = Glossary([Term("Işık", "x"), Term("d'eau", "y")], "")
    for _ in range(2):
        for language, text in (("tr", "IŞIK"), ("az", "IŞIK"), ("fr", "d'eaux")):
            assert len(list(glossary.of_language(language).hits(text))) == 1
            assert list(glossary.hits(text)) == []


def test_a_turkish_translation_in_capitals_has_turkish_capitals() -> None:
    glossary = Glossary([Term("cat", "kedi")], "en")
    parsed_text = parse_text("THE CAT SLEEPS.", ParseOptions("en", "tr", glossary=glossary))
    (segment,) = parsed_text.segments(lambda _source: True)
    assert parsed_text.missing_terms(segment, "kedi uyuyor.") == []
    second = parsed_text.with_term_placeholders(segment)
    assert (
        parsed_text.render(second, SegmentTranslation(f"{second.placeholders[0]} uyuyor.")) == "KEDİ UYUYOR."
    )


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_composed_and_decomposed_letters_are_equal(form: Literal["NFC", "NFD"]) -> None:
    text = unicodedata.normalize(form, "un café, un Café, CAFÉ")
    for other in ("NFC", "NFD"):
        term = Term(unicodedata.normalize(other, "café"), "x")
        assert [replacement for _, replacement in found(text, [term], "fr")] == ["x", "X", "X"]
        term = Term(unicodedata.normalize(other, "École"), "x")
        assert len(found(unicodedata.normalize(form, "École école"), [term], "fr")) == 1


@pytest.mark.parametrize(
    "source", ["\ufeffmail box", "mail \u00ad box", "\u2060mail box", "mail box\u200b", "mail \u00adbox"]
)
def test_a_term_is_found_without_its_invisible_characters(source: str) -> None:
    terms = [Term(source, "post")]
    assert found("A mail box is red.", terms) == [("mail box", "post")]
    assert found("Mail box", terms) == [("Mail box", "Post")]


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ("the weath\u200ber\u200b is good", "weath\u200ber"),
        ("the \ufeffweather is good", "weather"),
        ("the mail \u00adbox is red", "mail \u00adbox"),
        ("the mail \u00ad box is red", "mail \u00ad box"),
    ],
)
def test_a_text_may_have_invisible_characters_in_a_term(text: str, surface: str) -> None:
    assert [each for each, _ in found(text, [Term("weather", "Wetter"), Term("mail box", "Post")])] == [
        surface
    ]


@pytest.mark.parametrize("source", ["\u00ad", "\u200b \ufeff"])
def test_a_term_of_invisible_characters_matches_nothing(source: str) -> None:
    assert found("a \u00ad box\u200b \ufeff", [Term(source, "x"), Term("box", "Kiste")]) == [("box", "Kiste")]


def test_a_translation_needs_no_invisible_characters_of_a_term() -> None:
    hits = list(Glossary([Term("mail", "\u2060Po\u00adst")], "en").hits("the mail"))
    assert missing_terms(hits, "die Post", "de") == []
    assert missing_terms(hits, "der Brief", "de") == hits


def test_short_words_have_no_endings() -> None:
    assert found("as is", [Term("a", "x"), Term("i", "y")]) == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_term_with_capitals_wins_over_the_same_word_in_lower_case(order: int) -> None:
    terms = [Term("apple", "Apfel"), Term("Apple", "Apple")][::order]
    assert found("Apple and apple", terms) == [("Apple", "Apple"), ("apple", "Apfel")]


@pytest.mark.parametrize("order", [1, -1])
def test_a_term_as_written_wins_over_a_term_with_an_ending(order: int) -> None:
    terms = [Term("box", "Kiste"), Term("boxes", "Kisten")][::order]
    assert found("boxes, box", terms) == [("boxes", "Kisten"), ("box", "Kiste")]


def test_the_last_of_two_equal_terms_counts() -> None:
    assert found("box", [Term("box", "one"), Term("box", "two")]) == [("box", "two")]


@given(
    st.lists(st.sampled_from(["mail", "box", "boxes", "IT", "it", " ", ", ", "\n", "department", "C++", "x"]))
)
def test_hits_are_in_order_and_do_not_overlap(parts: list[str]) -> None:
    text = "".join(parts)
    end = 0
    for hit in Glossary(TERMS, "en").hits(text):
        assert end <= hit.span.start < hit.span.end <= len(text)
        end = hit.span.end


def test_many_terms_in_a_long_text_take_near_linear_time() -> None:
    """There are as many terms as phrases. A comparison of every term with every word takes quadratic time."""

    def find(size: int) -> None:
        terms = [Term(f"box {number} {number}", "x") for number in range(size)]
        last = f"box {size - 1} {size - 1}"
        assert found("box 1 2 " * size, terms) == []
        assert found(f"{last} " * size, terms) == [(last, "x")] * size

    check_near_linear(find, 4000)


@pytest.mark.parametrize(
    ("language", "word", "end"),
    [("zh", "人", "口"), ("en", "-", "x"), ("en", "a ", "A"), ("de", "aaan ", "-")],
)
def test_long_terms_that_almost_match_at_each_word_take_near_linear_time(
    language: str, word: str, end: str
) -> None:
    """A search that starts anew at each word takes quadratic time."""

    def find(size: int) -> None:
        terms = [Term(word * num + end, "x") for num in (1, size // 4, size // 2, size)]
        assert found(word * 2 * size, terms, language) == []

    check_near_linear(find, 1000)


def test_a_short_term_found_where_a_long_one_fails_takes_near_linear_time() -> None:
    def find(size: int) -> None:
        terms = [Term("人", "x"), Term("人" * size + "口", "x")]
        assert len(found("人" * 2 * size, terms, "zh")) == 2 * size

    check_near_linear(find, 1000)


def test_terms_that_differ_only_by_capitals_and_endings_take_near_linear_time() -> None:
    """There are as many terms as words. Each word of the text matches every word of the terms."""

    def find(size: int) -> None:
        sources = product(["box", "Boxs"], repeat=size.bit_length() - 1)
        assert found("Boxs " * size, [Term(" ".join(each), "x") for each in sources])

    check_near_linear(find, 512)


@pytest.mark.parametrize(("language", "letters", "word"), [("en", "aA", "a"), ("el", "αά", "Α")])
def test_many_spellings_of_a_word_take_near_linear_time(language: str, letters: str, word: str) -> None:
    def find(size: int) -> None:
        terms = [Term("".join(each), "x") for each in islice(product(letters, repeat=10), size)]
        assert len(found(f"{word * 10} " * size, terms, language)) == size

    check_near_linear(find, 512)


def test_a_long_term_of_words_with_several_matches_takes_near_linear_time() -> None:
    def find(size: int) -> None:
        assert found("A " * 2 * size, [Term("A " * size, "x"), Term("a", "y")])

    check_near_linear(find, 512)


@given(st.lists(st.sampled_from(["box", "Box", "boxes", "BOX"]), min_size=1))
def test_the_longest_of_many_similar_terms_is_found(words: list[str]) -> None:
    """The terms are all runs of up to three words. Each word matches several others."""
    runs = [product(["box", "Box", "boxes", "BOX"], repeat=num) for num in (1, 2, 3)]
    terms = [Term(" ".join(run), "x") for run in chain(*runs)]
    surfaces = [surface for surface, _ in found(" ".join(words), terms)]
    assert surfaces == [" ".join(words[start : start + 3]) for start in range(0, len(words), 3)]
