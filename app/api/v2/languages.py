"""Languages as the /v2 routes name them: upper-case codes, regional varieties among the targets only."""

from __future__ import annotations

from collections.abc import Collection

from app.text.language_names import language_name

Json = dict[str, object]
# A model of such a language serves all of these; clients refuse the bare code as a target on their own side.
_VARIETIES = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}


def base_of(code: str) -> str:
    """`EN` of `en-US`."""
    return code.partition("-")[0].upper()


def source_rows(pairs: Collection[tuple[str, str]]) -> list[Json]:
    """The source languages of pairs, by code."""
    codes = sorted({base_of(source) for source, _ in pairs})
    return [{"language": code, "name": language_name(code)} for code in codes]


def target_rows(pairs: Collection[tuple[str, str]]) -> list[Json]:
    """The target languages of pairs, by code."""
    named: dict[str, str] = {}
    for code in {target for _, target in pairs}:
        named |= _VARIETIES.get(code.lower(), {code.upper(): language_name(code)})
    return [
        {"language": code, "name": name, "supports_formality": False} for code, name in sorted(named.items())
    ]
