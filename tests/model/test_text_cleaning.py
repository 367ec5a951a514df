"""Normalised sentences, the keys by which they count as equal, and text that was decoded wrongly."""

from __future__ import annotations

import pytest

from model.text_cleaning import (
    MIN_LETTERS_TO_FOLD_DIGITS,
    hash64,
    is_broken,
    letters_key,
    near_key,
    normalise,
    sorted_digits,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a\u00a0 b\tc\x85d\u2028", "a b c d"),
        ("nu\x00l\x1b \u200bzero\ufeff so\u00adft", "nul zero soft"),
        ("u\u0308ber", "\u00fcber"),
        ("\U0001f468\u200d\U0001f373 cooks", "\U0001f468\u200d\U0001f373 cooks"),
        ("\n\x0c", ""),
        ("plain text.", "plain text."),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected
    assert normalise(expected) == expected


def test_keys_ignore_case_and_punctuation_but_no_letters() -> None:
    assert letters_key("Grüße, an ALLE!") == letters_key("grüsse an alle")
    assert letters_key("कि") != letters_key("की")
    assert near_key("Step 1 of the long tour of town") == near_key("step 9 of the long tour of town!")
    assert near_key("3.5 km") != near_key("4.2 km")
    assert sorted_digits("1,200 for 3") == sorted_digits("3 für 1.200")
    assert sorted_digits("٣") == "3"


def test_digits_count_as_equal_from_the_least_number_of_letters_and_digits_on() -> None:
    assert len(letters_key("Page 1 of the large road")) == MIN_LETTERS_TO_FOLD_DIGITS - 1
    assert near_key("Page 1 of the large road") != near_key("Page 2 of the large road")
    assert near_key("Page 1 of the large roads") == near_key("Page 2 of the large roads")


def test_the_hash_is_the_same_on_every_machine() -> None:
    assert hash64("Haus") == 0x9AC6701C29F59D7
    assert hash64("Haus") != hash64("Maus")
    assert hash64("\ud800") < 2**64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schÃ¶n", True),
        ("StraÃ\x9fe", True),
        ("Ã\xa0 la", True),
        ("ÃŽle", True),
        ("itâ€™s", True),
        ("itâ\x80\x99s", True),
        ("KÃ–LN", True),
        ("Ã–sterreich", True),
        ("10 Ã— 15", True),
        ("isnÂ’t", True),
        ("20\u00c2\u00a0°", True),
        ("Å¡koda", True),
        ("Å\xa0koda", False),  # may be "5 Å wide" with a no-break space
        ("mogÄ…", True),
        ("Ä°zmir", True),
        ("aÄŸaÃ§", True),
        ("tÄ›sto", True),
        ("ÄŒesko", True),
        ("\u00c4\u008dlovek", True),
        ("Viá»‡t", True),
        ("tiáº¿ng", True),
        ("\ufffd", True),
        ("schön", False),
        ("NÃO", False),
        ("it’s", False),
        ("âge", False),
        ("ĐÃ”", False),
        ("IRMÃ…", False),
        ("AMANHÃ—ELE", False),
        ("AMANHÃ\xa0ELE", False),
        ("«AMANHû", False),
        ("„Â“", False),
        ("PÄIVÄÄ…", False),
        ("„Ä“", False),
        ("HYVÄ\xa0PÄIVÄ", False),
        ("«HYVÄ»", False),
        ("12 Å³", False),
        ("12 Å±0,2", False),
        ("the Å’s size", False),
        ("«está»…", False),
        ("«está»\xa0ahí", False),
        ("đến", False),
    ],
)
def test_text_that_was_decoded_wrongly_is_recognised(text: str, expected: bool) -> None:
    assert is_broken(text) is expected


WORDS = (
    *("škoda", "Žižkov", "čtyři", "příště", "mogą", "część", "łódź", "ağaç", "İzmir"),
    *("şişe", "űrhajó", "erdő", "šūkis", "déjà", "Ærø", "Öl", "ÿ", "Việt", "tiếng"),
)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("word", WORDS)
def test_words_that_were_decoded_with_either_wrong_encoding_are_recognised(word: str, encoding: str) -> None:
    """Bytes without a character in Windows-1252 are read as the control characters of Latin-1, as in a browser."""
    parts = (bytes([byte]) for byte in word.encode())
    text = "".join(part.decode(encoding, "ignore") or part.decode("latin-1") for part in parts)
    assert not is_broken(word)
    assert is_broken(text)
