"""Writes a trained model for Marian, as Firefox has its models: int8 with scales of activations.

The vocabulary's pieces are the ids as decimal numbers, so a caller tokenises. Marian's network differs from ours in
three ways. Its positions have other frequencies. A target begins with zeros instead of the start token's embedding. And
with pre-norm, the keys and values of self-attention are not normalised. `build.sh` applies `paper_network.patch`. With
it, Marian has our network if PAPER_NETWORK in the environment is the id of the start token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from benchmarks.http.marian_engine import END, PAPER_NETWORK, UNKNOWN, pieces_of
from benchmarks.marian.model import Array, Sizes, quantise, write_lines, write_npz, write_vocabulary
from benchmarks.marian.process import MarianFiles
from export.huggingface_writer import dimension_order
from model.config import EOS_ID, UNK_ID
from model.transformer import Transformer

# Our names of attention blocks, and the parts of Marian's names.
ATTENTIONS = {"self_attention": "self", "cross_attention": "context"}


def write_trained(
    model: Transformer, calibration: Sequence[Sequence[int]], folder: Path, programs: Path
) -> MarianFiles:
    """Write a model with self-attention in the decoder and ReLU to a new folder.

    calibration: sources from which the scales of activations are found. programs: the folder `build` that
    `build.sh` makes. Raises MarianError, and FormatError for positions other than the paper's.
    """
    folder.mkdir()
    config = model.config
    sizes = Sizes(
        config.vocab_size,
        config.d_model,
        config.d_ff,
        config.num_heads,
        config.num_encoder_layers,
        config.num_decoder_layers,
        has_ssru=False,
        is_pre_norm=config.norm == "pre",
    )
    write_npz(folder / "model.npz", dict(_weights(model)), sizes)
    names = {EOS_ID: END, UNK_ID: UNKNOWN}
    found = MarianFiles(folder / "model.intgemm.alphas.bin", folder / "vocab.yml", programs)
    write_vocabulary(found.vocabulary, [names.get(each, str(each)) for each in range(config.vocab_size)])
    write_lines(folder / "calibrate.txt", [pieces_of(ids) for ids in calibration])
    quantise(folder, found, sizes, PAPER_NETWORK)
    return found


def _weights(model: Transformer) -> Iterator[tuple[str, Array]]:
    """The weights by Marian's names. A matrix is (inputs, outputs), and a vector (1, outputs)."""
    state = {name: value.detach().float() for name, value in model.state_dict().items()}
    # Marian's positions have all sines first. So all weights have the dimensions of the model in another order.
    order = dimension_order(model)
    config = model.config
    suffix = "_pre" if config.norm == "pre" else ""

    def array(value: Tensor) -> Array:
        found: Array = np.ascontiguousarray(value.numpy().astype(np.float32))
        return found

    def linear(ours: str, weight: str, bias: str, *, is_output: bool) -> Iterator[tuple[str, Array]]:
        """is_output: whether the outputs, and not the inputs, are the dimensions of the model."""
        matrix, vector = state[f"{ours}.weight"], state[f"{ours}.bias"]
        yield weight, array((matrix[order] if is_output else matrix[:, order]).T)
        yield bias, array((vector[order] if is_output else vector)[None])

    def norm(ours: str, theirs: str, suffix: str) -> Iterator[tuple[str, Array]]:
        yield f"{theirs}_ln_scale{suffix}", array(state[f"{ours}.weight"][order][None])
        yield f"{theirs}_ln_bias{suffix}", array(state[f"{ours}.bias"][order][None])

    yield "Wemb", array(state["embedding.weight"][:, order])
    bias = state.get("embedding.output_bias")
    none = np.zeros((1, config.vocab_size), np.float32)
    yield "decoder_ff_logit_out_b", none if bias is None else array(bias[None])
    for stack, depth in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        for layer in range(depth):
            ours, theirs = f"{stack}.{layer}", f"{stack}_l{layer + 1}"
            blocks = [each for each in ATTENTIONS if f"{ours}.{each}.w_q.weight" in state]
            for index, block in enumerate(blocks):
                name = f"{theirs}_{ATTENTIONS[block]}"
                for letter in "qkvo":
                    own = f"{ours}.{block}.w_{letter}"
                    yield from linear(own, f"{name}_W{letter}", f"{name}_b{letter}", is_output=letter == "o")
                yield from norm(f"{ours}.residuals.{index}.norm", f"{name}_Wo", suffix)
            for number in "12":
                own, name = f"{ours}.feed_forward.w_{number}", f"{theirs}_ffn"
                yield from linear(own, f"{name}_W{number}", f"{name}_b{number}", is_output=number == "2")
            yield from norm(f"{ours}.residuals.{len(blocks)}.norm", f"{theirs}_ffn_ffn", suffix)
        if suffix:
            yield from norm(f"{stack}_norm", f"{stack}_top", "")
