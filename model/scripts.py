"""The script of a language, and the check that a text is in that script."""

from __future__ import annotations

import re

# Blocks of Unicode that hold each script's letters.
_BLOCKS = {
    "Arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufeff",
    "Armenian": "\u0530-\u058f\ufb13-\ufb17",
    "Bengali": "\u0980-\u09ff",
    "Chinese": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Cyrillic": "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f",
    "Devanagari": "\u0900-\u097f\ua8e0-\ua8ff",
    "Ethiopic": "\u1200-\u139f\u2d80-\u2ddf",
    "Georgian": "\u10a0-\u10ff\u1c90-\u1cbf",
    "Greek": "\u0370-\u03ff\u1f00-\u1fff",
    "Gujarati": "\u0a80-\u0aff",
    "Hebrew": "\u0590-\u05ff\ufb1d-\ufb4f",
    "Japanese": "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f",
    "Kannada": "\u0c80-\u0cff",
    "Khmer": "\u1780-\u17ff",
    "Korean": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "Lao": "\u0e80-\u0eff",
    "Latin": "A-Za-z\u00aa\u00ba\u00c0-\u024f\u0250-\u02af\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff\uff21-\uff5a",
    "Malayalam": "\u0d00-\u0d7f",
    "Myanmar": "\u1000-\u109f",
    "Odia": "\u0b00-\u0b7f",
    "Sinhala": "\u0d80-\u0dff",
    "Tamil": "\u0b80-\u0bff",
    "Telugu": "\u0c00-\u0c7f",
    "Thai": "\u0e00-\u0e7f",
}
_LANGUAGES = {
    "Arabic": "ar fa ps ur ug",
    "Armenian": "hy",
    "Bengali": "as bn",
    "Chinese": "zh yue",
    "Cyrillic": "ba be bg kk ky mk mn ru tg tt uk",
    "Devanagari": "hi mr ne sa",
    "Ethiopic": "am ti",
    "Georgian": "ka",
    "Greek": "el",
    "Gujarati": "gu",
    "Hebrew": "he yi",
    "Japanese": "ja",
    "Kannada": "kn",
    "Khmer": "km",
    "Korean": "ko",
    "Lao": "lo",
    "Latin": "af bs ca ceb cs cy da de en eo es et eu fi fil fo fr fy ga gd gl ha hr ht hu id ig is it jv la lb lg ln "
    "lt lv mg mi ms mt nb nl nn no ny oc om pl pt qu rm rn ro rw se sk sl sm sn so sq ss st su sv sw tl tn to tr ts vi "
    "wo xh yo zu",
    "Malayalam": "ml",
    "Myanmar": "my",
    "Odia": "or",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
}
# Codes of ISO 15924, as in zh-Hant. Codes of the same letters are not told apart.
_CODES = {
    "Arabic": "arab aran",
    "Armenian": "armn",
    "Bengali": "beng",
    "Chinese": "hani hans hant",
    "Cyrillic": "cyrl",
    "Devanagari": "deva",
    "Ethiopic": "ethi",
    "Georgian": "geor",
    "Greek": "grek",
    "Gujarati": "gujr",
    "Hebrew": "hebr",
    "Japanese": "jpan",
    "Kannada": "knda",
    "Khmer": "khmr",
    "Korean": "kore",
    "Lao": "laoo",
    "Latin": "latf latg latn",
    "Malayalam": "mlym",
    "Myanmar": "mymr",
    "Odia": "orya",
    "Sinhala": "sinh",
    "Tamil": "taml",
    "Telugu": "telu",
    "Thai": "thai",
}
_SCRIPT_OF = {language: script for script, languages in _LANGUAGES.items() for language in languages.split()}
_SCRIPT_OF_CODE = {code: script for script, codes in _CODES.items() for code in codes.split()}
_LETTER_OF = {script: re.compile(f"[{blocks}]") for script, blocks in _BLOCKS.items()}
# Share of a text's letters that must be in the expected script. If larger, sentences about foreign names are dropped.
# If smaller, half-translated text stays.
MIN_SHARE = 0.5


def script_of(language: str) -> str | None:
    """Return the script of a language code such as `de`, `pt-BR` or `kk-Latn`; None for an unknown one.

    A subtag of four letters names the script; None if _BLOCKS does not have it. Other codes have the script of their
    language; None if _LANGUAGES does not have the language. _LANGUAGES leaves out languages that are often written in
    two scripts, and languages whose script is not in _BLOCKS.
    """
    name, *subtags = language.lower().split("-")
    for subtag in subtags:
        if len(subtag) == 4 and subtag.isalpha():
            return _SCRIPT_OF_CODE.get(subtag)
    return _SCRIPT_OF.get(name)


def is_in_script(text: str, script: str | None) -> bool:
    """Whether at least MIN_SHARE of the letters are in the script. True if there are no letters or `script` is None."""
    if script is None or (script == "Latin" and text.isascii()):
        return True
    num_letters = sum(map(str.isalpha, text))
    letter = _LETTER_OF[script]
    num_expected = sum(1 for character in letter.findall(text) if character.isalpha())
    return num_expected >= MIN_SHARE * num_letters
