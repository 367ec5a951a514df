"""Converts a Marian model (OPUS-MT) to our Transformer and vocabulary.

The network is the paper's with another activation, half sines and half cosines as positions, and a bias on the logits.
Hugging Face's PEGASUS is the same network in pre-norm. `transduce export --to huggingface` writes it.
Marian uses the padding's row as its start token and never outputs it. The converted embedding has that row twice, as
padding and as the start token. `model.imported` explains the conversion of the vocabulary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.config import ConfigError, ModelConfig
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

CONFIG, VOCABULARY, SOURCE, TARGET = "config.json", "vocab.json", "source.spm", "target.spm"
GENERATION = "generation_config.json"  # older models have its fields in config.json
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
# The values of model_type.
POST_NORM, PRE_NORM = "marian", "pegasus"
ACTIVATIONS = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu"}


def read_marian(folder: Path, *, max_length: int | None = None) -> ImportedModel:
    """Read source.spm, target.spm, and config.json, vocab.json and the weights, or Marian's own .npz and .yml.

    max_length: subwords of the longest source or target; None for the model's own. Raises UnusableModel.
    """
    is_npz = not (folder / CONFIG).is_file() and any(folder.glob("*.npz"))
    names = (SOURCE, TARGET) if is_npz else (CONFIG, VOCABULARY, SOURCE, TARGET)
    problems = [f"{name} is missing" for name in names if not (folder / name).is_file()]
    if not is_npz and not any((folder / name).is_file() for name in (SAFETENSORS, PICKLE)):
        problems.append(f"{SAFETENSORS} or {PICKLE} is missing")
    if problems:
        raise UnusableModel(folder, problems)
    try:
        protos = [read_sentencepiece(folder / name) for name in (SOURCE, TARGET)]
        if is_npz:
            facts, vocabulary, weights = read_npz(folder)
            search = facts
        else:
            facts = _json(folder / CONFIG)
            search = {**facts, **_json(folder / GENERATION, is_optional=True)}
            vocabulary, weights = _json(folder / VOCABULARY), _weights(folder)
        vocabulary = _vocabulary(vocabulary)
    except (OSError, ValueError, SafetensorError) as error:
        raise UnusableModel(folder, [str(error)]) from error
    problems = _config_problems(facts) + _vocabulary_problems(facts, vocabulary)
    if not problems:
        problems = _weight_problems(facts, weights)
    if problems:
        raise UnusableModel(folder, problems)
    order = piece_order(vocabulary)
    pad, end, unknown = (vocabulary[piece] for piece in (PAD, EOS, UNK))
    start = facts["decoder_start_token_id"]
    rows = rows_of(vocabulary, order, Specials(pad=pad, start=start, end=end, unknown=unknown))
    longest = int(facts["max_position_embeddings"])
    try:
        config = _config(facts, len(order) + len(FIRST), min(longest, max_length or longest))
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


# --- files


def _json(path: Path, *, is_optional: bool = False) -> dict[str, Any]:
    if is_optional and not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a JSON object")  # noqa: TRY004 - the file is wrong, not a type
    return found


def _vocabulary(found: Mapping[str, Any]) -> dict[str, int]:
    """Pieces and their ids. Raises ValueError unless the ids are 0, 1, 2..."""
    if sorted(map(str, found.values())) != sorted(map(str, range(len(found)))):
        raise ValueError(f"the ids of {VOCABULARY} are not 0 to {len(found) - 1}, each once")
    return {piece: int(identity) for piece, identity in found.items()}


def _weights(folder: Path) -> dict[str, Tensor]:
    """The weights by name. Raises ValueError for a file that is damaged or holds anything but tensors."""
    if (folder / SAFETENSORS).is_file():
        return load_file(folder / SAFETENSORS)
    try:
        # Only this line reads a pickle. With weights_only it builds tensors and runs no code of the file.
        found = torch.load(folder / PICKLE, map_location="cpu", weights_only=True, mmap=True)  # noqa: TID251
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(
            f"{PICKLE} holds no tensors that can be read safely: {type(error).__name__}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ValueError(f"{PICKLE} holds something else than tensors")
    return found


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
    sizes = ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads",
             "encoder_ffn_dim", "decoder_ffn_dim", "vocab_size", "pad_token_id", "eos_token_id",
             "decoder_start_token_id", "max_position_embeddings")  # fmt: skip
    problems += [
        f"{name} of {CONFIG} is missing or no whole number"
        for name in sizes
        if not isinstance(facts.get(name), int)
    ]
    problems += [
        f"encoder_{name} and decoder_{name} of {CONFIG} differ"
        for name in ("attention_heads", "ffn_dim")
        if facts.get(f"encoder_{name}") != facts.get(f"decoder_{name}")
    ]
    if facts.get("activation_function") not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        problems.append(
            f"activation_function of {CONFIG} is {facts.get('activation_function')!r}; it must be one of {known}"
        )
    return problems


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


def _weight_problems(facts: Mapping[str, Any], weights: Mapping[str, Tensor]) -> list[str]:
    """The weights that are missing or have another shape than config.json says."""
    vocab_size, d, d_ff = facts["vocab_size"], facts["d_model"], facts["encoder_ffn_dim"]
    expected: dict[str, tuple[int, ...]] = {
        "model.shared.weight": (vocab_size, d),
        "final_logits_bias": (1, vocab_size),
    }
    for stack, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        for layer in range(facts[f"{stack}_layers"]):
            name = f"model.{stack}.layers.{layer}"
            for attention in attentions:
                for projection in ("q", "k", "v", "out"):
                    expected[f"{name}.{attention}.{projection}_proj.weight"] = (d, d)
                    expected[f"{name}.{attention}.{projection}_proj.bias"] = (d,)
            norms = (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm")
            expected |= {f"{name}.{norm}.{part}": (d,) for norm in norms for part in ("weight", "bias")}
            expected |= {f"{name}.fc1.weight": (d_ff, d), f"{name}.fc1.bias": (d_ff,)}
            expected |= {f"{name}.fc2.weight": (d, d_ff), f"{name}.fc2.bias": (d,)}
        if facts["model_type"] == PRE_NORM:
            expected |= {f"model.{stack}.layer_norm.{part}": (d,) for part in ("weight", "bias")}
    problems = []
    for name, shape in expected.items():
        if name not in weights:
            problems.append(f"the weight {name} is missing")
        elif tuple(weights[name].shape) != shape:
            problems.append(
                f"the weight {name} has the shape {tuple(weights[name].shape)}, by {CONFIG} it is {shape}"
            )
    shared = weights.get("model.shared.weight")
    copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return problems + [
        f"{name} differs from model.shared.weight; only one shared embedding can be imported"
        for name in copies
        if shared is not None and name in weights and not torch.equal(weights[name], shared)
    ]


# --- the new model


def _config(facts: Mapping[str, Any], vocab_size: int, max_length: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=facts["d_model"],
        num_heads=facts["encoder_attention_heads"],
        d_ff=facts["encoder_ffn_dim"],
        num_encoder_layers=facts["encoder_layers"],
        num_decoder_layers=facts["decoder_layers"],
        dropout=0.0,
        norm="pre" if facts["model_type"] == PRE_NORM else "post",
        activation=ACTIVATIONS[facts["activation_function"]],  # type: ignore[arg-type]
        positions="learned",  # a stored table, because Marian's half sines and half cosines differ from the paper's
        max_length=max_length,
        output_bias=True,
    )


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
    for ours, theirs in module_names(config):
        for part in ("weight", "bias"):
            state[f"{ours}.{part}"] = weights[f"{theirs}.{part}"].float()
    return state


def module_names(config: ModelConfig) -> list[tuple[str, str]]:
    """Our and Marian's names of all modules with a weight and a bias."""
    found = []
    for stack, num_layers in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        found += [names for layer in range(num_layers) for names in _layer_names(stack, layer)]
        if config.norm == "pre":
            found.append((f"{stack}_norm", f"model.{stack}.layer_norm"))
    return found


def _layer_names(stack: str, layer: int) -> list[tuple[str, str]]:
    """Our and Marian's names of a layer's modules."""
    ours, theirs = f"{stack}.{layer}", f"model.{stack}.layers.{layer}"
    attentions = [("self_attention", "self_attn")]
    if stack == "decoder":
        attentions.append(("cross_attention", "encoder_attn"))
    names = [
        (f"{ours}.{our}.w_{letter}", f"{theirs}.{their}.{projection}_proj")
        for our, their in attentions
        for letter, projection in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))
    ]
    norms = [*(f"{their}_layer_norm" for _, their in attentions), "final_layer_norm"]
    names += [(f"{ours}.residuals.{index}.norm", f"{theirs}.{norm}") for index, norm in enumerate(norms)]
    return [
        *names,
        (f"{ours}.feed_forward.w_1", f"{theirs}.fc1"),
        (f"{ours}.feed_forward.w_2", f"{theirs}.fc2"),
    ]
