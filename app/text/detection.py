"""Which of the served languages a text is in.

py3langid: naive Bayes over byte n-grams of 97 languages, its model an array file and no code. Beside what was measured
(`benchmarks/detection.py`, `docs/text.md`), its confidence is a probability that holds: of texts to which it gave 0.95
and that have more than twenty letters, none was wrong.
"""

from __future__ import annotations

import copy
import threading
from array import array
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

from app.text.placeholders import placeholder_spans

# The beginning of a text says what the whole of it would.
MAX_CHARACTERS = 1000
# Text in the target language is left alone from here on; docs/text.md has the figures.
MIN_LETTERS_TO_KEEP = 21
MIN_CONFIDENCE_TO_KEEP = 0.95
_MAX_RESTRICTED = 32


class LanguageDetector:
    """Tells the served languages apart. Any thread may use it; loading it takes half a second or more."""

    def __init__(self, languages: Collection[str]) -> None:
        """languages: codes such as `de` and `pt-BR`; those that the model does not know are never detected."""
        from py3langid import langid, modelio  # type: ignore[import-untyped]

        weights, priors, labels, moves, rows, features = modelio.load_model(
            langid.MODEL_DIR / langid.MODEL_FILE
        )
        self._base = {code: code.partition("-")[0].lower() for code in languages}
        self._base = {code: base for code, base in self._base.items() if base in labels}
        # What the other languages weigh is never read: two of 142 columns are kept of 28 MB.
        columns = [index for index, label in enumerate(labels) if label in self._base.values()]
        self._full: Any = langid.LanguageIdentifier(
            weights[:, columns],
            priors[columns],
            [labels[index] for index in columns],
            moves,
            array("i", features),
            norm_probs=True,
            tk_row=rows,
        )
        self._by_bases: dict[frozenset[str], Any] = {}

    def detect(self, text: str, allowed: Collection[str]) -> list[tuple[str, float]]:
        """Languages with their probabilities, 0 to 1, the likeliest first.

        allowed: some of the languages that this detector was made for. No text without letters has a language: the
        list is empty for it, and where none of the languages is known.
        """
        prose = _prose(text[:MAX_CHARACTERS])
        codes = [code for code in dict.fromkeys(allowed) if code in self._base]
        if not codes or not any(map(str.isalpha, prose)):
            return []
        probabilities = dict(self._restricted(frozenset(self._base[code] for code in codes)).rank(prose))
        found = [(code, float(probabilities[self._base[code]])) for code in codes]
        return sorted(found, key=lambda entry: -entry[1])

    def _restricted(self, bases: frozenset[str]) -> Any:
        """The identifier of these languages; made once for each set that is asked for."""
        identifier = self._by_bases.get(bases)
        if identifier is None:
            identifier = copy.copy(self._full)
            identifier.set_languages(sorted(bases))
            if len(self._by_bases) >= _MAX_RESTRICTED:
                self._by_bases.clear()
            self._by_bases[bases] = identifier
        return identifier


class LazyDetector:
    """A detector that is loaded when a language is first to be detected: once, on a thread of its own."""

    def __init__(self, load: Callable[[], LanguageDetector]) -> None:
        """load: called on that thread."""
        self._load = load
        self._lock = threading.Lock()
        self._future: Future[LanguageDetector] | None = None

    def loaded(self) -> Future[LanguageDetector]:
        """The detector, or its loading, which this begins. What could not be loaded is tried again by the next call.

        Nobody's cancelling ends the loading. Any thread may call this, and none waits in it.
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
        except BaseException as error:  # noqa: BLE001 - handed over, whatever it is
            future.set_exception(error)


def _prose(text: str) -> str:
    """The text without URLs, e-mail addresses and other placeholders."""
    parts = []
    done = 0
    for span in placeholder_spans(text):
        parts.append(text[done : span.start])
        done = span.end
    return " ".join([*parts, text[done:]])


def is_in_target(text: str, target: str, detected: list[tuple[str, float]]) -> bool:
    """Whether a text, whose source was left to detection, is left alone because it is in the target language.

    detected: what `LanguageDetector.detect` said of it. Only for `source: auto`: a stated source is believed.
    """
    if not detected:
        return False
    language, confidence = detected[0]
    num_letters = sum(map(str.isalpha, _prose(text[:MAX_CHARACTERS])))
    return language == target and confidence >= MIN_CONFIDENCE_TO_KEEP and num_letters >= MIN_LETTERS_TO_KEEP
