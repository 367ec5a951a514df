"""Loads a checkpoint with the tokenizers of its sources and targets, from the checkpoint or from its bundle."""

from __future__ import annotations

import json
from pathlib import Path

from app.text.tokenizer import Tokenizer
from model.checkpoint import TARGET_TOKENIZER, TOKENIZER, CheckpointError, load_model, tokenizer_of
from model.transformer import Transformer


def load_with_tokenizers(
    checkpoint: Path, vocabulary: Path | None = None
) -> tuple[Transformer, Tokenizer, Tokenizer]:
    """Load a checkpoint's model and the tokenizers of its sources and of its targets.

    Both are one object, unless the checkpoint, or the bundle that holds it, has another SentencePiece model for its
    targets. A bundle's manifest says whether sources have an end token and where their tag is.

    vocabulary: the file of the source's tokenizer. None for the checkpoint's own, or for source.spm of the bundle.
    Raises CheckpointError, TokenizerError, OSError.
    """
    model = load_model(checkpoint)
    bundle = checkpoint.parent
    of_bundle = bundle / "source.spm"
    is_in_bundle = of_bundle.is_file()
    options = _source_options(bundle / "manifest.json") if is_in_bundle else {}
    if is_in_bundle and not (checkpoint / TOKENIZER).is_file():
        default = of_bundle
    else:
        default = checkpoint / TOKENIZER if vocabulary else tokenizer_of(checkpoint)
    source = Tokenizer(vocabulary or default, **options)
    folders = (checkpoint, bundle) if is_in_bundle else (checkpoint,)
    target = next((path for folder in folders if (path := folder / TARGET_TOKENIZER).is_file()), None)
    if target is None or (default.is_file() and target.read_bytes() == default.read_bytes()):
        return model, source, source
    return model, source, Tokenizer(target)


def _source_options(manifest: Path) -> dict[str, bool]:
    """The options of `Tokenizer` for the sources of a bundle's model; none if there is no manifest.

    Raises CheckpointError if the file is no manifest, or if targets begin with a subword that names their language.
    """
    if not manifest.is_file():
        return {}
    try:
        fields = dict(json.loads(manifest.read_text("utf-8")))
        pairs = fields.get("language_pairs", ())
        has_target_starts = bool(fields.get("languages")) or any(pair.get("target_start") for pair in pairs)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{manifest} is not a bundle's manifest: {error}") from error
    if has_target_starts:
        raise CheckpointError(
            f"{manifest.parent}: the model's targets begin with a subword that names their language; this command "
            "cannot read such a model"
        )
    return {name: fields[name] for name in ("ends_source", "tag_follows_source") if name in fields}
