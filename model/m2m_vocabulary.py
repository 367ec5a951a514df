"""Reads the vocabulary of M2M-100 or NLLB: the id of every piece, the SentencePiece model, and the languages.

M2M-100 has vocab.json with the ids of the pieces. The subwords of the languages follow, in an order that is part of the
tokenizer's code, and then some rows without a piece. NLLB has no vocab.json: piece i of its SentencePiece model, from 3
on, has the id i + 1. The subwords of the languages follow, as tokenizer.json lists them. tokenizer.json also has the
ids of all pieces, which must be the same.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from model.huggingface_files import CONFIG, VOCABULARY, checked_vocabulary, read_json
from model.imported import EOS, PAD, UNK, read_sentencepiece
from model.language_codes import of_m2m_100, of_nllb

SENTENCEPIECE, TOKENIZER, TOKENIZER_CONFIG = (
    "sentencepiece.bpe.model",
    "tokenizer.json",
    "tokenizer_config.json",
)
# The languages of M2M-100 in the order of their ids, by `language_codes` of tokenizer_config.json.
LANGUAGES = {
    "m2m100": """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr
    ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or
    pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
    """,
    "wmt21": "en ha is ja cs ru zh de",
}
# Rows without a piece at the end of M2M-100's embedding, if tokenizer_config.json does not say how many.
NUM_MADE_UP = 8
# Number of pieces at the start of the SentencePiece model whose ids do not follow its order: unknown, start, end.
NUM_SPECIAL = 3
NLLB_LANGUAGE = re.compile("[a-z]{3}_[A-Z][a-z]{3}")
M2M_TOKENIZERS, NLLB_TOKENIZERS = ("M2M100Tokenizer",), ("NllbTokenizer", "NllbTokenizerFast")


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of M2M-100 or NLLB.

    pieces: the id of each piece, by the files. vocab_size: by config.json, not compared with the weights. languages:
    the piece of each language, by BCP 47 tag. proto: the SentencePiece model. tag_follows_source: whether the
    language's piece ends a source, as in NLLB's first releases.
    """

    pieces: dict[str, int]
    vocab_size: int
    languages: dict[str, str]
    proto: Any
    tag_follows_source: bool = False

    @cached_property
    def ids(self) -> dict[str, int]:
        """The ids of all pieces, 0 to vocab_size - 1.

        A vocab_size far beyond the weights' rows would fill the memory. So a caller first compares both.
        """
        return _filled(self.pieces, self.vocab_size)


def read_vocabulary(folder: Path, facts: Mapping[str, Any]) -> tuple[Vocabulary | None, list[str]]:
    """Return the vocabulary, or None and the problems. facts: config.json, or {} for one that is missing or damaged.

    Without a vocab_size in `facts` the vocabulary is None. No returned problem names the missing vocab_size, because
    `size_problems` of `model.huggingface_files` does.
    """
    problems = [] if (folder / SENTENCEPIECE).is_file() else [f"{SENTENCEPIECE} is missing"]
    settings: dict[str, Any] = {}
    proto = None
    try:
        settings = read_json(folder / TOKENIZER_CONFIG, is_optional=True)
        proto = None if problems else read_sentencepiece(folder / SENTENCEPIECE)
    except (OSError, ValueError) as error:
        problems.append(str(error))
    problems += _settings_problems(settings)
    name = settings.get("tokenizer_class")
    is_nllb = name in NLLB_TOKENIZERS if name else not (folder / VOCABULARY).is_file()
    file = TOKENIZER if is_nllb else VOCABULARY
    if not (folder / file).is_file():
        problems.append(f"{file} is missing" if name else f"{VOCABULARY} or {TOKENIZER} is missing")
    if problems or proto is None:
        return None, problems
    try:
        found = read_json(folder / file)
        ids, languages = _nllb(found, proto) if is_nllb else _m2m_100(checked_vocabulary(found), settings)
    except (OSError, ValueError) as error:
        return None, [str(error)]
    problems = _problems(ids, languages, facts, file)
    if not is_nllb:
        problems += _made_up_problems(ids, settings, facts)
    size = facts.get("vocab_size")
    if problems or not isinstance(size, int):
        return None, problems
    named = {tag: piece for piece, tag in languages.items()}
    is_legacy = is_nllb and bool(settings.get("legacy_behaviour"))
    return Vocabulary(ids, size, named, proto, is_legacy), []


def _settings_problems(settings: Mapping[str, Any]) -> list[str]:
    """What tokenizer_config.json says that cannot be imported."""
    problems = []
    known = (*M2M_TOKENIZERS, *NLLB_TOKENIZERS)
    if settings.get("tokenizer_class") not in (None, *known):
        what = f"is {settings['tokenizer_class']!r}; it must be one of {', '.join(known)}"
        problems.append(f"tokenizer_class of {TOKENIZER_CONFIG} {what}")
    if settings.get("language_codes", "m2m100") not in tuple(LANGUAGES):  # the value may be unhashable
        what = f"is {settings['language_codes']!r}; it must be one of {', '.join(LANGUAGES)}"
        problems.append(f"language_codes of {TOKENIZER_CONFIG} {what}")
    num_made_up = settings.get("num_madeup_words", NUM_MADE_UP)
    if not isinstance(num_made_up, int):
        problems.append(
            f"num_madeup_words of {TOKENIZER_CONFIG} is {num_made_up!r}; it must be a whole number"
        )
    return problems


def _m2m_100(ids: dict[str, int], settings: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, str]]:
    """The ids of vocab.json and of the languages' pieces, and the tag of each of these pieces."""
    codes = LANGUAGES[settings.get("language_codes", "m2m100")].split()
    languages = {f"__{code}__": of_m2m_100(code) for code in codes}
    first = len(ids)
    return ids | {piece: first + index for index, piece in enumerate(languages)}, languages


def _nllb(found: Mapping[str, Any], proto: Any) -> tuple[dict[str, int], dict[str, str]]:
    """The ids of tokenizer.json, and the tag of each language's piece. Raises ValueError."""
    try:
        added = {str(token["content"]): token["id"] for token in found["added_tokens"]}
        ids = {str(piece): identity for piece, identity in found["model"]["vocab"].items()} | added
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{TOKENIZER} has no vocabulary") from error
    for piece, identity in ids.items():
        if type(identity) is not int:  # a boolean is an instance of int, too
            raise ValueError(f"the id of {piece!r} in {TOKENIZER} is {identity!r}; it must be a whole number")
    pieces = [piece.piece for piece in proto.pieces]
    differing = [
        piece for index, piece in enumerate(pieces) if index >= NUM_SPECIAL and ids.get(piece) != index + 1
    ]
    if differing:
        raise ValueError(
            f"{len(differing)} pieces of {SENTENCEPIECE} have another id in {TOKENIZER} or none, such as "
            f"{differing[0]!r}: {ids.get(differing[0])}, not {pieces.index(differing[0]) + 1}"
        )
    return ids, {piece: of_nllb(piece) for piece in added if NLLB_LANGUAGE.fullmatch(piece)}


def _problems(
    ids: Mapping[str, int], languages: Mapping[str, str], facts: Mapping[str, Any], file: str
) -> list[str]:
    """Contradictions between the ids, and between them and config.json."""
    problems = [f"{file} has no {piece}" for piece in (EOS, UNK, PAD) if piece not in ids]
    problems += [
        f"{piece} is {ids[piece]} in {file}, {name} of {CONFIG} is {facts[name]}"
        for piece, name in ((EOS, "eos_token_id"), (PAD, "pad_token_id"))
        if piece in ids and facts.get(name, ids[piece]) != ids[piece]
    ]
    size, most = facts.get("vocab_size"), max(ids.values(), default=0)
    if isinstance(size, int) and most >= size:
        problems.append(f"{file} has ids up to {most}, vocab_size of {CONFIG} is {size}")
    if len(set(ids.values())) < len(ids) or min(ids.values(), default=0) < 0:
        problems.append(f"{file} has an id twice, or a negative one")
    if len(languages) < 2:
        problems.append(f"{file} has fewer than two languages")
    twice = [tag for tag, count in Counter(languages.values()).items() if count > 1]
    return problems + [f"{file} has the language {tag} twice" for tag in twice]


def _made_up_problems(
    ids: Mapping[str, int], settings: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[str]:
    """One problem if a vocabulary of M2M-100 has another size than config.json says, else none.

    The ids of the languages follow those of vocab.json. If its number of pieces is wrong, these ids are wrong.
    """
    size, more = facts.get("vocab_size"), settings.get("num_madeup_words", NUM_MADE_UP)
    if not isinstance(size, int) or len(ids) + more == size:
        return []
    what = f"{len(ids)} pieces with the languages and {more} rows without a piece"
    return [f"{VOCABULARY} has {what}, vocab_size of {CONFIG} is {size}"]


def _filled(ids: dict[str, int], vocab_size: int) -> dict[str, int]:
    """The ids, and fairseq's made-up piece for each row without a piece. The softmax includes the made-up pieces."""
    free = sorted(set(range(vocab_size)) - set(ids.values()))
    names = (name for number in itertools.count() if (name := f"madeupword{number:04d}") not in ids)
    return ids | dict(zip(names, free, strict=False))
