"""Score bundles on test sets in both directions, through a real server: BLEU and chrF by sacreBLEU.

    python -m benchmarks.bleu --bundles bundles/en-de other --data newstest2013.tsv.xz flores200.tsv.xz \
      --output benchmarks/results/bleu.json

Each bundle is served with int8. A test set has the languages of the bundle's first pair in its last two columns. The
other direction is scored if the bundle has it. Translations have the bundle's length penalty.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from app.bundle import load_bundle
from benchmarks.machine import describe_run
from benchmarks.server_process import ServeOptions, ServerProcess
from model.corpus import Pair, read_data
from model.evaluate import score

SENTENCES_OF_A_REQUEST, NUM_CLIENTS, TIMEOUT_S = 64, 4, 300.0


def translate(
    server: ServerProcess, texts: Sequence[str], source: str, target: str, beam_size: int
) -> list[str]:
    """The translations of all texts, in order. Raises httpx.HTTPStatusError for a refused request."""
    parts = [
        texts[start : start + SENTENCES_OF_A_REQUEST]
        for start in range(0, len(texts), SENTENCES_OF_A_REQUEST)
    ]
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client:

        def one(part: Sequence[str]) -> list[str]:
            fields = {"text": part, "source": source, "target": target, "beam_size": beam_size}
            answer = client.post("/v1/translate", json=fields).raise_for_status().json()
            return [translation["text"] for translation in answer["translations"]]

        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            return [text for found in pool.map(one, parts) for text in found]


def measure(bundle: Path, sets: dict[str, list[Pair]], beam_size: int) -> list[dict[str, Any]]:
    """One row for each test set and direction."""
    pairs = load_bundle(bundle).manifest.language_pairs
    rows = []
    with ServerProcess(ServeOptions(sys.executable, bundle, precision="int8")) as server:
        for name, examples in sets.items():
            for pair in pairs:
                is_first = (pair.source, pair.target) == (pairs[0].source, pairs[0].target)
                sides = [example.source for example in examples], [example.target for example in examples]
                sources, references = sides if is_first else sides[::-1]
                scores = score(translate(server, sources, pair.source, pair.target, beam_size), references)
                rows.append({
                    "bundle": bundle.name,
                    "test_set": name,
                    "direction": f"{pair.source}-{pair.target}",
                    "sentences": len(examples),
                    "bleu": round(scores.bleu, 2),
                    "chrf": round(scores.chrf, 2),
                })  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> int:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bundles", type=Path, nargs="+", required=True)
    add("--data", nargs="+", required=True, help="test sets: FILE.tsv[.gz|.xz] or SOURCE:TARGET")
    add("--beam-size", type=int, default=4)
    add("--limit", type=int, help="only the first N pairs of each test set")
    add("--output", type=Path, help="JSON file")
    args = parser.parse_args()
    sets = {
        Path(name.partition(":")[0]).name.split(".tsv")[0]: list(read_data(name))[: args.limit]
        for name in args.data
    }
    rows = [row for bundle in args.bundles for row in measure(bundle, sets, args.beam_size)]
    if args.output:
        result = {**describe_run("benchmarks.bleu"), "beam_size": args.beam_size, "scores": rows}
        args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
