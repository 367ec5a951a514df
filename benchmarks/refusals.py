"""Count texts that the server refuses because of their language, by text length.

English and German are served, so a refusal of such a text is wrong. French and the other languages of
`tests/text/languages.tsv` are not served, so a refusal is correct. The texts in English, German and French are the
sentences of the corpora, and the first word, the first two words and the first four words of each sentence. The texts
in the other languages are the sentences of `languages.tsv`.

    python -m benchmarks.refusals --data FOLDER --output benchmarks/results/refusals.json

FOLDER has the same files as for `benchmarks.detection`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from app.text.detection import LanguageDetector, foreign_language
from benchmarks.detection import check_data, read_texts
from benchmarks.machine import ROOT, describe_run

RESULT = Path(__file__).with_name("results") / "refusals.json"
SENTENCES = ROOT / "tests" / "text" / "languages.tsv"
SERVED = ("de", "en")
# The greatest number of letters of each group.
BUCKETS = (5, 10, 20, 40, 80, 10_000)


def refusals(detector: LanguageDetector, texts: Sequence[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts by number of letters: texts, refused texts, and refused texts whose detected language is wrong."""
    groups: dict[str, Counter[str]] = {str(bucket): Counter() for bucket in BUCKETS}
    for language, text in texts:
        num_letters = sum(map(str.isalpha, text))
        group = groups[str(next(bucket for bucket in BUCKETS if num_letters <= bucket))]
        found = foreign_language(text, detector.detect(text), SERVED)
        group["texts"] += 1
        group["refused"] += found is not None
        group["by_another_name"] += found not in {None, language}
    return {bucket: dict(group) for bucket, group in groups.items() if group}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--every", type=int, default=1, help="take every n-th text (default: %(default)s)")
    args = parser.parse_args(arguments)
    check_data(parser, args.data)
    run = describe_run("benchmarks.refusals", ["--data", "FOLDER", "--every", str(args.every)], python=None)
    detector = LanguageDetector(SERVED)
    texts = read_texts(args.data)[:: args.every]
    lines = SENTENCES.read_text("utf-8").splitlines()
    sentences = [(language, text) for language, text in (line.split("\t") for line in lines)]
    groups = {
        "English and German": [each for each in texts if each[0] in SERVED],
        "French": [each for each in texts if each[0] == "fr"],
        "other languages": [each for each in sentences if each[0] not in {*SERVED, "fr"}],
    }
    found = {name: refusals(detector, group) for name, group in groups.items()}
    print(json.dumps(found, indent=1))
    result = {**run, "languages": len(detector.languages), "refusals": found}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
