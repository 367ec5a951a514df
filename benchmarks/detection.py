"""Compare language detectors on texts of known language: accuracy by length, time, memory.

Every installed detector runs in a separate process. It is restricted to the languages of the texts if it can be. The
texts are the sentences of the corpora, and the first 1, 2 and 4 words of each sentence. Short texts are the hardest.

    python -m benchmarks.detection --data FOLDER --output benchmarks/results/detection.json

FOLDER holds en-de/test.*.tsv.xz and en-fr/test.*.tsv.xz, English and the other language in the last two columns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import lzma
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from app.text.detection import LanguageDetector, is_in_target, restrict_to
from benchmarks.machine import describe_run

RESULT = Path(__file__).with_name("results") / "detection.json"
LANGUAGE_SETS = ("de,en", "de,en,fr")
PAIRS = ("en-de", "en-fr")
# The greatest length of each bucket, in characters.
BUCKETS = (5, 10, 20, 40, 80, 160, 10_000)
NUM_WORDS = (1, 2, 4)
Detect = Callable[[str], str]


def py3langid(languages: Sequence[str]) -> Detect:
    """Naive Bayes over byte n-grams."""
    module: Any = importlib.import_module("py3langid.langid")
    identifier = module.LanguageIdentifier.from_model_file(module.MODEL_FILE, norm_probs=True)
    identifier.set_languages(languages)
    return lambda text: str(identifier.classify(text)[0])


def _lingua(languages: Sequence[str], *, is_low_accuracy: bool) -> Detect:
    module: Any = importlib.import_module("lingua")
    codes = [getattr(module.IsoCode639_1, language.upper()) for language in languages]
    builder = module.LanguageDetectorBuilder.from_iso_codes_639_1(*codes).with_preloaded_language_models()
    detector = (builder.with_low_accuracy_mode() if is_low_accuracy else builder).build()

    def detect(text: str) -> str:
        found = detector.detect_language_of(text)
        return "" if found is None else str(found.iso_code_639_1.name).lower()

    return detect


def lingua(languages: Sequence[str]) -> Detect:
    """Character n-grams from one to five, and rules."""
    return _lingua(languages, is_low_accuracy=False)


def lingua_low(languages: Sequence[str]) -> Detect:
    """Character trigrams alone, and rules."""
    return _lingua(languages, is_low_accuracy=True)


def eld(languages: Sequence[str]) -> Detect:
    """Byte n-grams of words."""
    detector: Any = importlib.import_module("eld").LanguageDetector()
    detector.dynamic_lang_subset(list(languages))
    return lambda text: str(detector.detect(text).language)


def whatlang(_languages: Sequence[str]) -> Detect:
    """Character trigrams. The languages cannot be restricted."""
    module: Any = importlib.import_module("whatlang")
    codes = {"eng": "en", "deu": "de", "fra": "fr"}

    def detect(text: str) -> str:
        try:
            return codes.get(str(module.detect(text).lang), "")
        except ValueError:  # no language found
            return ""

    return detect


def cld2(_languages: Sequence[str]) -> Detect:
    """Character quadgrams. The languages cannot be restricted."""
    module: Any = importlib.import_module("pycld2")
    return lambda text: str(module.detect(text, bestEffort=True)[2][0][1])


# Name -> the function that loads the detector, and the distribution package that it needs.
DETECTORS: dict[str, tuple[Callable[[Sequence[str]], Detect], str]] = {
    "py3langid": (py3langid, "py3langid"),
    "lingua": (lingua, "lingua-language-detector"),
    "lingua, low accuracy": (lingua_low, "lingua-language-detector"),
    "eld": (eld, "eld"),
    "whatlang": (whatlang, "whatlang-pyo3"),
    "cld2": (cld2, "pycld2"),
}


def sets_of(data: Path, pair: str) -> list[Path]:
    """The test sets of a language pair."""
    return sorted((data / pair).glob("test.*.tsv.xz"))


def check_data(parser: argparse.ArgumentParser, data: Path) -> None:
    """End the program with an error if there is no test set of a language pair."""
    for pair in PAIRS:
        if not sets_of(data, pair):
            parser.error(f"--data: {data} has no {pair}/test.*.tsv.xz")


def read_texts(data: Path) -> list[tuple[str, str]]:
    """The texts as (language, text): every distinct sentence, then the first words of the sentences."""
    sentences = dict.fromkeys(
        (language, text)
        for pair in PAIRS
        for path in sets_of(data, pair)
        for language, text in _columns(path, pair)
    )
    words = (
        (language, " ".join(text.split()[:number]))
        for language, text in sentences
        for number in NUM_WORDS
        if len(text.split()) > number
    )
    return [*sentences, *dict.fromkeys(words)]


def _columns(path: Path, pair: str) -> Iterator[tuple[str, str]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield from zip(pair.split("-"), line.rstrip("\n").split("\t")[-2:], strict=True)


def measure(name: str, data: Path, languages: Sequence[str], every: int) -> dict[str, object]:
    """Run one detector on the texts in `languages`. Its memory is the growth of this process."""
    texts = [(language, text) for language, text in read_texts(data)[::every] if language in languages]
    process = psutil.Process()
    before = process.memory_info().rss
    started = time.perf_counter()
    detect = DETECTORS[name][0](languages)
    detect("A first sentence, so that whatever is loaded late is loaded now.")
    load_s = time.perf_counter() - started
    right: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    started = time.perf_counter()
    for language, text in texts:
        bucket = next(limit for limit in BUCKETS if len(text) <= limit)
        seen[bucket] += 1
        right[bucket] += detect(text) == language
    elapsed_s = time.perf_counter() - started
    return {
        "num_texts": {str(bucket): seen[bucket] for bucket in BUCKETS},
        "accuracy": {str(bucket): round(right[bucket] / max(seen[bucket], 1), 4) for bucket in BUCKETS},
        "accuracy_all": round(sum(right.values()) / len(texts), 4),
        "microseconds_a_text": round(elapsed_s / len(texts) * 1e6, 1),
        "load_s": round(load_s, 2),
        "memory_mb": round((process.memory_info().rss - before) / 1e6, 1),
    }


def returned_untranslated(data: Path, languages: Sequence[str], every: int) -> dict[str, int]:
    """Count the texts that Transduce would return untranslated if the target were the detected language.

    num_wrong: the returned texts whose detected language is wrong.
    """
    detector = LanguageDetector(languages)
    texts = [(language, text) for language, text in read_texts(data)[::every] if language in languages]
    right = [
        language == found[0][0]
        for language, text in texts
        if (found := restrict_to(detector.detect(text), languages)) and is_in_target(text, found[0][0], found)
    ]
    return {"num_texts": len(texts), "num_returned_untranslated": len(right), "num_wrong": right.count(False)}


def version_of(distribution: str) -> str | None:
    """A distribution package's version. None if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a line for each detector and set of languages, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--every", type=int, default=1, help="take every n-th text (default: %(default)s)")
    parser.add_argument("--one", nargs=2, metavar=("DETECTOR", "LANGUAGES"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    check_data(parser, args.data)
    if args.one:
        print(json.dumps(measure(args.one[0], args.data, args.one[1].split(","), args.every)))
        return 0
    run = describe_run("benchmarks.detection", ["--data", "FOLDER", "--every", str(args.every)], python=None)
    found: dict[str, dict[str, object]] = {}
    for name, (_, distribution) in DETECTORS.items():
        version = version_of(distribution)
        for languages in LANGUAGE_SETS if version else ():
            command = [sys.executable, "-m", "benchmarks.detection", "--data", str(args.data)]
            command += ["--every", str(args.every)]
            done = subprocess.run(
                [*command, "--one", name, languages], check=True, capture_output=True, text=True, timeout=600
            )
            result = json.loads(done.stdout)
            found.setdefault(name, {"version": version})[languages] = result
            print(f"{name:22} {languages:9} {result}", flush=True)
    result = {
        **run,
        "detectors": found,
        "returned_untranslated": {
            languages: returned_untranslated(args.data, languages.split(","), args.every)
            for languages in LANGUAGE_SETS
        },
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
