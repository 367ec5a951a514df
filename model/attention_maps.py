"""The attention weights of every layer and head for one pair of sentences, computed by equation (1) step by step.

The fused kernel of `MultiHeadAttention.forward` does not keep its weights. `attend_explicitly` returns them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.text.tokenizer import SPACE, Tokenizer
from model.config import BOS_ID
from model.evaluate import translate_greedily
from model.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual, Transformer, causal_mask

Floats = NDArray[np.float32]
# The symbols for the start and the end of a sentence.
START, END = "<s>", "</s>"
# A word begins at a space, at a special token, and at a subword without a letter or a digit.
_OPENING = re.compile(f"^{SPACE}|^{START}$|^{END}$|^[\\W_]+$")


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one pair. Each row of a matrix is a query and sums to 1.

    source: the source's subwords, end token last: (S,). inputs: the decoder's inputs, start token first: (T,).
    outputs: the subword that follows each input, end token last: (T,).
    encoder: (num_encoder_layers, num_heads, S, S). decoder: (num_decoder_layers, num_heads, T, T); None for a decoder
    of SSRUs, which has no self-attention.
    cross: (num_decoder_layers, num_heads, T, S), from each input to the source.
    """

    source: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    encoder: Floats
    decoder: Floats | None
    cross: Floats


@dataclass(frozen=True)
class WordAlignment:
    """The attention of target words to source words. weights: (target words, source words); rows sum to 1."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Floats

    def links(self) -> tuple[int, ...]:
        """Return for each target word the index of the source word with the largest weight."""
        return tuple(self.weights.argmax(axis=1).tolist())


def maps_of(
    model: Transformer,
    tokenizer: Tokenizer,
    source: str,
    target: str | None = None,
    *,
    tag: str | None = None,
    target_tokenizer: Tokenizer | None = None,
) -> AttentionMaps:
    """Compute the weights of a sentence and its translation.

    target: None for the model's own greedy translation. tag: the source's subword that names a language, if the model
    has one. target_tokenizer: None if sources and targets have one vocabulary.
    Raises TokenizerError for a tag that the vocabulary does not have and for text that it cannot encode. Raises
    ValueError for text that is longer than the model's positions.
    """
    target_tokenizer = target_tokenizer or tokenizer
    if target is None:
        (target,) = translate_greedily(model, tokenizer, [source], tag=tag, target_tokenizer=target_tokenizer)
    encoded = tokenizer.encode_tagged(source, tag)
    labels = target_tokenizer.encode_target(target, encoded.verbatim_spans)
    inputs = (BOS_ID, *labels[:-1])
    encoder, decoder, cross = attention_weights(model, encoded.ids, inputs)

    def names(ids: Sequence[int], side: Tokenizer) -> tuple[str, ...]:
        special = {BOS_ID: START, side.eos_id: END}
        shown = (special.get(each) or side.text_of(each, encoded.verbatim_spans) for each in ids)
        return tuple(text.replace(" ", SPACE) for text in shown)

    inputs_shown, outputs_shown = names(inputs, target_tokenizer), names(labels, target_tokenizer)
    return AttentionMaps(names(encoded.ids, tokenizer), inputs_shown, outputs_shown, encoder, decoder, cross)


@torch.no_grad()
def attention_weights(
    model: Transformer, source: Sequence[int], target: Sequence[int]
) -> tuple[Floats, Floats | None, Floats]:
    """Compute the weights of encoder, decoder and cross-attention, shaped as in `AttentionMaps`.

    source: ids, end token last. target: the decoder's inputs, start token first. Raises ValueError past max_length.
    """
    device = model.embedding.weight.device
    memory, encoder = _encoder_weights(model, torch.tensor([list(source)], device=device))
    decoder, cross = _decoder_weights(model, torch.tensor([list(target)], device=device), memory)
    return _stacked(encoder), _stacked(decoder) if decoder else None, _stacked(cross)


def _stacked(weights: list[Tensor]) -> Floats:
    stacked: Floats = torch.cat(weights).float().cpu().numpy()
    return stacked


def _encoder_weights(model: Transformer, source: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Memory (1, S, d_model) and each layer's weights (1, num_heads, S, S)."""
    x, found = model.embedding(source, is_source=True), []
    for layer in cast(list[EncoderLayer], model.encoder):
        attention, feed_forward = cast(list[Residual], layer.residuals)
        y = attention.before(x)
        attended, weights = layer.self_attention.attend_explicitly(y, y)
        x = _fed_forward(layer.feed_forward, feed_forward, attention.after(x, attended))
        found.append(weights)
    return model.encoder_norm(x), found


def _decoder_weights(model: Transformer, target: Tensor, memory: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Each layer's weights of self-attention (1, num_heads, T, T) and of cross-attention (1, num_heads, T, S).

    A decoder of SSRUs has no self-attention, and the first list is empty.
    """
    x, own, cross = model.embedding(target), [], []
    mask = causal_mask(target.size(1), target.device)
    for layer in cast(list[DecoderLayer], model.decoder):
        first, cross_attention, feed_forward = cast(list[Residual], layer.residuals)
        y = first.before(x)
        if layer.self_attention is None:
            mixed = layer.mix_positions(y)
        else:
            mixed, weights = layer.self_attention.attend_explicitly(y, y, mask)
            own.append(weights)
        x = first.after(x, mixed)
        attended, weights = layer.cross_attention.attend_explicitly(cross_attention.before(x), memory)
        cross.append(weights)
        x = _fed_forward(layer.feed_forward, feed_forward, cross_attention.after(x, attended))
    return own, cross


def _fed_forward(feed_forward: FeedForward, residual: Residual, x: Tensor) -> Tensor:
    """The feed-forward sub-layer with its residual connection."""
    return residual.after(x, feed_forward(residual.before(x)))


def align_words(
    maps: AttentionMaps, *, layer: int | None = None, heads: Sequence[int] | None = None
) -> WordAlignment:
    """Return the cross-attention between words in one layer, averaged over heads.

    A source word's weight is the sum over its subwords. A target word's row is the mean over its subwords (Zenkel et
    al. 2019). layer: from 0; None for the last but one, which aligns best (Garg et al. 2019, section 4.1). heads: None
    for all. The end token is a word of both sides. Raises ValueError for a layer or a head that the model does not
    have.
    """
    num_layers, num_heads = maps.cross.shape[:2]
    chosen_layer = max(0, num_layers - 2) if layer is None else layer
    chosen_heads = tuple(range(num_heads)) if heads is None else tuple(heads)
    if not 0 <= chosen_layer < num_layers:
        raise ValueError(f"there is no layer {chosen_layer}: the decoder's are 0 to {num_layers - 1}")
    if not chosen_heads or not set(chosen_heads) <= set(range(num_heads)):
        raise ValueError(f"there are no such heads: a layer's are 0 to {num_heads - 1}")
    weights = maps.cross[chosen_layer, list(chosen_heads)].mean(axis=0)
    source_starts, source = words_of(maps.source)
    target_starts, target = words_of(maps.outputs)
    by_source = np.add.reduceat(weights, source_starts, axis=1)
    lengths = np.diff([*target_starts, len(maps.outputs)])[:, None]
    by_word = np.add.reduceat(by_source, target_starts, axis=0) / lengths
    return WordAlignment(source, target, by_word.astype(np.float32))


def words_of(subwords: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """Return the index at which each word begins, and the words. Punctuation and the end token begin words."""
    starts = [index for index, text in enumerate(subwords) if index == 0 or _OPENING.search(text)]
    ends = [*starts[1:], len(subwords)]
    words = ("".join(subwords[start:end]).replace(SPACE, "") for start, end in zip(starts, ends, strict=True))
    return starts, tuple(words)
