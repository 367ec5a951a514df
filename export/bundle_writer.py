"""Exports a checkpoint as a bundle: check, transform, write beside the target, rename. All or nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from pydantic import ValidationError

from app.bundle import (
    FORMAT_VERSION,
    MANIFEST,
    Alignment,
    Bundle,
    DecodingDefaults,
    FileEntry,
    Manifest,
    Score,
    SpecialIds,
    load_bundle,
)
from app.bundle import WEIGHTS as WEIGHTS_FOLDER
from app.bundle_files import sha256_of
from app.decoding.options import LengthPenalty
from app.dimensions import Dimensions
from app.graphs import GraphPair, GraphSpec, Precision, Variant
from app.language_pairs import LanguagePair, pair_problems
from app.runtime.memory import release_memory
from app.text.tokenizer import Tokenizer, TokenizerError
from export.decoder import build_decoder, build_gpu_decoder, is_gpu_decoder_possible
from export.encoder import build_encoder
from export.golden import make_golden
from export.graph import OPSETS
from export.model_card import Facts, render_card
from export.names import check_names
from export.native import build_native_decoder, build_native_encoder, is_native_possible
from export.output_folder import (
    ExportError,
    check_output,
    new_folder_beside,
    publish_bundle,
)
from export.weight_file import WeightFile
from export.weights import Weights, default_alignment, weights_of
from model.checkpoint import CONFIG, TARGET_TOKENIZER, WEIGHTS, CheckpointError, load_model, tokenizer_of
from model.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, ModelConfig
from model.tensor_file import save_tensors
from model.transformer import Transformer, num_parameters

# The paper's decoding options (section 6.1).
DEFAULT_DECODING = DecodingDefaults(beam_size=4, length_penalty=LengthPenalty.WU, alpha=0.6)
# The graphs' weights, in each variant's folder.
WEIGHT_FILE = "weights.bin"


@dataclass(frozen=True)
class BundleRequest:
    """The contents of a bundle to write.

    name, version: as in the manifest. source, target: languages, as BCP 47 tags.
    tag: the subword before each source; None for a model with one direction.
    reverse_tag: the subword for the direction from target to source; None if the model does not have it.
    more_targets: further target languages of `source`, each with its tag.
    pairs: the language pairs. If set, source, target and the tags are ignored.
    languages: the subword of each language, for a model that translates between any two. If set, source, target and the
        tags are ignored.
    decoding: the default decoding options.
    ends_source, tag_follows_source, has_distinct_placeholders: as in the manifest. All models that this project trains
        have the defaults.
    precisions: the variants. A model with a decoder of SSRUs gets no fp16, which is for GPUs.
    facts: for the card and the manifest. scores: for the manifest; may be empty.
    max_source_length: subwords of the longest training source, tag and end token included. The server splits longer
        sentences. None for the model's number of positions.
    alignment: the layer and heads that align best, measured by `benchmarks.alignment`; None for `default_alignment`.
    """

    name: str
    version: str
    source: str
    target: str
    precisions: tuple[Precision, ...]
    facts: Facts
    scores: tuple[Score, ...] = ()
    max_source_length: int | None = None
    alignment: Alignment | None = None
    tag: str | None = None
    reverse_tag: str | None = None
    more_targets: tuple[tuple[str, str], ...] = ()
    pairs: tuple[LanguagePair, ...] = ()
    languages: dict[str, str] | None = None
    decoding: DecodingDefaults = DEFAULT_DECODING
    ends_source: bool = True
    tag_follows_source: bool = False
    has_distinct_placeholders: bool = True

    @property
    def language_pairs(self) -> tuple[LanguagePair, ...]:
        """The pairs that the manifest lists. Raises ValidationError for a language that is not a BCP 47 tag."""
        if self.pairs or self.languages:
            return self.pairs
        directions = [(self.source, self.target, self.tag)]
        if self.reverse_tag is not None:
            directions.append((self.target, self.source, self.reverse_tag))
        directions += [(self.source, target, tag) for target, tag in self.more_targets]
        return tuple(
            LanguagePair(source=source, target=target, source_prefix=tag)
            for source, target, tag in directions
        )

    @property
    def source_tags(self) -> tuple[str, ...]:
        """The subwords that name languages in sources."""
        named = [self.tag, self.reverse_tag, *(tag for _, tag in self.more_targets)]
        named += [*(pair.source_prefix for pair in self.pairs), *(self.languages or {}).values()]
        return tuple(tag for tag in named if tag is not None)

    @property
    def target_tags(self) -> tuple[str, ...]:
        """The subwords that name languages at the start of targets; empty if targets begin with none."""
        named = [*(pair.target_start for pair in self.pairs), *(self.languages or {}).values()]
        return tuple(tag for tag in named if tag is not None)


def write_bundle(
    checkpoint: Path,
    output: Path,
    request: BundleRequest,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Bundle:
    """Export a checkpoint (model.safetensors, config.json, tokenizer.spm) to the folder `output`.

    If the checkpoint has a target.spm, this file decodes targets. It must have as many subwords as tokenizer.spm and
    the same special ids.

    An existing bundle is replaced after the new one is complete and checked. Any other folder with files is an error.
    Names and the folder are checked first. If `output` is a symbolic link, the folder to which it leads is replaced.
    on_progress: called with each stage's name before the stage begins. Raises CheckpointError, TokenizerError,
    ExportError, LockedError, BundleError, EngineFailure.
    """
    check_request(request)
    output = check_output(output)
    with new_folder_beside(output) as folder:
        folder.mkdir()
        converted = _write_model(folder, checkpoint, request, on_progress=on_progress)
        release_memory()
        _write_descriptions(folder, converted, request, on_progress=on_progress)
        on_progress("checking")
        publish_bundle(folder, output)
    return load_bundle(output)


def check_request(request: BundleRequest) -> None:
    """Raise ExportError for names that a manifest cannot have, and for a direction that is there twice."""
    languages = [("--source", request.source), ("--target", request.target)]
    languages += [("--target", target) for target, _ in request.more_targets]
    check_names(request.name, request.version, () if request.pairs or request.languages else languages)
    if problems := pair_problems(request.language_pairs):
        raise ExportError("; ".join(problems))


def write_variant(folder: Path, weights: Weights, precision: Precision) -> Variant:
    """Build one precision's graphs and write them, with their shared file of weights, to a new folder in `folder`.

    Raises onnx.checker.ValidationError.
    """
    (folder / precision).mkdir()
    builders = {"encoder": build_encoder, "decoder": build_decoder}
    if is_native_possible(weights.config, precision):
        builders |= {"native_encoder": build_native_encoder, "native_decoder": build_native_decoder}
    if is_gpu_decoder_possible(weights.config, precision):
        builders["gpu_decoder"] = build_gpu_decoder
    specs: dict[str, GraphSpec] = {}
    with WeightFile(folder / precision / WEIGHT_FILE) as file:
        for name, build in builders.items():
            graph = build(weights, precision, file)
            specs[name] = graph.spec(f"{precision}/{name}.onnx")
            (folder / specs[name].file).write_bytes(graph.content)
    for spec in specs.values():
        onnx.checker.check_model(folder / spec.file)
    native = None
    if "native_encoder" in specs:
        native = GraphPair(encoder=specs["native_encoder"], decoder=specs["native_decoder"])
    return Variant(
        opset=OPSETS[precision],
        encoder=specs["encoder"],
        decoder=specs["decoder"],
        native=native,
        gpu_decoder=specs.get("gpu_decoder"),
    )


def make_manifest(
    config: ModelConfig, request: BundleRequest, variants: dict[Precision, Variant], folder: Path
) -> Manifest:
    """The manifest of the files now in `folder`. Raises ExportError for an invalid field, such as the name."""
    try:
        return Manifest(
            format_version=FORMAT_VERSION,
            name=request.name,
            version=request.version,
            language_pairs=request.language_pairs,
            languages=request.languages,
            dimensions=dimensions_of(config),
            special_ids=_special_ids(),
            ends_source=request.ends_source,
            tag_follows_source=request.tag_follows_source,
            has_distinct_placeholders=request.has_distinct_placeholders,
            max_source_length=min(config.max_length, request.max_source_length or config.max_length),
            max_target_length=config.max_length - bool(request.target_tags),
            variants=variants,
            alignment=_alignment(config, request),
            decoding=request.decoding,
            scores=request.scores,
            training=request.facts.training,
            weights_licence=request.facts.weights_licence,
            files=file_entries(folder),
        )
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise ExportError("; ".join(problems)) from error


def file_entries(folder: Path) -> dict[str, FileEntry]:
    """The size in bytes and the SHA-256 of every file in a bundle's folder except the manifest, by path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {
        name: FileEntry(size=path.stat().st_size, sha256=sha256_of(path))
        for name, path in names.items()
        if name != MANIFEST
    }


def _check_tokenizer(path: Path, config: ModelConfig, tags: Iterable[str]) -> None:
    """Raise TokenizerError for a file that is no tokenizer, an unknown tag, or special ids other than the model's.

    Raises CheckpointError if the tokenizer and the model have vocabularies of different sizes.
    """
    tokenizer = Tokenizer(path)
    for tag in tags:
        tokenizer.id_of(tag)
    if tokenizer.vocab_size != config.vocab_size:
        raise CheckpointError(
            f"the tokenizer has {tokenizer.vocab_size} subwords, the model's embedding {config.vocab_size}"
        )
    found = SpecialIds(pad=tokenizer.pad_id, bos=tokenizer.bos_id, eos=tokenizer.eos_id, unk=tokenizer.unk_id)
    if found != _special_ids():
        raise TokenizerError(
            f"{path.name} has the special ids {found}, the model was made for {_special_ids()}"
        )


@dataclass(frozen=True)
class _Converted:
    """Facts of a model for the rest of the export. The model's weights are written and their memory is freed."""

    config: ModelConfig
    num_parameters: int
    variants: dict[Precision, Variant]


def _write_model(
    folder: Path, checkpoint: Path, request: BundleRequest, *, on_progress: Callable[[str], None]
) -> _Converted:
    """Write graphs, tokenizers and fp16 weights of a checkpoint to the folder.

    Raises CheckpointError, TokenizerError and ExportError.
    """
    model = load_model(checkpoint)
    precisions = _possible_precisions(model.config, request)
    source_spm, target_spm = tokenizer_of(checkpoint), checkpoint / TARGET_TOKENIZER
    tokenizers = (source_spm, target_spm if target_spm.is_file() else source_spm)
    for path, tags in zip(tokenizers, (request.source_tags, request.target_tags), strict=True):
        _check_tokenizer(path, model.config, tags)
    weights = weights_of(model, _alignment(model.config, request))
    variants: dict[Precision, Variant] = {}
    for precision in precisions:
        on_progress(f"{precision} graphs")
        variants[precision] = write_variant(folder, weights, precision)
    del weights
    for name, tokenizer in zip(("source.spm", "target.spm"), tokenizers, strict=True):
        shutil.copyfile(tokenizer, folder / name)
    _write_weights(folder / WEIGHTS_FOLDER, model)
    return _Converted(model.config, num_parameters(model), variants)


def _possible_precisions(config: ModelConfig, request: BundleRequest) -> tuple[Precision, ...]:
    """The request's precisions, without fp16 for a decoder of SSRUs.

    Raises ExportError if none is left, or for a decoder of SSRUs whose targets begin with a language token.
    """
    if config.decoder == "attention":
        return request.precisions
    if request.target_tags:
        raise ExportError("targets that begin with a language token are not possible with a decoder of SSRUs")
    if not (possible := tuple(one for one in request.precisions if one != "fp16")):
        raise ExportError("a decoder of SSRUs has no fp16 variant: add int8 or fp32 to --precisions")
    return possible


def _write_descriptions(
    folder: Path, converted: _Converted, request: BundleRequest, *, on_progress: Callable[[str], None]
) -> None:
    """Write golden sentences, card and, last, manifest to a folder with the model's files.

    Raises ExportError if every golden sentence is longer than max_source_length.
    """
    on_progress("golden sentences")
    manifest = make_manifest(converted.config, request, converted.variants, folder)
    golden = make_golden(Bundle(folder, manifest, ()), num_threads=os.cpu_count() or 1)
    config, limit = converted.config, manifest.max_source_length
    if not golden:
        option = "--max-source-length" if limit < config.max_length else "--max-length"
        raise ExportError(f"no golden sentence has at most {limit} subwords: raise {option}")
    _write_text(folder / "golden.jsonl", "".join(f"{line.model_dump_json()}\n" for line in golden))
    is_shared = not (config.own_source_table or config.own_output_table)
    card = render_card(
        request.facts, manifest, num_parameters=converted.num_parameters, has_shared_embedding=is_shared
    )
    _write_text(folder / "MODEL_CARD.md", card)
    manifest = make_manifest(converted.config, request, converted.variants, folder)
    write_manifest(folder, manifest)


def _write_weights(folder: Path, model: Transformer) -> None:
    """Write the weights in fp16 as a checkpoint, with which `verify` compares."""
    folder.mkdir()
    state = {name: tensor.to(torch.float16).contiguous() for name, tensor in model.state_dict().items()}
    save_tensors(folder / WEIGHTS, state)
    _write_text(folder / CONFIG, json.dumps({"model": model.config.to_json()}, indent=1) + "\n")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a bundle's manifest.json."""
    _write_text(folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, "utf-8", newline="\n")


def dimensions_of(config: ModelConfig) -> Dimensions:
    """The sizes of a model for the manifest."""
    fields = config.to_json()
    return Dimensions(**{name: fields[name] for name in Dimensions.model_fields})


def _alignment(config: ModelConfig, request: BundleRequest) -> Alignment:
    """The request's alignment, or the default.

    Raises ExportError for a layer or a head that the model does not have, and for a repeated head.
    """
    alignment = request.alignment or default_alignment(config)
    for name, values, limit in (
        ("layer", (alignment.layer,), config.num_decoder_layers),
        ("heads", alignment.heads, config.num_heads),
    ):
        if not set(values) <= set(range(limit)) or len(set(values)) < len(values):
            raise ExportError(f"alignment: {name} must be 0-{limit - 1}, without duplicates")
    return alignment


def _special_ids() -> SpecialIds:
    return SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID, unk=UNK_ID)
