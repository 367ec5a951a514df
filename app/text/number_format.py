"""Rewrites quantities and dates for the target language: `1,234.5` as `1.234,5`, `12/31/2025` as `31.12.2025`.

A number keeps its length. These stay unchanged:

- numbers that have neither a decimal mark nor a thousands mark, IP addresses, and numbers with a letter, `_`, `=`, `@`
  or a backslash next to them, or right after one of `/:#.`;
- times with a colon (`12:30`);
- numbers that look like a time with a point and follow a word such as `at` (`at 12.30`), if no unit or currency is next
  to them or to the other number of a range;
- numbers before `am` (not in German, where it is a common word), `pm`, `o'clock`, `uhr`, `h` or `hrs`;
- numbers whose thousands mark is a point or space, if they begin with 0 or follow a word such as `version`;
- numbers whose thousands mark is a point or space, without a decimal part, unit or currency,
  - if they have two marks or more and `+` is right before them (`+48 600 123 456`);
  - if the mark is a space, and they stand next to another number (`040 123 4567`);
  - if the mark is U+0020, and they have it twice or more and begin with three digits (`777 123 456`);
- references, which are numbers with a decimal point that begin a heading (`2.4 Results`), or that follow `§` or a word
  such as `section` or `version` (`section 2.4`);
- a number with a decimal point that follows a capitalised word, if that word is not the text's first
  (`for Python 3.11`);
- an English date that is valid with its day first and with its month first (`05/06/2025`).

A number that stays unchanged anywhere in the text stays unchanged everywhere. If the model writes a reference with the
target's marks, it gets the marks of the source again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.text.language_codes import number_language
from app.text.number_check import NUMBER, SPACES

# The decimal mark and the thousands mark of each language.
_DOT_GROUPS, _SPACE_GROUPS = (",", "."), (",", "\u00a0")
_MARKS = (
    {"en": (".", ",")}
    | dict.fromkeys(("de", "es", "it", "pt", "nl", "da", "tr"), _DOT_GROUPS)
    | dict.fromkeys(("fr", "pl", "cs", "ru", "uk", "sv", "nb", "fi"), _SPACE_GROUPS)
)
# The part that comes first in a date with slashes, for each language that writes such dates. English has both orders.
_SLASH_DATES = {"en": "month or day"} | dict.fromkeys(("fr", "es", "it", "pt"), "day")
# The mark between the parts of a date, for each target language whose dates are rewritten: day, month, year.
_DATE_MARKS = dict.fromkeys(("de", "pl", "cs", "ru", "uk", "da", "nb", "fi", "tr"), ".") | dict.fromkeys(
    ("fr", "es", "it", "pt"), "/"
)
_DECIMAL = re.compile(r"\d+\.\d+")
_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
# Characters that may come before the first word of a text. A point is none of them, so in `.NET 5.0` the word `NET`
# does not count as the first, and 5.0 stays unchanged.
_OPENING = (
    "\t\n\r \u00a0\u202f\"'([{\u2018\u201a\u201c\u201e\u00ab\u2039*+-\u2013\u2014\u2022\u00b7\u00bf\u00a1"
)
# Maximum number of characters before the first word of a text. The limit keeps the time linear.
MAX_MARKS = 40
# The word before a number, with at most two other characters in between.
_BEFORE = re.compile(r"([^\W\d_][\w.]*)?[^\w]{0,2}$")
# The text that follows a time of day or a number of hours, such as `pm` or `h`.
_CLOCK = re.compile(
    r"[" + SPACES + r"]?(?:[ap]\.\s?m\b|(a\s?m)\b|p\s?m\b|o['\u2019]clock|h\b|uhr\b|hrs\b)", re.IGNORECASE
)
# Words that come before a number that is no quantity.
_NUMBERED = re.compile(
    r"(?:versions?|ver|v|release|build|chapters?|ch|sections?|secs?|paragraphs?|articles?|clauses?|annex|appendix|rules?"
    r"|steps?|equations?|eqs?|figures?|figs?|tables?|pages?|no|number|nr"
    r"|versi[oó]n|versão|versione|versie|wersja|verze|версия|версія|versjon|versio|sürüm)"
)
# Words of _NUMBERED that are common words in a language with points or spaces between groups (`no` in Spanish, `v` in
# Czech).
_COMMON_WORDS = frozenset(["no", "ver", "v"])
# Another number before or after a number, with a space between them. A year before the number does not count.
_NUMBER_BEFORE = re.compile(r"\d(?<!\b(?:19|20)\d\d)[" + SPACES + r"]$")
_NUMBER_AFTER = re.compile(r"[" + SPACES + r"]\d")
# What follows the number of a heading: a space and a letter, perhaps after a quotation mark.
_HEADING = re.compile(r"\s[\"'\u201c\u201e\u2018]?([^\W\d_])")
_BYTE = r"(?:1?\d{1,2}|2[0-4]\d|25[0-5])"
_IP_ADDRESS = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
# A currency before a number, and a currency, unit or magnitude after it. The case of a unit of one letter counts, and
# no point or apostrophe follows it, because `w` and `v` are words, and `M.` and `l'` are no units.
_CURRENCY_BEFORE = re.compile(
    r"(?:[$€£¥₽₺₴₹]|\b(?:EUR|USD|GBP|CHF|PLN|CZK|RUB|UAH|SEK|NOK|DKK))[" + SPACES + r"]?$"
)
_UNIT = (
    r"(?i:[kcmdµ]m[²³23]?|m[²³23]|ha|[kmµ]g|[cdmh]l|[kmgt]w|[kmgt]?wh|kv|[kmgt]i?b|[kmg]?hz|km/h|[ксм]м[²³]?|м[²³]|[км]г"
    r"|га|квт"
    r"|eur(?:os?|oa)?|usd|gbp|chf|pln|czk|rub|uah|sek|nok|dkk|kr|zł|kč|tl|dollars?|dol[aá]r\w*|złot\w+|korun\w*|kron\w+"
    r"|per ?cent|руб\w*|грн|гривен\w*|гривн\w+|доллар\w*|долар\w*|евро|євро"
    r"|million\w*|mln|mio|mrd|mld|млн|млрд|миллион\w*|мільйон\w*)(?![^\W_])"
)
_UNIT_AFTER = re.compile(
    rf"[{SPACES}]?(?:[%‰°$€£¥₽₺₴₹]|[mgtlWVмгтл](?![^\W_]|['\u2019.])|{_UNIT}|(?i:mil\w*)(?![^\W_]))"
)
# What shows, before or after a number like 12.30, that the number is no time. `at 9.30 Miller` and `at 7.30 $5` have
# times.
_PRICE_BEFORE = re.compile(_CURRENCY_BEFORE.pattern.removesuffix("$") + r"(?:[\d.,]+ (?:to|and|or) )?$")
_AMOUNT_AFTER = re.compile(
    rf"(?: (?:to|and|or) [\d.,]*\d)?[{SPACES}]?(?:[%‰°]|[$€£¥₽₺₴₹](?! ?\d)|[WV](?![^\W_]|['\u2019.])"
    rf"|[mgtl](?![^\W_]|['\u2019])|{_UNIT}|(?:[bt]illions?|pounds?|cents?)(?![^\W_]))"
)
# A time such as 12.30, and the words that come before times.
_TIME = re.compile(r"(?:[01]?\d|2[0-4])\.[0-5]\d")
_BEFORE_TIMES = frozenset(["at", "since", "until", "till", "before", "after", "around", "from", "to"])


def rewritten_numbers(text: str, source_language: str, target_language: str) -> dict[str, str]:
    """Map the quantities and dates of a source to their spelling in the target language.

    A number that stays unchanged anywhere in the text is left out. A reference such as `section 2.4` stays unchanged.
    So `2,4`, which the model may write for it, is mapped to `2.4`. Languages are BCP 47 codes.
    """
    source_language, target_language = number_language(source_language), number_language(target_language)
    if source_language not in _MARKS or target_language not in _MARKS:
        return {}
    spellings: dict[str, str] = {}
    restored: dict[str, str] = {}
    kept: set[str] = set()
    has_points = _MARKS[source_language][0] == "."
    for match in NUMBER.finditer(text):
        rewritten = _rewritten_date(text, match, source_language, target_language)
        if rewritten is None:
            rewritten = _rewritten(text, match, source_language, _MARKS[target_language])
        if rewritten is None:
            kept.add(match.group())
        elif has_points and _DECIMAL.fullmatch(match.group()) and _is_reference(text, match):
            kept.add(match.group())
            restored[rewritten] = match.group()
        elif has_points and _DECIMAL.fullmatch(match.group()) and _is_time_or_name(text, match):
            kept.add(match.group())
        else:
            spellings[match.group()] = rewritten
    changed = {
        written: each for written, each in spellings.items() if written not in kept and written != each
    }
    return {written: each for written, each in restored.items() if each not in spellings} | changed


def with_numbers_rewritten(text: str, rewritten: Mapping[str, str]) -> str:
    """Return the text with these numbers replaced, each by one of the same length."""
    return NUMBER.sub(lambda match: rewritten.get(match.group(), match.group()), text) if rewritten else text


def _rewritten_date(
    text: str, match: re.Match[str], source_language: str, target_language: str
) -> str | None:
    """Return a date with slashes as the target language writes it, or None if it stays unchanged."""
    found, mark = _DATE.fullmatch(match.group()), _DATE_MARKS.get(target_language)
    order = _SLASH_DATES.get(source_language)
    is_path = text[match.end() : match.end() + 1] == "/"
    if found is None or mark is None or order is None or is_path or _is_attached(text, match):
        return None
    first, second, year = found.groups()
    if int(first) <= 12 < int(second) <= 31 and order != "day":
        return f"{second}{mark}{first}{mark}{year}"
    is_day_first = int(second) <= 12 and (order == "day" or int(first) > 12)
    return f"{first}{mark}{second}{mark}{year}" if is_day_first and int(first) <= 31 else None


def _rewritten(
    text: str, match: re.Match[str], source_language: str, target_marks: tuple[str, str]
) -> str | None:
    """Return a number with the target language's marks, or None if it stays unchanged.

    The caller checks whether a number with a decimal point is a quantity.
    """
    written = match.group()
    decimal, group = _MARKS[source_language]
    separator = "[" + SPACES + "]" if group.isspace() else re.escape(group)
    is_grouped = re.fullmatch(
        r"\d{1,3}(?:" + separator + r"\d{3})+(?:" + re.escape(decimal) + r"\d+)?", written
    )
    is_decimal = re.fullmatch(r"\d+" + re.escape(decimal) + r"\d+", written)
    if not (is_grouped or is_decimal) or _is_attached(text, match):
        return None
    clock = _CLOCK.match(text, match.end())
    if clock is not None and (clock[1] is None or source_language != "de"):
        return None
    if is_grouped and group != "," and _is_no_grouped_quantity(text, match, has_fraction=decimal in written):
        return None
    return "".join(
        target_marks[0] if mark == decimal else mark if mark.isdigit() else target_marks[1]
        for mark in written
    )


def _is_attached(text: str, match: re.Match[str]) -> bool:
    """Whether a letter, `_`, `=`, `@` or a backslash is next to the number, or one of `/:#.` is right before it."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    return (
        any(each.isalpha() or (each != "" and each in "_=/\\:#@.") for each in before)
        or after.isalpha()
        or (after != "" and after in "_=\\@")
    )


def _is_no_grouped_quantity(text: str, match: re.Match[str], *, has_fraction: bool) -> bool:
    """Whether the number, with points or spaces between groups, may be a phone number, an address or an identifier."""
    written, (start, end) = match.group(), match.span()
    before = _BEFORE.search(text, max(0, start - 40), start)
    word = (before is not None and before.group(1)) or ""
    is_numbered = word.lower() not in _COMMON_WORDS and _is_numbered(word)
    if written.startswith("0") or _IP_ADDRESS.fullmatch(written) or is_numbered:
        return True
    preceding = text[max(0, start - 6) : start]
    is_doubtful = preceding.endswith("+") and sum(not each.isdigit() for each in written) > 1
    if "." not in written:
        is_next_to_number = _NUMBER_BEFORE.search(preceding) or _NUMBER_AFTER.match(text, end)
        is_doubtful |= bool(is_next_to_number) or (written.count(" ") > 1 and written[3] == " ")
    return is_doubtful and not has_fraction and not _has_unit(text, match)


def _has_unit(text: str, match: re.Match[str]) -> bool:
    """Whether a currency is before the number, or a currency, unit or magnitude after it."""
    preceding = text[max(0, match.start() - 6) : match.start()]
    return bool(_UNIT_AFTER.match(text, match.end()) or _CURRENCY_BEFORE.search(preceding))


def _is_numbered(word: str) -> bool:
    """Whether a number after the word is no quantity."""
    return _NUMBERED.fullmatch(word.rstrip(".").lower()) is not None


def _is_time_or_name(text: str, match: re.Match[str]) -> bool:
    """Whether a number with a decimal point, which is no reference, is a time or part of a name."""
    before = _BEFORE.search(text, max(0, match.start() - 40), match.start())
    if before is None or (word := before.group(1)) is None:
        return False
    if word.lower() in _BEFORE_TIMES and _TIME.fullmatch(match.group()) and not _is_amount(text, match):
        return True
    return word[0].isupper() and not _is_first(text, before.start())


def _is_reference(text: str, match: re.Match[str]) -> bool:
    """Whether a number begins a heading, or follows `§` or a word such as `section` or `version`."""
    start = match.start()
    before = _BEFORE.search(text, max(0, start - 40), start)
    word = before.group(1) if before is not None else None
    if word is not None:
        return _is_numbered(word)
    heading = _HEADING.match(text, match.end())
    is_heading = heading is not None and heading[1].isupper() and not text[:start].strip()
    return is_heading or "\u00a7" in text[max(0, start - 2) : start]


def _is_amount(text: str, match: re.Match[str]) -> bool:
    """Whether a currency or unit shows that a number is no time. It is next to the number or its partner in a range."""
    before = _PRICE_BEFORE.search(text, max(0, match.start() - 20), match.start())
    return before is not None or _AMOUNT_AFTER.match(text, match.end()) is not None


def _is_first(text: str, start: int) -> bool:
    """Whether the word at `start` begins the text: before it are only white space, quotes, brackets and bullets."""
    return start <= MAX_MARKS and not text[:start].strip(_OPENING)
