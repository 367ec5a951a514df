"""Lower-cases sentences in capitals and titles for the model, and restores the casing of the translation.

A sentence in capitals (`MIND THE GAP`) has no lower-case letter except `ß`, no letter of a script without case, and is
more than an acronym. It has a word of five letters or more, or two words of two letters or more, one of them with at
least four. Or it is a single word of three or four letters that the vocabulary has as one subword (`OPEN`). The model
reads it in lower case with a capital at its start. The translation is converted to capitals, where `ß` becomes `SS`.

An English title (`The Old Man and the Sea`) has at least four words and does not end with a full stop. All its words
except small ones (`and`, `the`) are capitalised, and three or more have lower-case letters after the capital. The model
reads it in lower case after its first letter, and the translation keeps the case that the model writes.

In both, words with a digit stay unchanged, and so does the English word `I`, also in `I'm`. In a title, so do words of
one letter, and words with a capital after the first letter.

In all other sentences, the model reads a few English and German words in lower case that are in capitals for emphasis
(`do NOT open`). The translation keeps the case that the model writes.

In Turkish and Azerbaijani, the capital of `i` is `İ`, and that of `ı` is `I`. Greek capitals have no tonos. If `ι` or
`υ` could then be read as one vowel with the letter before it, it gets a dialytika: `Μάιος` becomes `ΜΑΪΟΣ`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from enum import Enum

from app.text.language_codes import base_language

_CHUNK = re.compile(r"\S+")
_LETTERS = re.compile(r"[^\W\d_]+")
_LOWER = re.compile(r"[a-z]")
# The English word `I`, but not a letter of a word such as `U.I.` or `I.E.`.
_WORD_I = re.compile(r"(?<![^\W_])(?<![^\W_]\.)I(?![^\W_])(?!\.[^\W_])")
# The languages with the letters `ı` and `İ`.
DOTLESS_I = frozenset(("tr", "az"))
GREEK = "el"
# Greek letters with a tonos, and the same without it.
_WITHOUT_TONOS = {
    code: unicodedata.normalize("NFC", decomposed.replace("\u0301", ""))
    for code in range(0x370, 0x400)
    if "\u0301" in (decomposed := unicodedata.normalize("NFD", chr(code)))
}
# Second letters of what would be one vowel without the tonos of the first letter.
_SECOND_VOWEL = re.compile("(?<=[\u03ac\u03ad\u03cc\u03cd\u0386\u0388\u038c\u038e])[ιυΙΥ]")
_WITH_DIALYTIKA = str.maketrans("ιυΙΥ", "ϊϋΪΫ")
_SMALL = """
    a an and as at but by for from in into is nor of off on onto or over per so than that the to up via vs with
"""
_SMALL_WORDS = frozenset(_SMALL.split())
# Words that texts write in capitals for emphasis. Most vocabularies lack them in capitals, and a model loses them.
_EMPHASISED_WORDS = {
    "en": """
        all also always any both can't cannot do don't every everyone first here last left must never new no not now
        only please really right should still that this very without won't
    """,
    "de": """
        alle alles auch bitte darf dürfen erst immer jede jeden jeder jetzt kein keine keinen muss müssen nicht nie
        niemals nur sehr sofort unbedingt wirklich
    """,
}
# These words in capitals. The `NEW` of a name such as `NEW DELHI` is not among them.
_EMPHASIS = {
    language: re.compile(
        r"(?<![^\s\"'(\u201c\u201e])(?:"
        + "|".join(words.upper().replace("'", "['\u2019]").split())
        + r")(?![\w\-&/]|(?<=NEW) [A-Z]{2})"
    )
    for language, words in _EMPHASISED_WORDS.items()
}
# All words of _EMPHASIS have two neighbouring capitals. Most texts have none, and are not searched for the words.
_TWO_CAPITALS = re.compile("[A-Z]{2}")
# Minimum number of words of a title. If smaller, names of three words are lower-cased. If larger, more titles keep
# their capitals, and the model translates these badly.
MIN_TITLE_WORDS = 4


class Casing(Enum):
    """The casing of a sentence."""

    PLAIN = "plain"
    CAPITALS = "capitals"
    TITLE = "title"


def no_word(word: str) -> bool:
    """Return False: without a vocabulary a short word in capitals counts as an acronym."""
    return False


def casing_of(text: str, language: str, is_word: Callable[[str], bool] = no_word) -> Casing:
    """Return the casing of a sentence.

    language: BCP 47 code of the sentence. is_word(short word in lower case): whether it is a word, not an acronym.
    """
    text = unicodedata.normalize("NFC", text)
    may_be_title = base_language(language) == "en" and not text.rstrip().endswith(".")
    if not may_be_title and _LOWER.search(text):
        return Casing.PLAIN
    words = _LETTERS.findall(text)
    if _is_in_capitals(words, language, is_word):
        return Casing.CAPITALS
    return Casing.TITLE if may_be_title and _is_title(text, words) else Casing.PLAIN


def _is_in_capitals(words: list[str], language: str, is_word: Callable[[str], bool]) -> bool:
    if any(_is_no_capital(character) for word in words for character in word):
        return False
    lengths = [len(word) for word in words if word.upper() != word.lower()]
    longest = max(lengths, default=0)
    if longest >= 5 or (longest >= 4 and sum(length > 1 for length in lengths) > 1):
        return True
    return len(words) == 1 and longest >= 3 and is_word(lower_case(words[0], language))


def _is_no_capital(letter: str) -> bool:
    """Whether a letter is lower-case, except `ß`, or belongs to a script without case."""
    return (letter.islower() and letter != "ß") or unicodedata.category(letter) == "Lo"


def _is_title(text: str, words: list[str]) -> bool:
    """Whether a text is a title, by the rule in the module's docstring."""
    chunks = [chunk for chunk in text.split() if _LETTERS.search(chunk)]
    if len(chunks) < MIN_TITLE_WORDS:
        return False
    if not all(_is_capitalised(chunk) or chunk.strip(",:;!?()").lower() in _SMALL_WORDS for chunk in chunks):
        return False
    return sum(_is_capitalised(word) and word[1:].islower() for word in words) >= MIN_TITLE_WORDS - 1


def _is_capitalised(chunk: str) -> bool:
    match = _LETTERS.search(chunk)
    return match is not None and match.group()[0].isupper()


def lowered(text: str, casing: Casing, language: str) -> str:
    """Return the sentence as the model reads it. Each character is replaced by one character.

    language: BCP 47 code of the sentence.
    """
    first = _LETTERS.search(text)
    if first is None:
        return text
    if casing is Casing.PLAIN:
        return _without_emphasis(text, first.start(), language)
    kept = [first.start()]
    if base_language(language) == "en":
        kept += (match.start() for match in _WORD_I.finditer(text))
    result = list(_CHUNK.sub(lambda chunk: _lowered_chunk(chunk.group(), casing, language), text))
    for position in kept:
        result[position] = text[position]
    return "".join(result)


def _without_emphasis(text: str, start: int, language: str) -> str:
    """Return a sentence with its emphasised words in lower case, but with a capital at `start`, its first letter."""
    emphasis = _EMPHASIS.get(base_language(language))
    if emphasis is None or not _TWO_CAPITALS.search(text) or not _LOWER.search(text):
        return text
    return emphasis.sub(
        lambda word: word.group().capitalize() if word.start() == start else word.group().lower(), text
    )


def _lowered_chunk(chunk: str, casing: Casing, language: str) -> str:
    letters = "".join(_LETTERS.findall(chunk))
    has_digit = any(character.isdigit() for character in chunk)
    if has_digit or (casing is Casing.TITLE and not letters[1:].islower()):
        return chunk
    return lower_case(chunk, language)


def lower_case(text: str, language: str) -> str:
    """Return the text in lower case, with one character for each of the text."""
    if base_language(language) in DOTLESS_I:
        return text.replace("I", "ı").replace("İ", "i").lower()
    # `İ` stays, because it is the only character that becomes two in lower case.
    return "İ".join(part.lower() for part in text.split("İ"))


def restored(text: str, casing: Casing, language: str) -> str:
    """Return a part of the translation, in capitals if its source sentence is in capitals, else unchanged.

    language: BCP 47 code of the translation.
    """
    if casing is not Casing.CAPITALS:
        return text
    return capitals(text, language)


def capitals(text: str, language: str) -> str:
    """Return a text in capitals."""
    return upper_case(without_tonos(text) if base_language(language) == GREEK else text, language)


def without_tonos(text: str) -> str:
    """Return a Greek text without tonos, as in capitals."""
    separate = _SECOND_VOWEL.sub(lambda found: found[0].translate(_WITH_DIALYTIKA), text)
    return separate.translate(_WITHOUT_TONOS)


def upper_case(text: str, language: str) -> str:
    """Return a text in upper case, with the accents that it has."""
    return (text.replace("i", "İ") if base_language(language) in DOTLESS_I else text).upper()
