"""Reads a checkpoint, or the weights of a bundle, for an export to the format of another project.

`export.huggingface_writer` and `export.ctranslate2_writer` write the formats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from app.bundle import MANIFEST, WEIGHTS, DecodingDefaults, load_bundle
from export.bundle_writer import DEFAULT_DECODING
from export.output_folder import folder_behind, is_new_or_empty, new_folder_beside, sync_folder
from model.checkpoint import TARGET_TOKENIZER, CheckpointError, load_model, tokenizer_of
from model.imported import FIRST
from model.transformer import Transformer


class FormatError(ValueError):
    """The model or its tokenizer cannot be exported, or the output exists. The message says why."""


@dataclass(frozen=True)
class PortableModel:
    """A trained model with the facts that the formats store. Each format stores some of them.

    pieces: the vocabulary by id. source_spm, target_spm: SentencePiece models. decoding: default decoding options.
    ends_source: whether sources end with the end token. languages: source and target of the first language pair, or
    None if they are unknown.
    """

    model: Transformer
    pieces: tuple[str, ...]
    source_spm: Path
    target_spm: Path
    decoding: DecodingDefaults = DEFAULT_DECODING
    ends_source: bool = True
    languages: tuple[str, str] | None = None


def read_bundle(folder: Path) -> PortableModel:
    """Read the fp16 weights of a bundle.

    Raises BundleError, CheckpointError, and FormatError for a model that cannot be exported, a damaged SentencePiece
    model, or a vocabulary without our special pieces.
    """
    manifest = load_bundle(folder).manifest
    if manifest.has_target_starts:
        raise FormatError(
            f"{folder} has targets that begin with a language token, which cannot be exported to another format"
        )
    pair = manifest.language_pairs[0]
    return PortableModel(
        model=_model(folder / WEIGHTS),
        pieces=_pieces(folder / "source.spm"),
        source_spm=folder / "source.spm",
        target_spm=folder / "target.spm",
        decoding=manifest.decoding,
        ends_source=manifest.ends_source,
        languages=(pair.source, pair.target),
    )


def read_checkpoint(folder: Path) -> PortableModel:
    """Read a checkpoint, or the folder `weights` of a bundle.

    Raises CheckpointError, BundleError, and FormatError as `read_bundle` does.
    """
    if folder.name == WEIGHTS and (folder.parent / MANIFEST).is_file():
        return read_bundle(folder.parent)
    model = _model(folder)
    source, target = tokenizer_of(folder), folder / TARGET_TOKENIZER
    pieces = _pieces(source)
    if len(pieces) != model.config.vocab_size:
        raise CheckpointError(
            f"the tokenizer has {len(pieces)} subwords, the model's embedding {model.config.vocab_size}"
        )
    return PortableModel(model, pieces, source, target if target.is_file() else source)


def _model(folder: Path) -> Transformer:
    """The model of a checkpoint. Raises CheckpointError, FormatError."""
    model = load_model(folder)
    if model.config.own_source_table or model.config.own_output_table:
        raise FormatError(
            f"{folder} has separate embeddings of source, target or output; only a model with one shared "
            "embedding can be exported to another format"
        )
    if model.config.decoder == "ssru":
        raise FormatError(f"{folder} has a decoder of SSRUs, which the other formats cannot express")
    return model


def write_new_folder(output: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with the path of a folder to make beside `output`, then rename that folder to `output`.

    If `output` is a symbolic link, the folder to which it leads is written. Missing parents are made. After an error,
    only these parents are left.
    Raises ExportError as `folder_behind` does. Raises ExportError and LockedError as `new_folder_beside` does, and
    FormatError if `output` exists and is not an empty folder.
    """
    folder = folder_behind(output)
    with new_folder_beside(folder) as new:
        if not is_new_or_empty(folder):
            raise FormatError(f"{output} exists: it is left as it is")
        write(new)
        sync_folder(new)
        new.replace(folder)


def _pieces(path: Path) -> tuple[str, ...]:
    """The pieces of a SentencePiece model by id. Raises FormatError."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise FormatError(f"{path.name} is not a SentencePiece model, or damaged") from error
    pieces = tuple(processor.id_to_piece(index) for index in range(processor.vocab_size()))
    if pieces[:4] != FIRST[:4] or not set(FIRST).issubset(pieces):
        raise FormatError(
            f"{path.name} does not begin with {', '.join(FIRST[:4])}, or lacks placeholder symbols"
        )
    return pieces
