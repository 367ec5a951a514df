"""Measures what a bundle's shortlist gains and costs: time, BLEU and chrF with it and without it, in turns.

    python -m benchmarks.shortlist --bundle my-bundle --test test.tsv --json benchmarks/results/shortlist.json

The test set has the columns source and target, in the languages of the bundle's first pair. The shortlists of this pair
and of its reverse are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu

from app.bundle import Bundle, load_bundle
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.stats import StepStats
from app.runtime.bundle_limits import limits_of
from app.runtime.ort_runner import RunnerConfig, load_variant
from app.shortlist_file import SHORTLIST, ShortlistTable, read_shortlists
from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from app.workers.thread_worker import ThreadWorker
from benchmarks.engine.ours import FOREVER, LIMITS
from benchmarks.machine import describe_run
from export.golden import start_id_of
from model.corpus import Pair, read_data

GROUPS = (1, 8, 32)  # sentences that are submitted at once
NUM_ROWS = 128
EXTRA_LENGTH = 50
# The maximum number of sentences that a timing translates. They are divided into groups of one of the sizes in GROUPS.
NUM_TIMED = 32


@dataclass(frozen=True)
class Direction:
    """A direction of the bundle that has a shortlist, and its part of the test set.

    table: the index of its shortlist in the bundle. start_id: the id of its pair's `target_start`; None if the pair has
    no `target_start`.
    """

    name: str
    table: int
    start_id: int | None
    sources: list[Encoded]
    references: list[str]


class Model:
    """The int8 variant with its shortlists in an engine, on one thread. steps: the statistics of all steps."""

    def __init__(self, bundle: Bundle) -> None:
        config = RunnerConfig(
            "int8", bundle.manifest.variants["int8"], limits_of(bundle.manifest, NUM_ROWS), has_shortlist=True
        )
        runner = load_variant(bundle.path, config, device="cpu", kernels="native", num_threads=1)
        self.tables: Sequence[ShortlistTable] = read_shortlists(bundle.path / SHORTLIST)
        self.steps: list[StepStats] = []
        self.engine = Engine([ThreadWorker(runner)], settings=LIMITS, on_steps=self.steps.extend)
        self._defaults = bundle.manifest.decoding
        # One token of the longest target is its start token.
        self._longest = bundle.manifest.max_target_length - 1

    async def decode(
        self, sources: Sequence[Encoded], beam_size: int, shortlist: int | None, start_id: int | None
    ) -> list[tuple[int, ...]]:
        """The ids of each source's best hypothesis. All sources are submitted at once."""
        options = DecodingOptions(
            beam_size=beam_size,
            length_penalty=self._defaults.length_penalty,
            alpha=self._defaults.alpha,
            shortlist=shortlist,
            start_id=start_id,
        )
        futures = [
            self.engine.submit(
                source.ids,
                replace(options, max_target_length=min(len(source.ids) + EXTRA_LENGTH, self._longest)),
                request_id="",
                caller="",
                deadline=FOREVER,
            )
            for source in sources
        ]
        return [result.hypotheses[0].ids for result in await asyncio.gather(*futures)]


async def times(model: Model, direction: Direction, num_rounds: int) -> list[dict[str, Any]]:
    """Median milliseconds a sentence, by beam size and by the number of sentences that are submitted at once."""
    found, timed = [], direction.sources[:NUM_TIMED]
    for beam_size in (1, 4):
        for count in GROUPS:
            spent: dict[int | None, list[float]] = {None: [], direction.table: []}
            for _ in range(num_rounds):
                for shortlist, seconds in spent.items():
                    started_at = time.perf_counter()
                    for begin in range(0, len(timed), count):
                        group = timed[begin : begin + count]
                        await model.decode(group, beam_size, shortlist, direction.start_id)
                    seconds.append(time.perf_counter() - started_at)
            whole, listed = (statistics.median(seconds) / len(timed) * 1e3 for seconds in spent.values())
            found.append(
                {
                    "beam_size": beam_size,
                    "sentences": count,
                    "whole_ms": round(whole, 3),
                    "shortlist_ms": round(listed, 3),
                    "speedup": round(whole / listed, 3),
                }
            )
    return found


async def scores(model: Model, target: Tokenizer, direction: Direction) -> dict[str, Any]:
    """BLEU and chrF of beam 4, with the shortlist and without it.

    target: the tokenizer of targets. In the result, share_equal is the share of the sentences whose subwords are equal
    both times, and share_decoded_again the share that is decoded again without the shortlist. mean_size is the mean
    number of subwords that the shortlist allows a sentence.
    """
    sources, references, table = direction.sources, direction.references, direction.table
    found: dict[str, Any] = {"num_sentences": len(sources)}
    ids = {}
    for name, shortlist in (("whole", None), ("shortlist", table)):
        model.steps.clear()
        ids[name] = await model.decode(sources, 4, shortlist, direction.start_id)
        texts = [
            target.decode(each, source.verbatim_spans).text
            for each, source in zip(ids[name], sources, strict=True)
        ]
        found[f"{name}_bleu"] = round(sacrebleu.corpus_bleu(texts, [references]).score, 2)
        found[f"{name}_chrf"] = round(sacrebleu.corpus_chrf(texts, [references]).score, 2)
        found["share_decoded_again"] = round(sum(step.num_widened for step in model.steps) / len(sources), 4)
    same = [one == other for one, other in zip(ids["whole"], ids["shortlist"], strict=True)]
    found["share_equal"] = round(sum(same) / len(same), 4)
    found["mean_size"] = round(float(np.mean([len(model.tables[table].shortlist(s.ids)) for s in sources])))
    return found


def directions_of(
    bundle: Bundle, tokenizers: tuple[Tokenizer, Tokenizer], lines: Sequence[Pair]
) -> list[Direction]:
    """The first pair and its reverse, if they have shortlists. Prints on stderr which pairs are left out.

    tokenizers: of sources and of targets. lines: of the test set. Lines that are too long or that the tokenizer refuses
    are left out, too. Ends the program if no line of a direction is left.
    """
    manifest, (source, target) = bundle.manifest, tokenizers
    assert manifest.shortlist is not None
    first, found = manifest.language_pairs[0], []
    for table, index in enumerate(manifest.shortlist.pairs):
        pair = manifest.language_pairs[index]
        name = f"{pair.source}-{pair.target}"
        is_reversed = (pair.source, pair.target) == (first.target, first.source)
        if not is_reversed and pair != first:
            print(f"{name} is left out: the test set is {first.source}-{first.target}", file=sys.stderr)
            continue
        texts = [(line.target, line.source) if is_reversed else (line.source, line.target) for line in lines]
        sources, references = [], []
        for text, reference in texts:
            try:
                encoded = source.encode_tagged(text, pair.source_prefix)
            except TokenizerError:
                continue
            if len(encoded.ids) <= manifest.max_source_length:
                sources.append(encoded)
                references.append(reference)
        if not sources:
            sys.exit(f"{name}: no line of the test set fits the model")
        found.append(Direction(name, table, start_id_of(target, pair), sources, references))
    return found


async def run(args: argparse.Namespace, bundle: Bundle) -> list[dict[str, Any]]:
    """Measure the directions of the test set that have a shortlist."""
    lines = list(read_data(str(args.test)))
    lines = lines[:: max(1, len(lines) // args.num_lines)][: args.num_lines]
    tokenizers = load_tokenizers(bundle)
    directions = directions_of(bundle, tokenizers, lines)
    model = Model(bundle)
    model.engine.start()
    try:
        return [
            {
                "direction": direction.name,
                "test_set": args.test.name,
                "quality": await scores(model, tokenizers[1], direction),
                "times": await times(model, direction, args.num_rounds),
            }
            for direction in directions
        ]
    finally:
        await model.engine.close(drain_timeout_s=0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bundle", type=Path, required=True, help="a bundle with a shortlist and an int8 variant")
    add("--test", type=Path, required=True, help="FILE.tsv[.gz|.xz] with source and target")
    add(
        "--num-lines",
        type=int,
        default=500,
        help="the maximum number of lines of the test set that are used; they are evenly spaced (default: 500)",
    )
    add("--num-rounds", type=int, default=7, help="turns of each case (default: 7)")
    add("--json", type=Path, help="write the result to this file")
    args = parser.parse_args(arguments)
    head = describe_run("benchmarks.shortlist", arguments)
    result = {**head, "directions": asyncio.run(run(args, load_bundle(args.bundle)))}
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if args.json:
        args.json.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
