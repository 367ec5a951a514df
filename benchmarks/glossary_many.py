"""Measure one to four glossary terms in a sentence: terms kept, their position in the sentence, and chrF.

Uses test sentences with four terms of `glossary_dense_terms.tsv` in the source and their German words in the reference.
Translates each over HTTP without terms, and with its first 1, 2, 3 and 4 terms. `behind_the_mark` counts translations
in which only terms follow the closing mark. `gaps` counts translations with two spaces in a row.

    python -m benchmarks.glossary_many --data FOLDER

FOLDER holds en-de/test.*.tsv.xz, English and German in the last two columns. The terms are pairs of words from the same
sentence pairs of the training data. Each word is the other's best match by the Dice coefficient, which is at least 0.5.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
from sacrebleu.metrics.chrf import CHRF

from app.text.glossary import Glossary, Term
from benchmarks.glossary import MAX_CHARACTERS, has_term, without
from benchmarks.machine import describe_run
from benchmarks.server_process import ServeOptions, ServerProcess

HERE = Path(__file__).parent
RESULT = HERE / "results" / "glossary_many.json"
NUM_TERMS = 4
_CLOSED = re.compile(r"[.!?][\"'\u201c\u201d\u2019)]*$")
_BEHIND = re.compile(r"[.!?][\"'\u201c\u201d\u2019)]*\s+([^.!?]*)$")


class Sample:
    """A sentence, its reference translation, and its terms whose translations are in the reference."""

    def __init__(self, source: str, reference: str, terms: Sequence[Term]) -> None:
        self.source, self.reference, self.terms = source, reference, list(terms)


def read_terms() -> list[Term]:
    """The glossary terms of this benchmark."""
    lines = (HERE / "glossary_dense_terms.tsv").read_text("utf-8").splitlines()
    return [Term(*line.split("\t")) for line in lines]


def read_samples(paths: Sequence[Path], limit: int) -> list[Sample]:
    """The first `limit` sentences of each test set that have at least NUM_TERMS terms."""
    glossary = Glossary(read_terms(), "en")
    found: list[Sample] = []
    for path in paths:
        of_file: list[Sample] = []
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                source, reference = line.rstrip("\n").split("\t")[-2:]
                hits = {hit.term.source: hit.term for hit in glossary.hits(source)}
                terms = [term for term in hits.values() if has_term(reference, term.target)]
                if len(source) <= MAX_CHARACTERS and len(terms) >= NUM_TERMS and len(of_file) < limit:
                    of_file.append(Sample(source, reference, terms[:NUM_TERMS]))
        found += of_file
    return found


def is_behind(sample: Sample, text: str, terms: Sequence[Term]) -> bool:
    """Whether only terms follow the translation's closing mark, and the source ends with its closing mark."""
    found = _BEHIND.search(text)
    is_closed = _CLOSED.search(sample.source) is not None
    if not is_closed or found is None or not re.search(r"\w", found[1]):
        return False
    return not re.search(r"\w", without(found[1], [term.target for term in terms]))


def measure(samples: Sequence[Sample], translations: Sequence[str], num_terms: int) -> dict[str, float]:
    """Figures of translations with a glossary of `num_terms` terms. With 0, all terms of a sample are looked for."""
    terms = [sample.terms[: num_terms or NUM_TERMS] for sample in samples]
    pairs = list(zip(samples, translations, terms, strict=True))
    kept = [has_term(text, term.target) for _, text, wanted in pairs for term in wanted]
    rest = [without(text, [term.target for term in wanted]) for _, text, wanted in pairs]
    references = [without(sample.reference, [term.target for term in wanted]) for sample, _, wanted in pairs]
    return {
        "terms_kept": round(sum(kept) / len(kept), 4),
        "behind_the_mark": sum(is_behind(*each) for each in pairs),
        "gaps": sum("  " in text for text in translations),
        "chrf": round(CHRF().corpus_score(translations, [[sample.reference for sample in samples]]).score, 2),
        "chrf_of_the_rest": round(CHRF().corpus_score(rest, [references]).score, 2),
    }


def translate(http: httpx.Client, sample: Sample, num_terms: int) -> str:
    """Translate a sentence with its first `num_terms` terms as its glossary."""
    body: dict[str, object] = {"text": sample.source, "source": "en", "target": "de", "splitting": "lines"}
    if num_terms:
        terms = {term.source: term.target for term in sample.terms[:num_terms]}
        body["glossary"] = {"terms": terms}
    answer = http.post("/v1/translate", json=body).raise_for_status().json()
    return str(answer["translations"][0]["text"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument(
        "--limit", type=int, default=60, help="sentences of a test set (default: %(default)s)"
    )
    args = parser.parse_args(arguments)
    paths = sorted((args.data / "en-de").glob("test.*.tsv.xz"))
    if not paths:
        parser.error(f"--data: {args.data} has no en-de/test.*.tsv.xz")
    run = describe_run(
        "benchmarks.glossary_many", ["--data", "FOLDER", "--limit", str(args.limit)], python=None
    )
    samples = read_samples(paths, args.limit)
    if not samples:
        parser.error(f"--data: no sentence has {NUM_TERMS} terms")
    figures: dict[str, dict[str, float]] = {}
    with ServerProcess(ServeOptions(sys.executable, None)) as server:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as http:
            for num_terms in range(NUM_TERMS + 1):
                translations = [translate(http, sample, num_terms) for sample in samples]
                figures[str(num_terms)] = measure(samples, translations, num_terms)
                print(num_terms, json.dumps(figures[str(num_terms)]), flush=True)
    result = {**run, "num_sentences": len(samples), "by_number_of_terms": figures}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
