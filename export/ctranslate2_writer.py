"""Writes a model in CTranslate2's format, without CTranslate2.

The file model.bin holds named variables. It has one linear layer in place of the linear layers of one attention that
have the same input: q, k and v of self-attention, and k and v of cross-attention. Their outputs are concatenated. The
file stores the table of positions, so it can express sinusoidal and learned positions.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from export.portable import PortableModel
from model.config import ModelConfig
from model.ctranslate2_binary import BINARY, FORMAT_VERSION, SPECIFICATION, TYPES
from model.ctranslate2_files import ACTIVATIONS, CONFIG, TARGET
from model.ctranslate2_names import joined_linears, norm_names
from model.imported import BOS, EOS, UNK
from model.transformer import Transformer

REVISION = 7
VOCABULARY, SOURCE = "shared_vocabulary.json", "source.spm"
TYPE_NUMBERS = {dtype: number for number, dtype in TYPES.items()}
EMBEDDING, POSITIONS = "encoder/embeddings_0/weight", "encoder/position_encodings/encodings"
# Variables that have the values of another variable. The file stores these values once.
ALIASES = {
    "decoder/embeddings/weight": EMBEDDING,
    "decoder/projection/weight": EMBEDDING,
    "decoder/position_encodings/encodings": POSITIONS,
}


def write_ctranslate2(portable: PortableModel, folder: Path) -> None:
    """Write the files to a new folder, in fp32. CTranslate2 can convert the weights as it loads them."""
    folder.mkdir()
    config = {
        "bos_token": BOS,
        "eos_token": EOS,
        "unk_token": UNK,
        "decoder_start_token": BOS,
        "add_source_bos": False,
        "add_source_eos": portable.ends_source,
        "layer_norm_epsilon": None,
        "multi_query_attention": False,
    }
    for name, content in ((CONFIG, config), (VOCABULARY, list(portable.pieces))):
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", "utf-8", newline="\n")
    for name, path in ((SOURCE, portable.source_spm), (TARGET, portable.target_spm)):
        shutil.copyfile(path, folder / name)
    with (folder / BINARY).open("wb") as file:
        _write_variables(file, variables_of(portable.model))


def variables_of(model: Transformer) -> dict[str, NDArray[Any]]:
    """The variables of model.bin by name, without ALIASES."""
    config = model.config
    state = {name: tensor.detach().float().numpy() for name, tensor in model.state_dict().items()}
    found: dict[str, NDArray[Any]] = {
        EMBEDDING: state["embedding.weight"],
        POSITIONS: model.embedding.positions.detach().float().numpy(),
        **_attributes(config),
    }
    if config.output_bias:
        found["decoder/projection/bias"] = state["embedding.output_bias"]
    for stack, num_layers in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        for layer in range(num_layers):
            for ours, theirs in joined_linears(stack, layer):
                for part in ("weight", "bias"):
                    found[f"{theirs}/{part}"] = np.concatenate([state[f"{name}.{part}"] for name in ours])
        for name, theirs in norm_names(stack, num_layers, is_final=config.norm == "pre"):
            found |= {f"{theirs}/gamma": state[f"{name}.weight"], f"{theirs}/beta": state[f"{name}.bias"]}
    return found


def _attributes(config: ModelConfig) -> dict[str, NDArray[Any]]:
    """The numbers that CTranslate2 stores as variables."""
    activation = next(number for number, name in ACTIVATIONS.items() if name == config.activation)
    common = {"pre_norm": config.norm == "pre", "activation": activation, "scale_embeddings": True}
    decoder = {
        "start_from_zero_embedding": False,
        "alibi": False,
        "alibi_use_positive_positions": False,
        "scale_alibi": False,
    }
    encoder = {"embeddings_merge": 0, "multi_query_attention": False}
    found: dict[str, NDArray[Any]] = {}
    for stack, more in (("encoder", encoder), ("decoder", decoder)):
        found |= {f"{stack}/{name}": np.array(value, np.int8) for name, value in (common | more).items()}
        found[f"{stack}/num_heads"] = np.array(config.num_heads, np.int16)
    found["decoder/alignment_layer"] = np.array(-1, np.int16)
    found["decoder/alignment_heads"] = np.array(1, np.int16)
    return found


def _write_variables(file: BinaryIO, variables: Mapping[str, NDArray[Any]]) -> None:
    """Write model.bin: the format's version, the name and revision of the kind of model, variables, aliases."""

    def numbers(kinds: str, *values: int) -> None:
        file.write(struct.pack(f"<{kinds}", *values))

    def text(value: str) -> None:
        encoded = value.encode()
        numbers("H", len(encoded) + 1)
        file.write(encoded + b"\0")

    numbers("I", FORMAT_VERSION)
    text(SPECIFICATION)
    numbers("II", REVISION, len(variables))
    for name, values in variables.items():
        text(name)
        numbers(f"B{values.ndim}I", values.ndim, *values.shape)
        numbers("BI", TYPE_NUMBERS[values.dtype], values.nbytes)
        file.write(np.ascontiguousarray(values).data if values.ndim else values.tobytes())
    numbers("I", len(ALIASES))
    for alias, name in ALIASES.items():
        text(alias)
        text(name)
