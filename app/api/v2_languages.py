"""Languages as the /v2 routes name them: upper-case codes, regional varieties among the targets only."""

from __future__ import annotations

import re
from collections.abc import Collection

from app.api.languages import find_language, language_name

Json = dict[str, object]
# A model of such a language serves all of these; clients refuse the bare code as a target on their own side.
_VARIETIES = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
# ISO 3166-1 or UN M.49. A script, as in zh-Hant, is not passed over: that would be another writing.
_REGION = re.compile(r"[A-Za-z]{2}|[0-9]{3}")


def base_of(code: str) -> str:
    """`EN` of `en-US`."""
    return code.partition("-")[0].upper()


def served_language(code: str, served: Collection[str]) -> str | None:
    """The served language that a code of a caller means.

    In any case of letters, by an alias, or but for its region: `EN-US` is `en` where that is served, `PT` is `pt-BR`
    where that is the only Portuguese.
    """
    found = find_language(code, served)
    base, _, region = code.replace("_", "-").partition("-")
    if found is None and _REGION.fullmatch(region):
        found = find_language(base, served)
    if found is None and not region:
        varieties = [known for known in served if base_of(known) == base.upper()]
        found = varieties[0] if len(varieties) == 1 else None
    return found


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
