"""Joins sentences that sentencex separates after an abbreviation or in a number."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Abbreviations after which sentencex 1.0.32 ends a sentence, although no sentence ends with them. A sentence may end
# with the Russian `им`, so it is left out. `_` is a space. An abbreviation with `#` counts only before a digit. A word
# in lower case also has a form with a capital.
_ABBREVIATIONS = {
    "bg": "г-н д-р т.е",
    "bs": "br# npr str# sv tzv ul",
    "da": "bl.a",
    "el": "Αγ αρ# δηλ σελ#",
    "es": "Dña",
    "fr": "M Mme Mlle Mgr Dr Pr St Ste c.-à-d no# n°#",
    "hr": "br# npr str# sv tzv ul",
    "hu": "ifj kb Szt ún",
    "id": "Ir Jl",
    "it": "n# pag#",
    "nb": "f.eks kl#",
    "nl": "d.w.z mevr o.a",
    "no": "f.eks kl#",
    "pl": "al dr godz# inż m.in mgr nr# pl str# św tzw",
    "pt": "Av nº# p._ex pág# tel#",
    "ro": "dl dna Sf str",
    "ru": "напр пл рис# св ст# т._е т.е",
    "sv": "kap# t.ex",
    "tr": "Alb Av Doç örn Sn Yrd",
    "vi": "BS GS PGS ThS TP Tp TS",
}
# Abbreviations that are also top-level domains. After a full stop they count as domains (`allegro.pl.`).
_TOP_LEVEL_DOMAINS = "al|br|no|pl|sv"
# Languages that write ordinal numbers with a full stop, and in which sentencex ends a sentence after this full stop.
_POINT_AFTER_ORDINAL = frozenset(
    {"bs", "et", "eu", "hr", "hu", "is", "lv", "mk", "nb", "nn", "no", "pl", "sl", "sr", "tr"}
)
# Longer than any abbreviation. Only so many characters at the end of a sentence are compared, to save time.
_LENGTH_OF_END = 16


def _pattern(abbreviations: str) -> re.Pattern[str]:
    """Match the end of a sentence, a space and the first character of the next one."""
    forms = [
        re.escape(form.rstrip("#").replace("_", " ")) + (r"\. \d" if form.endswith("#") else r"\. .")
        for each in abbreviations.split()
        for form in dict.fromkeys((each, each[0].upper() + each[1:]))
    ]
    return re.compile(rf"(?<!\w)(?!(?<=\.)(?:{_TOP_LEVEL_DOMAINS})\.)(?:{'|'.join(forms)})\Z")


_PATTERNS = {language: _pattern(each) for language, each in _ABBREVIATIONS.items()}


def joined(sentences: Sequence[str], language: str) -> list[str]:
    """Return the sentences, and join those between which no sentence ends. language: a base language."""
    groups: list[list[str]] = []
    for sentence in sentences:
        if groups and _continues(groups[-1][-1].rstrip()[-_LENGTH_OF_END:], sentence.lstrip()[:1], language):
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
    return ["".join(group) for group in groups]


def _continues(end: str, first: str, language: str) -> bool:
    """Whether two pieces are one sentence.

    end: the last characters of the first piece. first: the first character of the second piece.
    """
    if end[-2:-1].isdigit():
        if end[-1] == "\uff0e":
            return first.isdigit()
        if end[-1] == "." and first.islower() and language in _POINT_AFTER_ORDINAL:
            return True
    pattern = _PATTERNS.get(language)
    return pattern is not None and pattern.search(f"{end} {first}") is not None
