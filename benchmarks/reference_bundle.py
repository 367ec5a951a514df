"""Exports the missing fp32 variant of a bundle from its own weights. Needs PyTorch."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

from app.bundle import Bundle, Manifest
from app.decoding.options import LengthPenalty
from benchmarks.machine import ROOT

TIMEOUT_S = 120
_CARD = """
summary = "The reference in fp32, for a measurement."
good_at = ["being compared with"]
bad_at = ["being quick"]
weights_licence = {licence}
[training]
commit = {commit}
num_steps = {num_steps}
data = []
"""


class NoReferenceError(Exception):
    """The fp32 variant cannot be exported."""


def reference_bundle(bundle: Bundle, folder: Path) -> Path:
    """The path of a bundle with an fp32 variant: this bundle, or one that is written into `folder`.

    The weights in a bundle are fp16. Converting them to fp32 keeps their values. Raises NoReferenceError if the fp32
    variant cannot be exported, for example because `transduce export` has no option for a part of the model.
    """
    if "fp32" in bundle.manifest.variants:
        return bundle.path
    if not _is_exportable(bundle):
        raise NoReferenceError("`transduce export` has no option for a part of this model")
    missing = [name for name in ("torch", "onnx", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise NoReferenceError(f"this Python has no {', '.join(missing)}")
    checkpoint = folder / "checkpoint"
    try:
        shutil.copytree(bundle.path / "weights", checkpoint)
    except OSError as error:
        raise NoReferenceError(f"the bundle has no weights to export ({type(error).__name__})") from error
    shutil.copyfile(bundle.file("source.spm"), checkpoint / "tokenizer.spm")
    training = bundle.manifest.training
    card = _CARD.format(
        licence=json.dumps(bundle.manifest.weights_licence),
        commit=json.dumps(training.commit),
        num_steps=training.num_steps,
    )
    (folder / "card.toml").write_text(card, "utf-8")
    output = folder / "fp32"
    options = {
        "--checkpoint": checkpoint,
        "--output": output,
        "--name": bundle.manifest.name,
        "--version": bundle.manifest.version,
        **pair_options(bundle.manifest),
        **alignment_option(bundle.manifest),
        "--alpha": bundle.manifest.decoding.alpha,
        "--max-source-length": bundle.manifest.max_source_length,
        "--precisions": "fp32",
        "--card": folder / "card.toml",
    }
    arguments = [str(part) for option in options.items() for part in option]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "transduce", "export", *arguments],
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoReferenceError(f"the export took more than {TIMEOUT_S} s") from error
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NoReferenceError(f"the export failed: {reason[-1]}")
    return output


def _is_exportable(bundle: Bundle) -> bool:
    """Whether `transduce export` has options for all that the model's inputs and outputs depend on."""
    manifest = bundle.manifest
    first = manifest.language_pairs[0]
    both = {(first.source, first.target), (first.target, first.source)}
    return (
        all(
            pair.target_start is None and (pair.source, pair.target) in both
            for pair in manifest.language_pairs
        )
        and manifest.ends_source
        and not manifest.tag_follows_source
        and manifest.has_distinct_placeholders
        and manifest.shortlist is None
        and manifest.alignment is not None
        and manifest.decoding.length_penalty is LengthPenalty.WU
        and bundle.file("source.spm").read_bytes() == bundle.file("target.spm").read_bytes()
    )


def alignment_option(manifest: Manifest) -> dict[str, str]:
    """The option `--alignment` of `transduce export`; empty if the model has no alignment and so cannot be exported."""
    found = manifest.alignment
    return {} if found is None else {"--alignment": f"{found.layer}:{','.join(map(str, found.heads))}"}


def pair_options(manifest: Manifest) -> dict[str, str]:
    """The options of `transduce export` for the first language pair and, if the model has it, the reverse one."""
    pair = manifest.language_pairs[0]
    tags = {(each.source, each.target): each.source_prefix for each in manifest.language_pairs}
    found = {
        "--source": pair.source,
        "--target": pair.target,
        "--tag": pair.source_prefix,
        "--reverse-tag": tags.get((pair.target, pair.source)),
    }
    return {option: value for option, value in found.items() if value is not None}
