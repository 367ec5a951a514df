"""Writes a model as Firefox's are, with random weights, for Marian and for `transduce import`.

Base size, 32,000 subwords, SSRUs in the decoder, int8 with scales of activations, and a binary shortlist. Marian's own
tools quantise the weights and make the shortlist.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.lib import format as npy
from numpy.typing import NDArray

from benchmarks.imports import sentencepiece_model, words
from benchmarks.marian.process import MarianError, MarianFiles
from model.imported import EOS, UNK

VOCAB_SIZE = 32_000
# Subwords of each sentence, sentences to translate, and sentences from which the scales of activations are found.
SOURCE_LENGTH, NUM_SENTENCES, NUM_CALIBRATED = 25, 32, 16
# The shortlist's table has NUM_LIKELY target subwords for each source subword. The NUM_FREQUENT most frequent target
# subwords are in every shortlist.
NUM_LIKELY, NUM_FREQUENT = 50, 50
# The lowest id in the sentences, and the lowest id of a target in the shortlist's table. Lower ids include Marian's
# special ids, characters and marks.
FIRST_WORD = 200
# The id of the end token in the vocabularies of random weights.
END_ID = 0
# The longest target of Marian, as a multiple of the length of its source.
LENGTH_FACTOR = 1.14
# Marian's options that do not depend on the sizes.
OPTIONS: dict[str, Any] = {
    "type": "transformer", "tied-embeddings-all": True, "tied-embeddings": False, "tied-embeddings-src": False,
    "dec-cell": "ssru", "dec-cell-base-depth": 2, "dec-cell-high-depth": 1,
    "transformer-postprocess-emb": "d", "transformer-ffn-depth": 2, "transformer-ffn-activation": "relu",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False, "transformer-train-positions": False,
    "transformer-depth-scaling": False, "transformer-no-projection": False, "transformer-pool": False,
    "transformer-guided-alignment-layer": "last", "transformer-aan-depth": 2, "transformer-aan-nogate": False,
    "transformer-aan-activation": "swish", "transformer-dim-aan": 2048, "dim-rnn": 1024,
    "enc-type": "bidirectional", "enc-cell": "gru",
    "enc-cell-depth": 1, "input-types": [], "layer-normalization": False,
    "lemma-dim-emb": 0, "factors-combine": "sum", "factors-dim-emb": 0, "output-omit-bias": False,
    "right-left": False, "skip": False, "ulr": False, "ulr-dim-emb": 0, "ulr-trainable-transformation": False,
    "bert-train-type-embeddings": True, "bert-type-vocab-size": 2, "version": "v1.9.56",
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model with one embedding. has_ssru: whether its decoder has SSRUs."""

    vocab_size: int
    d_model: int
    d_ff: int
    num_heads: int
    num_encoder_layers: int
    num_decoder_layers: int
    has_ssru: bool
    is_pre_norm: bool = False

    def options(self) -> dict[str, Any]:
        """Marian's options."""
        return {
            **OPTIONS,
            "transformer-decoder-autoreg": "rnn" if self.has_ssru else "self-attention",
            "transformer-preprocess": "n" if self.is_pre_norm else "",
            "transformer-postprocess": "da" if self.is_pre_norm else "dan",
            "transformer-postprocess-top": "n" if self.is_pre_norm else "",
            "transformer-dim-ffn": self.d_ff,
            "transformer-heads": self.num_heads,
            "dim-emb": self.d_model,
            "enc-depth": self.num_encoder_layers,
            "dec-depth": self.num_decoder_layers,
            "dim-vocabs": [self.vocab_size, self.vocab_size],
        }


BASE = Sizes(VOCAB_SIZE, 512, 2048, 8, 6, 6, has_ssru=True)

Array = NDArray[np.float32]


@dataclass(frozen=True)
class MarianModel:
    """The files of a model.

    source: the sentences to translate, as text. ours: a folder for `transduce import`. sentences: the pieces of the
    sentences in `source`.
    """

    files: MarianFiles
    shortlist: Path
    source: Path
    ours: Path
    sentences: list[list[str]]


def write_model(folder: Path, programs: Path) -> MarianModel:
    """Write the model. programs: the folder `build` that `build.sh` makes. Raises MarianError."""
    random = np.random.default_rng(1)
    pieces = (EOS, UNK, *itertools.islice(words(), VOCAB_SIZE - 2))
    ours = folder / "firefox"
    ours.mkdir()
    found = MarianModel(
        files=MarianFiles(ours / "model.intgemm.alphas.bin", folder / "vocab.yml", programs),
        shortlist=ours / "lex.50.50.s2t.bin",
        source=folder / "source.txt",
        ours=ours,
        sentences=_sentences(random, pieces, NUM_SENTENCES),
    )
    write_npz(folder / "model.npz", random_weights(random, BASE), BASE)
    (ours / "vocab.spm").write_bytes(sentencepiece_model(pieces))
    write_vocabulary(found.files.vocabulary, pieces)
    write_lines(found.source, found.sentences)
    write_lines(folder / "calibrate.txt", _sentences(random, pieces, NUM_CALIBRATED))
    write_lexicon(folder / "lex.txt", random, pieces)
    quantise(folder, found.files, BASE)
    vocabularies = ["--vocabs", *[found.files.vocabulary] * 2]
    table = [folder / "lex.txt", NUM_FREQUENT, NUM_LIKELY, 0]
    run([programs / "marian-conv", "--shortlist", *table, "--dump", found.shortlist, *vocabularies])
    return found


def run(command: Sequence[object], environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return its output. environment: changes of the environment. Raises MarianError."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    if done.returncode:
        raise MarianError(done.stdout[-2000:])
    return done.stdout


def random_weights(random: np.random.Generator, sizes: Sizes) -> dict[str, Array]:
    """Random weights of a post-norm model, by Marian's names.

    The output bias prevents the end token, so that lengths depend on the sources alone.
    """
    width = sizes.d_model

    def glorot(rows: int, columns: int) -> Array:
        limit = (6 / (rows + columns)) ** 0.5
        return random.uniform(-limit, limit, (rows, columns)).astype(np.float32)

    def zeros(columns: int) -> Array:
        return np.zeros((1, columns), np.float32)

    def norm(name: str) -> dict[str, Array]:
        return {f"{name}_ln_scale": zeros(width) + 1, f"{name}_ln_bias": zeros(width)}

    bias = zeros(sizes.vocab_size)
    bias[0, END_ID] = -1e4
    table = random.normal(0, width**-0.5, (sizes.vocab_size, width)).astype(np.float32)
    weights = {"Wemb": table, "decoder_ff_logit_out_b": bias}
    for stack, depth in (("encoder", sizes.num_encoder_layers), ("decoder", sizes.num_decoder_layers)):
        for layer in range(1, depth + 1):
            name = f"{stack}_l{layer}"
            attentions = ["self"] if stack == "encoder" else ["self", "context"]
            if stack == "decoder" and sizes.has_ssru:
                attentions = ["context"]
                weights |= {f"{name}_rnn_{kind}": glorot(width, width) for kind in ("W", "Wf")}
                weights |= {f"{name}_rnn_bf": zeros(width)} | norm(f"{name}_rnn_ffn")
            for attention in attentions:
                weights |= {f"{name}_{attention}_W{letter}": glorot(width, width) for letter in "qkvo"}
                weights |= {f"{name}_{attention}_b{letter}": zeros(width) for letter in "qkvo"}
                weights |= norm(f"{name}_{attention}_Wo")
            weights |= {f"{name}_ffn_W1": glorot(width, sizes.d_ff), f"{name}_ffn_b1": zeros(sizes.d_ff)}
            weights |= {f"{name}_ffn_W2": glorot(sizes.d_ff, width), f"{name}_ffn_b2": zeros(width)}
            weights |= norm(f"{name}_ffn_ffn")
    return weights


def write_npz(path: Path, weights: dict[str, Array], sizes: Sizes) -> None:
    """Write weights as Marian reads them: without the ZIP64 headers of `numpy.savez`."""
    text = yaml.safe_dump(sizes.options()).encode() + b"\0"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        arrays: dict[str, NDArray[Any]] = {"special:model.yml": np.frombuffer(text, np.int8), **weights}
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                npy.write_array(file, values, version=(1, 0))


def write_vocabulary(path: Path, pieces: Sequence[str]) -> None:
    """Write the pieces in the order of their ids, as Marian reads them."""
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {index}\n" for index, piece in enumerate(pieces))
    path.write_text("".join(lines), "utf-8")


def write_lines(path: Path, sentences: Sequence[Sequence[str]]) -> None:
    """Write sentences, one a line."""
    path.write_text("".join(f"{' '.join(pieces)}\n" for pieces in sentences), "utf-8")


def write_lexicon(path: Path, random: np.random.Generator, pieces: Sequence[str]) -> None:
    """Write a table of probabilities: `target source probability`. Frequent targets (Zipf) have more sources."""
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


def quantise(
    folder: Path, files: MarianFiles, sizes: Sizes, environment: Mapping[str, str] | None = None
) -> None:
    """Find the scales of activations on the sources in `calibrate.txt`, and convert `model.npz` to int8.

    folder: has `calibrate.txt` and `model.npz`. files: the function writes the int8 weights to `files.weights`, and
    reads `files.vocabulary`. It also runs a script of Marian's sources, which lie beside the folder of the programs.
    environment: changes of the environment. Raises MarianError.
    """
    programs = files.programs
    arguments = {
        "--models": folder / "model.npz",
        "--cpu-threads": 1,
        "--beam-size": 1,
        "--mini-batch": 8,
        "--maxi-batch": 2,
        "--max-length-factor": LENGTH_FACTOR,
        "--input": folder / "calibrate.txt",
        "--output": folder / "calibrated.txt",
    }
    command = [programs / "marian-decoder", *(word for pair in arguments.items() for word in pair)]
    flags = ["--quiet", "--quiet-translation", "--dump-quantmult"]
    output = run([*command, "--vocabs", *[files.vocabulary] * 2, *flags], environment)
    lines = [line for line in output.splitlines() if line.startswith("Name: ")]
    (folder / "scales.txt").write_text("\n".join(lines) + "\n", "utf-8")
    script = programs.parent / "marian-dev" / "scripts" / "alphas" / "extract_stats.py"
    scaled = folder / "model.alphas.npz"
    run([sys.executable, script, folder / "scales.txt", folder / "model.npz", scaled])
    with np.load(scaled) as file:
        write_npz(scaled, {name: file[name] for name in file.files if name != "special:model.yml"}, sizes)
    run([programs / "marian-conv", "--from", scaled, "--to", files.weights, "--gemm-type", "intgemm8"])
