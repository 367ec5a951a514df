"""Writes the same weights for both engines: as a bundle and as a CTranslate2 model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from app.bundle import MANIFEST, Bundle, Training
from app.graphs import Precision
from benchmarks.engine.ctranslate2_model import Quantization, write_ctranslate2
from export.bundle_writer import BundleRequest, make_manifest, write_variant
from export.model_card import Facts
from export.weights import weights_of
from model.checkpoint import load_model
from model.config import preset
from model.transformer import Transformer

QUANTIZATION: dict[Precision, Quantization] = {"int8": "int8", "fp32": "float32"}
# An end token outside every vocabulary, so that no target ends before the length limit.
NO_END = -1


@dataclass(frozen=True)
class ModelPair:
    """Two folders with the same weights. ours: a bundle. peer: a CTranslate2 model."""

    name: str
    precision: Precision
    ours: Path
    peer: Path


def random_model(preset_name: str, vocab_size: int) -> Transformer:
    """A model with random weights, whose decoder steps take as long as those of a trained model."""
    torch.manual_seed(1)
    return Transformer(preset(preset_name, vocab_size)).eval()


def trained_model(bundle: Bundle) -> Transformer:
    """The model with the bundle's weights."""
    return load_model(bundle.path / "weights").eval()


def prepare(
    model: Transformer,
    name: str,
    precisions: list[Precision],
    folder: Path,
    *,
    has_no_end_token: bool,
    write_peer: Callable[[Path, Quantization], None] | None = None,
) -> list[ModelPair]:
    """Write the bundle and the CTranslate2 model into `folder`, for each precision.

    write_peer: writes the CTranslate2 model; None to convert `model`. has_no_end_token: the bundle has no usable end
    token, so all targets reach the length limit. Each engine quantises the same fp32 weights in its own way.
    """
    weights = weights_of(model)
    found = []
    for precision in precisions:
        ours, peer = folder / f"{name}-{precision}", folder / f"{name}-{precision}-peer"
        ours.mkdir(parents=True)
        request = BundleRequest(name, "0", "en", "de", (precision,), _facts())
        manifest = make_manifest(
            model.config, request, {precision: write_variant(ours, weights, precision)}, ours
        )
        if has_no_end_token:
            special_ids = manifest.special_ids.model_copy(update={"eos": NO_END})
            manifest = manifest.model_copy(update={"special_ids": special_ids})
        (ours / MANIFEST).write_text(manifest.model_dump_json(), "utf-8")
        if write_peer is None:
            write_ctranslate2(model, peer, QUANTIZATION[precision])
        else:
            write_peer(peer, QUANTIZATION[precision])
        found.append(ModelPair(name, precision, ours, peer))
    return found


def discard(prepared: list[ModelPair]) -> None:
    """Remove the folders."""
    for each in prepared:
        shutil.rmtree(each.ours)
        shutil.rmtree(each.peer)


def _facts() -> Facts:
    return Facts(
        summary="weights for a benchmark",
        good_at=("benchmarks",),
        bad_at=("serving",),
        weights_licence="none",
        training=Training(commit="none", num_steps=0, data=()),
    )
