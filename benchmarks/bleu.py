"""Score bundles on test sets in both directions, through a real server: BLEU and chrF by sacreBLEU.

    python -m benchmarks.bleu --bundles bundles/en-de other --data newstest2013.tsv.xz flores200.tsv.xz \
      --output benchmarks/results/bleu.json

Each bundle is served with int8. A test set has the languages of the bundle's first pair in its last two columns. The
other direction is scored if the bundle has it. The searches use the bundle's length penalty.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from app.bundle import load_bundle
from app.language_pairs import LanguagePair
from benchmarks.machine import describe_run
from benchmarks.numbers import translate
from benchmarks.server_process import ServeOptions, ServerProcess
from model.corpus import Pair, read_data
from model.evaluate import score

TIMEOUT_S = 300.0


def directions(pairs: Sequence[LanguagePair]) -> list[LanguagePair]:
    """The first of a bundle's pairs, and the pair of the other direction if the bundle has it."""
    first = pairs[0]
    return [first, *(pair for pair in pairs if (pair.target, pair.source) == (first.source, first.target))]


def measure(bundle: Path, sets: dict[str, list[Pair]], beam_size: int) -> list[dict[str, Any]]:
    """One row for each test set and direction."""
    pairs = directions(load_bundle(bundle).manifest.language_pairs)
    rows = []
    with (
        ServerProcess(ServeOptions(sys.executable, bundle, precision="int8")) as server,
        httpx.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as http,
    ):
        for name, examples in sets.items():
            for pair in pairs:
                sides = [example.source for example in examples], [example.target for example in examples]
                sources, references = sides if pair == pairs[0] else sides[::-1]
                found = translate(http, sources, pair.source, pair.target, beam_size=beam_size)
                scores = score([translation["text"] for translation in found], references)
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
    names = [Path(name.partition(":")[0]).name.split(".tsv")[0] for name in args.data]
    if len(set(names)) < len(names):
        parser.error("two test sets have the same name")
    sets = {name: list(read_data(data))[: args.limit] for name, data in zip(names, args.data, strict=True)}
    head = describe_run("benchmarks.bleu")
    rows = [row for bundle in args.bundles for row in measure(bundle, sets, args.beam_size)]
    if args.output:
        result = {**head, "beam_size": args.beam_size, "scores": rows}
        args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
