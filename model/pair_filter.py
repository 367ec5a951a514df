"""The reasons to drop pairs of a parallel text, and the rules that need only the pair itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from model.scripts import is_in_script, script_of
from model.text_cleaning import is_broken, letters_key, sorted_digits
from model.words import letters_pattern

# Characters that the longer side may have beyond the length that max_ratio allows, so that short pairs pass. If it is
# larger, misaligned single words stay. If it is smaller, translations such as "OK" and "In Ordnung" are dropped.
LENGTH_SLACK = 15


class Reason(StrEnum):
    """The reason why a pair is not written. The report and `--keep` use the values as names."""

    DOMAIN = "domain"
    EMPTY = "empty"
    BROKEN = "broken"
    LENGTH = "length"
    RATIO = "ratio"
    COPY = "copy"
    NEAR_COPY = "near-copy"
    SCRIPT = "script"
    NUMBERS = "numbers"
    EXCLUDED = "excluded"
    SAMPLING = "sampling"
    DUPLICATE = "duplicate"
    NEAR_DUPLICATE = "near-duplicate"
    LANGUAGE = "language"


# The meaning of each reason, for the report's table.
MEANINGS = {
    Reason.DOMAIN: "its domain has the weight 0",
    Reason.EMPTY: "a side has no text",
    Reason.BROKEN: "characters that were decoded wrongly",
    Reason.LENGTH: "a side is too long",
    Reason.RATIO: "the sides differ too much in length",
    Reason.COPY: "both sides are the same",
    Reason.NEAR_COPY: "the target is hardly translated",
    Reason.SCRIPT: "a side is mostly in another script",
    Reason.NUMBERS: "the sides have different digits",
    Reason.EXCLUDED: "a side is in an excluded file",
    Reason.SAMPLING: "left out by its domain's weight",
    Reason.DUPLICATE: "an earlier pair is the same",
    Reason.NEAR_DUPLICATE: "an earlier pair differs only in case, punctuation or, in longer texts, digits",
    Reason.LANGUAGE: "a side is in another language",
}
# Reasons that `--keep` does not accept: other options control them, and a pair without text cannot be used.
NOT_FOR_KEEP = frozenset({Reason.DOMAIN, Reason.EMPTY, Reason.NUMBERS, Reason.EXCLUDED, Reason.SAMPLING})


@dataclass(frozen=True)
class Rules:
    """The rules for a pair. All but `is_broken` need sides that `text_cleaning.normalise` has normalised.

    source, target: language codes of the two sides.
    max_characters: maximum number of characters on either side.
    max_ratio: the longer side has at most max_ratio times the characters of the shorter side, plus LENGTH_SLACK.
    max_copied: largest share, 0-1, of the target's words that may also be in the source.
    checks_numbers: whether both sides must have the same digits, in any order.
    ignored: reasons for which no pair is dropped.
    """

    source: str
    target: str
    max_characters: int = 600
    max_ratio: float = 2.5
    max_copied: float = 0.75
    checks_numbers: bool = False
    ignored: frozenset[Reason] = frozenset()

    def is_broken(self, source: str, target: str) -> bool:
        """Whether to drop a pair because a side was decoded wrongly. The sides are not normalised yet.

        `normalise` removes control characters that show a wrong decoding.
        """
        return Reason.BROKEN not in self.ignored and (is_broken(source) or is_broken(target))

    def reason_against(self, source: str, target: str) -> Reason | None:
        """Return the reason of the first rule that the pair breaks, or None."""
        return next(
            (
                reason
                for reason, breaks in _CHECKS
                if reason not in self.ignored and breaks(self, source, target)
            ),
            None,
        )


def _differs_in_length(rules: Rules, source: str, target: str) -> bool:
    shorter, longer = sorted((len(source), len(target)))
    return longer > rules.max_ratio * shorter + LENGTH_SLACK


def _is_near_copy(rules: Rules, source: str, target: str) -> bool:
    """Whether the sides have the same `letters_key`, or share more than `max_copied` of the target's words.

    False for a target without words.
    """
    words = _words(target)
    if not words:
        return False
    shared = words & _words(source)
    return shared.total() > rules.max_copied * words.total() or letters_key(source) == letters_key(target)


def _words(text: str) -> Counter[str]:
    """Count the case-folded words, without numbers. An apostrophe or a hyphen parts words."""
    return Counter(word.casefold() for word in _run_of_letters().findall(text))


@cache
def _run_of_letters() -> re.Pattern[str]:
    return re.compile(letters_pattern())


def _is_in_another_script(rules: Rules, source: str, target: str) -> bool:
    return not (
        is_in_script(source, script_of(rules.source)) and is_in_script(target, script_of(rules.target))
    )


_CHECKS: tuple[tuple[Reason, Callable[[Rules, str, str], bool]], ...] = (
    (Reason.EMPTY, lambda _, source, target: not source or not target),
    (Reason.LENGTH, lambda rules, source, target: max(len(source), len(target)) > rules.max_characters),
    (Reason.RATIO, _differs_in_length),
    (Reason.COPY, lambda _, source, target: source == target),
    (Reason.NEAR_COPY, _is_near_copy),
    (Reason.SCRIPT, _is_in_another_script),
    (
        Reason.NUMBERS,
        lambda rules, source, target: rules.checks_numbers and sorted_digits(source) != sorted_digits(target),
    ),
)
