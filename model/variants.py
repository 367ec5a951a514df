"""Makes variants of a training pair: text as people type it, and unknown characters that the model must copy.

`with_placeholders`, `with_strange_ends` and `as_typed` take a source and its translation and return a variant of both.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

from model.words import word_pattern

# Characters that no vocabulary has. The model learns to copy them, since the server replaces terms by such characters.
STRANGE = tuple(chr(0xE100 + index) for index in range(4))
FINAL_MARKS = ".!"
TextPair = tuple[str, str]


@cache
def _token() -> re.Pattern[str]:
    """Matches a word or a number, without the punctuation around it."""
    return re.compile(rf"\d+(?:[.,:]\d+)*|{word_pattern()}")


def shared_tokens(source: str, target: str, lexicon: Mapping[str, str]) -> list[TextPair]:
    """Words and numbers of the source that have just one counterpart: the same token, or the lexicon's translation.

    lexicon: translations by source word, both in lower case. Tokens that occur twice on a side are left out, and tokens
    that have a counterpart in common.
    """
    target_counts = Counter(_token().findall(target))
    by_lower_case = {token.lower(): token for token in target_counts}
    found = []
    for token, count in Counter(_token().findall(source)).items():
        translation = token if token in target_counts else by_lower_case.get(lexicon.get(token.lower(), ""))
        if count == 1 and translation is not None and target_counts[translation] == 1:
            found.append((token, translation))
    num_tokens = Counter(translation for _, translation in found)
    return [(token, translation) for token, translation in found if num_tokens[translation] == 1]


def with_placeholders(
    source: str, target: str, random_numbers: random.Random, lexicon: Mapping[str, str]
) -> TextPair:
    """Replace one to four tokens and their counterparts by unknown characters, as the server does with terms.

    Returns the pair unchanged if no token has a counterpart.
    """
    shared = shared_tokens(source, target, lexicon)
    if not shared:
        return source, target
    count = random_numbers.choice((1, 1, 2, 2, 3, 4))
    chosen = random_numbers.sample(shared, min(len(shared), count))
    placeholders = dict(zip(STRANGE, chosen, strict=False))
    in_source = {token: placeholder for placeholder, (token, _) in placeholders.items()}
    in_target = {token: placeholder for placeholder, (_, token) in placeholders.items()}
    return _replace(source, in_source), _replace(target, in_target)


def with_strange_ends(source: str, target: str, random_numbers: random.Random) -> TextPair:
    """Add one or two unknown characters at the start or at the end of both sides, where emoji often stand."""
    separator = random_numbers.choice((" ", " ", ""))
    unknown = STRANGE[0] if random_numbers.random() < 0.75 else STRANGE[0] + " " + STRANGE[1]
    if random_numbers.random() < 0.25:
        return f"{unknown} {source}", f"{unknown} {target}"
    return source + separator + unknown, target + separator + unknown


def as_typed(source: str, target: str, random_numbers: random.Random) -> TextPair:
    """Remove the final marks if both sides have them. Up to 60 % of the pairs get another case, too.

    35 % of the sources are lower-cased. The target keeps its case, because a source in lower case has an ordinary
    translation. 15 % of the sources get a capital at every word. In another 10 %, only the first word gets one.
    If a source gains a first capital, its target gains one, too: "the house" is "das Haus", "The House" is "Das Haus".
    """
    source, target = source.rstrip(), target.rstrip()
    if source[-1:] in FINAL_MARKS and target[-1:] in FINAL_MARKS:
        bare = source.rstrip(FINAL_MARKS), target.rstrip(FINAL_MARKS)
        source, target = bare if all(bare) else (source, target)
    form = random_numbers.random()
    if form < 0.35:
        source = source.lower()
    elif form < 0.5:
        target = _with_capital(target) if source[:1].islower() else target
        source = " ".join(_with_capital(word) for word in source.split(" "))
    elif form < 0.6 and source[:1].islower():
        source, target = _with_capital(source), _with_capital(target)
    return source, target


def _with_capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _replace(text: str, placeholders: Mapping[str, str]) -> str:
    """The text with its tokens replaced. placeholders: by token."""
    return _token().sub(lambda match: placeholders.get(match.group(), match.group()), text)
