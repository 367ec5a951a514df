"""Compare two bundles of the same languages: the time of whole sentences with real weights, in turns.

Both translate the project's English test sentences with int8 weights, each into the target of its own first pair, whose
source must be English. Translations end by themselves, so a model that writes fewer subwords takes fewer steps. Neither
uses a shortlist, and both divide scores by length^0.6. Models with a start token for each target are not supported.
Each model runs in a process of its own, on one thread.

    python -m benchmarks.two_models --bundles bundles/en-de student --output benchmarks/results/student.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from app.bundle import load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.errors import BundleError
from benchmarks.engine.jobs import Job
from benchmarks.engine.worker import Worker
from benchmarks.machine import describe_run
from benchmarks.serving import read_sentences

BEAM_SIZES, GROUPS = (1, 4), (1, 8, 32)  # GROUPS: sentences that are submitted at once
NUM_SENTENCES, NUM_ROWS, MAX_TARGET_LENGTH = 64, 128, 100


def check(bundle: Path) -> None:
    """Raise BundleError for a bundle that cannot be measured."""
    loaded = load_bundle(bundle)
    problems = []
    if "int8" not in loaded.manifest.variants:
        problems.append("it has no int8 variant")
    if (source := loaded.manifest.language_pairs[0].source) != "en":
        problems.append(f"its first pair translates from {source}, not from en")
    if loaded.manifest.has_target_starts:
        problems.append("it has a start token for each target")
    if (longest := loaded.manifest.max_target_length) < MAX_TARGET_LENGTH:
        problems.append(f"its max_target_length is {longest}, not at least {MAX_TARGET_LENGTH}")
    if problems:
        raise BundleError(str(bundle), problems)


def groups_of(bundle: Path, size: int) -> list[list[list[int]]]:
    """The source ids of the test sentences with the tag of the first pair, in groups."""
    loaded = load_bundle(bundle)
    tokenizer, tag = load_tokenizers(loaded)[0], loaded.manifest.language_pairs[0].source_prefix
    ids = [list(tokenizer.encode_tagged(text, tag).ids) for text in read_sentences()[:NUM_SENTENCES]]
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def measure(bundles: list[Path], num_turns: int) -> list[dict[str, Any]]:
    """The figures of each case.

    ms_a_sentence: the milliseconds of a sentence, for each bundle; medians over the turns.
    subwords: the number of subwords of all translations, for each bundle.
    times_as_fast: the first bundle's time divided by the second's in the same turn; the median over the turns. So it
        may differ from the quotient of the medians.
    """
    settings = {"precision": "int8", "num_rows": NUM_ROWS, "num_threads": 1}
    workers = [Worker("ours", {"bundle": str(bundle), **settings}) for bundle in bundles]
    cases = []
    for beam_size in BEAM_SIZES:
        for size in GROUPS:
            jobs = [
                Job(groups_of(bundle, size), beam_size, MAX_TARGET_LENGTH, is_forced=False)
                for bundle in bundles
            ]
            turns = []
            for _ in range(num_turns):
                results = [worker.translate(job) for worker, job in zip(workers, jobs, strict=True)]
                turns.append([result.times_s[0] * 1e3 / NUM_SENTENCES for result in results])
            ratio = statistics.median(first / second for first, second in turns)
            cases.append(
                {
                    "beam_size": beam_size,
                    "sentences": size,
                    "ms_a_sentence": [round(statistics.median(own), 3) for own in zip(*turns, strict=True)],
                    "subwords": [sum(map(len, result.ids)) for result in results],
                    "times_as_fast": round(ratio, 3),
                }
            )
    for worker in workers:
        worker.close()
    return cases


def main() -> int:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundles", type=Path, nargs=2, required=True, help="the two bundles")
    parser.add_argument("--num-turns", type=int, default=7, help="turns of each model in a case (default: 7)")
    parser.add_argument("--output", type=Path, help="JSON file")
    args = parser.parse_args()
    try:
        for bundle in args.bundles:
            check(bundle)
    except BundleError as error:
        print(error, file=sys.stderr)
        return 1
    result = {**describe_run("benchmarks.two_models"), "cases": measure(args.bundles, args.num_turns)}
    for case in result["cases"]:
        print(json.dumps(case))
    if args.output:
        args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
