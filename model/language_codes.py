"""Language codes of M2M-100 and NLLB as BCP 47 tags.

M2M-100 mostly has two-letter codes of ISO 639-1. NLLB has codes of FLORES-200, such as deu_Latn: a three-letter code of
ISO 639-3 and a script of ISO 15924. A tag of BCP 47 has the language's two-letter code, if there is one. One member of
a macrolanguage has the macrolanguage's two-letter code (Standard Latvian: lv). Any other language has its three-letter
code. The codes are from the tables of ISO 639-3 and of its macrolanguages (SIL International, column Part1).
"""

from __future__ import annotations

# Pairs of a three-letter and a two-letter code. In _LANGUAGES, both name the same language. In _MEMBERS, the
# first names one member of the macrolanguage that the second names.
_LANGUAGES = """
    afr:af aka:ak amh:am asm:as bak:ba bam:bm bel:be ben:bn bod:bo bos:bs bul:bg cat:ca ces:cs cym:cy dan:da
    deu:de dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fij:fj fin:fi fra:fr gla:gd gle:ga glg:gl
    grn:gn guj:gu hat:ht hau:ha heb:he hin:hi hrv:hr hun:hu hye:hy ibo:ig ind:id isl:is ita:it jav:jv jpn:ja
    kan:kn kas:ks kat:ka kaz:kk khm:km kik:ki kin:rw kir:ky kon:kg kor:ko lao:lo lav:lv lim:li lin:ln lit:lt ltz:lb
    lug:lg mal:ml mar:mr mkd:mk mlt:mt mri:mi mya:my nld:nl nno:nn nob:nb nya:ny oci:oc pan:pa pol:pl por:pt
    ron:ro run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl smo:sm sna:sn snd:sd som:so sot:st spa:es srd:sc
    srp:sr ssw:ss sun:su swe:sv tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti tsn:tn tso:ts tuk:tk tur:tr
    twi:tw uig:ug ukr:uk urd:ur vie:vi wol:wo xho:xh yor:yo zho:zh zul:zu
"""
_MEMBERS = """
    als:sq arb:ar ayr:ay azj:az fuv:ff gaz:om khk:mn kmr:ku knc:kr lvs:lv npi:ne ory:or pbt:ps pes:fa plt:mg
    quy:qu swh:sw uzn:uz ydd:yi zsm:ms
"""
_OWN_TWO_LETTERS = dict(pair.split(":") for pair in _LANGUAGES.split())
_TWO_LETTERS = _OWN_TWO_LETTERS | dict(pair.split(":") for pair in _MEMBERS.split())
# For a language that NLLB has in two scripts: the script that the tag leaves out.
_USUAL_SCRIPT = {
    "ace": "Latn",
    "arb": "Arab",
    "bjn": "Latn",
    "kas": "Arab",
    "knc": "Latn",
    "min": "Latn",
    "taq": "Latn",
    "zho": "Hans",
}
# Codes of M2M-100 that mean another language in ISO 639-1, or none.
_M2M_100 = {"ns": "nso"}


def usual_tag(tag: str) -> str:
    """A BCP 47 tag with its language in lower case, and in two letters if possible: de-AT for DEU-AT."""
    language, dash, rest = tag.partition("-")
    language = language.lower()
    return f"{_OWN_TWO_LETTERS.get(language, language)}{dash}{rest}"


def of_m2m_100(code: str) -> str:
    """The tag of a code of M2M-100, such as de or ast."""
    return _M2M_100.get(code, code)


def of_nllb(code: str) -> str:
    """The tag of a code of NLLB, such as de for deu_Latn and zh-Hant for zho_Hant.

    The tag names the script if the language has several scripts in NLLB and this one is not the usual one.
    """
    language, _, script = code.partition("_")
    tag = _TWO_LETTERS.get(language, language)
    return tag if script == _USUAL_SCRIPT.get(language, script) else f"{tag}-{script}"
