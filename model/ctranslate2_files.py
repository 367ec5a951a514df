"""Reads a CTranslate2 model of a Transformer that was converted from OpenNMT, also in an Argos package.

A folder holds model.bin, config.json, a shared vocabulary and the SentencePiece model. An Argos package has
metadata.json and sentencepiece.model, and model.bin and the others in `model`. Weights of int8, int16 and half
precision become fp32. OpenNMT's sources have no end token.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.config import ModelConfig
from model.imported import (
    BOS,
    EOS,
    FIRST,
    PAD,
    UNK,
    ImportedModel,
    Specials,
    UnusableModel,
    is_tag,
    masked_bias,
    num_left_out,
    piece_order,
    read_sentencepiece,
    reordered,
    rows_of,
)

BINARY, CONFIG = "model.bin", "config.json"
VOCABULARIES = ("shared_vocabulary.json", "shared_vocabulary.txt")
SENTENCEPIECE, TARGET = ("sentencepiece.model", "source.spm"), "target.spm"
FORMAT_VERSION, SPECIFICATION = 6, "TransformerSpec"
# The NumPy type for each type number in the file. bfloat16, number 5, is the upper half of a float32.
TYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name) for number, name in enumerate(("<f4", "<i1", "<i2", "<i4", "<f2", "<u2"))
}
BFLOAT16 = 5
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
# Argos Translate's own search, and the least beam of CTranslate2 that is worth it.
BEAM_SIZE, ARGOS_PENALTY, PENALTY = 4, 0.2, 1.0


def is_ctranslate2(folder: Path) -> bool:
    """Whether a folder is a CTranslate2 model or an Argos package."""
    return (folder / BINARY).is_file() or (folder / "model" / BINARY).is_file()


def read_ctranslate2(folder: Path, *, max_length: int | None = None) -> ImportedModel:
    """Read a model. max_length: subwords of the longest source or target; None for as many as it has positions.

    Raises UnusableModel.
    """
    inner = folder / "model" if (folder / "model" / BINARY).is_file() else folder
    try:
        files = Files(
            variables=read_variables((inner / BINARY).read_bytes()),
            config=_json(inner / CONFIG),
            metadata=_json(folder / "metadata.json"),
            vocabulary=_vocabulary(inner),
            sentencepieces=_sentencepieces((folder, inner)),
        )
        if problems := files.problems():
            raise UnusableModel(folder, problems)
        return _imported(files, max_length)
    except UnusableModel:
        raise
    except KeyError as error:
        raise UnusableModel(folder, [f"{BINARY} has no {error.args[0]}"]) from error
    except (OSError, ValueError) as error:  # ConfigError is a ValueError
        raise UnusableModel(folder, [str(error)]) from error


@dataclass(frozen=True)
class Files:
    """The content of the files. metadata: that of an Argos package, or empty.

    sentencepieces: the parsed models of sources and of targets, or twice the same one.
    """

    variables: Mapping[str, NDArray[Any]]
    config: Mapping[str, Any]
    metadata: Mapping[str, Any]
    vocabulary: Mapping[str, int]
    sentencepieces: tuple[Any, Any]

    @property
    def start(self) -> str:
        """The token that a translation begins with."""
        return str(self.config.get("decoder_start_token") or BOS)

    def problems(self) -> list[str]:
        """The properties of the model that this network does not support."""
        found = [*self._config_problems(), *self._stack_problems("encoder"), *self._stack_problems("decoder")]
        return found or self._table_problems()

    def _config_problems(self) -> list[str]:
        found = [f"the vocabulary has no {piece}" for piece in (EOS, UNK) if piece not in self.vocabulary]
        if self.start not in self.vocabulary:
            found.append(f"the vocabulary has no {self.start}, which is decoder_start_token of {CONFIG}")
        if self.config.get("add_source_bos"):
            found.append(f"add_source_bos of {CONFIG} is true; only false can be imported")
        epsilon = self.config.get("layer_norm_epsilon")
        if epsilon not in (None, 1e-5):
            found.append(f"layer_norm_epsilon of {CONFIG} is {epsilon}; it must be 1e-5")
        return found

    def _stack_problems(self, stack: str) -> list[str]:
        found = []
        for name, needed in (("scale_embeddings", (1,)), ("alibi", (0,)), ("start_from_zero_embedding", (0,)),
                             ("activation", tuple(ACTIVATIONS))):  # fmt: skip
            value = self.variables.get(f"{stack}/{name}")
            if value is not None and float(value) not in needed:
                known = " or ".join(map(str, needed))
                found.append(f"{stack}/{name} of {BINARY} is {float(value):g}; it must be {known}")
        if f"{stack}/position_encodings/encodings" not in self.variables:
            found.append(f"{BINARY} has no {stack}/position_encodings/encodings")
        extra = (f"{stack}/layernorm_embedding", f"{stack}/layer_0/self_attention/relative")
        found += [f"{BINARY} has {name}" for name in self.variables if name.startswith(extra)]
        return found

    def _table_problems(self) -> list[str]:
        source = floats(self.variables, "encoder/embeddings_0/weight")
        found = []
        if len(source) != len(self.vocabulary):
            found.append(
                f"the vocabulary has {len(self.vocabulary)} pieces, {BINARY} has {len(source)} embeddings"
            )
        same = [("decoder/embeddings/weight", "encoder/embeddings_0/weight"),
                ("decoder/projection/weight", "encoder/embeddings_0/weight"),
                ("decoder/position_encodings/encodings", "encoder/position_encodings/encodings")]  # fmt: skip
        return found + [
            f"{name} is not {other}; only shared tables can be imported"
            for name, other in same
            if not np.array_equal(floats(self.variables, name), floats(self.variables, other))
        ]


def _imported(files: Files, max_length: int | None) -> ImportedModel:
    vocabulary, metadata = files.vocabulary, files.metadata
    source, target = files.sentencepieces
    order = piece_order(vocabulary)
    end = vocabulary[EOS]
    rows = rows_of(
        vocabulary,
        order,
        Specials(
            pad=vocabulary.get(PAD, end), start=vocabulary[files.start], end=end, unknown=vocabulary[UNK]
        ),
    )
    positions = floats(files.variables, "decoder/position_encodings/encodings")
    longest = min(len(positions), max_length or len(positions))
    languages = (metadata.get("from_code"), metadata.get("to_code"))
    return ImportedModel(
        config=_config(files.variables, len(order) + len(FIRST), longest),
        state=_state(files, rows, positions[:longest]),
        source_spm=reordered(source, order),
        target_spm=reordered(target, order),
        tags=tuple(piece for piece in order if is_tag(piece)),
        num_left_out=num_left_out([source] if target is source else [source, target], vocabulary),
        beam_size=BEAM_SIZE,
        length_penalty=ARGOS_PENALTY if metadata else PENALTY,
        ends_source=bool(files.config.get("add_source_eos", False)),
        languages=(str(languages[0]), str(languages[1])) if all(languages) else None,
    )


# --- model.bin


class _Reader:
    """Reads numbers and texts one after another. Raises ValueError past the end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, kind: str) -> int:
        """An unsigned number: B, H or I of `struct`."""
        found: int = struct.unpack("<" + kind, self.bytes(struct.calcsize("<" + kind)))[0]
        return found

    def text(self) -> str:
        """A text with its length before it and a zero byte after it."""
        return bytes(self.bytes(self.number("H"))[:-1]).decode()

    def bytes(self, count: int) -> memoryview:
        if count > len(self._content) - self._at:
            raise ValueError(f"{BINARY} is cut off")
        self._at += count
        return memoryview(self._content)[self._at - count : self._at]


def read_variables(content: bytes) -> dict[str, NDArray[Any]]:
    """All variables of a model.bin by name, as stored, aliases included. Raises ValueError."""
    reader = _Reader(content)
    version = reader.number("I")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{BINARY} has the format {version}; only {FORMAT_VERSION} can be imported: convert it again"
        )
    kind, _ = reader.text(), reader.number("I")
    if kind != SPECIFICATION:
        raise ValueError(f"{BINARY} holds a {kind}; only a {SPECIFICATION} can be imported")
    variables: dict[str, NDArray[Any]] = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = tuple(reader.number("I") for _ in range(reader.number("B")))
        type_number, num_bytes = reader.number("B"), reader.number("I")
        dtype = TYPES.get(type_number)
        if dtype is None or math.prod(shape) * dtype.itemsize != num_bytes:
            raise ValueError(f"{BINARY}: the size of {name} is not that of its shape")
        values = np.frombuffer(reader.bytes(num_bytes), dtype).reshape(shape)
        if type_number == BFLOAT16:
            values = (values.astype("<u4") << 16).view("<f4")
        variables[name] = values
    for _ in range(reader.number("I")):
        alias, name = reader.text(), reader.text()
        if name not in variables:
            raise ValueError(f"{BINARY}: {alias} stands for {name}, which is missing")
        variables[alias] = variables[name]
        if f"{name}_scale" in variables:
            variables[f"{alias}_scale"] = variables[f"{name}_scale"]
    return variables


def floats(variables: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """A variable in fp32. A quantised one is divided by its scale, of each row or of all rows. Raises KeyError."""
    values = variables[name].astype(np.float32)
    scale = variables.get(f"{name}_scale")
    if scale is None:
        return values
    return values / scale.astype(np.float32).reshape(-1, *(1 for _ in values.shape[1:]))


# --- other files


def _json(path: Path) -> dict[str, Any]:
    """A file's JSON object, or an empty one if there is no file. Raises ValueError."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a JSON object")  # noqa: TRY004 - the file is wrong, not a type
    return found


def _first_of(folders: tuple[Path, ...], names: tuple[str, ...]) -> Path:
    """The first of these files that exists. Raises ValueError if none does."""
    found = [folder / name for name in names for folder in folders if (folder / name).is_file()]
    if not found:
        raise ValueError(f"{' or '.join(names)} is missing")
    return found[0]


def _sentencepieces(folders: tuple[Path, ...]) -> tuple[Any, Any]:
    """The SentencePiece models of sources and of targets. Most folders have one for both. Raises ValueError."""
    source = read_sentencepiece(_first_of(folders, SENTENCEPIECE))
    targets = [folder / TARGET for folder in folders if (folder / TARGET).is_file()]
    return source, read_sentencepiece(targets[0]) if targets else source


def _vocabulary(folder: Path) -> dict[str, int]:
    """The shared vocabulary as a mapping of pieces to ids. Raises ValueError."""
    path = _first_of((folder,), VOCABULARIES)
    text = path.read_text("utf-8")
    try:
        pieces = json.loads(text) if path.suffix == ".json" else text.split("\n")
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if path.suffix == ".txt" and pieces[-1] == "":
        pieces.pop()
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError(f"{path.name} is not a list of pieces")
    if len(set(pieces)) < len(pieces):
        raise ValueError(f"{path.name} has a piece twice")
    return {piece: index for index, piece in enumerate(pieces)}


# --- the new model


def _num_layers(variables: Mapping[str, NDArray[Any]], stack: str) -> int:
    found = 0
    while f"{stack}/layer_{found}/ffn/linear_0/weight" in variables:
        found += 1
    return found


def _config(variables: Mapping[str, NDArray[Any]], vocab_size: int, max_length: int) -> ModelConfig:
    d_ff, d_model = variables["encoder/layer_0/ffn/linear_0/weight"].shape
    heads = variables.get("encoder/num_heads")
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        num_heads=8 if heads is None else int(heads),
        d_ff=d_ff,
        num_encoder_layers=_num_layers(variables, "encoder"),
        num_decoder_layers=_num_layers(variables, "decoder"),
        dropout=0.0,
        norm="pre" if int(variables.get("encoder/pre_norm", np.int8(1))) else "post",
        activation=ACTIVATIONS[int(variables.get("encoder/activation", np.int8(0)))],  # type: ignore[arg-type]
        positions="learned",
        max_length=max_length,
        output_bias=True,
    )


def _state(files: Files, rows: list[int], positions: NDArray[np.float32]) -> dict[str, Tensor]:
    """The state dict of our Transformer. Raises KeyError for a missing variable."""
    variables = files.variables

    def read(name: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(floats(variables, name)))

    bias_name = "decoder/projection/bias"
    bias = read(bias_name)[rows] if bias_name in variables else torch.zeros(len(rows))
    state = {
        "embedding.weight": read("encoder/embeddings_0/weight")[rows],
        "embedding.output_bias": masked_bias(bias, files.vocabulary),
        "embedding.positions": torch.from_numpy(positions.copy()),
    }
    for stack in ("encoder", "decoder"):
        for layer in range(_num_layers(variables, stack)):
            for part in ("weight", "bias"):
                for names, their_name in joined_linears(stack, layer):
                    values = read(f"{their_name}/{part}").chunk(len(names))
                    state |= {
                        f"{one}.{part}": value.clone() for one, value in zip(names, values, strict=True)
                    }
        is_final = f"{stack}/layer_norm/gamma" in variables
        for ours, theirs in norm_names(stack, _num_layers(variables, stack), is_final=is_final):
            state |= {f"{ours}.weight": read(f"{theirs}/gamma"), f"{ours}.bias": read(f"{theirs}/beta")}
    return state


def joined_linears(stack: str, layer: int) -> list[tuple[tuple[str, ...], str]]:
    """Our names of the linear layers that CTranslate2 joins into one, and CTranslate2's name of the joined layer."""
    ours, theirs = f"{stack}.{layer}", f"{stack}/layer_{layer}"
    own, cross = f"{ours}.self_attention.w_", f"{ours}.cross_attention.w_"
    found: list[tuple[tuple[str, ...], str]] = [
        ((own + "q", own + "k", own + "v"), f"{theirs}/self_attention/linear_0"),
        ((own + "o",), f"{theirs}/self_attention/linear_1"),
        ((f"{ours}.feed_forward.w_1",), f"{theirs}/ffn/linear_0"),
        ((f"{ours}.feed_forward.w_2",), f"{theirs}/ffn/linear_1"),
    ]
    if stack == "decoder":
        found += [
            ((cross + "q",), f"{theirs}/attention/linear_0"),
            ((cross + "k", cross + "v"), f"{theirs}/attention/linear_1"),
            ((cross + "o",), f"{theirs}/attention/linear_2"),
        ]
    return found


def norm_names(stack: str, num_layers: int, *, is_final: bool) -> list[tuple[str, str]]:
    """Our name and CTranslate2's of each norm. is_final: whether the stack ends with a norm, as in pre-norm."""
    blocks = ("self_attention", "ffn") if stack == "encoder" else ("self_attention", "attention", "ffn")
    found = [
        (f"{stack}.{layer}.residuals.{index}.norm", f"{stack}/layer_{layer}/{block}/layer_norm")
        for layer in range(num_layers)
        for index, block in enumerate(blocks)
    ]
    return [*found, (f"{stack}_norm", f"{stack}/layer_norm")] if is_final else found
