"""A Marian model of Hugging Face for both engines. `transduce import` and CTranslate2's converter read the same files.

If `--imported` names no folder, `write_opus_mt` makes a model of OPUS-MT's layout and size with random weights.
"""

from __future__ import annotations

import itertools
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from ctranslate2.converters import TransformersConverter  # type: ignore[import-untyped]

from app.text.tokenizer import Tokenizer
from benchmarks.engine.ctranslate2_model import Quantization
from benchmarks.imports import sentencepiece_model, words
from model.imported import EOS, PAD, UNK
from model.marian import read_marian
from model.transformer import Transformer

# The size of opus-mt-en-de's vocabulary, in subwords.
VOCAB_SIZE = 58_101
VOCABULARY, PEER_CONFIG = "shared_vocabulary.json", "config.json"


def write_opus_mt(folder: Path) -> None:
    """Write a model in OPUS-MT's layout: Transformer base, 58,101 subwords, padding last. Its weights are random."""
    transformers: Any = import_module("transformers")  # its types do not describe what a model returns
    folder.mkdir()
    pieces = list(itertools.islice(words(), VOCAB_SIZE - 3))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(sentencepiece_model((UNK, "<s>", EOS, *pieces)))
    vocabulary = {piece: index for index, piece in enumerate((EOS, UNK, *pieces, PAD))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    torch.manual_seed(1)
    config = transformers.MarianConfig(
        vocab_size=VOCAB_SIZE,
        d_model=512,
        **{f"{stack}_layers": 6 for stack in ("encoder", "decoder")},
        **{f"{stack}_attention_heads": 8 for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": 2048 for stack in ("encoder", "decoder")},
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=VOCAB_SIZE - 1,
        eos_token_id=0,
        decoder_start_token_id=VOCAB_SIZE - 1,
    )
    transformers.MarianMTModel(config).eval().save_pretrained(folder)


def imported_model(folder: Path) -> Transformer:
    """The model as `transduce import` reads it."""
    read = read_marian(folder)
    model = Transformer(read.config)
    model.load_state_dict(read.state)
    return model.eval()


def convert(folder: Path, peer: Path, quantization: Quantization) -> None:
    """Convert the files with CTranslate2's converter, and rename the written tokens to the ids of `imported_model`."""
    TransformersConverter(str(folder)).convert(str(peer), quantization=quantization)
    (peer / "source.spm").write_bytes(read_marian(folder).source_spm)
    tokenizer = Tokenizer(peer / "source.spm")
    names = {UNK: str(tokenizer.unk_id), PAD: str(tokenizer.pad_id)}
    vocabulary = json.loads((peer / VOCABULARY).read_text("utf-8"))
    renamed = [names.get(piece) or str(tokenizer.id_of(piece)) for piece in vocabulary]
    (peer / VOCABULARY).write_text(json.dumps(renamed), "utf-8")
    config = json.loads((peer / PEER_CONFIG).read_text("utf-8"))
    of_piece = dict(zip(vocabulary, renamed, strict=True))
    config = {
        name: of_piece.get(value, value) if isinstance(value, str) else value
        for name, value in config.items()
    }
    (peer / PEER_CONFIG).write_text(json.dumps(config), "utf-8")
