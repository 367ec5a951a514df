"""Languages as people and other APIs name them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from app.bundle import LanguagePair

# English names, by ISO 639-1 code.
_NAMES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "nb": "Norwegian Bokmål",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "pt-br": "Portuguese (Brazil)",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "zh": "Chinese",
    "zh-hans": "Chinese (simplified)",
    "zh-hant": "Chinese (traditional)",
}
_ALIASES = {"zh": "zh-hans", "zt": "zh-hant", "pb": "pt-br"}


def language_name(code: str) -> str:
    """In English; the code where there is none here."""
    return _NAMES.get(code.lower(), code)


def served_languages(pairs: Iterable[LanguagePair]) -> list[str]:
    """Every language of the pairs, by code."""
    return sorted({code for pair in pairs for code in (pair.source, pair.target)})


def find_language(code: str, served: Collection[str]) -> str | None:
    """The served language that a code means in any case of letters, or by an alias."""
    by_lower = {known.lower(): known for known in served}
    wanted = code.lower().replace("_", "-")
    return by_lower.get(wanted) or by_lower.get(_ALIASES.get(wanted, ""))
