"""Languages as people and other APIs name them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from app.bundle import LanguagePair
from app.text.language_names import language_name

__all__ = ["find_language", "language_name", "served_languages"]

_ALIASES = {"zh": "zh-hans", "zt": "zh-hant", "pb": "pt-br"}


def served_languages(pairs: Iterable[LanguagePair]) -> list[str]:
    """Every language of the pairs, by code."""
    return sorted({code for pair in pairs for code in (pair.source, pair.target)})


def find_language(code: str, served: Collection[str]) -> str | None:
    """The served language that a code means in any case of letters, or by an alias."""
    by_lower = {known.lower(): known for known in served}
    wanted = code.lower().replace("_", "-")
    return by_lower.get(wanted) or by_lower.get(_ALIASES.get(wanted, ""))
