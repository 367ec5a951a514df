"""Reads a CTranslate2 model that was converted from OpenNMT's Transformer or from Marian, such as OPUS-MT.

A folder holds model.bin, a shared vocabulary, the SentencePiece models and mostly config.json. An Argos package holds
metadata.json and sentencepiece.model, and in its folder `model` the other files. Weights of int8, int16 and half
precision become fp32. OpenNMT's sources have no end token, unless `add_source_eos` of config.json is true. Marian's
sources have an end token, and Marian's decoder starts with zeros in place of a start token's embedding
(`start_from_zero_embedding`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.config import BOS_ID, PAD_ID, ModelConfig
from model.ctranslate2_binary import BINARY, floats, read_variables
from model.ctranslate2_names import joined_linears, norm_names
from model.huggingface_files import read_json
from model.imported import (
    BOS,
    EOS,
    FIRST,
    PAD,
    UNK,
    ImportedModel,
    Specials,
    UnusableModel,
    can_spell,
    is_tag,
    masked_bias,
    num_left_out,
    piece_order,
    read_sentencepiece,
    reordered,
    rows_of,
    shown,
)
from model.m2m_vocabulary import LANGUAGES, NLLB_LANGUAGE
from model.marian_binary import is_binary_model

CONFIG, METADATA = "config.json", "metadata.json"
VOCABULARIES = ("shared_vocabulary.json", "shared_vocabulary.txt")
SENTENCEPIECE, TARGET = ("sentencepiece.model", "source.spm"), "target.spm"
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
# Properties of encoder and decoder, and the value of each that model.bin does not have.
PROPERTIES = {"num_heads": 8, "activation": 0, "pre_norm": 1}
# The last parts of the names of variables that `Files` reads, or that change nothing in this network.
ATTRIBUTES = {
    *PROPERTIES, "scale_embeddings", "start_from_zero_embedding", "alibi", "alibi_use_positive_positions",
    "scale_alibi", "embeddings_merge", "alignment_layer", "alignment_heads",
}  # fmt: skip
# Attributes that change nothing as long as they are 0.
FLAGS = {"multi_query", "multi_query_attention"}
# Argos Translate's beam size, which all models get. The length penalty of Argos packages, and that of other models.
BEAM_SIZE, ARGOS_PENALTY, PENALTY = 4, 0.2, 1.0


def is_ctranslate2(folder: Path) -> bool:
    """Whether a folder is a CTranslate2 model or an Argos package. Raises OSError.

    A model of Marian may also be in a file model.bin.
    """
    paths = [path for path in (folder / BINARY, folder / "model" / BINARY) if path.is_file()]
    return bool(paths) and not is_binary_model(paths[0])


def read_ctranslate2(folder: Path, *, max_length: int | None = None) -> ImportedModel:
    """Read a model. max_length: subwords of the longest source or target; None for the model's own limit.

    Raises UnusableModel.
    """
    inner = folder / "model" if (folder / "model" / BINARY).is_file() else folder
    try:
        with (inner / BINARY).open("rb") as file:
            variables = read_variables(file)
        config, vocabulary = read_json(inner / CONFIG, is_optional=True), _vocabulary(inner)
        if _is_m2m(config, vocabulary, variables):
            problem = "the model is M2M-100 or NLLB, which can be imported only in the format of Hugging Face"
            raise UnusableModel(folder, [problem])
        files = Files(
            variables=variables,
            config=config,
            metadata=read_json(folder / METADATA, is_optional=True),
            vocabulary=vocabulary,
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
    except (IndexError, TypeError) as error:  # of NumPy and PyTorch
        raise UnusableModel(folder, [f"a variable of {BINARY} has the wrong shape ({error})"]) from error


def _is_m2m(
    config: Mapping[str, Any], vocabulary: Mapping[str, int], variables: Mapping[str, NDArray[Any]]
) -> bool:
    """Whether the model is M2M-100 or NLLB: a target starts with </s>, and a piece names a language.

    A target of Marian starts with zeros, whatever start token config.json names.
    """
    starts_with_end = config.get("decoder_start_token") == EOS and not _starts_with_zeros(variables)
    of_m2m_100 = {f"__{code}__" for codes in LANGUAGES.values() for code in codes.split()}
    return starts_with_end and any(
        piece in of_m2m_100 or NLLB_LANGUAGE.fullmatch(piece) for piece in vocabulary
    )


def _starts_with_zeros(variables: Mapping[str, NDArray[Any]]) -> bool:
    return bool(variables.get("decoder/start_from_zero_embedding", False))


@dataclass(frozen=True)
class Files:
    """The content of the files. metadata: metadata.json of an Argos package, else empty.

    sentencepieces: the parsed SentencePiece models of sources and of targets. Both are one object if there is one file.
    """

    variables: dict[str, NDArray[Any]]
    config: Mapping[str, Any]
    metadata: Mapping[str, Any]
    vocabulary: Mapping[str, int]
    sentencepieces: tuple[Any, Any]

    @property
    def start(self) -> str:
        """The start token of a translation. For Marian, which has none, this is the end token, without effect."""
        return EOS if self.starts_with_zeros else str(self.config.get("decoder_start_token") or BOS)

    @property
    def starts_with_zeros(self) -> bool:
        """Whether the decoder's first input is zeros in place of a token's embedding, as in Marian."""
        return _starts_with_zeros(self.variables)

    @property
    def ends_source(self) -> bool:
        """Whether sources end with the end token. Marian's sources do, even if config.json does not say so."""
        return self.starts_with_zeros or bool(self.config.get("add_source_eos", False))

    def problems(self) -> list[str]:
        """The properties of the model that this network does not support."""
        found = [*self._config_problems(), *self._stack_problems("encoder"), *self._stack_problems("decoder")]
        return found or [*self._differences(), *self._table_problems()]

    def _config_problems(self) -> list[str]:
        found = [f"the vocabulary has no {piece}" for piece in (EOS, UNK) if piece not in self.vocabulary]
        if self.start not in self.vocabulary and self.start != EOS:
            found.append(f"the vocabulary has no {self.start}, the start token of translations")
        if self.config.get("add_source_bos"):
            found.append(f"add_source_bos of {CONFIG} is true; only false can be imported")
        epsilon = self.config.get("layer_norm_epsilon")
        if epsilon not in (None, 1e-5):
            found.append(f"layer_norm_epsilon of {CONFIG} is {epsilon}; it must be 1e-5")
        # The values that Argos Translate takes for missing fields.
        for name, needed in (("type", "translate"), ("target_prefix", "")):
            if (value := self.metadata.get(name, needed)) != needed:
                found.append(f"{name} of {METADATA} is {value!r}; only {needed!r} can be imported")
        return found

    def _stack_problems(self, stack: str) -> list[str]:
        found = []
        if not self._multiplies_by_sqrt(stack):
            found.append(f"{stack}/scale_embeddings of {BINARY} is not sqrt(d_model)")
        for name, needed in (("alibi", (0,)), ("activation", tuple(ACTIVATIONS))):
            value = self.variables.get(f"{stack}/{name}")
            if value is not None and float(value) not in needed:
                known = " or ".join(map(str, needed))
                found.append(f"{stack}/{name} of {BINARY} is {float(value):g}; it must be {known}")
        if f"{stack}/position_encodings/encodings" not in self.variables:
            found.append(f"{BINARY} has no {stack}/position_encodings/encodings")
        extra = (f"{stack}/layernorm_embedding", f"{stack}/layer_0/self_attention/relative")
        found += [
            f"{BINARY} has {name}, which this network does not have"
            for name in self.variables
            if name.startswith(extra)
        ]
        return found

    def _differences(self) -> list[str]:
        """The properties that encoder and decoder must share, but do not."""
        values = [
            (name, *(_property(self.variables, stack, name) for stack in ("encoder", "decoder")))
            for name in PROPERTIES
        ]
        return [
            f"decoder/{name} of {BINARY} is {decoder}, encoder/{name} is {encoder}; they must be equal"
            for name, encoder, decoder in values
            if encoder != decoder
        ]

    def _multiplies_by_sqrt(self, stack: str) -> bool:
        """Whether embeddings are multiplied by sqrt(d_model).

        The variable is a flag of 8 bits, or the factor.
        """
        scale = self.variables.get(f"{stack}/scale_embeddings", np.int8(1))
        width = self.variables["encoder/embeddings_0/weight"].shape[-1]
        return bool(scale) if scale.dtype == np.int8 else math.isclose(scale, math.sqrt(width), rel_tol=1e-3)

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
            if self.variables[name] is not self.variables[other]
            and not np.array_equal(floats(self.variables, name), floats(self.variables, other))
        ]


def _imported(files: Files, max_length: int | None) -> ImportedModel:
    """Convert the files, and remove their variables. Raises KeyError for a missing variable, ValueError."""
    vocabulary, metadata = files.vocabulary, files.metadata
    source, target = files.sentencepieces
    order = piece_order(vocabulary, [source, target])
    spells_unknown = can_spell([source, target], [vocabulary, vocabulary])
    end = vocabulary[EOS]
    rows = rows_of(
        vocabulary,
        order,
        Specials(
            pad=vocabulary.get(PAD, end), start=vocabulary[files.start], end=end, unknown=vocabulary[UNK]
        ),
    )
    num_positions = len(files.variables["decoder/position_encodings/encodings"])
    longest = min(num_positions, max_length or num_positions)
    config = _config(files.variables, len(order) + len(FIRST), longest)
    starts_with_zeros, ends_source = files.starts_with_zeros, files.ends_source
    # `_state` removes the variables, so what depends on them is read before.
    state = _state(files.variables, config, rows, vocabulary)
    if unread := _unread(files.variables):
        raise ValueError(f"{BINARY} has variables that this network does not have: {shown(unread)}")
    if starts_with_zeros:
        state["embedding.weight"][[PAD_ID, BOS_ID]] = 0.0  # Marian's padding and start
    languages = (metadata.get("from_code"), metadata.get("to_code"))
    return ImportedModel(
        config=config,
        state=state,
        source_spm=reordered(source, order, vocabulary, spells_unknown=spells_unknown),
        target_spm=reordered(target, order, vocabulary, spells_unknown=spells_unknown),
        tags=tuple(piece for piece in order if is_tag(piece)),
        num_left_out=num_left_out([source] if target is source else [source, target], vocabulary),
        beam_size=BEAM_SIZE,
        length_penalty=ARGOS_PENALTY if metadata else PENALTY,
        ends_source=ends_source,
        languages=(str(languages[0]), str(languages[1])) if all(languages) else None,
    )


# --- other files


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


def _property(variables: Mapping[str, NDArray[Any]], stack: str, name: str) -> int:
    return int(variables.get(f"{stack}/{name}", PROPERTIES[name]))


def _config(variables: Mapping[str, NDArray[Any]], vocab_size: int, max_length: int) -> ModelConfig:
    d_ff, d_model = variables["encoder/layer_0/ffn/linear_0/weight"].shape
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        num_heads=_property(variables, "encoder", "num_heads"),
        d_ff=d_ff,
        num_encoder_layers=_num_layers(variables, "encoder"),
        num_decoder_layers=_num_layers(variables, "decoder"),
        dropout=0.0,
        norm="pre" if _property(variables, "encoder", "pre_norm") else "post",
        activation=ACTIVATIONS[_property(variables, "encoder", "activation")],  # type: ignore[arg-type]
        positions="learned",
        max_length=max_length,
        output_bias=True,
    )


def _state(
    variables: dict[str, NDArray[Any]], config: ModelConfig, rows: list[int], vocabulary: Mapping[str, int]
) -> dict[str, Tensor]:
    """The state dict of `model.transformer.Transformer`. Raises KeyError for a missing variable.

    Removes each variable that it has converted, which frees its memory. rows: for each of our ids, the row of its
    embedding in model.bin.
    """

    def remove(name: str) -> None:
        del variables[name]
        variables.pop(f"{name}_scale", None)

    def take(name: str) -> Tensor:
        values = floats(variables, name)
        remove(name)
        is_shared = any(values is other for other in variables.values())
        return torch.from_numpy(values.copy() if is_shared else values)

    for name in (
        "decoder/embeddings/weight",  # equal to the encoder's table
        "decoder/projection/weight",  # equal to the encoder's table
        "encoder/position_encodings/encodings",  # equal to the decoder's
    ):
        remove(name)
    bias_name = "decoder/projection/bias"
    bias = take(bias_name)[rows] if bias_name in variables else torch.zeros(len(rows))
    state = {
        "embedding.weight": take("encoder/embeddings_0/weight")[rows],
        "embedding.output_bias": masked_bias(bias, vocabulary),
        "embedding.positions": take("decoder/position_encodings/encodings")[: config.max_length].clone(),
    }
    for stack, num_layers in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        for layer in range(num_layers):
            for names, their_name in joined_linears(stack, layer):
                for part in ("weight", "bias"):
                    values = take(f"{their_name}/{part}").chunk(len(names))
                    copies = values if len(names) == 1 else [value.clone() for value in values]
                    state |= {f"{one}.{part}": value for one, value in zip(names, copies, strict=True)}
        for ours, theirs in norm_names(stack, num_layers, is_final=f"{stack}/layer_norm/gamma" in variables):
            state |= {f"{ours}.weight": take(f"{theirs}/gamma"), f"{ours}.bias": take(f"{theirs}/beta")}
    return state


def _unread(variables: Mapping[str, NDArray[Any]]) -> list[str]:
    """The variables that `_state` has left, without attributes."""
    last_parts = {name: name.rsplit("/", 1)[-1] for name in variables}
    return sorted(
        name
        for name, last in last_parts.items()
        if last not in ATTRIBUTES and not (last in FLAGS and not variables[name].any())
    )
