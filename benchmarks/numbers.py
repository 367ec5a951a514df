"""Count the translations with lost numbers, added numbers or gaps, and compute chrF, over HTTP.

Uses the first sentences of a test set, and its first sentences with a digit. `gaps` counts translations with two spaces
in a row, or with a space before a full stop or a comma, unless their source has such a gap, too. `lost` and `added`
count sentences in which the number check (`app/text/number_check.py`) finds a lost or an added number. `carried` counts
sentences whose numbers were replaced by placeholders for the model.

    python -m benchmarks.numbers --data FOLDER

FOLDER holds en-de/test.newstest2013.tsv.xz, English and German in the last two columns.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from sacrebleu.metrics.chrf import CHRF

from app.text.number_check import changed_numbers
from benchmarks.machine import describe_run
from benchmarks.server_process import ServeOptions, ServerProcess

RESULT = Path(__file__).parent / "results" / "numbers.json"
TEXTS_A_REQUEST = 50
_GAP = re.compile(r"  | [.,](?:\s|$)")


def read_pairs(path: Path, limit: int) -> dict[str, list[tuple[str, str]]]:
    """The two selections of sentences, `first` and `numbered`, with their references."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        columns = [line.rstrip("\n").split("\t")[-2:] for line in lines]
    pairs = [(source, reference) for source, reference in columns]
    numbered = [pair for pair in pairs if re.search(r"\d", pair[0])]
    return {"first": pairs[:limit], "numbered": numbered[:limit]}


def translate(
    http: httpx.Client, texts: Sequence[str], source: str = "en", target: str = "de", **fields: object
) -> list[dict[str, Any]]:
    """Translate each sentence once. Returns the server's translations. fields: further fields of each request."""
    found: list[dict[str, Any]] = []
    for start in range(0, len(texts), TEXTS_A_REQUEST):
        some = list(texts[start : start + TEXTS_A_REQUEST])
        body = {"text": some, "source": source, "target": target, **fields}
        found += http.post("/v1/translate", json=body).raise_for_status().json()["translations"]
    return found


def measure(pairs: Sequence[tuple[str, str]], translations: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The figures of one selection of sentences."""
    texts = [str(each["text"]) for each in translations]
    changes = [
        changed_numbers(source, text, "en", "de") for (source, _), text in zip(pairs, texts, strict=True)
    ]
    fallbacks = [
        [name for one in each["segments"] for name in one.get("fallbacks", [])] for each in translations
    ]
    return {
        "sentences": len(pairs),
        "gaps": sum(
            bool(_GAP.search(text) and not _GAP.search(source))
            for (source, _), text in zip(pairs, texts, strict=True)
        ),
        "lost": sum(bool(change.missing) for change in changes),
        "added": sum(bool(change.added) for change in changes),
        "carried": sum("numbers_carried" in each for each in fallbacks),
        "chrf": round(CHRF().corpus_score(texts, [[reference for _, reference in pairs]]).score, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument(
        "--limit", type=int, default=400, help="sentences of each selection (default: %(default)s)"
    )
    args = parser.parse_args(arguments)
    chosen = read_pairs(args.data / "en-de" / "test.newstest2013.tsv.xz", args.limit)
    run = describe_run("benchmarks.numbers", ["--data", "FOLDER", "--limit", str(args.limit)], python=None)
    figures: dict[str, dict[str, float]] = {}
    with ServerProcess(ServeOptions(sys.executable, None)) as server:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=300.0, trust_env=False) as http:
            for name, pairs in chosen.items():
                figures[name] = measure(pairs, translate(http, [source for source, _ in pairs]))
                print(name, json.dumps(figures[name]), flush=True)
    result = {**run, "selections": figures}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
