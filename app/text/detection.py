"""Detects the language of a text with py3langid, which is naive Bayes over byte n-grams.

The model is a file of arrays and contains no code. Its probabilities are calibrated. `restrict_to` divides those of the
served languages by their sum. In the measurements of `docs/text.md`, a language that then had a probability of at least
0.95 was right for every text of more than twenty letters.
"""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

from app.text.detector_arrays import folder_of_environment, read_arrays
from app.text.language_names import KNOWN_LANGUAGES
from app.text.protected_spans import protected_spans

# Languages with their probabilities, 0 to 1, in descending order.
Ranked = list[tuple[str, float]]
# Code points of a text that are read. If larger, the same result takes more time. If smaller, results are less certain.
MAX_CHARACTERS = 1000
# A text in the target language is returned unchanged from these values on; docs/text.md has the figures. If smaller,
# texts to translate are returned unchanged. If larger, texts in the target language are translated.
MIN_LETTERS_TO_KEEP = 21
MIN_CONFIDENCE_TO_KEEP = 0.95
# A text is refused if, with at least this probability, it is in a language that is not translated into the target. If
# lower, words and names are refused on a guess. If higher, short foreign sentences are translated as if they were in
# another language.
MIN_CONFIDENCE_TO_REFUSE = 0.8
# A text is also refused if the target and the languages that are translated into it together have at most this
# probability. Then no single language needs MIN_CONFIDENCE_TO_REFUSE, because similar languages, such as Danish and
# Norwegian, may share the probability.
MAX_ALLOWED_TO_REFUSE = 0.001
# A text that is no phrase (MIN_WORDS_OF_PHRASE) is refused only if its letters have at least this many bytes in UTF-8:
# 21 Latin letters, 11 Cyrillic letters or 7 Chinese characters. The detector counts bytes. If smaller, words and names
# are refused on a guess. If larger, short foreign sentences are translated.
MIN_BYTES_TO_REFUSE = 21
# Minimum number of words of a phrase. A phrase may be refused even if it has fewer bytes than MIN_BYTES_TO_REFUSE.
# Unlike in a name, not all of its words are capitalised. If smaller, foreign names are refused. If larger, short
# foreign sentences are translated.
MIN_WORDS_OF_PHRASE = 3
# The model's label for a language code, if the two differ.
_ALIASES = {"nb": "no", "fil": "tl"}


class LanguageDetector:
    """Detects the languages of KNOWN_LANGUAGES, and all other served languages that the model knows.

    Any thread may use it. Loading takes a third of a second, or a few milliseconds if `app.text.detector_arrays` has
    unpacked the model.
    """

    def __init__(self, languages: Collection[str]) -> None:
        """languages: served codes such as `de` and `pt-BR`. A code that the model does not know is never detected."""
        import numpy as np
        from py3langid import langid  # type: ignore[import-untyped]

        arrays = read_arrays(folder_of_environment())
        labels = arrays["classes"].tolist()
        bases = {code: _base_of(code) for code in sorted(languages)}
        kept = {label for label in (*KNOWN_LANGUAGES, *bases.values()) if label in labels}
        table = arrays["ptc"]
        # The columns of other languages are dropped.
        columns = [index for index, label in enumerate(labels) if label in kept]
        self._codes = {
            label: [code for code, base in bases.items() if base == label] or [label] for label in kept
        }
        self.languages = frozenset(code for codes in self._codes.values() for code in codes)
        self._identifier: Any = langid.LanguageIdentifier(
            _Columns(table, columns) if isinstance(table, np.memmap) else table[:, columns],
            arrays["pc"][columns],
            [labels[index] for index in columns],
            memoryview(arrays["nextmove"]),
            array("i", arrays["out_feat"].tolist()),
            norm_probs=True,
            tk_row=arrays["nextmove_row"].tolist(),
        )

    def detect(self, text: str) -> Ranked:
        """Return all languages of this detector with probabilities, served ones by their served codes.

        Each of several served codes of one language, such as `pt` and `pt-BR`, has the language's probability. They
        are in alphabetical order. Empty for a text without letters.
        """
        prose = _prose(text[:MAX_CHARACTERS])
        if not any(map(str.isalpha, prose)):
            return []
        return [
            (code, float(probability))
            for label, probability in self._identifier.rank(prose)
            for code in self._codes[label]
        ]


def _base_of(code: str) -> str:
    """Return the model's label for a code."""
    base = code.partition("-")[0].lower()
    return _ALIASES.get(base, base)


def is_same_language(code: str, other: str) -> bool:
    """Whether two codes, such as `pt` and `pt-BR`, name one language of the model."""
    return _base_of(code) == _base_of(other)


class _Columns:
    """Some columns of a mapped table. Only the rows that are selected are read from the file."""

    def __init__(self, table: Any, columns: Sequence[int]) -> None:
        self._table, self._columns = table, columns

    def __getitem__(self, rows: Any) -> Any:
        """These rows of the columns."""
        return self._table[rows][:, self._columns]


class LazyDetector:
    """Loads a detector once, on a thread of its own, when `start_loading` is first called."""

    def __init__(self, load: Callable[[], LanguageDetector]) -> None:
        """load: the function that loads it."""
        self._load = load
        self._lock = threading.Lock()
        self._future: Future[LanguageDetector] | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the detector is loading or loaded."""
        return self._future is not None

    async def wait_if_begun(self) -> None:
        """Wait until the detector is loaded, if it has begun to load. Raises the error of loading it."""
        if self.has_begun:
            await asyncio.wrap_future(self.start_loading())

    def start_loading(self) -> Future[LanguageDetector]:
        """Start to load the detector, unless it is loading or loaded, and return its future.

        If the loading has failed, it starts again. Cancelling a wait does not end the loading. Any thread may call this
        method. It does not block.
        """
        with self._lock:
            if self._future is None or (self._future.done() and self._future.exception() is not None):
                self._future = Future()
                self._future.set_running_or_notify_cancel()
                threading.Thread(target=self._run, args=(self._future,), name="detector", daemon=True).start()
            return self._future

    def _run(self, future: Future[LanguageDetector]) -> None:
        try:
            future.set_result(self._load())
        except BaseException as error:  # noqa: BLE001 - any error is the future's
            future.set_exception(error)


def _prose(text: str) -> str:
    """Return the text without URLs, e-mail addresses and other protected spans."""
    parts = []
    done = 0
    for span in protected_spans(text):
        parts.append(text[done : span.start])
        done = span.end
    return " ".join([*parts, text[done:]])


def is_in_target(text: str, target: str, detected: Sequence[tuple[str, float]]) -> bool:
    """Whether a text is certainly in the target language. Such a text is returned unchanged.

    detected: the text's languages, from `restrict_to` or `LanguageDetector.detect`.
    """
    confidence = dict(detected).get(target, 0.0)
    num_letters = sum(map(str.isalpha, _prose(text[:MAX_CHARACTERS])))
    return confidence >= MIN_CONFIDENCE_TO_KEEP and num_letters >= MIN_LETTERS_TO_KEEP


def foreign_language(
    text: str, detected: Sequence[tuple[str, float]], allowed: Collection[str]
) -> str | None:
    """Return the language of a text that is certainly in none of the allowed ones, or None.

    detected: the result of `LanguageDetector.detect`. If the letters of a text have fewer than MIN_BYTES_TO_REFUSE
    bytes, its language is certain only if the text is a phrase. Single words and names are no phrases.
    """
    if not detected:
        return None
    language, confidence = detected[0]
    if any(each in allowed for each, _ in detected if is_same_language(each, language)):
        return None
    share_allowed = sum(probability for each, probability in detected if each in allowed)
    if confidence < MIN_CONFIDENCE_TO_REFUSE and share_allowed > MAX_ALLOWED_TO_REFUSE:
        return None
    prose = _prose(text[:MAX_CHARACTERS])
    num_bytes = sum(len(letter.encode("utf-8", "surrogatepass")) for letter in prose if letter.isalpha())
    is_enough = num_bytes >= MIN_BYTES_TO_REFUSE or _is_phrase(prose)
    return language if is_enough else None


def _is_phrase(prose: str) -> bool:
    """Whether the text has MIN_WORDS_OF_PHRASE words, and one after the first begins with a lower-case letter."""
    words = [word for word in prose.split() if any(map(str.isalpha, word))]
    return len(words) >= MIN_WORDS_OF_PHRASE and any(word[:1].islower() for word in words[1:])


def restrict_to(detected: Sequence[tuple[str, float]], allowed: Collection[str]) -> Ranked:
    """Return the allowed languages, with their probabilities on condition that the text is in one of them.

    Each of several codes of one language, such as `pt` and `pt-BR`, has the language's probability. The sum that all
    probabilities are divided by has it once.
    """
    ranked = [(language, probability) for language, probability in detected if language in allowed]
    total = sum({_base_of(language): probability for language, probability in ranked}.values())
    return [(language, probability / total) for language, probability in ranked] if total > 0 else ranked
