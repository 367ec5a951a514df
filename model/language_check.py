"""Detects, with py3langid, whether a sentence is in another language than its column should have."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

# Characters of a sentence that the detector reads. The beginning is enough. If larger, it is slower in proportion.
MAX_CHARACTERS = 150
# Least confidence, 0 to 1, with which a sentence counts as in another language. If lower, names and headings are
# dropped on a guess. If higher, short foreign sentences stay.
MIN_CONFIDENCE = 0.8
# Fewest letters, in bytes of UTF-8, of a text that is checked. If smaller, short texts are dropped on a guess.
MIN_LETTER_BYTES = 21
# The detector's codes for languages that it has under another code.
_ALIASES = {"nb": "no", "fil": "tl"}
# Groups of languages that the detector confuses. Within a group, none counts as another language.
_ALIKE = (
    frozenset({"no", "nn", "da", "sv"}),
    frozenset({"bs", "hr", "sr"}),
    frozenset({"id", "ms", "jv"}),
    frozenset({"gl", "pt", "es", "an"}),
    frozenset({"de", "lb"}),
    frozenset({"nl", "af"}),
    frozenset({"cs", "sk"}),
)


class LanguageCheck:
    """The detector. Loading takes about half a second and 80 MB. A sentence takes less than 0.1 ms."""

    def __init__(self) -> None:
        """Load py3langid's own model, which is naive Bayes over byte n-grams (Lui and Baldwin 2012)."""
        from py3langid import langid  # type: ignore[import-untyped]

        self._identifier: Any = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        self.languages: Collection[str] = frozenset(self._identifier.nb_classes)

    def knows(self, language: str) -> bool:
        """Whether texts of a language, such as `de` or `pt-BR`, can be checked."""
        return _label_of(language) in self.languages

    def is_other(self, text: str, expected: str) -> bool:
        """Whether the text is in another language than `expected`, with a confidence of at least MIN_CONFIDENCE.

        Never true for a short text, for a language that the detector does not know, or within a group of _ALIKE.
        """
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
