"""Whether a sentence is in another language than its column says, by py3langid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

# Characters of a sentence that the detector reads: its beginning is enough. Larger: slower in proportion.
MAX_CHARACTERS = 150
# Least confidence, 0 to 1, with which a sentence counts as in another language. Lower: names and headings are dropped
# on a guess. Higher: short foreign sentences stay.
MIN_CONFIDENCE = 0.8
# Fewest letters, in bytes of UTF-8, that the detector judges. Smaller: short texts are dropped on a guess.
MIN_LETTER_BYTES = 21
# The detector's codes for languages that have another code here.
_ALIASES = {"nb": "no", "fil": "tl", "yue": "zh"}
# Groups of languages that the detector confuses: within a group, none counts as another language.
_ALIKE = (
    frozenset({"no", "nb", "nn", "da", "sv"}),
    frozenset({"bs", "hr", "sr"}),
    frozenset({"id", "ms", "jv"}),
    frozenset({"gl", "pt", "es", "an"}),
    frozenset({"de", "lb"}),
    frozenset({"nl", "af"}),
    frozenset({"cs", "sk"}),
)


class LanguageCheck:
    """The detector. It takes about a second and 70 MB to load, and 0.2 ms a sentence."""

    def __init__(self) -> None:
        """Load the model that py3langid brings along: naive Bayes over byte n-grams (Lui and Baldwin 2012)."""
        from py3langid import langid  # type: ignore[import-untyped]

        self._identifier: Any = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        self.languages: Collection[str] = frozenset(self._identifier.nb_classes)

    def knows(self, language: str) -> bool:
        """Whether texts of a language, such as `de` or `pt-BR`, can be checked."""
        return _label_of(language) in self.languages

    def is_other(self, text: str, expected: str) -> bool:
        """Whether the text is surely in another language than `expected`; never for a short text."""
        if not self.knows(expected):
            return False
        beginning = text[:MAX_CHARACTERS]
        letters = "".join(filter(str.isalpha, beginning))
        if len(letters.encode("utf-8", "surrogatepass")) < MIN_LETTER_BYTES:
            return False
        label = _label_of(expected)
        found, confidence = self._identifier.classify(beginning)
        if found == label or confidence < MIN_CONFIDENCE:
            return False
        return not any(label in group and found in group for group in _ALIKE)


def _label_of(language: str) -> str:
    """The model's label for a language code."""
    base = language.partition("-")[0].lower()
    return _ALIASES.get(base, base)
