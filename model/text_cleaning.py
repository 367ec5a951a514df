"""Normalises sentences, and makes the keys by which two sentences count as equal."""

from __future__ import annotations

import hashlib
import re
import unicodedata

# Characters of category Cc that are no white space, and invisible ones that carry no meaning in a sentence: soft
# hyphen, zero-width space, word joiner, byte order mark, marks of writing direction. The joiners U+200C and U+200D
# stay: emoji and several scripts need them.
_INVISIBLE = "\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
_REMOVED = re.compile(f"[\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f{_INVISIBLE}]")
_NO_WORD_CHARACTER = re.compile(r"[\W_]+")
_DIGIT = re.compile(r"\d")
# The characters that the bytes 0x80 to 0xbf are in Latin-1 or Windows-1252, in groups. A correct word that ends in Ã,
# for example, may stand before one of _PUNCTUATION, before » and before a no-break space. A correct Å, the unit, may
# stand before one of _AFTER_UNIT.
_PUNCTUATION = "\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026\u2039\u203a"
_AFTER_UNIT = "\u00b0-\u00b3\u00b7\u00b9"
_OTHERS = (
    "\u0080-\u009f\u00a1-\u00af\u00b4-\u00b6\u00b8\u00ba\u00bc-\u00bf"
    "\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u201a\u201e\u2020\u2021\u2030\u20ac\u2122"
)
_ANY = f"{_OTHERS}{_AFTER_UNIT}{_PUNCTUATION}\u00a0\u00bb"
# U+FFFD, which stands for a byte that could not be read, and UTF-8 that was read as Latin-1 or Windows-1252. Each
# alternative looks back at its lead byte: a search is several times faster if the pattern begins with a single class.
_BROKEN = re.compile(
    "[ÂÃÄÅáâ\ufffd](?:(?<=\ufffd)"
    # U+0080 to U+00FF. A character of _PUNCTUATION must have a letter after it. The exception is Ã—, which stands for
    # ×: it must have no letter before it, because × is no part of a word.
    f"|(?<=[ÂÃ])(?:[{_OTHERS}{_AFTER_UNIT}]|[{_PUNCTUATION}](?<!—)(?=[^\\W\\d_]))|(?<=Â)[\u00a0»]"
    "|(?<=Ã)(?<![A-ZÀ-ÞĐ]{2}Ã)[\u00a0»]|(?<=Ã)(?<![^\\W\\d_]Ã)—"
    # U+0100 to U+017F. No correct word has a capital between a small letter and one of _ANY.
    f"|(?<=[a-z][ÄÅ])[{_ANY}]|(?<=[ÄÅ])[{_OTHERS}](?=[a-zÃ-Å])|(?<=Ä)°(?=[a-z])"
    # Vietnamese letters: ¸ º or » is the second of three bytes.
    f"|(?<=á)(?:[¸º][{_ANY}]|»[{_OTHERS}])"
    # Punctuation such as ’ and –.
    "|(?<=â)[€\u0080])"
)
# Two texts that differ only in their digits count as near-duplicates if they have at least this many letters and
# digits. If smaller, "3.5 km" and "4.2 km" are one text. If larger, more numbered boilerplate stays.
MIN_LETTERS_TO_FOLD_DIGITS = 20


def normalise(text: str) -> str:
    """Return the text in Unicode NFC, with single spaces, and without control characters and those of _INVISIBLE.

    Each run of white space, no-break spaces included, becomes one space. White space at both ends is removed.
    """
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFC", _REMOVED.sub("", text))
    return " ".join(text.split())


def is_broken(text: str) -> bool:
    """Whether the text holds U+FFFD, or UTF-8 that was read as Latin-1 or Windows-1252.

    Such UTF-8 is found for most letters from U+0080 to U+017F, for Vietnamese letters and for punctuation, but not for
    other scripts. text: not normalised, because `normalise` removes control characters.
    """
    return not text.isascii() and _BROKEN.search(text) is not None


def letters_key(text: str) -> str:
    """Return the case-folded letters, digits and combining marks.

    Sentences with the same key differ only in case, white space, punctuation and symbols.
    """
    folded = text.casefold()
    if folded.isascii():
        return _NO_WORD_CHARACTER.sub("", folded)
    return _NO_WORD_CHARACTER.sub(_marks_of, folded)


def _marks_of(run: re.Match[str]) -> str:
    """The combining marks in a run of other characters. In several scripts they are vowel signs of the word."""
    return "".join(character for character in run[0] if unicodedata.category(character)[0] == "M")


def near_key(text: str) -> str:
    """Return `letters_key`, with every digit as 0 if it has at least MIN_LETTERS_TO_FOLD_DIGITS characters."""
    key = letters_key(text)
    return _DIGIT.sub("0", key) if len(key) >= MIN_LETTERS_TO_FOLD_DIGITS else key


def sorted_digits(text: str) -> str:
    """Return the decimal digits of the text in ascending order as ASCII. They are equal for 1,200 and 1.200."""
    return "".join(sorted(str(unicodedata.decimal(digit)) for digit in _DIGIT.findall(text)))


def hash64(text: str) -> int:
    """Return a 64-bit hash of the text, the same in every process and on every machine (BLAKE2b, RFC 7693)."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
