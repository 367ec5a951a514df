"""Finds the language of a code such as `pt-BR`, and how the language writes spaces and numbers."""

from __future__ import annotations

import functools

# Regions of Spanish that write `1.234,5`. The others write `1,234.5`.
_SPANISH_COMMA = frozenset({"", "es", "ar", "bo", "cl", "co", "ec", "py", "uy", "ve"})
# Other codes whose numbers are not written as elsewhere in their language.
_OTHER_NUMBERS = frozenset({"de-ch", "de-li", "en-za", "fr-ch", "it-ch"})
# The languages of each decimal mark. Other languages, such as Arabic, have both marks.
_DECIMAL_MARKS = {
    ",": "af az be bg bs ca cs da de el eo es et eu fi fo fr gl hr hu hy id is it ka kk ky lb lt lv mk nb nl nn no oc "
    "pl pt ro ru sk sl sq sr sv tg tk tr tt uk uz vi",
    ".": "am as bn cy en fil ga gd gu ha he hi ig ja kn ko ml mn mr ms mt my ne or pa si so sw ta te th tl ug ur yo "
    "yue zh zu",
}
_DECIMAL_MARK = {language: mark for mark, codes in _DECIMAL_MARKS.items() for language in codes.split()}
# Languages without spaces between words.
_WITHOUT_SPACES = frozenset({"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"})


def has_spaces(code: str) -> bool:
    """Whether the language of a BCP 47 code has spaces between words."""
    return base_language(code) not in _WITHOUT_SPACES


@functools.lru_cache(maxsize=1024)
def separator(source: str, target: str) -> str:
    """What is put between translations whose sources nothing separates: a space if only the target has spaces."""
    return " " if has_spaces(target) and not has_spaces(source) else ""


@functools.lru_cache(maxsize=1024)
def base_language(code: str) -> str:
    """The language of a BCP 47 code, in lower case: `pt` of `pt-BR`."""
    return code.partition("-")[0].lower()


@functools.lru_cache(maxsize=1024)
def number_language(code: str) -> str:
    """The language whose notation of numbers a BCP 47 code has; empty if the region has another notation."""
    language, _, region = code.lower().partition("-")
    has_other = region not in _SPANISH_COMMA if language == "es" else f"{language}-{region}" in _OTHER_NUMBERS
    return "" if has_other else language


def decimal_marks(code: str) -> str:
    """The decimal marks of a BCP 47 code's numbers: a comma, a point, or both if it is unknown which of them."""
    return _DECIMAL_MARK.get(number_language(code), ",.")
