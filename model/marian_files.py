"""Reads Marian's own files: the weights with their configuration, and the vocabularies.

Releases of the Tatoeba Challenge have an .npz file, vocabularies in YAML, source.spm and target.spm. Models of Firefox
have a binary file, one or two SentencePiece models whose ids are those of the model, and a shortlist. The result has
the names, shapes and fields of Hugging Face's Marian, so that `model.marian` handles all formats in the same way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from model.huggingface_files import OUTPUT_TABLE, PICKLE, SHARED, SOURCE_TABLE, SSRU, TARGET_TABLE
from model.imported import PAD, read_sentencepiece, shown
from model.marian_binary import (
    ACTIVATION_SCALE,
    BinaryError,
    MarianShortlist,
    is_shortlist,
    read_arrays,
    read_shortlist,
)
from model.marian_options import (
    YAML_CONFIG,
    config_facts,
    has_ssru,
    is_output_tied,
    is_source_tied,
    left_out_options,
    option_problems,
    search_options,
)

# Names of a vocabulary's file, and of the files of sources and of targets where each side has its own.
YAML, SPM = "*vocab.yml", "*vocab*.spm"
YAML_SIDES, SPM_SIDES = ("*src.vocab.yml", "*trg.vocab.yml"), ("srcvocab*.spm", "trgvocab*.spm")
# The SentencePiece models beside vocabularies in YAML.
SOURCE, TARGET = "source.spm", "target.spm"
# The options of the search. Marian writes them to WEIGHTS.decoder.yml, and OPUS-MT's releases have them in decoder.yml.
DECODER = "decoder.yml"
# The first three and the last two events of a YAML file that is one mapping.
ONE_MAPPING = [
    yaml.StreamStartEvent,
    yaml.DocumentStartEvent,
    yaml.MappingStartEvent,
    yaml.DocumentEndEvent,
    yaml.StreamEndEvent,
]


@dataclass(frozen=True)
class MarianFiles:
    """The content of a folder.

    facts: fields as in Hugging Face's config.json. search: beam size and length penalty.
    vocabularies: of sources and of targets, one object if they are the same. The padding is a new last piece with a row
        of zeros, because Marian's decoder starts with zeros.
    weights: by the names of Hugging Face. sentencepieces: the SentencePiece models of sources and of targets.
    shortlist: by the ids of the vocabularies; None if there is none. notes: as in `ImportedModel`.
    """

    facts: dict[str, Any]
    search: tuple[int, float]
    vocabularies: tuple[dict[str, int], dict[str, int]]
    weights: dict[str, Tensor]
    sentencepieces: tuple[Any, Any]
    shortlist: MarianShortlist | None
    notes: tuple[str, ...]


def has_marian_files(folder: Path) -> bool:
    """Whether the folder has a file that can be weights, a vocabulary or a shortlist in Marian's own formats."""
    files = (path for pattern in ("*.npz", "*.bin", YAML, SPM) for path in folder.glob(pattern))
    return any(path.name != PICKLE for path in files)


def read_marian_files(folder: Path) -> MarianFiles:
    """Read a folder. Raises ValueError for files that are missing, damaged or of another network, and OSError."""
    path = _the_only(_weight_files(folder), "*.npz or *.bin")
    arrays = _arrays(path)
    if YAML_CONFIG not in arrays:
        raise ValueError(f"{path.name} has no {YAML_CONFIG}")
    options = _yaml(arrays.pop(YAML_CONFIG).tobytes().rstrip(b"\0"), YAML_CONFIG)
    if problems := option_problems(options):
        raise ValueError("; ".join(problems))
    search, notes = _search(folder, is_binary=path.suffix == ".bin")
    source, target = vocabularies = _vocabularies(folder, are_tables_shared=is_source_tied(options))
    remaining = _Arrays(arrays)
    try:
        weights = _weights(remaining, options)
    except KeyError as error:
        raise ValueError(f"{path.name} has no {error.args[0]}") from error
    if unread := remaining.names():
        raise ValueError(f"{path.name} has arrays that this network does not have: {shown(unread)}")
    source_spm, target_spm = map(read_sentencepiece, _sentencepiece_paths(folder))
    shortlist = _shortlist(folder, source, target)
    facts = config_facts(options, source, target)
    return MarianFiles(facts, search, vocabularies, weights, (source_spm, target_spm), shortlist, notes)


def _search(folder: Path, *, is_binary: bool) -> tuple[tuple[int, float], tuple[str, ...]]:
    """Beam size and length penalty, and notes about options that are left out. Raises ValueError.

    They are in decoder.yml, or in the only file that Marian has named after the weights. There may be no such file.
    """
    found = [folder / DECODER] if (folder / DECODER).is_file() else sorted(folder.glob(f"*.{DECODER}"))
    path = _the_only(found, f"*.{DECODER}") if found else None
    options = {} if path is None else _yaml(path.read_bytes(), path.name)
    name = DECODER if path is None else path.name
    return search_options(options, name, is_binary=is_binary), left_out_options(options, name)


def _weight_files(folder: Path) -> list[Path]:
    """The .npz files and the .bin files, except shortlists and Hugging Face's pickle, which also end in .bin."""
    binary = [path for path in folder.glob("*.bin") if path.name != PICKLE and not is_shortlist(path)]
    return sorted([*folder.glob("*.npz"), *binary])


def _shortlist(folder: Path, source: dict[str, int], target: dict[str, int]) -> MarianShortlist | None:
    """The shortlist of the folder. source, target: vocabularies with padding. Raises ValueError."""
    found = [path for path in folder.glob("*.bin") if is_shortlist(path)]
    if not found:
        return None
    path = _the_only(found, "*.bin and hold a shortlist")
    try:
        return read_shortlist(path, num_source=len(source) - 1, num_target=len(target) - 1)
    except BinaryError as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error


def _vocabularies(folder: Path, *, are_tables_shared: bool) -> tuple[dict[str, int], dict[str, int]]:
    """The vocabularies with padding. Raises ValueError."""
    yaml_files, spm_files = sorted(folder.glob(YAML)), sorted(folder.glob(SPM))
    sides = YAML_SIDES if yaml_files else SPM_SIDES
    if are_tables_shared or not all(any(folder.glob(pattern)) for pattern in sides):
        vocabulary = _with_padding(_the_only(yaml_files or spm_files, f"{YAML} or {SPM}"))
        return vocabulary, vocabulary
    source, target = (_with_padding(_only(folder, pattern)) for pattern in sides)
    return source, source if target == source else target


def _sentencepiece_paths(folder: Path) -> tuple[Path, Path]:
    """The SentencePiece models of sources and of targets. Raises ValueError if one is missing."""
    if (folder / SOURCE).is_file() and (folder / TARGET).is_file():
        return folder / SOURCE, folder / TARGET
    if all(any(folder.glob(pattern)) for pattern in SPM_SIDES):
        source, target = (_only(folder, pattern) for pattern in SPM_SIDES)
        return source, target
    if any(folder.glob(SPM)):
        both = _only(folder, SPM)
        return both, both
    missing = [name for name in (SOURCE, TARGET) if not (folder / name).is_file()]
    raise ValueError("; ".join(f"{name} is missing" for name in missing))


def _with_padding(path: Path) -> dict[str, int]:
    """A vocabulary with the padding as a new last piece. Raises ValueError."""
    if path.suffix == ".spm":
        vocabulary = {piece.piece: index for index, piece in enumerate(read_sentencepiece(path).pieces)}
    else:
        vocabulary = _vocabulary(path)
    if PAD in vocabulary:
        raise ValueError(f"{path.name} has {PAD}, which Marian's vocabularies do not have")
    return vocabulary | {PAD: len(vocabulary)}


def _only(folder: Path, pattern: str) -> Path:
    """The only file that matches a pattern. Raises ValueError for none, or if several differ."""
    return _the_only(sorted(folder.glob(pattern)), pattern)


def _the_only(found: list[Path], pattern: str) -> Path:
    """The only one of these files. Raises ValueError for none, or if several differ. pattern: for the message."""
    # A release may have the same vocabulary twice, for both sides.
    if len(found) != 1 and len({path.read_bytes() for path in found}) != 1:
        raise ValueError(f"{len(found)} files are called {pattern}, where one is needed")
    return found[0]


def _arrays(path: Path) -> dict[str, Any]:
    """All arrays. Raises ValueError, and OSError for a binary file. NumPy reads no pickled objects here."""
    if path.suffix == ".bin":
        try:
            return dict(read_arrays(path))
        except BinaryError as error:
            raise ValueError(f"{path.name} cannot be read: {error}") from error
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged archive can fail in any way
        raise ValueError(f"{path.name} is not an archive of arrays ({type(error).__name__})") from error


def _yaml(content: bytes, name: str) -> dict[str, Any]:
    """A YAML mapping as plain data. Raises ValueError."""
    try:
        found = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{name} is not YAML") from error
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a table of YAML")  # noqa: TRY004 - the file is wrong, not a type
    return found


def _vocabulary(path: Path) -> dict[str, int]:
    """Pieces and their ids. Raises ValueError. All values are read as text: `no` and `1.5` are pieces.

    The file is read event by event, because PyYAML's loaders end the process if a file has very many brackets.
    """
    events: Iterator[Any] = yaml.parse(
        path.read_bytes(), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    )
    try:
        begin = [type(event) for event in itertools.islice(events, 3)]
        scalars = itertools.takewhile(lambda event: not isinstance(event, yaml.MappingEndEvent), events)
        values = [event.value for event in scalars]
        if begin + [type(event) for event in itertools.islice(events, 2)] != ONE_MAPPING:
            raise ValueError
        return {piece: int(identity) for piece, identity in zip(values[::2], values[1::2], strict=True)}
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path.name} does not give each piece a number") from error


class _Arrays:
    """The arrays of a file as tensors. An array is removed when it is read.

    Raises KeyError for a missing array, and ValueError for an array without numbers, or with another number of
    dimensions than needed.
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays

    def names(self) -> list[str]:
        """The arrays that nothing has read, without scales of activations."""
        return sorted(name for name in self._arrays if not name.endswith(ACTIVATION_SCALE))

    def output(self, name: str) -> Tensor:
        """The output's own matrix (outputs, inputs). Since 2019, Marian stores it so, and adds a t to its name."""
        return self.matrix(name) if name in self._arrays else torch.from_numpy(self._stored(f"{name}t"))

    def matrix(self, name: str) -> Tensor:
        """A matrix (outputs, inputs), which Marian stores as (inputs, outputs)."""
        return torch.from_numpy(np.ascontiguousarray(self._stored(name).T))

    def _stored(self, name: str) -> NDArray[np.float32]:
        """A matrix as it is stored."""
        values = self._floats(name)
        if values.ndim != 2:
            raise ValueError(f"the array {name} has the shape {values.shape}; it must have two dimensions")
        return values

    def _floats(self, name: str) -> NDArray[np.float32]:
        values = self._arrays.pop(name)
        if values.dtype.kind not in "fiu":
            raise ValueError(f"the array {name} has the type {values.dtype}; it must have numbers")
        return np.asarray(values, np.float32)

    def vector(self, name: str) -> Tensor:
        """A vector."""
        return torch.from_numpy(self._floats(name).reshape(-1))

    def table(self, name: str) -> Tensor:
        """A table (entries, columns) with a last row of zeros, that of the padding."""
        return _padded(torch.from_numpy(self._stored(name)))

    def linear(self, ours: str, weight: str, bias: str) -> dict[str, Tensor]:
        """The weights of a linear layer."""
        return {f"{ours}.weight": self.matrix(weight), f"{ours}.bias": self.vector(bias)}

    def norm(self, ours: str, theirs: str) -> dict[str, Tensor]:
        """The weights of a norm."""
        scale, bias = (self.vector(f"{theirs}_ln_{part}") for part in ("scale", "bias"))
        return {f"{ours}.weight": scale, f"{ours}.bias": bias}


def _padded(table: Tensor) -> Tensor:
    return torch.cat([table, torch.zeros(1, table.size(1))])


def _weights(arrays: _Arrays, options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights by the names of Hugging Face. Raises KeyError for a missing array."""
    bias = arrays.vector("decoder_ff_logit_out_b")
    weights = {"final_logits_bias": torch.cat([bias, torch.zeros(1)])[None]}
    if is_source_tied(options):
        weights[SHARED] = arrays.table("Wemb")
    else:
        weights |= {SOURCE_TABLE: arrays.table("encoder_Wemb"), TARGET_TABLE: arrays.table("decoder_Wemb")}
    if not is_output_tied(options):
        weights[OUTPUT_TABLE] = _padded(arrays.output("decoder_ff_logit_out_W"))
    for stack, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for layer in range(options[depth]):
            weights |= _layer(arrays, stack, layer, has_ssru=stack == "decoder" and has_ssru(options))
    return weights


def _layer(arrays: _Arrays, stack: str, layer: int, *, has_ssru: bool) -> dict[str, Tensor]:
    """The weights of a layer. has_ssru: whether it has no self-attention."""
    own, name = f"{stack}_l{layer + 1}", f"model.{stack}.layers.{layer}"
    attentions = [("self", "self_attn"), *([("context", "encoder_attn")] if stack == "decoder" else [])]
    weights: dict[str, Tensor] = {}
    if has_ssru:
        del attentions[0]
        weights = _ssru_weights(arrays, f"{own}_rnn", name)
    for theirs, ours in attentions:
        for letter, projection in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out")):
            names = (f"{own}_{theirs}_{kind}{letter}" for kind in "Wb")
            weights |= arrays.linear(f"{name}.{ours}.{projection}_proj", *names)
        weights |= arrays.norm(f"{name}.{ours}_layer_norm", f"{own}_{theirs}_Wo")
    for number in (1, 2):
        weights |= arrays.linear(f"{name}.fc{number}", f"{own}_ffn_W{number}", f"{own}_ffn_b{number}")
    return weights | arrays.norm(f"{name}.final_layer_norm", f"{own}_ffn_ffn")


def _ssru_weights(arrays: _Arrays, theirs: str, layer: str) -> dict[str, Tensor]:
    """The weights of an SSRU and its norm. theirs: the start of their names in Marian. layer: our name of the layer."""
    gate = arrays.linear(f"{layer}.{SSRU}.w_f", f"{theirs}_Wf", f"{theirs}_bf")
    norm = arrays.norm(f"{layer}.self_attn_layer_norm", f"{theirs}_ffn")
    return {f"{layer}.{SSRU}.w.weight": arrays.matrix(f"{theirs}_W"), **gate, **norm}
