"""Writes the same weights for both sides: as a bundle and as a CTranslate2 model."""

from __future__ import annotations

import shutil
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
# An id outside every vocabulary, so that no sentence with random weights ends by itself.
NO_END = -1


@dataclass(frozen=True)
class Prepared:
    """Folders with the same weights. ours: with a manifest. peer: a CTranslate2 model."""

    name: str
    precision: Precision
    ours: Path
    peer: Path


def random_model(preset_name: str, vocab_size: int) -> Transformer:
    """Random weights, which take as long as trained ones."""
    torch.manual_seed(1)
    return Transformer(preset(preset_name, vocab_size)).eval()


def trained_model(bundle: Bundle) -> Transformer:
    """The bundle's own weights."""
    return load_model(bundle.path / "weights").eval()


def prepare(
    model: Transformer, name: str, precisions: list[Precision], folder: Path, *, is_endless: bool
) -> list[Prepared]:
    """Write both forms into `folder`, for each precision. is_endless: our side gets no end token.

    Both sides quantise the same fp32 weights, each in its own way.
    """
    weights = weights_of(model)
    found = []
    for precision in precisions:
        ours, peer = folder / f"{name}-{precision}", folder / f"{name}-{precision}-peer"
        ours.mkdir(parents=True)
        request = BundleRequest(name, "0", "en", "de", (precision,), _facts())
        manifest = make_manifest(model, request, {precision: write_variant(ours, weights, precision)}, ours)
        if is_endless:
            special_ids = manifest.special_ids.model_copy(update={"eos": NO_END})
            manifest = manifest.model_copy(update={"special_ids": special_ids})
        (ours / MANIFEST).write_text(manifest.model_dump_json(), "utf-8")
        write_ctranslate2(model, peer, QUANTIZATION[precision])
        found.append(Prepared(name, precision, ours, peer))
    return found


def discard(prepared: list[Prepared]) -> None:
    """Remove the folder."""
    for each in prepared:
        shutil.rmtree(each.ours)
        shutil.rmtree(each.peer)


def _facts() -> Facts:
    return Facts(
        summary="weights that are measured",
        good_at=("being timed",),
        bad_at=("being served",),
        weights_licence="none",
        training=Training(commit="none", num_steps=0, data=()),
    )
