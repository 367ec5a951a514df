"""Compare an imported model with Marian itself: the log-probability that each gives to Marian's own translations.

The models have random weights, in fp32: one with self-attention and one with SSRUs in the decoder.

    python -m benchmarks.marian.parity --programs build-marian/build --output benchmarks/results/marian_parity.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch

from benchmarks.imports import sentencepiece_model, words
from benchmarks.machine import describe_run
from benchmarks.marian.model import (
    FIRST_WORD,
    Sizes,
    random_weights,
    run,
    write_lines,
    write_npz,
    write_vocabulary,
)
from model.config import BOS_ID, EOS_ID
from model.imported import EOS, UNK
from model.marian import read_marian
from model.search import search_log_probabilities
from model.transformer import Transformer

SIZES = Sizes(2000, 256, 512, 4, 3, 3, has_ssru=False)
# LENGTHS: the minimum number of subwords of a source, and the maximum plus one.
NUM_SENTENCES, LENGTHS, SEED = 24, (5, 40), 3


def measure(programs: Path, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Write a model, let Marian translate, and compare the log-probabilities per subword. Raises MarianError."""
    random = np.random.default_rng(SEED)
    pieces = (EOS, UNK, *itertools.islice(words(), sizes.vocab_size - 2))
    write_npz(folder / "model.npz", random_weights(random, sizes), sizes)
    write_vocabulary(folder / "vocab.yml", pieces)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(sentencepiece_model(pieces))
    sources = [
        [pieces[each] for each in random.integers(FIRST_WORD, sizes.vocab_size, random.integers(*LENGTHS))]
        for _ in range(NUM_SENTENCES)
    ]
    write_lines(folder / "sources.txt", sources)
    run([
        programs / "marian-decoder", "--models", folder / "model.npz", "--vocabs", *[folder / "vocab.yml"] * 2,
        "--cpu-threads", 1, "--beam-size", 1, "--n-best", "--max-length-factor", 1, "--quiet",
        "--input", folder / "sources.txt", "--output", folder / "translations.txt",
    ])  # fmt: skip
    imported = read_marian(folder)
    model = Transformer(imported.config).eval()
    model.load_state_dict(imported.state)
    processor = sentencepiece.SentencePieceProcessor(model_proto=imported.source_spm)
    differences = []
    for source, line in zip(
        sources, (folder / "translations.txt").read_text("utf-8").splitlines(), strict=True
    ):
        _, translation, score, *_ = line.split(" ||| ")
        ids = [processor.piece_to_id(piece) for piece in source]
        target = [processor.piece_to_id(piece) for piece in translation.split()]
        ours = log_probability(model, [*ids, EOS_ID], target)
        differences.append(abs(ours - float(score.partition("=")[2])) / len(target))
    return {
        "decoder": imported.config.decoder,
        "sentences": len(differences),
        "mean_difference": float(np.mean(differences)),
        "largest_difference": max(differences),
    }


@torch.inference_mode()
def log_probability(model: Transformer, source: list[int], target: list[int]) -> float:
    """The log-probability of a target's tokens, without the end token."""
    total = 0.0
    for number, identity in enumerate(target):
        prefix = (BOS_ID, *target[:number])
        total += float(search_log_probabilities(model, source, [prefix], num_start=1)[0, identity])
    return total


def main() -> int:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, required=True, help="the folder of Marian's programs")
    parser.add_argument("--output", type=Path, help="JSON file")
    args = parser.parse_args()
    result = describe_run("benchmarks.marian.parity")
    models = []
    for has_ssru in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            models.append(measure(args.programs.resolve(), Path(folder), replace(SIZES, has_ssru=has_ssru)))
        print(json.dumps(models[-1]))
    if args.output:
        args.output.write_text(json.dumps({**result, "models": models}, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
