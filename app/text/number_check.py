"""Compares the numbers of a source and its translation by value, each in the notation of its language.

`1,234.5` in English is `1.234,5` in German and `1 234,5` in French. A number may have two readings, its digits as
written and a quantity. It is unchanged if one reading agrees. The parts of dates, times and versions (`2024-05-01`,
`12:30`, `1.2.3`) are compared in any order. These pairs agree, too: a small number and its word (`5`, `five`), the
month of a date and its name (`2024-05-01`, `1 May 2024`), `3 pm` and 15.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from app.text.language_codes import base_language, number_language
from app.text.segmentation import Span

_SPACES = "\u00a0\u2009\u202f "
# Digits with single marks between them, and a space only before groups of three. The group is not possessive, because
# CPython before 3.11.5 does not restore the position of a possessive group whose last repetition fails (gh-106052).
NUMBER = re.compile(r"\d++(?:[" + _SPACES + r"]\d{3}(?!\d)|[.,:/'\u2019\u066b\u066c\-]\d++)*", re.UNICODE)
_DIGIT = re.compile(r"\d")
_DOTTED_DATE = re.compile(r"(?:\d{1,2}\.)?(\d{1,2})\.\d{4}")
# Begins where a word begins, so that a long word without a digit is read once.
_NUMBER_WITH_LETTERS = re.compile(r"(?<![^\W_])[^\W_]*?" + NUMBER.pattern + r"[^\W_]*+")
_AFTERNOON = re.compile(r"[" + _SPACES + r"]?p\.?\s?m\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]++")
_DECIMAL_COMMA = frozenset(
    {"de", "fr", "es", "it", "pt", "nl", "pl", "cs", "ru", "uk", "sv", "da", "nb", "fi", "tr"}
)
_NUMBER_WORDS = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze",
}
_MONTHS = {
    "en": "january february march april may june july august september october november december",
    "de": "januar februar märz april mai juni juli august september oktober november dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
_MORE_NUMBER_WORDS = {
    "en": {"once": 1, "first": 1, "second": 2, "twice": 2, "third": 3, "fourth": 4, "fifth": 5, "hundred": 100,
           "thousand": 1000, "dozen": 12},
    "de": {"ein": 1, "eine": 1, "einen": 1, "einem": 1, "einer": 1, "eines": 1, "erste": 1, "ersten": 1, "erster": 1,
           "zweite": 2, "zweiten": 2, "dritte": 3, "dritten": 3, "vierte": 4, "vierten": 4, "fünfte": 5,
           "hundert": 100, "tausend": 1000, "dutzend": 12},
    "fr": {"une": 1, "premier": 1, "première": 1, "deuxième": 2, "troisième": 3, "cent": 100, "mille": 1000},
}  # fmt: skip


@dataclass(frozen=True)
class ChangedNumbers:
    """missing: numbers of the source that the target lacks. added: numbers of the target that the source lacks."""

    missing: tuple[str, ...]
    added: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.added)


_NONE = ChangedNumbers((), ())


@dataclass(frozen=True)
class _Number:
    """A number in a text.

    readings: the digits as written and, of a quantity, the possible values in their simplest form.
    parts: the digits between the marks of a date, time, version, ratio or range. Any other number is one part.
    """

    written: str
    readings: frozenset[str]
    parts: tuple[str, ...]


def changed_numbers(source: str, target: str, source_language: str, target_language: str) -> ChangedNumbers:
    """Compare the numbers of a text and its translation. Languages are BCP 47 codes."""
    if not _DIGIT.search(source) and not _DIGIT.search(target):
        return _NONE
    source_language, target_language = number_language(source_language), number_language(target_language)
    sources = list(_numbers(source, source_language))
    targets = list(_numbers(target, target_language))
    missing, added = _unmatched(sources, targets)
    if not missing and not added:
        return _NONE
    missing, added = _unmatched(
        _split_at_spaces(missing, source_language), _split_at_spaces(added, target_language)
    )
    missing, added = (
        _without_known_parts(missing, added, _months(target, target_language)),
        _without_known_parts(added, missing, _months(source, source_language)),
    )
    missing = _not_spelled(missing, target, target_language)
    added = _not_spelled(added, source, source_language)
    return ChangedNumbers(
        tuple(number.written for number in missing), tuple(number.written for number in added)
    )


def has_number(text: str, language: str) -> bool:
    """Whether a text has a digit or a number word. language: BCP 47 code."""
    words = _values(base_language(language))
    return _DIGIT.search(text) is not None or not words.keys().isdisjoint(_WORD.findall(text.lower()))


def number_spans(text: str, only: Collection[str] | None = None) -> list[Span]:
    """Return numbers with the letters of their word: `1,234.5`, `A4`, `21st`.

    only: numbers without letters, such as `4`; return just the words that contain one of them.
    """
    return [
        Span(*match.span())
        for match in _NUMBER_WITH_LETTERS.finditer(text)
        if only is None or any(number.group() in only for number in NUMBER.finditer(match.group()))
    ]


def _numbers(text: str, language: str) -> Iterator[_Number]:
    for match in NUMBER.finditer(text):
        written = match.group()
        digits = "".join(str(unicodedata.digit(c, 0)) if c.isdigit() else c for c in written)
        parts = tuple(part.lstrip("0") or "0" for part in re.split(r"\D", digits))
        possible = list(_readings(digits, language))
        readings = set(possible)
        # The digits of a quantity belong together: `1,234` is not `1` and `234`. The same holds for unknown notations.
        has_one_part = len(possible) > 1 or not _is_well_formed(digits, language)
        if _AFTERNOON.match(text, match.end()) and len(parts[0]) <= 2:
            hour = str(int(parts[0]) % 12 + 12)
            readings |= {hour, *(re.sub(r"\A\d+", hour, reading) for reading in readings)}
        yield _Number(written, frozenset(readings), (digits.lstrip("0") or "0",) if has_one_part else parts)


def _is_well_formed(digits: str, language: str) -> bool:
    """Whether marks and digits can be a quantity, date, time, version or ratio, or a range of these.

    All marks of a date are the same, and none is a comma. So `24,12` is no English date, and `12.31/2025` no German
    one. The month comes before the year in a date with dots in the languages of _DECIMAL_COMMA. So `12.31.2025` and
    `31.2025` are no German dates.
    """
    date = _DOTTED_DATE.fullmatch(digits)
    if date is not None and int(date.group(1)) > 12 and language in _DECIMAL_COMMA:
        return False
    return all(_is_one_kind(each, language) for each in digits.split("-"))


def _is_one_kind(digits: str, language: str) -> bool:
    marks = set(re.sub(r"\d", "", digits))
    if "/" in marks and len(marks) > 1:
        ratio = digits.split("/")
        return all(":" in each or len(list(_readings(each, language))) > 1 for each in ratio)
    return len(list(_readings(digits, language))) > 1 or (len(marks) < 2 and "," not in marks)


def _split_at_spaces(numbers: list[_Number], language: str) -> list[_Number]:
    """Split unmatched numbers at spaces, because groups of digits may be several numbers side by side."""
    return [
        part
        for number in numbers
        for group in re.split(f"[{_SPACES}]", number.written)
        for part in ([number] if group == number.written else _numbers(group, language))
    ]


def _readings(digits: str, language: str) -> Iterator[str]:
    """Yield the digits as written, and their value if they are one quantity in this language."""
    yield digits
    compact = re.sub("[" + _SPACES + "'\u2019]", "", digits)
    has_comma = language in _DECIMAL_COMMA
    decimal, group = (",", ".") if has_comma else (".", ",")
    whole, mark, fraction = compact.partition(decimal)
    if re.fullmatch(r"\d{1,3}(?:" + re.escape(group) + r"\d{3})+|\d+", whole) and (
        fraction.isdigit() if mark else True
    ):
        plain = whole.replace(group, "").lstrip("0") or "0"
        fraction = fraction.rstrip("0")
        yield f"{plain}.{fraction}" if fraction else plain


def _unmatched(sources: list[_Number], targets: list[_Number]) -> tuple[list[_Number], list[_Number]]:
    """Return the numbers of each side without a partner on the other. Partners share a reading."""
    unmatched = list(targets)
    missing = []
    for number in sources:
        partner = next((other for other in unmatched if number.readings & other.readings), None)
        if partner is None:
            missing.append(number)
        else:
            unmatched.remove(partner)
    return missing, unmatched


def _without_known_parts(numbers: list[_Number], others: list[_Number], months: list[str]) -> list[_Number]:
    """Return the numbers with a part that no number of the other side has. Each part matches only once.

    months: the months that the other side names, as numbers. If all numbers have one part, all are returned, because
    they were compared before, and because the name of a month, such as `May`, must not match a quantity.
    """
    unmatched = [part for other in others for part in other.parts] + months
    may_match = any(len(number.parts) > 1 for number in (*numbers, *others))
    unknown = []
    for number in numbers:
        needed = Counter(number.parts)
        if may_match and needed <= Counter(unmatched):
            unmatched = list((Counter(unmatched) - needed).elements())
        else:
            unknown.append(number)
    return unknown


def _months(text: str, language: str) -> list[str]:
    """Return the numbers of the months that a text names."""
    names = _MONTHS.get(language, "").split()
    return [str(names.index(word) + 1) for word in _WORD.findall(text.lower()) if word in names]


def _values(language: str) -> dict[str, int]:
    """Return the values of a language's number words."""
    values = dict(_MORE_NUMBER_WORDS.get(language, {}))
    return values | {word: value for value, word in enumerate(_NUMBER_WORDS.get(language, "").split())}


def _not_spelled(numbers: list[_Number], text: str, language: str) -> list[_Number]:
    """Return the numbers that `text` does not contain as words."""
    values = _values(language)
    spelled = [str(values[word]) for word in _WORD.findall(text.lower()) if word in values] if numbers else []
    unspelled = []
    for number in numbers:
        reading = next((reading for reading in number.readings if reading in spelled), None)
        if reading is None:
            unspelled.append(number)
        else:
            spelled.remove(reading)
    return unspelled
