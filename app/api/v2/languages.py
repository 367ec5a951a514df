"""Language codes of the /v2 routes.

/v2/languages lists them in upper case: sources without region and script, targets with them.
"""

from __future__ import annotations

from collections.abc import Collection

from app.api.languages import served_language
from app.api.v2.models import V2Language
from app.errors import InvalidRequest
from app.text.language_codes import base_language
from app.text.language_names import language_name

# The regional varieties that are listed as targets for a language, because clients refuse its bare code as a target.
_VARIETIES = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}


def base_of(code: str) -> str:
    """The upper-case language of a code, without region and script: `EN` of `en-US`."""
    return base_language(code).upper()


def source_rows(pairs: Collection[tuple[str, str]]) -> list[V2Language]:
    """The source languages of pairs, sorted by code."""
    codes = sorted({base_of(source) for source, _ in pairs})
    return [{"language": code, "name": language_name(code)} for code in codes]


def target_rows(pairs: Collection[tuple[str, str]]) -> list[V2Language]:
    """The target languages of pairs, sorted by code. `en` and `pt` are listed as their regional varieties."""
    named: dict[str, str] = {}
    for code in {target for _, target in pairs}:
        named |= _VARIETIES.get(code.lower(), {code.upper(): language_name(code)})
    return [
        {"language": code, "name": name, "supports_formality": False} for code, name in sorted(named.items())
    ]


def read_languages(source: str, target: str, pairs: Collection[tuple[str, str]]) -> tuple[str | None, str]:
    """The served languages that match a body's codes; None for an empty source code. Raises InvalidRequest.

    The source may be a language that is only a target, because a text in the target language is returned unchanged.
    """
    targets = {each for _, each in pairs}
    target_language = _require_served("target_lang", target, targets)
    if not source:
        return None, target_language
    return _require_served("source_lang", source, targets | {each for each, _ in pairs}), target_language


def read_pair(source: str, target: str, pairs: Collection[tuple[str, str]]) -> tuple[str, str]:
    """The served pair that matches a body's codes. Raises InvalidRequest."""
    found_source, found_target = read_languages(source, target, pairs)
    if found_source is None or (found_source, found_target) not in pairs:
        raise InvalidRequest("target_lang is not supported with this source_lang", field="target_lang")
    return found_source, found_target


def _require_served(name: str, code: str, served: Collection[str]) -> str:
    language = served_language(code, served)
    if language is None:
        listed = ", ".join(sorted(known.upper() for known in served))
        raise InvalidRequest(f"this value of {name} is not supported; supported: {listed}", field=name)
    return language
