"""Checks the names of a new bundle before its model is read. The messages name the command's options."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from app.bundle import NAME, VERSION
from app.language_pairs import LANGUAGE_TAG
from export.output_folder import ExportError
from model.language_codes import usual_tag

ALLOWED_IN_NAME = "1 to 64 lower-case letters, digits, `.`, `_` and `-`, the first a letter or a digit"


def is_name(name: str) -> bool:
    """Whether a bundle's model can have the name."""
    return re.fullmatch(NAME, name) is not None


def check_names(name: str, version: str, languages: Iterable[tuple[str, str]]) -> None:
    """Raise ExportError for a name, a version or a language that a manifest cannot have, and for a repeated target.

    languages: for each language, the option that names it, and the language.
    """
    languages = list(languages)
    problems = []
    if not is_name(name):
        problems.append(f"--name: {name!r} is not of {ALLOWED_IN_NAME}")
    if not re.fullmatch(VERSION, version):
        allowed = "1 to 64 letters, digits, `.`, `_`, `+` and `-`, the first a letter or a digit"
        problems.append(f"--version: {version!r} is not of {allowed}")
    problems += [
        f"{option}: {language!r} is no BCP 47 tag, such as en or pt-BR"
        for option, language in languages
        if not re.fullmatch(LANGUAGE_TAG, usual_tag(language))
    ]
    problems += [
        f"{option}: {language!r} is written {usual!r} here"
        for option, language in languages
        if (usual := usual_tag(language)) != language and re.fullmatch(LANGUAGE_TAG, usual)
    ]
    problems += [
        f"{option}: {language} is named {count} times; name the script, such as sr-Latn"
        for (option, language), count in Counter(languages).items()
        if count > 1
    ]
    if problems:
        raise ExportError("; ".join(problems))
