"""Measure the effect of a glossary on translations: terms kept, BLEU, chrF, and time.

Uses test sentences that have a term of `glossary_terms.tsv` in the source and its German word in the reference. So the
glossary requires only words of the reference. The methods alternate over HTTP, with one sentence per request:

- `none`: no glossary.
- `server`: the server's glossary. It translates as `none`, and then as `placeholders` if a term is missing.
- `placeholders`: a placeholder replaces every term (`{term0}`).
- `n_best`: a beam of 16 returns 16 hypotheses. The best one with all terms is taken. If none has all terms, the best of
  all hypotheses is taken.
- `inserted`: forced decoding. It tries a missing term before each word of the translation. The words before that place
  and the term become the `target_prefix`, and the search continues from there. The candidate with the most terms is
  kept, and among candidates with equally many terms the one with the best score. Then the next missing term is
  inserted. This is not a grid beam search, which the engine does not have.

A term counts as kept if a word begins with it, ignoring case, and has at most three more letters. chrF is computed for
whole sentences, and again after these words are removed from translation and reference.

    python -m benchmarks.glossary --data FOLDER

FOLDER holds en-de/test.*.tsv.xz, English and German in the last two columns.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from app.text.glossary import Glossary, Term
from benchmarks.machine import describe_run
from benchmarks.server_process import ServeOptions, ServerProcess

HERE = Path(__file__).parent
RESULT = HERE / "results" / "glossary.json"
NUM_HYPOTHESES = 16
MAX_CHARACTERS = 300
MAX_ENDING = 3


@dataclass(frozen=True)
class Sample:
    """A sentence, its reference translation, and the German words of the glossary terms in the sentence."""

    source: str
    reference: str
    terms: tuple[str, ...]


def read_terms() -> list[Term]:
    """The glossary terms of this benchmark."""
    lines = (HERE / "glossary_terms.tsv").read_text("utf-8").splitlines()
    return [Term(*line.split("\t")) for line in lines]


def has_term(text: str, term: str) -> bool:
    """Whether the German text contains the term, perhaps with an ending."""
    return re.search(_pattern(term), text, re.IGNORECASE) is not None


def has_all_terms(text: str, sample: Sample) -> bool:
    """Whether the translation contains all terms."""
    return all(has_term(text, term) for term in sample.terms)


def without(text: str, terms: Sequence[str]) -> str:
    """The text without the terms' words."""
    for term in terms:
        text = re.sub(_pattern(term), "", text, flags=re.IGNORECASE)
    return " ".join(text.split())


def _pattern(term: str) -> str:
    return rf"\b{re.escape(term)}\w{{0,{MAX_ENDING}}}\b"


def read_samples(path: Path, terms: Sequence[Term], limit: int) -> list[Sample]:
    """The first `limit` sentences of a test set that have terms, if the reference has all of these terms."""
    glossary = Glossary(terms, "en")
    found = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            source, reference = line.rstrip("\n").split("\t")[-2:]
            wanted = tuple(dict.fromkeys(hit.term.target for hit in glossary.hits(source)))
            fits = len(source) <= MAX_CHARACTERS and all(has_term(reference, term) for term in wanted)
            if wanted and fits:
                found.append(Sample(source, reference, wanted))
            if len(found) == limit:
                break
    return found


class GlossaryMethods:
    """The methods to translate a sample. The result file has their names as keys."""

    def __init__(self, http: httpx.Client, terms: Sequence[Term]) -> None:
        self._http = http
        self._glossary = Glossary(terms, "en")
        entries = "".join(f"{term.source}\t{term.target}\n" for term in terms)
        body = {"name": "terms", "source_lang": "en", "target_lang": "de", "entries_format": "tsv"}
        self._glossary_id = self._post("/v2/glossaries", {**body, "entries": entries})["glossary_id"]

    def none(self, sample: Sample) -> str:
        """Translate without a glossary."""
        return _text(self._translate(sample.source))

    def server(self, sample: Sample) -> str:
        """Translate with the server's glossary."""
        return _text(self._translate(sample.source, glossary={"id": self._glossary_id}))

    def placeholders(self, sample: Sample) -> str:
        """Translate with a placeholder for every term."""
        source, done = "", 0
        hits = list(self._glossary.hits(sample.source))
        for index, hit in enumerate(hits):
            source += f"{sample.source[done : hit.span.start]}{{term{index}}}"
            done = hit.span.end
        text = _text(self._translate(source + sample.source[done:]))
        for index, hit in enumerate(hits):
            text = text.replace(f"{{term{index}}}", hit.replacement)
        return text

    def n_best(self, sample: Sample) -> str:
        """The best hypothesis that contains the terms."""
        (found,) = self._translate(sample.source, beam_size=NUM_HYPOTHESES, num_hypotheses=NUM_HYPOTHESES)
        texts = [str(each["text"]) for each in found["hypotheses"]]
        fitting = (text for text in texts if has_all_terms(text, sample))
        return next(fitting, texts[0])

    def inserted(self, sample: Sample) -> str:
        """Insert each missing term at its best position."""
        text = self.none(sample)
        for term in sample.terms:
            if has_term(text, term):
                continue
            places = [0, *(space.start() for space in re.finditer(" ", text))]
            prefixes = [f"{text[:place]} {term}".lstrip() for place in places]
            found = self._translate([sample.source] * len(prefixes), target_prefix=prefixes)
            text = _text([max(found, key=lambda each: _rank(each, sample.terms))])
        return text

    def _translate(self, text: str | list[str], **more: object) -> list[dict[str, Any]]:
        body = {"text": text, "source": "en", "target": "de", "splitting": "lines", **more}
        found: list[dict[str, Any]] = self._post("/v1/translate", body)["translations"]
        return found

    def _post(self, path: str, body: dict[str, object]) -> Any:
        return self._http.post(path, json=body).raise_for_status().json()


def _text(translations: Sequence[dict[str, Any]]) -> str:
    (found,) = translations
    return str(found["text"])


def _rank(translation: dict[str, Any], terms: Sequence[str]) -> tuple[int, float]:
    """The number of terms, and the score: log-probability, forced tokens included, normalised by length."""
    kept = sum(has_term(translation["text"], term) for term in terms)
    return kept, sum(segment["score"] for segment in translation["segments"])


def translate(
    samples: Sequence[Sample], methods: GlossaryMethods
) -> dict[str, tuple[list[str], list[float]]]:
    """By method: the translations, and the seconds of each. The order of the methods rotates."""
    order = [methods.none, methods.server, methods.placeholders, methods.n_best, methods.inserted]
    translations: dict[str, tuple[list[str], list[float]]] = {method.__name__: ([], []) for method in order}
    for sample in samples:
        for method in order:
            started_at = time.perf_counter()
            text = method(sample)
            took_s = time.perf_counter() - started_at
            translations[method.__name__][0].append(text)
            translations[method.__name__][1].append(took_s)
        order = order[1:] + order[:1]
    return translations


def measure(
    samples: Sequence[Sample], translations: Sequence[str], times_s: Sequence[float], plain: Sequence[str]
) -> dict[str, float]:
    """One method's figures. plain: the translations without a glossary.

    median_ms_where_missing: the median over the sentences whose plain translation lacks a term. Raises StatisticsError
    if there is no such sentence.
    """
    hard_s = [
        took_s
        for sample, text, took_s in zip(samples, plain, times_s, strict=True)
        if not has_all_terms(text, sample)
    ]
    pairs = list(zip(samples, translations, strict=True))
    kept = [has_term(text, term) for sample, text in pairs for term in sample.terms]
    rest = [without(text, sample.terms) for sample, text in pairs]
    references = [sample.reference for sample in samples]
    rest_of_references = [without(sample.reference, sample.terms) for sample in samples]
    chrf = CHRF()
    return {
        "terms_kept": round(sum(kept) / len(kept), 4),
        "bleu": round(BLEU().corpus_score(translations, [references]).score, 2),
        "chrf": round(chrf.corpus_score(translations, [references]).score, 2),
        "chrf_of_the_rest": round(chrf.corpus_score(rest, [rest_of_references]).score, 2),
        "median_ms": round(statistics.median(times_s) * 1000, 1),
        "median_ms_where_missing": round(statistics.median(hard_s) * 1000, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument(
        "--limit", type=int, default=100, help="sentences of a test set (default: %(default)s)"
    )
    args = parser.parse_args(arguments)
    paths = sorted((args.data / "en-de").glob("test.*.tsv.xz"))
    if not paths:
        parser.error(f"--data: {args.data} has no en-de/test.*.tsv.xz")
    run = describe_run("benchmarks.glossary", ["--data", "FOLDER", "--limit", str(args.limit)], python=None)
    terms = read_terms()
    sets: dict[str, object] = {}
    with ServerProcess(ServeOptions(sys.executable, None)) as server:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as http:
            methods = GlossaryMethods(http, terms)
            for path in paths:
                samples = read_samples(path, terms, args.limit)
                translations = translate(samples, methods)
                plain = translations["none"][0]
                figures = {name: measure(samples, *found, plain) for name, found in translations.items()}
                name = path.name.split(".")[1]
                num_terms = sum(len(sample.terms) for sample in samples)
                sets[name] = {"num_sentences": len(samples), "num_terms": num_terms, **figures}
                print(name, json.dumps(sets[name]), flush=True)
    result = {
        **run,
        "num_entries": len(terms),
        "metrics": "BLEU and chrF of sacrebleu with its defaults",
        "sets": sets,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
