"""Reads what is common to Hugging Face's Marian, PEGASUS, M2M-100 and NLLB: configuration, vocabulary and weights.

Nothing here runs code of the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from model.config import ModelConfig

CONFIG, VOCABULARY = "config.json", "vocab.json"
GENERATION = "generation_config.json"  # older models have its fields in config.json
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
INDEX_SUFFIX = ".index.json"  # the suffix of the index, which names the files if the weights are in several
SHARED, OUTPUT_TABLE = "model.shared.weight", "lm_head.weight"
SOURCE_TABLE, TARGET_TABLE = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
# The name of an SSRU (`model.ssru`) in a decoder layer. Hugging Face has no SSRUs, so this name is ours.
# `model.marian_files` gives the weights of Marian's own files Hugging Face's names, and an SSRU this name.
SSRU = "ssru"
ACTIVATIONS = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu"}
# The least and the largest value of each whole number of config.json. No model that we know is near a largest value.
# d_model is at least 4: a smaller one has a single frequency of positions, for which the formula divides by zero.
_MOST_SUBWORDS = 10_000_000
_IDS = (0, _MOST_SUBWORDS - 1)
_RANGES = {
    "d_model": (4, 100_000), "encoder_layers": (1, 1000), "decoder_layers": (1, 1000),
    "encoder_attention_heads": (1, 1000), "decoder_attention_heads": (1, 1000),
    "encoder_ffn_dim": (1, 1_000_000), "decoder_ffn_dim": (1, 1_000_000), "vocab_size": (1, _MOST_SUBWORDS),
    "decoder_vocab_size": (1, _MOST_SUBWORDS), "pad_token_id": _IDS, "eos_token_id": _IDS,
    "decoder_start_token_id": _IDS, "max_position_embeddings": (1, 1_000_000),
}  # fmt: skip
_OPTIONAL = ("decoder_vocab_size",)


# --- files


def weight_file_problems(folder: Path) -> list[str]:
    """Which files of weights are missing, or why the index cannot be used."""
    try:
        paths = _weight_paths(folder)
    except (OSError, ValueError) as error:
        return [str(error)]
    if not paths:
        return [f"{SAFETENSORS} or {PICKLE} is missing"]
    return [f"{path.name} is missing" for path in paths if not path.is_file()]


def _weight_paths(folder: Path) -> list[Path]:
    """The file with the weights, or the files that an index names. Empty if there is neither.

    Raises OSError, and ValueError for an index that is damaged or that names a file outside the folder.
    """
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}{INDEX_SUFFIX}"
        if index.is_file():
            parts = read_json(index).get("weight_map")
            if not isinstance(parts, dict) or not parts:
                raise ValueError(f"{index.name} has no weight_map")
            suffix = Path(name).suffix
            names = sorted({str(part) for part in parts.values()})
            for part in names:
                if Path(part).name != part or "\\" in part or Path(part).suffix != suffix:
                    raise ValueError(
                        f"{index.name} names {part!r}; it must be the name of a {suffix} file in the same folder"
                    )
            return [folder / part for part in names]
    return []


def read_json(path: Path, *, is_optional: bool = False) -> dict[str, Any]:
    """The JSON object in a file. is_optional: a missing file counts as an empty object.

    Raises OSError, and ValueError if the content is not a JSON object.
    """
    if is_optional and not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a JSON object")  # noqa: TRY004 - the file is wrong, not a type
    return found


def checked_vocabulary(found: Mapping[str, Any], name: str = VOCABULARY) -> dict[str, int]:
    """Pieces and their ids. name: the file's name. Raises ValueError unless the ids are 0, 1, 2..."""
    if sorted(map(str, found.values())) != sorted(map(str, range(len(found)))):
        raise ValueError(f"the ids of {name} are not 0 to {len(found) - 1}, each once")
    return {piece: int(identity) for piece, identity in found.items()}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The weights by name, of all files.

    Raises OSError, and ValueError for a file that is damaged or holds anything but tensors.
    """
    weights: dict[str, Tensor] = {}
    for path in _weight_paths(folder):
        weights |= _read_safetensors(path) if path.suffix == Path(SAFETENSORS).suffix else _read_pickle(path)
    return weights


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        # Only this line reads a pickle. With weights_only it builds tensors and runs no code of the file. Files of
        # PyTorch before 1.6 are no zip archives and cannot be memory-mapped.
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))  # noqa: TID251
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(
            f"{path.name} holds no tensors that can be read safely: {type(error).__name__}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ValueError(f"{path.name} holds something other than tensors")
    return found


# --- checks


def size_problems(facts: Mapping[str, Any]) -> list[str]:
    """The sizes, ids and activation of config.json that are missing or that this network does not support."""
    problems = []
    for name, (least, most) in _RANGES.items():
        value = facts.get(name)
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            missing = "" if name in _OPTIONAL else "missing or "
            problems.append(f"{name} of {CONFIG} is {missing}no whole number")
        elif not least <= value <= most:
            problems.append(f"{name} of {CONFIG} is {value}; it must be from {least} to {most}")
        elif name == "d_model" and value % 2:
            problems.append(f"{name} of {CONFIG} is {value}; it must be even")
    problems += [
        f"encoder_{name} and decoder_{name} of {CONFIG} differ"
        for name in ("attention_heads", "ffn_dim")
        if facts.get(f"encoder_{name}") != facts.get(f"decoder_{name}")
    ]
    if facts.get("activation_function") not in tuple(ACTIVATIONS):  # the value may be unhashable
        known = ", ".join(ACTIVATIONS)
        problems.append(
            f"activation_function of {CONFIG} is {facts.get('activation_function')!r}; it must be one of {known}"
        )
    return problems


@dataclass(frozen=True)
class Tables:
    """The names of three tables: the source's embedding, the target's embedding, and the output projection."""

    source: str = SHARED
    target: str = SHARED
    output: str = SHARED

    @staticmethod
    def of(facts: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Tables:
        """The names that config.json implies.

        Some files have only one of the names of a shared table. Any of the names is possible: `save_model` of
        Safetensors keeps the alphabetically first. If a file has several of the names, the table is the one under the
        name that comes first in the code below, and the tables under the other names must be the same (`copies`).

        Even with `share_encoder_decoder_embeddings`, the tables of source and target can differ, but only if
        `tie_word_embeddings` is false. The output then has a table of its own.
        """
        is_shared = facts.get("share_encoder_decoder_embeddings", True)
        is_tied = facts.get("tie_word_embeddings", True)

        def first(*names: str) -> str:
            """The first of the names that `weights` has. If it has none, the first name."""
            return next((name for name in names if name in weights), names[0])

        if is_shared and is_tied:
            table = first(SHARED, OUTPUT_TABLE, SOURCE_TABLE, TARGET_TABLE)
            return Tables(table, table, table)
        if is_shared:
            source = first(SOURCE_TABLE, SHARED, TARGET_TABLE)
            target = first(TARGET_TABLE, SHARED, SOURCE_TABLE)
            return Tables(source, target, OUTPUT_TABLE)
        target = first(TARGET_TABLE, OUTPUT_TABLE) if is_tied else TARGET_TABLE
        return Tables(SOURCE_TABLE, target, target if is_tied else OUTPUT_TABLE)

    def own(self, weights: Mapping[str, Tensor]) -> tuple[bool, bool]:
        """Whether the source's table and whether the output's table differ from the target's."""
        target = weights[self.target]
        source, output = (
            name != self.target and not torch.equal(weights[name], target)
            for name in (self.source, self.output)
        )
        return source, output

    def copies(self) -> dict[str, str]:
        """The names under which a file may repeat a table, and the table's name."""
        copies = {SOURCE_TABLE: self.source, TARGET_TABLE: self.target, OUTPUT_TABLE: self.output}
        return {copy: table for copy, table in copies.items() if copy != table}


def target_size(facts: Mapping[str, Any]) -> int:
    """The number of the target's subwords by config.json."""
    is_shared = facts.get("share_encoder_decoder_embeddings", True)
    return int(facts["vocab_size"] if is_shared else facts.get("decoder_vocab_size") or facts["vocab_size"])


def weight_problems(
    facts: Mapping[str, Any], weights: Mapping[str, Tensor], *, is_pre_norm: bool, has_bias: bool
) -> list[str]:
    """The weights that are missing, have another shape than config.json says, or differ from a table that they repeat.

    facts: a config.json for which `size_problems` returned nothing. has_bias: whether the logits have a bias.
    """
    d, d_ff = facts["d_model"], facts["encoder_ffn_dim"]
    tables = Tables.of(facts, weights)
    expected: dict[str, tuple[int, ...]] = {
        tables.source: (facts["vocab_size"], d),
        tables.target: (target_size(facts), d),
        tables.output: (target_size(facts), d),
    }
    if has_bias:
        expected["final_logits_bias"] = (1, target_size(facts))
    for stack, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        has_ssru = stack == "decoder" and has_ssrus(facts)
        for layer in range(facts[f"{stack}_layers"]):
            name = f"model.{stack}.layers.{layer}"
            expected |= _ssru_shapes(f"{name}.{SSRU}", d) if has_ssru else {}
            for attention in attentions[1:] if has_ssru else attentions:
                for projection in ("q", "k", "v", "out"):
                    expected[f"{name}.{attention}.{projection}_proj.weight"] = (d, d)
                    expected[f"{name}.{attention}.{projection}_proj.bias"] = (d,)
            norms = (*(f"{attention}_layer_norm" for attention in attentions), "final_layer_norm")
            expected |= {f"{name}.{norm}.{part}": (d,) for norm in norms for part in ("weight", "bias")}
            expected |= {f"{name}.fc1.weight": (d_ff, d), f"{name}.fc1.bias": (d_ff,)}
            expected |= {f"{name}.fc2.weight": (d, d_ff), f"{name}.fc2.bias": (d,)}
        if is_pre_norm:
            expected |= {f"model.{stack}.layer_norm.{part}": (d,) for part in ("weight", "bias")}
    return _differences(expected, weights) + [
        f"{copy} and {table} differ, but {CONFIG} says that they are the same table"
        for copy, table in tables.copies().items()
        if copy in weights and table in weights and not torch.equal(weights[copy], weights[table])
    ]


def has_ssrus(facts: Mapping[str, Any]) -> bool:
    """Whether the decoder has SSRUs in the place of self-attention."""
    return facts.get("decoder_cell") == SSRU


def _ssru_shapes(name: str, d: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.w.weight": (d, d), f"{name}.w_f.weight": (d, d), f"{name}.w_f.bias": (d,)}


def _differences(expected: Mapping[str, tuple[int, ...]], weights: Mapping[str, Tensor]) -> list[str]:
    """The weights that are missing or have another shape."""
    problems = []
    for name, shape in expected.items():
        if name not in weights:
            problems.append(f"the weight {name} is missing")
        elif tuple(weights[name].shape) != shape:
            problems.append(
                f"the weight {name} has the shape {tuple(weights[name].shape)}; {CONFIG} requires {shape}"
            )
    return problems


# --- the new model


def model_config(
    facts: Mapping[str, Any],
    vocab_size: int,
    max_length: int,
    *,
    norm: Literal["post", "pre"],
    own_tables: tuple[bool, bool] = (False, False),
) -> ModelConfig:
    """Our configuration for the sizes of a checked config.json. own_tables: from `Tables.own`. Raises ConfigError."""
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=facts["d_model"],
        num_heads=facts["encoder_attention_heads"],
        d_ff=facts["encoder_ffn_dim"],
        num_encoder_layers=facts["encoder_layers"],
        num_decoder_layers=facts["decoder_layers"],
        dropout=0.0,
        norm=norm,
        activation=ACTIVATIONS[facts["activation_function"]],  # type: ignore[arg-type]
        # In these models all sines come before all cosines; in the paper they alternate. So the positions are stored as
        # a table, as learned positions are.
        positions="learned",
        max_length=max_length,
        output_bias=True,  # also if the model has none: the bias masks subwords that no translation may contain
        own_source_table=own_tables[0],
        own_output_table=own_tables[1],
        decoder="ssru" if has_ssrus(facts) else "attention",
    )


def table_state(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    tables: Tables,
    *,
    source_rows: list[int],
    target_rows: list[int],
) -> dict[str, Tensor]:
    """The tables of our Transformer's state.

    source_rows, target_rows: for each of our ids, its row in Hugging Face's table.
    """
    found = {"embedding.weight": weights[tables.target].float()[target_rows]}
    if config.own_source_table:
        found["embedding.source_weight"] = weights[tables.source].float()[source_rows]
    if config.own_output_table:
        found["embedding.output_weight"] = weights[tables.output].float()[target_rows]
    return found


def layer_state(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All of our Transformer's state but the tables, the output bias and the positions."""
    names = {
        f"{ours}.{part}": f"{theirs}.{part}"
        for ours, theirs in module_names(config)
        for part in ("weight", "bias")
    }
    if config.decoder == "ssru":
        layers = range(config.num_decoder_layers)
        names |= {
            f"decoder.{each}.ssru.w.weight": f"model.decoder.layers.{each}.{SSRU}.w.weight" for each in layers
        }
    return {ours: weights[theirs].float() for ours, theirs in names.items()}


def module_names(config: ModelConfig) -> list[tuple[str, str]]:
    """Our and Hugging Face's names of all modules with a weight and a bias."""
    found = []
    for stack, num_layers in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        has_ssru = stack == "decoder" and config.decoder == "ssru"
        found += [
            names for layer in range(num_layers) for names in _layer_names(stack, layer, has_ssru=has_ssru)
        ]
        if config.norm == "pre":
            found.append((f"{stack}_norm", f"model.{stack}.layer_norm"))
    return found


def _layer_names(stack: str, layer: int, *, has_ssru: bool) -> list[tuple[str, str]]:
    """Our and Hugging Face's names of a layer's modules.

    has_ssru: whether the layer has an SSRU in the place of self-attention.
    """
    ours, theirs = f"{stack}.{layer}", f"model.{stack}.layers.{layer}"
    attentions = [("self_attention", "self_attn")]
    if stack == "decoder":
        attentions.append(("cross_attention", "encoder_attn"))
    names = [(f"{ours}.ssru.w_f", f"{theirs}.{SSRU}.w_f")] if has_ssru else []
    names += [
        (f"{ours}.{our}.w_{letter}", f"{theirs}.{their}.{projection}_proj")
        for our, their in (attentions[1:] if has_ssru else attentions)
        for letter, projection in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out"))
    ]
    norms = [*(f"{their}_layer_norm" for _, their in attentions), "final_layer_norm"]
    names += [(f"{ours}.residuals.{index}.norm", f"{theirs}.{norm}") for index, norm in enumerate(norms)]
    return [
        *names,
        (f"{ours}.feed_forward.w_1", f"{theirs}.fc1"),
        (f"{ours}.feed_forward.w_2", f"{theirs}.fc2"),
    ]
