"""Matches the language codes of callers to the served languages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

# A region by ISO 3166-1 or UN M.49. A code also matches without its region. It does not match without its script, such
# as Hant in zh-Hant, because another script changes how the text is written.
_REGION = re.compile(r"[a-z]{2}|[0-9]{3}")
# Codes that LibreTranslate's clients send for languages with a script or a region, and codes of Chinese in regions with
# traditional characters.
_ALIASES = {
    "zh": "zh-hans",
    "zt": "zh-hant",
    "zh-tw": "zh-hant",
    "zh-hk": "zh-hant",
    "zh-mo": "zh-hant",
    "pb": "pt-br",
}


def served_languages(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """The codes of every language of the pairs, sorted."""
    return sorted({code for pair in pairs for code in pair})


def find_language(code: str, served: Collection[str]) -> str | None:
    """The served language with this code or with its alias, regardless of case; None if there is none.

    A code matches only with the language's own region. `served_language` also adds a region or leaves it out.
    """
    by_lower = {known.lower(): known for known in served}
    wanted = code.lower().replace("_", "-")
    return by_lower.get(wanted) or by_lower.get(_ALIASES.get(wanted, ""))


def served_language(code: str, served: Collection[str]) -> str | None:
    """The served language of a caller's code; None if none or several match.

    This is the result of `find_language`, if there is one. Otherwise a code with a region matches without it: `EN-US`
    is `en` if `en` is served. A code without a region or a script matches the only variety of its language: `PT` is
    `pt-BR` if no other Portuguese is served. A code that stands for a script keeps it: `zh-TW` is never `zh`, and
    `zh` is never `zh-Hant`.
    """
    found = find_language(code, served)
    wanted = code.lower().replace("_", "-")
    base, hyphen, region = wanted.rpartition("-")
    if found is None and hyphen and _REGION.fullmatch(region) and wanted not in _ALIASES:
        found = find_language(base, served)
    if found is None and not hyphen:
        varieties = [known for known in served if known.partition("-")[0].lower() == wanted]
        if wanted == "zh":
            varieties = [known for known in varieties if not _is_traditional(known)]
        found = varieties[0] if len(varieties) == 1 else None
    return found


def _is_traditional(chinese: str) -> bool:
    lower = chinese.lower()
    return _ALIASES.get(lower, lower).startswith("zh-hant")


def served_pair(source: str, target: str, pairs: Collection[tuple[str, str]]) -> tuple[str, str]:
    """The served pair of a caller's two codes. A code that matches no language, or several, is returned unchanged."""
    if (source, target) in pairs:
        return source, target
    source = served_language(source, {pair[0] for pair in pairs}) or source
    return source, served_target(target, {pair[1] for pair in pairs if pair[0] == source})


def served_target(target: str, targets: Collection[str]) -> str:
    """The target that a caller's code matches. A code that matches no target, or several, is returned unchanged."""
    return served_language(target, targets) or target


def target_for_detected_source(target: str, pairs: Collection[tuple[str, str]]) -> str:
    """As `served_target`, for a source that is detected.

    The target may be a language that is served only as a source: a text in that language is returned unchanged.
    """
    targets = {each for _, each in pairs}
    return served_language(target, targets) or served_target(target, served_languages(pairs))
