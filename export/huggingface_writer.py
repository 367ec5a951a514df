"""Writes a model in the Marian layout of Hugging Face's `transformers`.

A post-norm model becomes a MarianMTModel. A pre-norm model becomes a PegasusForConditionalGeneration, which is the same
network in pre-norm. Both classes compute their positions: sines in the first half of a row, cosines in the second half.
A model that we trained interleaves sines and cosines, as in the paper. The writer then permutes the d_model dimensions
of all weights that read or write these dimensions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.portable import FormatError, PortableModel
from model.config import BOS_ID, EOS_ID, PAD_ID, ModelConfig
from model.huggingface_files import CONFIG, GENERATION, SAFETENSORS, VOCABULARY, module_names
from model.imported import BOS, EOS, PAD, UNK, is_tag
from model.marian import POST_NORM, PRE_NORM, marian_positions
from model.marian_files import SOURCE, TARGET
from model.tensor_file import save_tensors
from model.transformer import Transformer

TOKENIZER_CONFIG = "tokenizer_config.json"
CLASSES = {"post": "MarianMTModel", "pre": "PegasusForConditionalGeneration"}
# The largest allowed difference between a position table and the sines and cosines. A table that a bundle stores in
# fp16 differs from them by up to half of this.
MAX_ROUNDING = 5e-4


def write_huggingface(portable: PortableModel, folder: Path) -> None:
    """Write the files to a new folder. Raises FormatError, before it writes, for a model that Marian cannot express."""
    if not portable.ends_source:
        raise FormatError(
            "the model's sources have no end token, and Hugging Face's Marian tokenizer always adds one; "
            "--to ctranslate2 can express it"
        )
    order = dimension_order(portable.model)
    folder.mkdir()
    texts: dict[str, Any] = {
        CONFIG: _config(portable.model.config),
        GENERATION: _generation(portable),
        TOKENIZER_CONFIG: _tokenizer_config(portable),
        VOCABULARY: {piece: index for index, piece in enumerate(portable.pieces)},
    }
    for name, content in texts.items():
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", "utf-8", newline="\n")
    for name, path in ((SOURCE, portable.source_spm), (TARGET, portable.target_spm)):
        shutil.copyfile(path, folder / name)
    state = dict(_tensors(portable.model, order))
    save_tensors(folder / SAFETENSORS, state, metadata={"format": "pt"})


def dimension_order(model: Transformer) -> Tensor:
    """The index of our dimension for each dimension of Marian, (d_model,).

    Raises FormatError if the model's positions are not Marian's sines and cosines, in halves or interleaved.
    """
    config = model.config
    own = model.embedding.positions.detach().float()
    marian = marian_positions(config.max_length, config.d_model)
    identity = torch.arange(config.d_model)
    for order in (identity, torch.cat([identity[0::2], identity[1::2]])):
        if torch.allclose(own[:, order], marian, rtol=0.0, atol=MAX_ROUNDING):
            return order
    raise FormatError(
        "the model's positions are not the sines and cosines that Hugging Face's Marian computes; "
        "--to ctranslate2 can express them"
    )


def _tensors(model: Transformer, order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The weights in fp32, by Marian's names. order: the result of `dimension_order`."""
    state = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    yield "model.shared.weight", state["embedding.weight"][:, order].contiguous()
    bias = state.get("embedding.output_bias", torch.zeros(model.config.vocab_size))
    yield "final_logits_bias", bias[None].contiguous()
    if model.config.norm == "pre":  # Pegasus reports a missing position table; MarianMTModel computes it
        for stack in ("encoder", "decoder"):
            table = marian_positions(model.config.max_length, model.config.d_model)
            yield f"model.{stack}.embed_positions.weight", table
    for ours, theirs in module_names(model.config):
        weight, bias = state[f"{ours}.weight"], state[f"{ours}.bias"]
        if ours.endswith(("w_o", "w_2", "norm")):
            weight, bias = weight[order], bias[order]
        else:
            weight = weight[:, order]
        yield f"{theirs}.weight", weight.contiguous()
        yield f"{theirs}.bias", bias.contiguous()


def _config(config: ModelConfig) -> dict[str, Any]:
    """The content of config.json."""
    is_pre_norm = config.norm == "pre"
    sizes = {
        f"{stack}_{name}": value
        for stack, num_layers in (
            ("encoder", config.num_encoder_layers),
            ("decoder", config.num_decoder_layers),
        )
        for name, value in (
            ("layers", num_layers),
            ("attention_heads", config.num_heads),
            ("ffn_dim", config.d_ff),
        )
    }
    return {
        "architectures": [CLASSES[config.norm]],
        "model_type": PRE_NORM if is_pre_norm else POST_NORM,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        "d_model": config.d_model,
        **sizes,
        "max_position_embeddings": config.max_length,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": is_pre_norm,
        "add_final_layer_norm": is_pre_norm,
        "normalize_embedding": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        **_special_ids(),
        "dtype": "float32",
    }


def _generation(portable: PortableModel) -> dict[str, Any]:
    """The content of generation_config.json. length_penalty: alpha, whichever formula the model's own search has."""
    return {
        **_special_ids(),
        "num_beams": portable.decoding.beam_size,
        "early_stopping": portable.decoding.beam_size > 1,
        "length_penalty": portable.decoding.alpha,
        "min_new_tokens": 1,
        "max_length": portable.model.config.max_length,
    }


def _special_ids() -> dict[str, int | None]:
    return {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }


def _tokenizer_config(portable: PortableModel) -> dict[str, Any]:
    """The content of tokenizer_config.json.

    bos_token is declared so that a decoded text leaves it out. rstrip: the tokenizer drops the space after a tag, as in
    '>>de<< text'.
    """
    tags = {
        str(index): {
            "content": piece,
            "lstrip": False,
            "normalized": False,
            "rstrip": True,
            "single_word": False,
            "special": True,
        }
        for index, piece in enumerate(portable.pieces)
        if is_tag(piece)
    }
    source, target = portable.languages or (None, None)
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": source,
        "target_lang": target,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "unk_token": UNK,
        "model_max_length": portable.model.config.max_length,
        "separate_vocabs": False,
        "added_tokens_decoder": tags,
    }
