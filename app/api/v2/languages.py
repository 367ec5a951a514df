"""Language codes of the /v2 routes.

/v2/languages lists them in upper case. A target has its region and script. A source has them only if the code without
them would not mean the same source.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from app.api.languages import served_language, served_pair
from app.api.v2.models import V2Language
from app.errors import InvalidRequest
from app.text.language_codes import base_language
from app.text.language_names import language_name

# A language, alone or with a script, a region or both.
_CODE = re.compile(r"[a-z]{2,3}([-_][a-z]{4})?([-_]([a-z]{2}|[0-9]{3}))?", re.IGNORECASE)
# The regional varieties that are listed as targets for a language, because clients refuse its bare code as a target.
_VARIETIES = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
_NAMES = {code: name for names in _VARIETIES.values() for code, name in names.items()}


def base_of(code: str) -> str:
    """The upper-case language of a code, without region and script: `EN` of `en-US`."""
    return base_language(code).upper()


def base_pair(pair: tuple[str, str]) -> tuple[str, str]:
    """The pair without regions and scripts, in upper case. A glossary is for such a pair."""
    return base_of(pair[0]), base_of(pair[1])


def source_rows(pairs: Collection[tuple[str, str]]) -> list[V2Language]:
    """The source languages of pairs, sorted by code.

    A code has no region and no script if it still means the same source.
    """
    sources = {source for source, _ in pairs}
    codes = sorted(
        base if served_language(base, sources) == source else source.upper()
        for source, base in ((source, base_of(source)) for source in sources)
    )
    return [{"language": code, "name": _name(code)} for code in codes]


def target_rows(pairs: Collection[tuple[str, str]]) -> list[V2Language]:
    """The target languages of pairs, sorted by code. `en` and `pt` are listed as their regional varieties."""
    named: dict[str, str] = {}
    for code in {target for _, target in pairs}:
        named |= _VARIETIES.get(code.lower(), {code.upper(): _name(code)})
    return [
        {"language": code, "name": name, "supports_formality": False} for code, name in sorted(named.items())
    ]


def read_languages(source: str, target: str, pairs: Collection[tuple[str, str]]) -> tuple[str | None, str]:
    """The served languages that match a body's codes; None for an empty source code. Raises InvalidRequest.

    The source may be a language that is served only as a target: a text in the target language is returned unchanged.
    """
    targets = {each for _, each in pairs}
    target_language = _require_served("target_lang", target, targets)
    if not source:
        return None, target_language
    return _require_served("source_lang", source, {each for each, _ in pairs}, targets), target_language


def read_pair(source: str, target: str, pairs: Collection[tuple[str, str]]) -> tuple[str, str]:
    """The served pair of a new glossary, by a body's codes. Raises InvalidRequest.

    The glossary is for all pairs of these languages, whatever their regions and scripts. If the codes match none of
    these pairs, or several, the result is the first of these pairs in alphabetical order.
    """
    pair = served_pair(source, target, pairs)
    if pair in pairs:
        return pair
    found = min((each for each in pairs if base_pair(each) == base_pair(pair)), default=None)
    if found is None or not all(map(_CODE.fullmatch, pair)):
        read_languages(source, target, pairs)
        raise InvalidRequest("target_lang is not supported with this source_lang", field="target_lang")
    return found


def _name(code: str) -> str:
    return _NAMES.get(code.upper()) or language_name(code)


def _require_served(name: str, code: str, *groups: Collection[str]) -> str:
    """The served language that matches a code, from the first group that has one. Raises InvalidRequest."""
    for served in groups:
        if (language := served_language(code, served)) is not None:
            return language
    listed = ", ".join(sorted({known.upper() for served in groups for known in served}))
    raise InvalidRequest(f"this value of {name} is not supported; supported: {listed}", field=name)
