"""Compares the numbers of a source and its translation by value, each in the notation of its language.

`1,234.5` in English is `1.234,5` in German and `1 234,5` in French. A number may have two readings, its digits as
written and a quantity. In a language whose decimal mark is unknown, `1,234` may be the quantity 1234 or 1.234. A number
is unchanged if one reading agrees. The parts of dates, times and versions (`2024-05-01`,
`12:30`, `1.2.3`) are compared in any order. These pairs agree, too: a small number and its word (`5`, `five`), the
month of a date and its name (`2024-05-01`, `1 May 2024`), `3 pm` and 15.

`万`, `億`, `만` and the like multiply the number before them (`150万`). A number right after them is added (`1万2345`).
The other side may have a word for this (`1.5 million`). So if one of two numbers is multiplied, only their digits are
compared, without decimal marks and without zeros at both ends.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, lru_cache
from math import prod

from app.text.language_codes import base_language, decimal_marks
from app.text.scripts import UNSPACED
from app.text.segmentation import Span

# Spaces that may stand inside a number, or between a number and its unit.
SPACES = "\u00a0\u2009\u202f "
# Digits with single marks between them, and a space or wide comma only before groups of three.
NUMBER = re.compile(
    r"\d++(?:[" + SPACES + r"\uff0c]\d{3}(?!\d)|[.,:/'\u2019\u066b\u066c\uff0e\-]\d++)*", re.UNICODE
)
_DIGIT = re.compile(r"\d")
_NO_DIGIT = re.compile(r"\D")
# Marks between groups of digits that are no decimal mark in any language.
_NEUTRAL_MARKS = re.compile(rf"[{SPACES}'\u2019]")
# The digits before the decimal mark, in languages with a decimal comma and with a decimal point.
_WHOLE_WITH_POINTS = re.compile(r"\d{1,3}(?:\.\d{3})+|\d+")
_WHOLE_WITH_COMMAS = re.compile(r"\d{1,3}(?:,\d{2,3})*,\d{3}|\d+")
# Arabic and wide marks, and the marks that they stand for.
_PLAIN_MARKS = str.maketrans("\u066b\u066c\uff0e\uff0c", ".,.,")
_GAP = re.compile(f"[{SPACES}\uff0c]")
_DOTTED_DATE = re.compile(r"(?:\d{1,2}\.)?(\d{1,2})\.\d{4}")
# A letter or digit of a script with spaces. Another letter next to a number belongs to another word.
_LETTER = rf"[^\W_{UNSPACED}]"
# A number or a range of numbers, with the letters that touch it. The pattern begins only where a word begins, so that a
# long word without a digit is read once.
_NUMBER_WITH_LETTERS = re.compile(
    rf"(?<!{_LETTER}){_LETTER}*?{NUMBER.pattern}(?:\u2013{NUMBER.pattern})*{_LETTER}*+"
)
# Chinese, Japanese and Korean words that multiply the number before them.
_SCALES = (
    dict.fromkeys("百백", 100)
    | dict.fromkeys("千仟천", 1000)
    | dict.fromkeys("万萬만", 10**4)
    | dict.fromkeys("億亿억", 10**8)
    | dict.fromkeys("兆조", 10**12)
)
_SCALE_WORDS = f"[{''.join(_SCALES)}]{{1,3}}"
# A space may come before a Chinese character (`10 万`), but not before Hangul, because after a space the same character
# may begin another Korean word.
_SCALE = re.compile(rf"(?:[{SPACES}](?![가-힣]))?({_SCALE_WORDS}+)(?:[{SPACES}](?=\d))?")
_SCALE_BEFORE = re.compile(rf"\d[{SPACES}]?{_SCALE_WORDS}$")
# Maximum number of characters of a multiplied number, because a Decimal has a largest value.
_MAX_MULTIPLIED = 40
_AFTERNOON = re.compile(r"[" + SPACES + r"]?p\.?\s?m\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]++")
_NUMBER_WORDS = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn zwanzig",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
}
_MONTHS = {
    "en": "january february march april may june july august september october november december",
    "de": "januar februar märz april mai juni juli august september oktober november dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
}
_MORE_NUMBER_WORDS = {
    "en": {"once": 1, "first": 1, "second": 2, "twice": 2, "third": 3, "fourth": 4, "fifth": 5, "hundred": 100,
           "thousand": 1000, "dozen": 12, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
           "eighty": 80, "ninety": 90},
    "de": {"ein": 1, "eine": 1, "einen": 1, "einem": 1, "einer": 1, "eines": 1, "erste": 1, "ersten": 1, "erster": 1,
           "zweite": 2, "zweiten": 2, "dritte": 3, "dritten": 3, "vierte": 4, "vierten": 4, "fünfte": 5,
           "hundert": 100, "tausend": 1000, "dutzend": 12, "dreißig": 30, "vierzig": 40, "fünfzig": 50, "sechzig": 60,
           "siebzig": 70, "achtzig": 80, "neunzig": 90},
    "fr": {"une": 1, "premier": 1, "première": 1, "deuxième": 2, "troisième": 3, "cent": 100, "mille": 1000,
           "vingt": 20, "trente": 30, "quarante": 40, "cinquante": 50, "soixante": 60},
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
    is_multiplied: whether a word such as `万` multiplies it.
    """

    written: str
    readings: frozenset[str]
    parts: tuple[str, ...]
    is_multiplied: bool = False

    def agrees(self, other: _Number) -> bool:
        """Whether the numbers share a reading or, if one is multiplied, the digits without zeros at both ends."""
        return not self.readings.isdisjoint(other.readings) or (
            (self.is_multiplied or other.is_multiplied)
            and not self._significant_digits.isdisjoint(other._significant_digits)
        )

    @cached_property
    def _significant_digits(self) -> set[str]:
        return {_NO_DIGIT.sub("", reading).strip("0") for reading in self.readings}


def changed_numbers(source: str, target: str, source_language: str, target_language: str) -> ChangedNumbers:
    """Compare the numbers of a text and its translation. Languages are BCP 47 codes."""
    if not has_digit(source) and not has_digit(target):
        return _NONE
    source_marks, target_marks = decimal_marks(source_language), decimal_marks(target_language)
    source_language, target_language = base_language(source_language), base_language(target_language)
    sources = list(_numbers(source, source_marks))
    targets = list(_numbers(target, target_marks))
    missing, added = _unmatched(sources, targets)
    if not missing and not added:
        return _NONE
    missing, added = _unmatched(_split_at_gaps(missing, source_marks), _split_at_gaps(added, target_marks))
    missing, added = (
        _without_known_parts(missing, added, _months(target, target_language)),
        _without_known_parts(added, missing, _months(source, source_language)),
    )
    missing = _not_spelled(missing, target, target_language)
    added = _not_spelled(added, source, source_language)
    return ChangedNumbers(
        tuple(number.written for number in missing), tuple(number.written for number in added)
    )


def has_digit(text: str) -> bool:
    """Whether a text has a decimal digit of any script."""
    return _DIGIT.search(text) is not None


def may_have_number(text: str, language: str) -> bool:
    """Whether a text has a numeral or a number word. True if the number words of its language are unknown.

    language: BCP 47 code.
    """
    values = _values(base_language(language))
    return (
        not values
        or any(unicodedata.numeric(character, None) is not None for character in text)
        or not values.keys().isdisjoint(_WORD.findall(text.lower()))
    )


def number_spans(text: str, only: Collection[str] | None = None) -> list[Span]:
    """Return numbers and ranges, each with the letters that touch it: `1,234.5`, `A4`, `21st`, `5–7`.

    `10万` and `1万2345` are left out.
    only: numbers without letters, such as `4`. If it is given, only what contains one of them is returned.
    """
    return [
        Span(*match.span())
        for match in _NUMBER_WITH_LETTERS.finditer(text)
        if (only is None or any(number.group() in only for number in NUMBER.finditer(match.group())))
        and not _SCALE.match(text, match.end())
        and not _SCALE_BEFORE.search(text, max(0, match.start() - 5), match.start())
    ]


def _numbers(text: str, marks: str) -> Iterator[_Number]:
    """Yield the numbers of a text. marks: its possible decimal marks."""
    end = 0
    for match in NUMBER.finditer(text):
        if match.start() < end:
            continue  # such as `5000万` in `3億5000万`
        value, end = _multiplied(text, match, marks)
        if value:
            written, reading = text[match.start() : end].rstrip(), f"{value:f}"
            yield _Number(written, frozenset({reading}), (reading,), is_multiplied=True)
        else:
            yield _number(text, match, marks)


def _multiplied(text: str, match: re.Match[str], marks: str) -> tuple[Decimal, int]:
    """Return the value and end of the number that begins with a match, or 0 if no word such as `万` multiplies it."""
    value, end = Decimal(0), match.end()
    part = Decimal(0)  # what a later word may multiply, such as `1천500` in `1천500만`
    following: re.Match[str] | None = match
    while following is not None and (scale := _SCALE.match(text, following.end())):
        if not (least := _least_value(following.group(), marks)):
            return value + part, end
        factors = [_SCALES[word] for word in scale.group(1)]
        part += least * prod(factor for factor in factors if factor < 10**4)
        if (large := prod(factor for factor in factors if factor >= 10**4)) > 1:
            value, part = value + part * large, Decimal(0)
        end = scale.end()
        following = NUMBER.match(text, end)
    if following is not None and following is not match and (rest := _least_value(following.group(), marks)):
        part, end = part + rest, following.end()  # such as `2345` in `1万2345`
    return value + part, end


def _least_value(written: str, marks: str) -> Decimal:
    """Return the least possible value of a quantity, or 0 for a number that is no quantity or is too long."""
    if len(written) > _MAX_MULTIPLIED:
        return Decimal(0)
    values = (_value(_plain(written), mark) for mark in marks)
    return min((Decimal(value) for value in values if value is not None), default=Decimal(0))


def _number(text: str, match: re.Match[str], marks: str) -> _Number:
    digits = _plain(match.group())
    parts = tuple(part.lstrip("0") or "0" for part in _NO_DIGIT.split(digits))
    readings = {digits, *(value for mark in marks if (value := _value(digits, mark)) is not None)}
    # The digits of a quantity belong together: `1,234` is not `1` and `234`. The same holds for unknown notations.
    has_one_part = all(
        _value(digits, mark) is not None or not _is_well_formed(digits, mark) for mark in marks
    )
    if _AFTERNOON.match(text, match.end()) and len(parts[0]) <= 2:
        hour = str(int(parts[0]) % 12 + 12)
        readings |= {hour, *(re.sub(r"\A\d+", hour, reading) for reading in readings)}
    return _Number(
        match.group(), frozenset(readings), (digits.lstrip("0") or "0",) if has_one_part else parts
    )


def _plain(written: str) -> str:
    """Return a number with ASCII digits and marks."""
    digits = "".join(str(unicodedata.digit(c, 0)) if c.isdigit() else c for c in written)
    return digits.translate(_PLAIN_MARKS)


def _is_well_formed(digits: str, decimal: str) -> bool:
    """Whether marks and digits can be a quantity, date, time, version or ratio, or a range of these.

    All marks of a date are the same, and none is a comma. So `24,12` is no English date, and `12.31/2025` no German
    one. The month comes before the year in a date with dots in languages with a decimal comma. So `12.31.2025` and
    `31.2025` are no German dates.
    """
    date = _DOTTED_DATE.fullmatch(digits)
    if date is not None and int(date.group(1)) > 12 and decimal == ",":
        return False
    return all(_is_one_kind(each, decimal) for each in digits.split("-"))


def _is_one_kind(digits: str, decimal: str) -> bool:
    marks = set(_DIGIT.sub("", digits))
    if "/" in marks and len(marks) > 1:
        ratio = digits.split("/")
        return all(":" in each or _value(each, decimal) is not None for each in ratio)
    return _value(digits, decimal) is not None or (len(marks) < 2 and "," not in marks)


def _split_at_gaps(numbers: list[_Number], marks: str) -> list[_Number]:
    """Split unmatched numbers at spaces and wide commas, because groups of digits may be several numbers."""
    return [
        part
        for number in numbers
        for group in _GAP.split(number.written)
        for part in ([number] if group == number.written else _numbers(group, marks))
    ]


def _value(digits: str, decimal: str) -> str | None:
    """Return the value of a number with this decimal mark, or None if it is not one quantity.

    The last group has three digits. With a decimal point, the others may have two, as in India: `12,34,567`.
    """
    compact = _NEUTRAL_MARKS.sub("", digits)
    whole, mark, fraction = compact.partition(decimal)
    groups = _WHOLE_WITH_POINTS if decimal == "," else _WHOLE_WITH_COMMAS
    if not groups.fullmatch(whole) or (mark and not fraction.isdigit()):
        return None
    plain = _NO_DIGIT.sub("", whole).lstrip("0") or "0"
    fraction = fraction.rstrip("0")
    return f"{plain}.{fraction}" if fraction else plain


def _unmatched(sources: list[_Number], targets: list[_Number]) -> tuple[list[_Number], list[_Number]]:
    """Return the numbers of each side without a partner on the other."""
    unmatched = list(targets)
    missing = []
    for number in sources:
        partner = next((other for other in unmatched if number.agrees(other)), None)
        if partner is None:
            missing.append(number)
        else:
            unmatched.remove(partner)
    return missing, unmatched


def _without_known_parts(numbers: list[_Number], others: list[_Number], months: list[str]) -> list[_Number]:
    """Return the numbers with a part that no number of the other side has. Each part matches only once.

    months: the months that the other side names, as numbers. If no number of either side has several parts, all are
    returned: `_unmatched` has compared them, and the name of a month, such as `May`, must not match a quantity.
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


@lru_cache(maxsize=64)
def _values(language: str) -> Mapping[str, int]:
    """Return the values of a language's number words."""
    values = dict(_MORE_NUMBER_WORDS.get(language, {}))
    return values | {word: value for value, word in enumerate(_NUMBER_WORDS.get(language, "").split())}


def _not_spelled(numbers: list[_Number], text: str, language: str) -> list[_Number]:
    """Return the numbers that `text` does not contain as words."""
    values = _values(language)
    spelled = [str(values[word]) for word in _WORD.findall(text.lower()) if word in values] if numbers else []
    return _unmatched(numbers, [_Number(value, frozenset({value}), (value,)) for value in spelled])[0]
