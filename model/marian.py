"""Converts a Marian model (OPUS-MT) to our Transformer and vocabulary.

The network is the paper's with another activation, half sines and half cosines as positions, and a bias on the logits.
Hugging Face's PEGASUS is the same network in pre-norm. `transduce export --to huggingface` writes it.
Marian's start token is the padding token, which Marian never outputs. The converted embedding has its row twice: as
padding and as the start token. `model.imported` explains the conversion of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from model.config import ConfigError, ModelConfig
from model.huggingface_files import (
    CONFIG,
    GENERATION,
    VOCABULARY,
    checked_vocabulary,
    layer_state,
    missing_weights,
    model_config,
    read_json,
    read_weights,
    size_problems,
    weight_problems,
)
from model.imported import (
    BOS,
    EOS,
    FIRST,
    PAD,
    UNK,
    ImportedModel,
    Specials,
    UnusableModel,
    is_tag,
    masked_bias,
    num_left_out,
    piece_order,
    read_sentencepiece,
    reordered,
    rows_of,
)
from model.marian_npz import read_npz

SOURCE, TARGET = "source.spm", "target.spm"
# The values of model_type.
POST_NORM, PRE_NORM = "marian", "pegasus"


def read_marian(folder: Path, *, max_length: int | None = None) -> ImportedModel:
    """Read source.spm, target.spm, and config.json, vocab.json and the weights, or Marian's own .npz and .yml.

    max_length: subwords of the longest source or target; None for the model's own. Raises UnusableModel.
    """
    is_npz = not (folder / CONFIG).is_file() and any(folder.glob("*.npz"))
    names = (SOURCE, TARGET) if is_npz else (CONFIG, VOCABULARY, SOURCE, TARGET)
    problems = [f"{name} is missing" for name in names if not (folder / name).is_file()]
    if not is_npz:
        problems += missing_weights(folder)
    if problems:
        raise UnusableModel(folder, problems)
    try:
        protos = [read_sentencepiece(folder / name) for name in (SOURCE, TARGET)]
        if is_npz:
            facts, vocabulary, weights = read_npz(folder)
            search = facts
        else:
            facts = read_json(folder / CONFIG)
            search = {**facts, **read_json(folder / GENERATION, is_optional=True)}
            vocabulary, weights = read_json(folder / VOCABULARY), read_weights(folder)
        vocabulary = checked_vocabulary(vocabulary)
    except (OSError, ValueError, SafetensorError) as error:
        raise UnusableModel(folder, [str(error)]) from error
    problems = _config_problems(facts) + _vocabulary_problems(facts, vocabulary)
    if not problems:
        is_pre_norm = facts["model_type"] == PRE_NORM
        problems = weight_problems(facts, weights, is_pre_norm=is_pre_norm, has_bias=True)
    if problems:
        raise UnusableModel(folder, problems)
    order = piece_order(vocabulary)
    pad, end, unknown = (vocabulary[piece] for piece in (PAD, EOS, UNK))
    start = facts["decoder_start_token_id"]
    rows = rows_of(vocabulary, order, Specials(pad=pad, start=start, end=end, unknown=unknown))
    longest = int(facts["max_position_embeddings"])
    try:
        config = model_config(
            facts,
            len(order) + len(FIRST),
            min(longest, max_length or longest),
            norm="pre" if is_pre_norm else "post",
        )
    except ConfigError as error:
        raise UnusableModel(folder, [str(error)]) from error
    return ImportedModel(
        config=config,
        state=_state(config, weights, rows, vocabulary),
        source_spm=reordered(protos[0], order),
        target_spm=reordered(protos[1], order),
        tags=tuple(piece for piece in order if is_tag(piece)),
        num_left_out=num_left_out(protos, vocabulary),
        beam_size=int(search.get("num_beams") or 1),
        length_penalty=float(search.get("length_penalty", 1.0)),
    )


# --- checks


def _config_problems(facts: Mapping[str, Any]) -> list[str]:
    """The fields of config.json that this network does not support."""
    is_pre_norm = facts.get("model_type") == PRE_NORM
    needed = {
        "model_type": PRE_NORM if is_pre_norm else POST_NORM,
        "scale_embedding": True,
        "normalize_before": is_pre_norm,
        "normalize_embedding": False,
        "add_final_layer_norm": is_pre_norm,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
    }
    # Newer files leave out some fields, for which all models of the type have these values.
    defaults = {
        name: value for name, value in needed.items() if name not in ("model_type", "scale_embedding")
    }
    problems = [
        f"{name} of {CONFIG} is {facts.get(name)!r}; only {value!r} can be imported"
        for name, value in needed.items()
        if facts.get(name, defaults.get(name)) != value
    ]
    return problems + size_problems(facts)


def _vocabulary_problems(facts: Mapping[str, Any], vocabulary: Mapping[str, int]) -> list[str]:
    problems = [f"{VOCABULARY} has no {piece}" for piece in (EOS, UNK, PAD) if piece not in vocabulary]
    if len(vocabulary) != facts.get("vocab_size"):
        problems.append(
            f"{VOCABULARY} has {len(vocabulary)} pieces, vocab_size of {CONFIG} is {facts.get('vocab_size')}"
        )
    for piece, name in ((EOS, "eos_token_id"), (PAD, "pad_token_id")):
        if piece in vocabulary and vocabulary[piece] != facts.get(name):
            problems.append(
                f"{piece} is {vocabulary[piece]} in {VOCABULARY}, {name} of {CONFIG} is {facts.get(name)}"
            )
    start = facts.get("decoder_start_token_id")
    if start not in (vocabulary.get(PAD), vocabulary.get(BOS)):
        problems.append(f"decoder_start_token_id of {CONFIG} is {start}, which is neither {PAD} nor {BOS}")
    return problems


# --- the new model


def marian_positions(max_length: int, d_model: int) -> Tensor:
    """Sines in the first half of a row, cosines in the second: (max_length, d_model), fp32."""
    position = torch.arange(max_length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    angles = position * frequency
    return torch.cat((angles.sin(), angles.cos()), dim=-1).float()


def _state(
    config: ModelConfig, weights: Mapping[str, Tensor], rows: list[int], vocabulary: Mapping[str, int]
) -> dict[str, Tensor]:
    """The state dict of our Transformer. rows: the foreign row of each of our ids."""
    state = {
        "embedding.weight": weights["model.shared.weight"].float()[rows],
        "embedding.output_bias": masked_bias(weights["final_logits_bias"].float()[0, rows], vocabulary),
        "embedding.positions": marian_positions(config.max_length, config.d_model),
    }
    return state | layer_state(config, weights)
