"""Capitals and titles are lower-cased for the model, and capitals are restored in the translation.

Acronyms and names in other text are unchanged.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.casing import Casing, casing_of, lowered, restored

LANGUAGES = st.sampled_from(("en", "tr", "el"))


@pytest.mark.parametrize(
    ("text", "casing", "expected"),
    [
        ("MIND THE STEP", Casing.CAPITALS, "Mind the step"),
        ("WARNING!", Casing.CAPITALS, "Warning!"),
        ("STRA\u00dfE GESPERRT", Casing.CAPITALS, "Stra\u00dfe gesperrt"),
        ("(1) OPEN THE DOOR \U000f0000", Casing.CAPITALS, "(1) Open the door \U000f0000"),
        ("I'M LATE AND I AM HUNGRY", Casing.CAPITALS, "I'm late and I am hungry"),
        ('SHE SAID "I\'M LATE"', Casing.CAPITALS, 'She said "I\'m late"'),
        ("HE ASKED (I\u2019M SURE)", Casing.CAPITALS, "He asked (I\u2019m sure)"),
        ("WHEN I-I SAW\u2014I\u2019D SAY", Casing.CAPITALS, "When I-I saw\u2014I\u2019d say"),
        ("THE U.I. IS, I.E., SIMPLE", Casing.CAPITALS, "The u.i. is, i.e., simple"),
        ("COVID-19 IS HERE", Casing.CAPITALS, "COVID-19 is here"),
        ("\u041f\u0420\u0418\u0412\u0415\u0422", Casing.CAPITALS, "\u041f\u0440\u0438\u0432\u0435\u0442"),
        (
            "GAR\u0130P BIR YER",
            Casing.CAPITALS,
            "Gar\u0130p bir yer",
        ),  # \u0130 in lower case is two characters
        ("NASA", Casing.PLAIN, "NASA"),
        ("A USB", Casing.PLAIN, "A USB"),
        ("U S A", Casing.PLAIN, "U S A"),
        ("the NASA launched it", Casing.PLAIN, "the NASA launched it"),
        ("MIND the STEP", Casing.PLAIN, "MIND the STEP"),
        ("\u4f60\u597d\u4f60\u597d\u4f60\u597d", Casing.PLAIN, "\u4f60\u597d\u4f60\u597d\u4f60\u597d"),
        ("\u6211\u6709\u4e00\u53f0PC\u7535\u8111", Casing.PLAIN, "\u6211\u6709\u4e00\u53f0PC\u7535\u8111"),
        ("\u4f7f\u7528 HTTPS", Casing.PLAIN, "\u4f7f\u7528 HTTPS"),
        ("", Casing.PLAIN, ""),
        ("The Old Man and the Sea", Casing.TITLE, "The old man and the sea"),
        (
            "How to Build a Boat with NASA in 10 Days",
            Casing.TITLE,
            "How to build a boat with NASA in 10 days",
        ),
        ("The Man and Sea", Casing.TITLE, "The man and sea"),
        ('Why "I\'m Sorry" Is Never Enough', Casing.TITLE, 'Why "I\'m sorry" is never enough'),
        ("Why My iPhone Is So Slow: An Answer", Casing.PLAIN, "Why My iPhone Is So Slow: An Answer"),
        ("The Old Man and the Sea.", Casing.PLAIN, "The Old Man and the Sea."),
        ("The Old Sea", Casing.PLAIN, "The Old Sea"),
        ("Anna saw Ben in Rome", Casing.PLAIN, "Anna saw Ben in Rome"),
    ],
)
def test_capitals_and_titles_are_lowered_for_the_model(text: str, casing: Casing, expected: str) -> None:
    assert casing_of(text, "en") is casing
    assert lowered(text, casing, "en") == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("tr", "KAPIYI KAPATIN, \u0130STANBUL'DA B\u0130R", "Kap\u0131y\u0131 kapat\u0131n, istanbul'da bir"),
        ("az-AZ", "\u0130LK QAPI", "\u0130lk qap\u0131"),
        ("it", "TUTTI I BAMBINI", "Tutti i bambini"),
        ("pl", "MAMA I TATA", "Mama i tata"),
        (
            "el",
            "\u03a4\u0397\u03a3 \u03a0\u039f\u03a1\u03a4\u0391\u03a3",
            "\u03a4\u03b7\u03c2 \u03c0\u03bf\u03c1\u03c4\u03b1\u03c2",
        ),
    ],
)
def test_capitals_are_lowered_by_the_rules_of_their_language(language: str, text: str, expected: str) -> None:
    assert casing_of(text, language) is Casing.CAPITALS
    assert lowered(text, Casing.CAPITALS, language) == expected


def test_a_short_word_is_looked_up_by_the_rules_of_its_language() -> None:
    words = {"k\u0131z", "dil"}
    for text in ("KIZ", "D\u0130L"):
        assert casing_of(text, "tr", words.__contains__) is Casing.CAPITALS


@pytest.mark.parametrize(
    ("text", "casing", "expected"),
    [
        ("OPEN", Casing.CAPITALS, "Open"),
        ("YES!", Casing.CAPITALS, "Yes!"),
        ("NASA", Casing.PLAIN, "NASA"),  # not in the vocabulary
        ("IT", Casing.PLAIN, "IT"),  # in the vocabulary, but often an acronym
        ("OPEN NOW", Casing.CAPITALS, "Open now"),
        ("YES MAN", Casing.PLAIN, "YES MAN"),
    ],
)
def test_a_short_word_in_capitals_is_no_acronym_if_the_vocabulary_has_it(
    text: str, casing: Casing, expected: str
) -> None:
    words = {"open", "yes", "it", "man"}
    assert casing_of(text, "en", lambda word: word.lower() in words) is casing
    assert lowered(text, casing, "en") == expected


def test_capitals_with_combining_accents() -> None:
    text = unicodedata.normalize("NFD", "CẢNH BÁO")
    assert casing_of(text, "vi") is Casing.CAPITALS
    assert lowered(text, Casing.CAPITALS, "vi") == unicodedata.normalize("NFD", "Cảnh báo")


def test_only_english_has_titles() -> None:
    assert casing_of("Der Alte Mann Und Das Meer", "de") is Casing.PLAIN
    for language in ("en", "en-GB"):
        assert casing_of("Der Alte Mann Und Das Meer", language) is Casing.TITLE


def test_the_translation_gets_the_casing_of_the_text() -> None:
    assert (
        restored("Vorsicht, Stra\u00dfe \U000f0000", Casing.CAPITALS, "de") == "VORSICHT, STRASSE \U000f0000"
    )
    assert restored("Der alte Mann und das Meer", Casing.TITLE, "de") == "Der alte Mann und das Meer"
    assert restored("Der NATO-Gipfel", Casing.PLAIN, "de") == "Der NATO-Gipfel"
    assert restored("istanbul'da kap\u0131", Casing.CAPITALS, "tr") == "\u0130STANBUL'DA KAPI"
    assert restored("istanbul'da", Casing.PLAIN, "tr") == "istanbul'da"
    assert restored("Προσοχή στο κενό, ϊΐ café; ή·", Casing.CAPITALS, "el") == "ΠΡΟΣΟΧΗ ΣΤΟ ΚΕΝΟ, ΪΪ CAFÉ; Η·"
    greek = {"Μάιος": "ΜΑΪΟΣ", "ρολόι": "ΡΟΛΟΪ", "άυλος": "ΑΫΛΟΣ", "δρύινος ΡΟΛΌΙ": "ΔΡΥΪΝΟΣ ΡΟΛΟΪ"}
    greek |= {"και αϊτός": "ΚΑΙ ΑΪΤΟΣ", "πρώιμος": "ΠΡΩΙΜΟΣ", "αύριο, καΐκι": "ΑΥΡΙΟ, ΚΑΪΚΙ"}
    for text, expected in greek.items():
        assert restored(text, Casing.CAPITALS, "el") == expected
    assert restored("\u0387", Casing.CAPITALS, "el") == "\u0387"
    assert restored("κενό", Casing.CAPITALS, "en") == "ΚΕΝΌ"


@given(st.text(max_size=60) | st.text("AI\u0130\u03a3 '.", max_size=20), st.sampled_from(Casing), LANGUAGES)
def test_positions_do_not_change(text: str, casing: Casing, language: str) -> None:
    result = lowered(text, casing, language)
    assert len(result) == len(text)
    special = {"I": "\u0131", "\u0130": "i", "\u03a3": "\u03c2"}
    assert all(b in (a, a.lower(), special.get(a)) for a, b in zip(text, result, strict=True))


@given(st.text(st.characters(codec="ascii"), max_size=60), LANGUAGES)
def test_lowered_capitals_are_restored(text: str, language: str) -> None:
    text = text.upper()
    assert restored(lowered(text, Casing.CAPITALS, language), Casing.CAPITALS, language) == text


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Please do NOT open it NOW!", "Please do not open it now!"),
        ("en", "You CANNOT, DON'T and CAN\u2019T stay", "You cannot, don't and can\u2019t stay"),
        ("en", "ONLY for members", "Only for members"),
        ("en", "\u201cNEVER run,\u201d he said", "\u201cNever run,\u201d he said"),
        ("en", "A NEW map of NEW DELHI", "A new map of NEW DELHI"),
        ("en-GB", "Both US and IT staff know NASA, NOT-gates and ALL/none", None),
        ("de", "Bitte NICHT antworten, es gilt NUR heute.", "Bitte nicht antworten, es gilt nur heute."),
        ("fr", "Ce n'est PAS NOT vrai", None),
    ],
)
def test_emphasised_words_are_lowered_for_the_model(language: str, text: str, expected: str | None) -> None:
    assert casing_of(text, language) is Casing.PLAIN
    assert lowered(text, Casing.PLAIN, language) == (expected or text)
