"""Writes a model as Firefox's are, with random weights, for Marian and for `transduce import`.

Base size, 32,000 subwords, SSRUs in the decoder, int8 with scales of activations, and a binary shortlist. Marian's own
tools quantise the weights and make the shortlist.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.lib import format as npy
from numpy.typing import NDArray

from benchmarks.imports import sentencepiece_model, words
from model.imported import EOS, UNK

VOCAB_SIZE = 32_000
D_MODEL, D_FF, NUM_HEADS, NUM_LAYERS = 512, 2048, 8, 6
SOURCE_LENGTH, NUM_SENTENCES, NUM_CALIBRATED = 25, 32, 16
# Target subwords of each source subword in the table of the shortlist, and those that every shortlist has.
NUM_LIKELY, NUM_FREQUENT = 50, 50
# The first ids that are words. Those before are Marian's special ids, single characters and marks.
FIRST_WORD = 200
# Marian decodes until source length times this factor.
LENGTH_FACTOR = 1.14
OPTIONS: dict[str, Any] = {
    "type": "transformer", "tied-embeddings-all": True, "tied-embeddings": False, "tied-embeddings-src": False,
    "transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "dec-cell-base-depth": 2, "dec-cell-high-depth": 1,
    "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-top": "",
    "transformer-postprocess-emb": "d", "transformer-ffn-depth": 2, "transformer-ffn-activation": "relu",
    "transformer-dim-ffn": D_FF, "transformer-heads": NUM_HEADS, "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False, "transformer-train-positions": False,
    "transformer-depth-scaling": False, "transformer-no-projection": False, "transformer-pool": False,
    "transformer-guided-alignment-layer": "last", "transformer-aan-depth": 2, "transformer-aan-nogate": False,
    "transformer-aan-activation": "swish", "transformer-dim-aan": 2048, "dim-emb": D_MODEL, "dim-rnn": 1024,
    "enc-depth": NUM_LAYERS, "dec-depth": NUM_LAYERS, "enc-type": "bidirectional", "enc-cell": "gru",
    "enc-cell-depth": 1, "dim-vocabs": [VOCAB_SIZE, VOCAB_SIZE], "input-types": [], "layer-normalization": False,
    "lemma-dim-emb": 0, "factors-combine": "sum", "factors-dim-emb": 0, "output-omit-bias": False,
    "right-left": False, "skip": False, "ulr": False, "ulr-dim-emb": 0, "ulr-trainable-transformation": False,
    "bert-train-type-embeddings": True, "bert-type-vocab-size": 2, "version": "v1.9.56",
}  # fmt: skip

Array = NDArray[np.float32]


@dataclass(frozen=True)
class MarianModel:
    """The files of a model. ours: a folder for `transduce import`. sentences: the sources' pieces."""

    weights: Path
    vocabulary: Path
    shortlist: Path
    source: Path
    ours: Path
    sentences: list[list[str]]


class MarianError(RuntimeError):
    """A program of Marian failed. The message is the end of its output."""


def write_model(folder: Path, programs: Path) -> MarianModel:
    """Write the model. programs: the folder of `marian-decoder` and `marian-conv`. Raises MarianError."""
    random = np.random.default_rng(1)
    pieces = (EOS, UNK, *itertools.islice(words(), VOCAB_SIZE - 2))
    ours = folder / "firefox"
    ours.mkdir()
    found = MarianModel(
        weights=ours / "model.intgemm.alphas.bin",
        vocabulary=folder / "vocab.yml",
        shortlist=ours / "lex.50.50.s2t.bin",
        source=folder / "source.txt",
        ours=ours,
        sentences=_sentences(random, pieces, NUM_SENTENCES),
    )
    write_npz(folder / "model.npz", random_weights(random))
    (ours / "vocab.spm").write_bytes(sentencepiece_model(pieces))
    found.vocabulary.write_text(
        "".join(f"{json.dumps(piece, ensure_ascii=False)}: {index}\n" for index, piece in enumerate(pieces)),
        "utf-8",
    )
    write_lines(found.source, found.sentences)
    write_lines(folder / "calibrate.txt", _sentences(random, pieces, NUM_CALIBRATED))
    write_lexicon(folder / "lex.txt", random, pieces)
    _quantise(folder, programs, found)
    vocabularies = ["--vocabs", found.vocabulary, found.vocabulary]
    table = [folder / "lex.txt", NUM_FREQUENT, NUM_LIKELY, 0]
    run([programs / "marian-conv", "--shortlist", *table, "--dump", found.shortlist, *vocabularies])
    return found


def run(command: Sequence[object]) -> str:
    """Run a program and return its output. Raises MarianError."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        raise MarianError(done.stdout[-2000:])
    return done.stdout


def random_weights(random: np.random.Generator) -> dict[str, Array]:
    """Weights by Marian's names. The bias keeps the end token away, so that each sentence has the same length."""

    def glorot(rows: int, columns: int) -> Array:
        limit = (6 / (rows + columns)) ** 0.5
        return random.uniform(-limit, limit, (rows, columns)).astype(np.float32)

    def zeros(width: int) -> Array:
        return np.zeros((1, width), np.float32)

    def norm(name: str) -> dict[str, Array]:
        return {f"{name}_ln_scale": zeros(D_MODEL) + 1, f"{name}_ln_bias": zeros(D_MODEL)}

    bias = zeros(VOCAB_SIZE)
    bias[0, 0] = -1e4
    table = random.normal(0, D_MODEL**-0.5, (VOCAB_SIZE, D_MODEL)).astype(np.float32)
    weights = {"Wemb": table, "decoder_ff_logit_out_b": bias}
    for stack in ("encoder", "decoder"):
        for layer in range(1, NUM_LAYERS + 1):
            name = f"{stack}_l{layer}"
            if stack == "decoder":
                weights |= {f"{name}_rnn_{kind}": glorot(D_MODEL, D_MODEL) for kind in ("W", "Wf")}
                weights |= {f"{name}_rnn_bf": zeros(D_MODEL)} | norm(f"{name}_rnn_ffn")
            attention = f"{name}_{'self' if stack == 'encoder' else 'context'}"
            weights |= {f"{attention}_W{letter}": glorot(D_MODEL, D_MODEL) for letter in "qkvo"}
            weights |= {f"{attention}_b{letter}": zeros(D_MODEL) for letter in "qkvo"} | norm(
                f"{attention}_Wo"
            )
            weights |= {f"{name}_ffn_W1": glorot(D_MODEL, D_FF), f"{name}_ffn_b1": zeros(D_FF)}
            weights |= {f"{name}_ffn_W2": glorot(D_FF, D_MODEL), f"{name}_ffn_b2": zeros(D_MODEL)}
            weights |= norm(f"{name}_ffn_ffn")
    return weights


def write_npz(path: Path, weights: dict[str, Array]) -> None:
    """Write weights as Marian reads them: without the ZIP64 headers of `numpy.savez`."""
    text = yaml.safe_dump(OPTIONS).encode() + b"\0"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        arrays: dict[str, NDArray[Any]] = {"special:model.yml": np.frombuffer(text, np.int8), **weights}
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                npy.write_array(file, values, version=(1, 0))


def write_lines(path: Path, sentences: Sequence[Sequence[str]]) -> None:
    """Write sentences, one a line."""
    path.write_text("".join(f"{' '.join(pieces)}\n" for pieces in sentences), "utf-8")


def write_lexicon(path: Path, random: np.random.Generator, pieces: Sequence[str]) -> None:
    """Write a table of probabilities: `target source probability`. Frequent targets (Zipf) are likelier."""
    weights = 1 / np.arange(1, VOCAB_SIZE - FIRST_WORD + 1)
    sums = np.cumsum(weights / weights.sum())
    with path.open("w", encoding="utf-8") as file:
        for source in pieces[2:]:
            drawn = np.searchsorted(sums, random.random(2 * NUM_LIKELY)).clip(max=len(sums) - 1)
            targets = random.permutation(np.unique(drawn))[:NUM_LIKELY]
            for rank, target in enumerate(targets.tolist(), 1):
                file.write(f"{pieces[FIRST_WORD + target]} {source} {0.5 / rank:.5f}\n")


def _sentences(random: np.random.Generator, pieces: Sequence[str], count: int) -> list[list[str]]:
    ids = random.integers(FIRST_WORD, VOCAB_SIZE, (count, SOURCE_LENGTH)).tolist()
    return [[pieces[each] for each in row] for row in ids]


def _quantise(folder: Path, programs: Path, found: MarianModel) -> None:
    """Find the scales of activations on a few sentences, and write int8 weights."""
    decoder = [
        programs / "marian-decoder",
        "--models",
        folder / "model.npz",
        "--cpu-threads",
        1,
        "--beam-size",
        1,
    ]
    vocabularies = ["--vocabs", found.vocabulary, found.vocabulary]
    batches = [
        "--mini-batch",
        8,
        "--maxi-batch",
        2,
        "--max-length-factor",
        LENGTH_FACTOR,
        "--quiet-translation",
    ]
    files = ["--input", folder / "calibrate.txt", "--output", folder / "calibrated.txt"]
    output = run([*decoder, *vocabularies, *batches, *files, "--dump-quantmult", "--quiet"])
    lines = [line for line in output.splitlines() if line.startswith("Name: ")]
    (folder / "scales.txt").write_text("\n".join(lines) + "\n", "utf-8")
    script = programs.parent / "marian-dev" / "scripts" / "alphas" / "extract_stats.py"
    scaled = folder / "model.alphas.npz"
    run([sys.executable, script, folder / "scales.txt", folder / "model.npz", scaled])
    with np.load(scaled) as file:
        weights = {name: file[name] for name in file.files if name != "special:model.yml"}
    write_npz(scaled, weights)
    run([programs / "marian-conv", "--from", scaled, "--to", found.weights, "--gemm-type", "intgemm8"])
