"""A tiny random model with its tokenizer, as a checkpoint and as a bundle, for tests of export and runtime."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.bundle import Bundle, Manifest, Training, TrainingData
from app.graphs import KernelChoice, Precision
from app.language_pairs import LanguagePair
from app.runtime.interface import Int32s
from app.runtime.native import usable_targets
from app.runtime.ort_runner import LoadedRunner, load_runner
from app.text.tokenizer import Tokenizer
from export.bundle_writer import BundleRequest, make_manifest, write_bundle, write_variant
from export.cli import add_export_arguments
from export.golden import GoldenSource, golden_sources, translate_ids
from export.model_card import Facts
from export.weights import weights_of
from model.checkpoint import Saved, save
from model.config import EOS_ID, preset
from model.corpus import Pair
from model.tokenizer_training import train_tokenizer
from model.transformer import Transformer
from tests.kinds import target_params
from tests.native_kernels import NEEDS_NATIVE

VOCAB_SIZE = 400
# Standard kernels, and native kernels if they can run.
KERNELS = ["standard", pytest.param("native", marks=NEEDS_NATIVE)]
# Standard kernels, and the native kernels of each target that can run. If no target can run, one native case remains,
# which is skipped.
TARGET_KERNELS = ["standard", *(target_params(usable_targets()) or KERNELS[1:])]
MAX_LENGTH = 32
WORDS = {
    "the": "die", "old": "alte", "new": "neue", "green": "grüne", "station": "Haltestelle", "house": "Hütte",
    "letter": "Karte", "window": "Scheibe", "street": "Straße", "is": "ist", "near": "bei", "behind": "hinter",
    "large": "große", "small": "kleine", "bridge": "Brücke", "tower": "Burg", "seven": "sieben", "open": "offen",
}  # fmt: skip


def sentences() -> list[Pair]:
    """400 pairs. Each has five of the WORDS and a number."""
    words = list(WORDS)
    pairs = []
    for index in range(400):
        chosen = [words[(index * step + step) % len(words)] for step in (1, 3, 5, 7, 11)]
        source, target = " ".join(chosen), " ".join(WORDS[word] for word in chosen)
        pairs.append(Pair(f"{source.capitalize()} {index}.", f"{target.capitalize()} {index}.", "tiny"))
    return pairs


def export_arguments(checkpoint: Path, output: Path, facts_file: Path, *more: str) -> argparse.Namespace:
    """Arguments of `transduce export`. facts_file: is written, with the facts of the model card."""
    facts_file.write_text(
        f'summary = "{FACTS.summary}"\ngood_at = ["x"]\nbad_at = ["y"]\nweights_licence = "Apache-2.0"\n'
        '[training]\ncommit = "abc"\nnum_steps = 3\n'
        '[[training.data]]\nname = "made up"\nnum_pairs = 400\nlicence = "CC0-1.0"\n',
        "utf-8",
    )
    parser = argparse.ArgumentParser()
    add_export_arguments(parser)
    named = {"checkpoint": checkpoint, "output": output, "card": facts_file, "name": "tiny", "version": 3}
    languages = ("--source", "en", "--target", "de")
    options = [text for name, value in named.items() for text in (f"--{name}", str(value))]
    return parser.parse_args([*options, *languages, *more])


def random_model(*, seed: int = 1, vocab_size: int = VOCAB_SIZE, **changes: Any) -> Transformer:
    """A tiny model with random weights.

    Its biases and norms are random too, so that code that leaves one out or uses a wrong one gives other results.
    """
    torch.manual_seed(seed)
    model = Transformer(preset("tiny", vocab_size, **changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or ".norm." in name or "_norm." in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def random_sources(seed: int, number: int, *, least: int = 1, most: int = 19) -> list[Int32s]:
    """This number of sources. Each has `least` to `most` random subwords, then the end token."""
    random_numbers = np.random.default_rng(seed)
    return [
        np.append(random_numbers.integers(EOS_ID + 1, VOCAB_SIZE, length), EOS_ID).astype(np.int32)
        for length in random_numbers.integers(least, most + 1, number)
    ]


def write_checkpoint(folder: Path, model: Transformer) -> Path:
    """Train a tokenizer and write a checkpoint. Returns the path of the checkpoint."""
    tokenizer = folder / "trained.spm"
    train_tokenizer(sentences(), tokenizer, vocab_size=VOCAB_SIZE, character_coverage=1.0)
    path = folder / "checkpoint"
    save(path, Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}), tokenizer)
    return path


FACTS = Facts(
    summary="A tiny model of random weights, for tests.",
    good_at=("being small",),
    bad_at=("translating",),
    weights_licence="Apache-2.0",
    training=Training(
        commit="0" * 40, num_steps=0, data=(TrainingData(name="made up", num_pairs=400, licence="CC0-1.0"),)
    ),
)


def bundle_request(*, name: str = "tiny-en-de", version: str = "1") -> BundleRequest:
    """A request for all three precisions."""
    return BundleRequest(
        name=name,
        version=version,
        source="en",
        target="de",
        precisions=("int8", "fp16", "fp32"),
        facts=FACTS,
    )


def write_tiny_bundle(folder: Path, model: Transformer | None = None) -> Bundle:
    """Write a valid bundle with all variants of the model to `folder`/bundle, its checkpoint to `folder`/checkpoint."""
    checkpoint = write_checkpoint(folder, model or random_model(max_length=MAX_LENGTH))
    return write_bundle(checkpoint, folder / "bundle", bundle_request())


def load_tiny_runner(
    model: Transformer,
    precision: Precision,
    folder: Path,
    *,
    num_rows: int = 16,
    num_threads: int = 1,
    kernels: KernelChoice = "standard",
    has_target_start: bool = False,
) -> LoadedRunner:
    """The server's runner for one variant of a model. has_target_start: as in `write_tiny_variant`."""
    bundle = write_tiny_variant(model, precision, folder, has_target_start=has_target_start)
    return load_tiny_variant(bundle, num_rows=num_rows, num_threads=num_threads, kernels=kernels)


def write_tiny_variant(
    model: Transformer, precision: Precision, folder: Path, *, has_target_start: bool = False
) -> Bundle:
    """One variant of a model, without the other files of a bundle.

    has_target_start: whether each target begins with a start token of the language pair, after BOS_ID.
    """
    variant = write_variant(folder, weights_of(model), precision)
    pairs = (LanguagePair(source="en", target="de", target_start="__de__"),) if has_target_start else ()
    manifest = make_manifest(
        model.config, replace(bundle_request(), pairs=pairs), {precision: variant}, folder
    )
    return Bundle(folder, manifest, ())


def load_tiny_variant(
    bundle: Bundle, *, num_rows: int = 16, num_threads: int = 1, kernels: KernelChoice = "standard"
) -> LoadedRunner:
    """The server's runner for the only variant of a bundle."""
    (precision,) = bundle.manifest.variants
    return load_runner(
        bundle,
        precision=precision,
        device="cpu",
        num_rows=num_rows,
        num_threads=num_threads,
        kernels=kernels,
    )


def names(folder: Path) -> list[str]:
    """The names in a folder, hidden ones included."""
    return sorted(path.name for path in folder.iterdir())


def recorded_translations(
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Source and translation ids of each sentence of the test sets that `verify` translates from now on.

    The keys are the labels of the progress bars that `verify` shows for the test sets.
    """
    recorded: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}

    def record(*arguments: Any, progress: str = "", **options: Any) -> list[tuple[int, ...]]:
        ids = translate_ids(*arguments, progress=progress, **options)
        recorded[progress] = list(zip(map(tuple, arguments[1]), ids, strict=True))
        return ids

    monkeypatch.setattr("export.verify_scores.translate_ids", record)
    return recorded


def verify_few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, `verify` takes one random batch and four golden sentences, for tests of its other checks."""

    def few(tokenizer: Tokenizer, manifest: Manifest) -> list[GoldenSource]:
        return golden_sources(tokenizer, manifest)[:4]

    monkeypatch.setattr("export.verify.NUM_BATCHES", 1)
    monkeypatch.setattr("export.verify.golden_sources", few)
