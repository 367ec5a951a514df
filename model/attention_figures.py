"""Figures of a model: attention of every layer and head, an alignment of words, positional encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from model.attention_maps import AttentionMaps, Floats, WordAlignment
from model.picture import Picture

Part = Literal["encoder", "decoder", "cross"]
# The title of each part's figure.
_TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}
# An axis of a map with more subwords than this has no labels. If larger, labels overlap.
MAX_LABELS = 40
# Inches of a map's width or height for each subword, and the minimum and the maximum inches of a map.
_INCHES_A_SUBWORD, _MIN_INCHES, _MAX_INCHES = 0.16, 1.6, 4.0
# First dimension of each sine-cosine pair whose curves are drawn, as a share of d_model. The Annotated Transformer
# draws dimensions 4 to 7 of 20.
CURVES = (0.2, 0.3)


def attention_picture(maps: AttentionMaps, part: Part) -> Picture:
    """Draw all layers (rows, from 0) and heads (columns, from 0) of one part. A map's rows are queries.

    A row of decoder or cross-attention is labelled with the subword that its query predicts. Raises ValueError for the
    self-attention of a decoder that has none.
    """
    weights: Floats | None = getattr(maps, part)
    if weights is None:
        raise ValueError(f"--part {part}: a decoder of SSRUs has no self-attention to draw")
    rows = maps.source if part == "encoder" else maps.outputs
    columns = maps.inputs if part == "decoder" else maps.source
    num_layers, num_heads = weights.shape[:2]
    width, height = _inches(columns), _inches(rows)
    figure = Figure(figsize=(num_heads * width + 1.5, num_layers * height + 1.5), layout="constrained")
    figure.suptitle(_TITLES[part])
    grid = figure.subplots(num_layers, num_heads, squeeze=False, sharex=True, sharey=True)
    for layer in range(num_layers):
        for head in range(num_heads):
            axes = grid[layer][head]
            _draw_map(axes, weights[layer, head], rows, columns)
            axes.set_title(f"layer {layer}, head {head}", fontsize=8)
            axes.label_outer()
    return Picture(figure)


def alignment_picture(alignment: WordAlignment) -> Picture:
    """Draw the weights between words. A dot marks the source word that each target word attends to most."""
    width = 0.45 * len(alignment.source) + 2.0
    figure = Figure(figsize=(width, 0.35 * len(alignment.target) + 2.0), layout="constrained")
    axes = figure.subplots()
    image = _draw_map(axes, alignment.weights, alignment.target, alignment.source, font_size=10)
    axes.xaxis.tick_top()
    axes.plot(alignment.links(), range(len(alignment.target)), "o", color="tab:red", markersize=4)
    figure.colorbar(image, label="attention weight", shrink=0.8)
    return Picture(figure)


def positions_picture(positions: Tensor) -> Picture:
    """Draw positional encodings (length, d_model), section 3.5, in three ways.

    The figure shows the values by position and dimension, some dimensions as curves, and the scalar product of any two
    positions divided by d_model.
    """
    values = positions.detach().float().cpu().numpy()
    length, d_model = values.shape
    figure = Figure(figsize=(15, 4.5), layout="constrained")
    heat, curves, products = figure.subplots(1, 3)
    image = heat.imshow(values, aspect="auto", cmap="RdBu", interpolation="nearest")
    heat.set(xlabel="dimension", ylabel="position", title="Values")
    figure.colorbar(image, ax=heat)
    first = [2 * round(share * d_model / 2) for share in CURVES]
    for dimension in (each + parity for each in first for parity in (0, 1)):
        curves.plot(values[: min(length, 100), dimension], label=f"dimension {dimension}")
    curves.set(xlabel="position", ylabel="value", title="Single dimensions")
    curves.legend(loc="lower left", fontsize=8)
    image = products.imshow(values @ values.T / d_model, cmap="viridis", interpolation="nearest")
    products.set(xlabel="position", ylabel="position", title="Scalar products")
    figure.colorbar(image, ax=products)
    return Picture(figure)


def _inches(subwords: Sequence[str]) -> float:
    return min(max(_INCHES_A_SUBWORD * len(subwords), _MIN_INCHES), _MAX_INCHES)


def _draw_map(
    axes: Axes, weights: Floats, rows: Sequence[str], columns: Sequence[str], *, font_size: int = 6
) -> Any:
    """Draw one matrix of weights, 0 to 1, with labels where there is room. Returns the image."""
    image = axes.imshow(weights, vmin=0.0, vmax=1.0, cmap="Blues", aspect="auto", interpolation="nearest")
    if len(columns) <= MAX_LABELS:
        axes.set_xticks(np.arange(len(columns)), _shown(columns), rotation=90, fontsize=font_size)
    if len(rows) <= MAX_LABELS:
        axes.set_yticks(np.arange(len(rows)), _shown(rows), fontsize=font_size)
    return image


def _shown(labels: Sequence[str]) -> list[str]:
    """Labels as matplotlib shows them: a dollar sign would begin a formula."""
    return [label.replace("$", r"\$") for label in labels]
