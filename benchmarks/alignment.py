"""Measure which decoder layer and heads give the best word alignment, on anchor words.

There is no gold alignment for the data. Instead, the benchmark uses anchors. An anchor is a number, a name or a
punctuation mark that occurs exactly once on each side of a sentence pair, so its alignment is certain. The model reads
the reference translation (teacher forcing). A target subword of an anchor counts as correct if the largest attention
weight of the step that predicts it falls on the anchor in the source. Heads and averages of heads are chosen on one
half of the pairs and scored on the other. `shifted` uses the attention of the next step, whose input is the subword.

    python -m benchmarks.alignment --bundle bundles/en-de --data val.tsv.xz --json benchmarks/results/alignment.json
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from app.bundle import Alignment, load_bundle
from app.text.segmentation import Offsets
from app.text.spans import source_offsets
from app.text.tokenizer import Tokenizer, TokenizerError
from benchmarks.machine import describe_run
from export.weights import default_alignment
from model.attention_maps import attention_weights
from model.checkpoint import load_model
from model.corpus import Pair, read_data
from model.transformer import Transformer

KINDS = {
    "number": re.compile(r"(?<![\w.,])\d+(?:[.,:]\d+)*(?![\w])"),
    "name": re.compile(r"(?<!\w)[A-Z][^\W\d_]{2,}(?!\w)"),
    "punctuation": re.compile(r"[.?!:;()]"),
}
Floats = NDArray[np.float32]
# A layer, and those of its heads whose attention is averaged.
Choice = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Anchor:
    """The same characters, once on each side of a pair. source, target: offsets in code points."""

    kind: str
    source: Offsets
    target: Offsets


@dataclass(frozen=True)
class Point:
    """One target subword of an anchor. step: its target position. sources: the source positions of the anchor."""

    kind: str
    step: int
    sources: tuple[int, ...]


def find_anchors(pair: Pair) -> Iterator[Anchor]:
    """The anchors of a pair. A name at the start of a side is left out, because any word has a capital there."""
    for kind, pattern in KINDS.items():
        sides = []
        for text in (pair.source, pair.target):
            found = defaultdict(list)
            for match in pattern.finditer(text):
                found[match.group()].append(match.span())
            sides.append(found)
        for text, (span, *others) in sides[0].items():
            translated = sides[1].get(text, [])
            is_certain = not others and len(translated) == 1
            if is_certain and not (kind == "name" and 0 in (span[0], translated[0][0])):
                yield Anchor(kind, span, translated[0])


def overlapping(offsets: Sequence[Offsets], span: Offsets) -> tuple[int, ...]:
    """The subwords that share a character with the span."""
    return tuple(
        index for index, (start, end) in enumerate(offsets) if max(start, span[0]) < min(end, span[1])
    )


def points_of(pair: Pair, tokenizer: Tokenizer, *, has_tag: bool = False) -> list[Point]:
    """The target subwords of a pair's anchors. has_tag: whether a tag is before the source's first subword."""
    source, target = source_offsets(tokenizer, pair.source), source_offsets(tokenizer, pair.target)
    return [
        Point(anchor.kind, step, tuple(has_tag + index for index in overlapping(source, anchor.source)))
        for anchor in find_anchors(pair)
        for step in overlapping(target, anchor.target)
    ]


class Tally:
    """How often each choice of heads is correct, by kind of anchor."""

    def __init__(self) -> None:
        self._num_correct: dict[tuple[Any, ...], int] = defaultdict(int)
        self._num_all: dict[str, int] = defaultdict(int)

    def add(self, weights: Floats, points: Iterable[Point], choices: Iterable[Choice], *, shift: int) -> None:
        """Count the anchor subwords of a pair, and for each choice of heads the correct ones.

        weights: cross-attention with the start token and the target as input, (layers, heads, len(target) + 1,
        len(source)). shift: 0 for the weights of the step that predicts a subword, 1 for those of the step after it.
        """
        points = list(points)
        for point in points:
            self._num_all[point.kind] += 1
        for choice in choices:
            best = weights[choice[0], list(choice[1])].mean(0).argmax(-1)
            for point in points:
                self._num_correct[choice, point.kind] += int(best[point.step + shift] in point.sources)

    def shares(self, choice: Choice) -> dict[str, float]:
        """The share of correct subwords by kind, and `mean` over the kinds."""
        shares = {
            kind: self._num_correct[choice, kind] / number for kind, number in sorted(self._num_all.items())
        }
        return {**shares, "mean": sum(shares.values()) / len(shares)}

    def counts(self) -> dict[str, int]:
        """The number of anchor subwords, by kind."""
        return dict(sorted(self._num_all.items()))


@dataclass(frozen=True)
class Example:
    """A pair's ids, end tokens included, and its anchors."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    points: tuple[Point, ...]


def read_examples(
    args: argparse.Namespace, tokenizer: Tokenizer, tag: str | None, max_length: int
) -> list[Example]:
    """The pairs that have an anchor and fit the model. tag: the subword before each source, or None."""
    examples = []
    for specification in args.data:
        for number, pair in enumerate(read_data(specification)):
            if args.limit is not None and number == args.limit:
                break
            try:
                source, target = (
                    tokenizer.encode_tagged(pair.source, tag).ids,
                    tokenizer.encode(pair.target).ids,
                )
                points = points_of(pair, tokenizer, has_tag=tag is not None)
            except TokenizerError:  # more runs of unknown characters than placeholders
                continue
            if points and max(len(source), len(target)) < max_length:
                examples.append(Example(source, target, tuple(points)))
    return examples


def measure(
    model: Transformer, examples: Iterable[Example], choices: Sequence[Choice], *, bos_id: int
) -> dict[int, Tally]:
    """Count the correct subwords of the examples. Returns the counts by the shift of `Tally.add`, 0 or 1."""
    tallies = {0: Tally(), 1: Tally()}
    for example in tqdm(list(examples), unit=" pairs"):
        _, _, weights = attention_weights(model, example.source, (bos_id, *example.target))
        for shift, tally in tallies.items():
            tally.add(weights, example.points, choices, shift=shift)
    return tallies


def candidate_choices(tally: Tally, num_layers: int, num_heads: int) -> list[Choice]:
    """For each layer: averages over its best head, its two best heads, and so on up to all."""
    choices = []
    for layer in range(num_layers):
        ranked = sorted(range(num_heads), key=lambda head: -tally.shares((layer, (head,)))["mean"])
        choices += [(layer, tuple(sorted(ranked[:number]))) for number in range(1, num_heads + 1)]
    return choices


def report(args: argparse.Namespace) -> dict[str, Any]:
    """Choose heads on one half and score them on the other."""
    bundle = load_bundle(args.bundle)
    model = load_model(args.bundle / "weights")
    tokenizer = Tokenizer(bundle.file("source.spm"))
    config, bos_id = model.config, bundle.manifest.special_ids.bos
    tag = bundle.manifest.language_pairs[0].source_prefix
    examples = read_examples(args, tokenizer, tag, bundle.manifest.max_source_length)
    if len(examples) < 2:
        sys.exit("--data: fewer than two pairs have an anchor and fit the model")
    heads: list[Choice] = [
        (n, (h,)) for n in range(config.num_decoder_layers) for h in range(config.num_heads)
    ]
    single = measure(model, examples[::2], heads, bos_id=bos_id)
    choices = candidate_choices(single[0], config.num_decoder_layers, config.num_heads)
    several = measure(model, examples[::2], choices, bos_id=bos_id)
    best = max(choices, key=lambda choice: several[0].shares(choice)["mean"])
    default = default_alignment(config)
    scored = list(dict.fromkeys([best, (default.layer, default.heads), *heads, *choices]))
    held_out = measure(model, examples[1::2], scored, bos_id=bos_id)
    return {
        "bundle": f"{bundle.manifest.name} {bundle.manifest.version}",
        "data": [Path(name).name for name in args.data],
        "num_pairs": len(examples),
        "num_anchor_subwords": {"choosing": single[0].counts(), "held_out": held_out[0].counts()},
        "alignment": Alignment(layer=best[0], heads=best[1]).model_dump(),
        "held_out": [_line(choice, held_out) for choice in scored],
    }


def _line(choice: Choice, tallies: dict[int, Tally]) -> dict[str, Any]:
    shares, shifted = (
        {kind: round(share, 4) for kind, share in tallies[shift].shares(choice).items()} for shift in (0, 1)
    )
    return {"layer": choice[0], "heads": list(choice[1]), **shares, "shifted": shifted}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--bundle", type=Path, required=True)
    add("--data", action="append", required=True, metavar="FILE.tsv", help="sentence pairs; may be repeated")
    add("--limit", type=int, metavar="N", help="use only the first N pairs of each file")
    add("--num-threads", type=int, default=1, help="threads of PyTorch (default: 1)")
    add("--json", type=Path, help="write the result to this file")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.num_threads)
    head = describe_run("benchmarks.alignment", arguments)
    result = report(args)
    print(
        f"{'layer':>5} {'heads':<10} {'number':>7} {'name':>7} {'punct.':>7} {'mean':>7} {'mean, shifted':>14}"
    )
    for line in result["held_out"]:
        shares = " ".join(f"{line.get(kind, math.nan):7.3f}" for kind in (*KINDS, "mean"))
        heads = ",".join(map(str, line["heads"]))
        print(f"{line['layer']:>5} {heads:<10} {shares} {line['shifted']['mean']:14.3f}")
    alignment = result["alignment"]
    print(f"best: --alignment {alignment['layer']}:{','.join(map(str, alignment['heads']))}")
    if args.json:
        args.json.write_text(json.dumps({**head, **result}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
