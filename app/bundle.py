"""The bundle format, which `transduce export` writes and the server reads. This file defines it.

A bundle is a folder: manifest.json, source.spm, target.spm, golden.jsonl, MODEL_CARD.md, a folder of graphs for each
variant, and the checkpoint `weights/`. It may have a shortlist.bin. The manifest lists every other file with size and
hash. An unlisted file, an unknown format version and an unknown field are errors. All problems that one stage of the
check finds are reported together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from app.bundle_files import read_text, sha256_of
from app.bundle_shortlist import Shortlist, shortlist_problems
from app.decoding.options import LengthPenalty
from app.dimensions import Dimensions, decoder_problems
from app.errors import BundleError
from app.graph_checks import GraphSizes, content_problems, signature_problems
from app.graphs import Precision, Variant
from app.language_pairs import (
    MAX_LANGUAGES,
    LanguagePair,
    LanguageTag,
    ManifestPart,
    pair_problems,
    pairs_between,
)

FORMAT_VERSION: Final = 1
MANIFEST = "manifest.json"
WEIGHTS = "weights"
GOLDEN = "golden.jsonl"
# The forms of a model's name and version.
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
VERSION = r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"


class SpecialIds(ManifestPart):
    """Ids of special subwords; bos starts a target, eos ends source and target."""

    pad: int
    bos: int
    eos: int
    unk: int


class DecodingDefaults(ManifestPart):
    """Default decoding options; a request can replace each of them."""

    beam_size: int = Field(ge=1, le=16)
    length_penalty: LengthPenalty
    # The range of a request's alpha (`MAX_ALPHA` of `app.decoding.validation`).
    alpha: float = Field(ge=0, le=10)


class Alignment(ManifestPart):
    """The cross-attention that the decoder outputs as `alignment`. It is the mean of some heads of one layer.

    Layers and heads count from 0.
    """

    layer: int = Field(ge=0)
    heads: tuple[int, ...] = Field(min_length=1)


class FileEntry(ManifestPart):
    """Size in bytes and SHA-256 of one file."""

    size: int
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Score(ManifestPart):
    """One test set's scores, in one precision, with sacreBLEU's signatures."""

    test_set: str
    precision: Precision
    beam_size: int
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


class TrainingData(ManifestPart):
    """A corpus that the weights are trained on."""

    name: str
    num_pairs: int
    licence: str


class Training(ManifestPart):
    """How the weights were trained. commit: the commit of the training code."""

    commit: str
    num_steps: int
    data: tuple[TrainingData, ...]


class Manifest(ManifestPart):
    """manifest.json. Lengths count subwords: a source with its tag and end token, a target with its start token.

    languages: the short form of language_pairs for a model that translates between any two of these languages. Each
        language has a subword: the source_prefix if it is the source, and the target_start if it is the target. The
        file has exactly one of the fields `languages` and `language_pairs`. If it has `languages`, language_pairs is
        made of it.
    max_target_length: if the pairs have a target_start, target_start counts as the start token, and bos does not count.
    ends_source: whether the model was trained on sources with an end token. OpenNMT's models were not.
    tag_follows_source: whether the source_prefix of a pair is the last subword of a source, after its end token.
    has_distinct_placeholders: whether the model tells the placeholder symbols apart. An imported model does only if its
        vocabulary has them.
    alignment: None if the decoder graphs have no output `alignment`. shortlist: None if there is no shortlist.bin.
    """

    format_version: Literal[1]
    name: str = Field(pattern=NAME)
    version: str = Field(pattern=VERSION)
    language_pairs: tuple[LanguagePair, ...] = ()
    languages: dict[LanguageTag, str] | None = Field(default=None, min_length=2, max_length=MAX_LANGUAGES)
    dimensions: Dimensions
    special_ids: SpecialIds
    ends_source: bool = True
    tag_follows_source: bool = False
    has_distinct_placeholders: bool = True
    max_source_length: int = Field(ge=2)
    max_target_length: int = Field(ge=2)
    variants: dict[Precision, Variant] = Field(min_length=1)
    alignment: Alignment | None = None
    shortlist: Shortlist | None = None
    decoding: DecodingDefaults
    scores: tuple[Score, ...]
    training: Training
    weights_licence: str
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _fill_language_pairs(self) -> Self:
        """Make the pairs of `languages`. Raises ValueError if the file has both or neither."""
        if bool(self.language_pairs) == (self.languages is not None):
            raise ValueError("it needs either language_pairs or languages")
        if self.languages is not None:
            object.__setattr__(self, "language_pairs", pairs_between(self.languages))
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write `languages` if there are any, else `language_pairs`."""
        if self.languages is None:
            fields: dict[str, Any] = write(self)
            del fields["languages"]
        else:
            fields = write(self.model_copy(update={"language_pairs": ()}))
            del fields["language_pairs"]
        return fields

    @property
    def has_target_starts(self) -> bool:
        """Whether targets begin with the target_start of their pair."""
        return self.language_pairs[0].target_start is not None


class Golden(ManifestPart):
    """One line of golden.jsonl: a source and its expected translation by each variant, with beam_size.

    pair: index of its direction in the manifest's language_pairs.
    ids: the best hypothesis' subwords by precision, without start and end tokens, decoded with the manifest's length
        penalty and alpha to at most max_target_length - 1 subwords.
    """

    source: str
    beam_size: int = Field(ge=1, le=16)
    pair: int = Field(default=0, ge=0)
    ids: dict[Precision, tuple[int, ...]]


class Bundle:
    """A checked bundle. path: its folder; of a bundle that `load_bundle` returns, an absolute path."""

    def __init__(self, path: Path, manifest: Manifest, golden: tuple[Golden, ...]) -> None:
        self.path = path
        self.manifest = manifest
        self.golden = golden

    def file(self, name: str) -> Path:
        """The path of a file that the manifest lists. Raises KeyError for any other file."""
        if name not in self.manifest.files:
            raise KeyError(name)
        return self.path / name


def load_bundle(path: Path, *, choose: Callable[[Manifest], Precision] | None = None) -> Bundle:
    """Read and check a bundle. Raises BundleError with every problem found, and what `choose` raises.

    choose: selects the only variant that will be loaded; None: check all variants. With a choice, the other variants'
    hashes and graphs and the hashes of `weights/` are not checked. File sizes and the manifest's entries always are.
    """
    path = path.absolute()
    manifest = read_manifest(path)
    loaded = set(manifest.variants) if choose is None else {choose(manifest)}
    unhashed = set() if choose is None else {*manifest.variants, WEIGHTS} - loaded
    problems = _file_problems(path, manifest, unhashed)
    problems += [*_reference_problems(manifest), *_manifest_problems(manifest)]
    if not problems:
        sizes = _sizes_of(manifest)
        for precision in sorted(loaded):
            problems += content_problems(path, manifest.files, manifest.variants[precision], sizes)
        num_pairs = len(manifest.language_pairs)
        problems += shortlist_problems(path, manifest.shortlist, manifest.files, num_pairs, sizes.vocab_size)
    if problems:
        raise BundleError(path.name, list(dict.fromkeys(problems)))
    return Bundle(path, manifest, _read_golden(path, manifest))


def read_manifest(path: Path) -> Manifest:
    """The manifest of a bundle's folder. Raises BundleError if it is missing or invalid."""
    path = path.absolute()  # `.` has no name for the messages
    try:
        text = read_text(path / MANIFEST)
    except OSError as error:
        reason = f"{MANIFEST} is missing or unreadable ({error.strerror or error})"
        raise BundleError(path.name, [reason if path.is_dir() else "no such folder"]) from error
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise BundleError(path.name, _validation_problems(error, MANIFEST)) from error


def _read_golden(path: Path, manifest: Manifest) -> tuple[Golden, ...]:
    """The golden sentences. Raises BundleError if none can be read, or one is invalid or contradicts the manifest."""
    sentences, problems = [], []
    try:
        lines = [line.decode("utf-8") for line in read_text(path / GOLDEN).splitlines()]
    except (OSError, UnicodeError) as error:
        raise BundleError(path.name, [f"{GOLDEN} cannot be read ({type(error).__name__})"]) from error
    for number, line in enumerate(lines, start=1):
        try:
            golden = Golden.model_validate_json(line)
        except ValidationError as error:
            problems += _validation_problems(error, f"{GOLDEN}: line {number}")
            continue
        sentences.append(golden)
        problems += [f"{GOLDEN}: line {number}: {problem}" for problem in _golden_problems(golden, manifest)]
    if not lines:
        problems = [f"{GOLDEN} holds no sentence, so the model cannot be checked"]
    if problems:
        raise BundleError(path.name, problems)
    return tuple(sentences)


def _golden_problems(golden: Golden, manifest: Manifest) -> Iterator[str]:
    """What is wrong with a golden sentence: its pair, a variant without ids, or ids outside the vocabulary."""
    num_pairs, vocab_size = len(manifest.language_pairs), manifest.dimensions.vocab_size
    if golden.pair >= num_pairs:
        yield f"pair is {golden.pair}: the manifest has {num_pairs} language_pairs"
    yield from (f"ids has no {precision}" for precision in manifest.variants if precision not in golden.ids)
    for precision, ids in golden.ids.items():
        if not all(0 <= one < vocab_size for one in ids):
            yield f"ids.{precision} has an id that is not from 0 to {vocab_size - 1}"


def _validation_problems(error: ValidationError, where: str) -> list[str]:
    """One line for each of Pydantic's errors, with the field. where: the file."""
    return [f"{where}: {'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors()]


def _file_problems(path: Path, manifest: Manifest, unhashed: Set[str]) -> list[str]:
    """Missing, unlisted, linked, resized and altered files. unhashed: folders whose files' hashes are not checked."""
    problems = []
    listed = set(manifest.files)
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            entry = Path(folder) / name
            relative = entry.relative_to(path).as_posix()
            if entry.is_symlink():
                problems.append(f"{relative} is a link")
            elif name in names and relative != MANIFEST and relative not in listed:
                problems.append(f"{relative} is not in the manifest")
    for name, expected in sorted(manifest.files.items()):
        checks_hash = PurePosixPath(name).parts[:1] not in {(folder,) for folder in unhashed}
        problems.extend(_entry_problems(path, name, expected, checks_hash=checks_hash))
    return problems


def _entry_problems(path: Path, name: str, expected: FileEntry, *, checks_hash: bool) -> list[str]:
    """The problem of one listed file, if any. checks_hash: whether to check the SHA-256."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or str(pure) != name:
        return [f"{name!r} is not a plain path inside the bundle"]
    file = path / name
    try:
        status = file.lstat()
        if stat.S_ISLNK(status.st_mode):
            return []  # reported by _file_problems
        if not stat.S_ISREG(status.st_mode):
            return [f"{name} is not a plain file"]
        if status.st_size != expected.size:
            return [f"{name} has {status.st_size} bytes, the manifest says {expected.size}"]
        if checks_hash and sha256_of(file) != expected.sha256:
            return [f"{name} has another SHA-256 than the manifest says"]
    except FileNotFoundError:
        return [f"{name} is missing"]
    except (OSError, ValueError) as error:
        return [f"{name!r} cannot be read ({type(error).__name__})"]
    return []


def _reference_problems(manifest: Manifest) -> list[str]:
    """Files that the format or a variant requires and `files` does not list, and graphs outside their variant's folder.

    `load_bundle` checks the hashes of a chosen variant by its folder, so it would not check a graph outside of it.
    """
    needed = ["source.spm", "target.spm", GOLDEN, "MODEL_CARD.md"]
    problems = []
    for precision, variant in manifest.variants.items():
        names = [graph.file for graph in (*variant.encoders, *variant.decoders)]
        problems += [
            f"{name} is not in the folder {precision}/ of its variant"
            for name in names
            if PurePosixPath(name).parts[:1] != (precision,)
        ]
        needed += names
    return problems + [
        f"{name} is not in the manifest's files" for name in needed if name not in manifest.files
    ]


def _manifest_problems(manifest: Manifest) -> list[str]:
    """Values of the manifest that contradict each other, by field."""
    dimensions, alignment = manifest.dimensions, manifest.alignment
    problems = [
        f"special_ids.{name} is {value}, and the vocabulary has the ids 0 to {dimensions.vocab_size - 1}"
        for name, value in manifest.special_ids
        if not 0 <= value < dimensions.vocab_size
    ]
    if alignment is not None:
        problems += _range_problems("alignment.layer", [alignment.layer], dimensions.num_decoder_layers)
        problems += _range_problems("alignment.heads", alignment.heads, dimensions.num_heads)
    problems += pair_problems(manifest.language_pairs)
    if dimensions.d_model % dimensions.num_heads:
        problems.append("dimensions: d_model is not a multiple of num_heads")
    starts = manifest.has_target_starts
    problems += decoder_problems(dimensions, manifest.variants.keys(), has_target_starts=starts)
    if not problems:
        sizes = _sizes_of(manifest)
        for variant in manifest.variants.values():
            problems += signature_problems(variant, sizes)
    return [f"{MANIFEST}: {problem}" for problem in problems]


def _range_problems(field: str, values: Iterable[int], limit: int) -> list[str]:
    """A message if two values are equal or a value is outside of 0..limit-1; else nothing."""
    values = list(values)
    if len(set(values)) == len(values) and all(0 <= value < limit for value in values):
        return []
    return [f"{field}: {values} must be different numbers from 0 to {limit - 1}"]


def _sizes_of(manifest: Manifest) -> GraphSizes:
    """The manifest's values that graphs must agree with."""
    dimensions, alignment = manifest.dimensions, manifest.alignment
    return GraphSizes(
        vocab_size=dimensions.vocab_size,
        d_model=dimensions.d_model,
        num_heads=dimensions.num_heads,
        d_ff=dimensions.d_ff,
        num_encoder_layers=dimensions.num_encoder_layers,
        num_decoder_layers=dimensions.num_decoder_layers,
        is_pre_norm=dimensions.norm == "pre",
        activation=dimensions.activation,
        decoder=dimensions.decoder,
        max_source_length=manifest.max_source_length,
        max_target_length=manifest.max_target_length + manifest.has_target_starts,
        eos_id=manifest.special_ids.eos,
        aligned_layer=None if alignment is None else alignment.layer,
        aligned_heads=None if alignment is None else alignment.heads,
    )
