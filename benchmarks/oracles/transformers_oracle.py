"""Hugging Face's models with the same weights and the same position table, in fp32.

A post-norm model becomes a MarianMTModel. A pre-norm model becomes an M2M100ForConditionalGeneration, because
MarianMTModel has no pre-norm form. M2M100 has the same scaled embeddings, sinusoidal positions and final norm of each
stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from app.decoding.options import EarlyStop
from benchmarks.oracles.answers import Answer, Ids, Task, answer_of
from model.config import BOS_ID, EOS_ID, PAD_ID, ModelConfig
from model.search import pad
from model.transformer import Transformer

# Rows of a batch: sentences times beam size.
NUM_ROWS = 256
# With False, a search goes on until beam_size hypotheses have ended and no live one is more probable than the worst of
# these.
EARLY_STOPPING = {EarlyStop.FIRST: True, EarlyStop.BOUND: False}
ATTENTION = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
# Hugging Face's names of the norms of our residual blocks, in order.
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


class TransformersOracle:
    """A Hugging Face model with our model's weights."""

    def __init__(self, model: Transformer) -> None:
        import_module("transformers").logging.set_verbosity_error()
        self._model = marian(model) if model.config.norm == "post" else m2m100(model)
        self.name = f"Hugging Face {type(self._model).__name__}"

    def rule(self, early_stop: EarlyStop) -> str:
        """As `Oracle.rule`."""
        return f"early_stopping={EARLY_STOPPING[early_stop]}, length_penalty=0"

    def answer(self, task: Task) -> list[Answer]:
        """As `Oracle.answer`. Batches sentences of similar length. The answers have no scores."""
        beam = {"early_stopping": EARLY_STOPPING[task.early_stop], "length_penalty": 0.0}
        found: list[Answer] = [Answer(())] * len(task.sources)
        for batch in batches(task.sources, NUM_ROWS // task.beam_size):
            sources = pad([task.sources[index] for index in batch])
            targets = self._model.generate(
                input_ids=sources,
                attention_mask=(sources != PAD_ID).long(),
                do_sample=False,
                num_beams=task.beam_size,
                max_new_tokens=task.max_target_length,
                min_new_tokens=1,
                **(beam if task.beam_size > 1 else {}),
            )
            for index, target in zip(batch, targets[:, 1:].tolist(), strict=True):
                found[index] = answer_of(target)
        return found


def batches(sources: Sequence[Ids], size: int) -> Iterator[list[int]]:
    """The indices of the sources in batches, from short to long."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def marian(model: Transformer) -> Any:
    """A MarianMTModel with the model's weights and position table. Marian's own table has another column order."""
    transformers: Any = import_module("transformers")
    config = transformers.MarianConfig(
        **_sizes(model.config),
        decoder_vocab_size=model.config.vocab_size,
        share_encoder_decoder_embeddings=True,
        forced_eos_token_id=None,
    )
    built = transformers.MarianMTModel(config)
    built.load_state_dict(
        _state(model)
        | {f"model.{stack}.embed_positions.weight": model.embedding.positions for stack in NORMS},
        strict=False,
    )
    return built.eval()


def m2m100(model: Transformer) -> Any:
    """An M2M100ForConditionalGeneration with the model's weights. Its positions begin at pad_id + 1."""
    transformers: Any = import_module("transformers")
    built = transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**_sizes(model.config)))
    state = _state(model)
    for stack in NORMS:
        for part in ("weight", "bias"):
            state[f"model.{stack}.layer_norm.{part}"] = model.state_dict()[f"{stack}_norm.{part}"]
    built.load_state_dict(state, strict=False)
    table = torch.cat([torch.zeros(PAD_ID + 1, model.config.d_model), model.embedding.positions])
    for stack in (built.model.encoder, built.model.decoder):
        stack.embed_positions.weights = table
    return built.eval()


def _sizes(config: ModelConfig) -> dict[str, Any]:
    """The common part of both configurations."""
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation,
        "max_position_embeddings": config.max_length,
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
    }


def _state(model: Transformer) -> dict[str, Tensor]:
    """The model's state dict with Hugging Face's names, without final norms and positions."""
    weights = model.state_dict()
    shared = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    state = {f"{name}.weight": weights["embedding.weight"] for name in shared}
    for stack, norms in NORMS.items():
        num_layers = getattr(model.config, f"num_{stack}_layers")
        for layer in range(num_layers):
            names = _layer_names(f"{stack}.{layer}", f"model.{stack}.layers.{layer}", norms)
            for ours, theirs in names.items():
                for part in ("weight", "bias"):
                    state[f"{theirs}.{part}"] = weights[f"{ours}.{part}"]
    return state


def _layer_names(ours: str, theirs: str, norms: Sequence[str]) -> dict[str, str]:
    """Hugging Face's names of a layer's parameters, by Transduce's names."""
    attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    names = {
        f"{ours}.{attention}.w_{mine}": f"{theirs}.{attentions[attention]}.{name}"
        for attention in list(attentions)[: len(norms) - 1]
        for mine, name in ATTENTION.items()
    }
    names |= {f"{ours}.feed_forward.w_{number}": f"{theirs}.fc{number}" for number in (1, 2)}
    names |= {f"{ours}.residuals.{number}.norm": f"{theirs}.{norm}" for number, norm in enumerate(norms)}
    return names
