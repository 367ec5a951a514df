"""Words of scripts with combining marks stay whole in the lexicon, in placeholders and in the filter of copies."""

from __future__ import annotations

import random
import re
import sys
import unicodedata
from itertools import product

import pytest

from model.corpus import Pair
from model.lexicon import learn_lexicon, words_of
from model.pair_filter import Reason, Rules
from model.variants import STRANGE, with_placeholders
from model.words import combining_marks, word_pattern


def test_the_combining_marks_are_those_of_unicode() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    expected = [each for each in characters if unicodedata.category(each).startswith("M")]
    assert list(combining_marks()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("वह कल दिल्ली जाएगी।", ["वह", "कल", "दिल्ली", "जाएगी"]),
        ("नेपाली, मराठी!", ["नेपाली", "मराठी"]),
        ("น้ำ ที่นี่", ["น้ำ", "ที่นี่"]),
        ("a\u0308rger u\u0308ber-a\u0308rger", ["a\u0308rger", "u\u0308ber-a\u0308rger"]),
        ("می\u200cخواهم بروم", ["می\u200cخواهم", "بروم"]),
        ("Don't re-use snake_case 3.5 km2!", ["Don't", "re-use", "snake", "case", "km"]),
        ("dogs' tails, pre- and 'post-war-'", ["dogs", "tails", "pre", "and", "post-war"]),
        ("\u0301 1\ufe0f\u20e3 \U0001f468\u200d\U0001f469", []),
    ],
)
def test_a_mark_continues_a_word(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected


def test_no_group_is_possessive() -> None:
    """In CPython before 3.11.5, a possessive group would also match the character after the word."""
    assert not re.search(r"\)[*+?]\+", word_pattern())


def test_a_hindi_word_finds_its_translation() -> None:
    people = (("teacher", "शिक्षक"), ("girl", "लड़की"), ("boy", "लड़का"), ("doctor", "चिकित्सक"))
    places = (("Delhi", "दिल्ली"), ("school", "विद्यालय"), ("market", "बाज़ार"), ("garden", "बगीचे"))
    sentences = [
        Pair(f"the {who[0]} went to {where[0]} {number}", f"{who[1]} {where[1]} गया {number}", "d")
        for number, who, where in product(range(3), people, places)
    ]
    found = {entry.source: entry.target for entry in learn_lexicon(sentences)}
    assert found.items() >= dict([*people, *places]).items()


@pytest.mark.parametrize("seed", range(10))
def test_a_placeholder_stands_for_a_whole_word(seed: int) -> None:
    source, target = "वह कल दिल्ली जाएगी।", "ऊ भोलि दिल्ली जानेछे।"
    varied = with_placeholders(source, target, random.Random(seed), {})
    assert varied == (f"वह कल {STRANGE[0]} जाएगी।", f"ऊ भोलि {STRANGE[0]} जानेछे।")


def test_a_translation_with_the_same_consonants_is_no_copy() -> None:
    rules = Rules("hi", "ne")
    assert rules.reason_against("मेरा नाम राम है।", "मेरो नाम राम हो।") is None
    assert rules.reason_against("मेरा नाम राम है।", "मेरा नाम राम है") is Reason.NEAR_COPY
