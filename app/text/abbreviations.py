"""Joins sentences that sentencex separates after an abbreviation or ordinal, in a number or before a mark."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Abbreviations after which sentencex 1.0.32 ends a sentence, although no sentence ends with them. A sentence may end
# with the Russian `им`, so it is left out. `_` is a space. An abbreviation with `#` counts only before a digit or a
# letter in lower case. An abbreviation in lower case also has a form with a capital.
_ABBREVIATIONS = {
    "bg": "г-н д-р т.е",
    "bs": "br# npr str# sv tzv ul",
    "da": "bl.a",
    "de": "Abb# Abs# abzgl Anm# Art.-Nr# ausschl Bd# Best.-Nr# betr bspw Dipl.-Ing ehem einschl entspr exkl Fa Fax# Frl"
    " geb gem inkl insb insbes Kap# Kd.-Nr# max# mind Pos# stellv Tab# Tel# überw urspr versch vertr vorauss z.Hd"
    " z._Hd zul zuzügl zzgl",
    "el": "Αγ αρ# δηλ σελ#",
    "en": "approx Apt# avg Ch# Chap# Eq# Eqs# est# Ex# excl Figs# Fri# incl lbs# max# Mon# oz# para# pcs# Sat# Sect#"
    " Tab# Tel# Temp# Thu# Tue# vol# Wed#",
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
# In German, a full stop after a number ends no sentence if one of these words or marks is before the number, and the
# word after it does not often begin a sentence: `im 3. Stock`, but not `Heute ist der 5. Wir feiern.`
_GERMAN_ORDINAL = re.compile(
    r"(?:\b(?:de[rmns]|die|das|[ia]m|zu[mr]|vom|beim|ins|jede[rmns]?|(?:[mds]ein|ihr|unser)e[rmns]?)|[,(\u2013])"
    r" ?(?:\d{1,3}\. (?:und|oder|bis) )?\d{1,3}\.\Z",
    re.IGNORECASE,
)
_STARTS = """
    ab aber alle als am an auch auf aus bei bis bitte da danach dann das dein deine dem den denn der des dies diese
    dieser dieses die doch dort du ein eine einem einen einer er es für gegen gestern heute herr frau hier ich ihr ihre
    im in ist jede jeder jedes jetzt kein keine man mein meine mit morgen nach nicht noch nun nur ob oder ohne schon
    seit sein seine sie sind so und unser unsere viele vom von vor wann war warum was weil wenn wer wie wir wo zu zum
    zur
"""
_SENTENCE_STARTS = frozenset(_STARTS.split())
_FIRST_WORD = re.compile(r"[^\W\d_]+")
# Longer than any abbreviation or ordinal. Only so many characters at the end of a sentence are compared, to save time.
_LENGTH_OF_END = 32


def _pattern(abbreviations: str) -> re.Pattern[str]:
    """Return a pattern for the end of a sentence, a space, and the first character of the next one or `0`.

    `0` stands for a letter in lower case.
    """
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
        if groups and _is_one_sentence(groups[-1][-1], sentence, language):
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
    return ["".join(group) for group in groups]


def _is_one_sentence(before: str, after: str, language: str) -> bool:
    """Whether no sentence ends between two pieces of a text."""
    if not before[-1:].isspace() and _begins_with_mark(after):
        return True
    end, start = before.rstrip()[-_LENGTH_OF_END:], after.lstrip()[:_LENGTH_OF_END]
    return (
        _is_in_number(end, start[:1], language)
        or _is_after_abbreviation(end, start[:1], language)
        or (language == "de" and _is_after_german_ordinal(end, start))
    )


def _begins_with_mark(text: str) -> bool:
    """Whether a text begins with a colon, semicolon or comma, or with an en dash before a letter or digit."""
    return text[:1] in (":", ";", ",") or (text[:1] == "\u2013" and text[1:2].isalnum())


def _is_in_number(end: str, first: str, language: str) -> bool:
    """Whether a full-width decimal continues after `end`, or `end` is an ordinal before a letter in lower case.

    first: the first character after `end` and white space.
    """
    if not end[-2:-1].isdigit():
        return False
    if end[-1] == "\uff0e":
        return first.isdigit()
    return end[-1] == "." and first.islower() and language in _POINT_AFTER_ORDINAL


def _is_after_abbreviation(end: str, first: str, language: str) -> bool:
    """Whether `end` ends with an abbreviation that ends no sentence. first: as in `_is_in_number`."""
    pattern = _PATTERNS.get(language)
    following = "0" if first.islower() else first
    return pattern is not None and pattern.search(f"{end} {following}") is not None


def _is_after_german_ordinal(end: str, start: str) -> bool:
    """Whether `end` ends with an ordinal, and `start` begins with a word that does not often begin a sentence."""
    word = _FIRST_WORD.match(start)
    if word is None or word.group().lower() in _SENTENCE_STARTS:
        return False
    return _GERMAN_ORDINAL.search(end) is not None
