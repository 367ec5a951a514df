"""Converts a Marian model (OPUS-MT) to our Transformer and vocabulary.

The network is the paper's with another activation, half sines and half cosines as positions, and a bias on the logits.
Marian and Hugging Face compute the positions with slightly different frequencies. The import uses those of the program
whose files it reads.
Source, target and output may have tables of their own, and the target a vocabulary of its own.
A decoder may have SSRUs in the place of self-attention, as the models of Firefox have.
Hugging Face's PEGASUS is the same network in pre-norm. `transduce export --to huggingface` writes it.
Marian's start token is the padding token, which Marian never outputs. The converted embedding has the padding token's
row twice: as padding and as the start token. `model.imported` explains the conversion of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from model.config import BOS_ID, ConfigError
from model.generation_options import contradictions, left_out_options, search_defaults
from model.huggingface_files import (
    CONFIG,
    GENERATION,
    VOCABULARY,
    Tables,
    checked_vocabulary,
    layer_state,
    model_config,
    read_json,
    read_weights,
    size_problems,
    table_state,
    weight_file_problems,
    weight_problems,
)
from model.imported import (
    BOS,
    EOS,
    FIRST,
    PAD,
    UNK,
    ImportedModel,
    ImportedShortlist,
    Specials,
    UnusableModel,
    can_spell,
    filled,
    is_tag,
    masked_bias,
    num_left_out,
    piece_order,
    read_sentencepiece,
    reordered,
    rows_of,
)
from model.marian_binary import MarianShortlist
from model.marian_files import SOURCE, TARGET, has_marian_files, read_marian_files

TARGET_VOCABULARY, TOKENIZER_CONFIG = "target_vocab.json", "tokenizer_config.json"
# The values of model_type.
POST_NORM, PRE_NORM = "marian", "pegasus"


@dataclass(frozen=True)
class Files:
    """The content of a folder, as Hugging Face has it.

    facts: config.json. generation: generation_config.json, or empty. search: beam size and length penalty.
    vocabularies: of sources and of targets; the same object if the model has only one.
    sentencepieces: the SentencePiece models of sources and of targets. shortlist: by the ids of the vocabularies.
    is_own: whether the files are Marian's own. notes: as in `ImportedModel`.
    """

    facts: Mapping[str, Any]
    search: tuple[int, float]
    vocabularies: tuple[dict[str, int], dict[str, int]]
    weights: Mapping[str, Tensor]
    sentencepieces: tuple[Any, Any]
    shortlist: MarianShortlist | None = None
    is_own: bool = False
    generation: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_pre_norm(self) -> bool:
        """Whether each sub-layer's input is normalised."""
        return self.facts.get("model_type") == PRE_NORM

    def problems(self) -> list[str]:
        """The properties that this network does not support, and contradictions between the files."""
        source, target = self.vocabularies
        found = _config_problems(self.facts) + contradictions(self.facts, self.generation)
        found += _vocabulary_problems(self.facts, source, VOCABULARY, "vocab_size")
        if target is not source:
            found += _vocabulary_problems(self.facts, target, TARGET_VOCABULARY, "decoder_vocab_size")
            if self.facts.get("share_encoder_decoder_embeddings", True):
                found.append(
                    f"there is a {TARGET_VOCABULARY}, but by {CONFIG} both sides share their embedding"
                )
        start = self.facts.get("decoder_start_token_id")
        if start not in (target.get(PAD), target.get(BOS)):
            found.append(f"decoder_start_token_id of {CONFIG} is {start}, which is neither {PAD} nor {BOS}")
        return found or weight_problems(self.facts, self.weights, is_pre_norm=self.is_pre_norm, has_bias=True)


def read_marian(folder: Path, *, max_length: int | None = None) -> ImportedModel:
    """Read the files of Hugging Face (config.json, vocab.json, source.spm, target.spm, the weights), or Marian's own.

    max_length: subwords of the longest source or target; None for the model's own limit. Raises UnusableModel.
    """
    try:
        is_own = not (folder / CONFIG).is_file() and has_marian_files(folder)
        files = _own_files(folder) if is_own else _huggingface_files(folder)
    except UnusableModel:
        raise
    except (OSError, ValueError) as error:
        raise UnusableModel(folder, [str(error)]) from error
    if problems := files.problems():
        raise UnusableModel(folder, problems)
    try:
        return _imported(files, max_length)
    except ConfigError as error:
        raise UnusableModel(folder, [str(error)]) from error


def _huggingface_files(folder: Path) -> Files:
    """The files of Hugging Face. Raises UnusableModel, OSError, ValueError."""
    names = (CONFIG, VOCABULARY, SOURCE, TARGET)
    problems = [f"{name} is missing" for name in names if not (folder / name).is_file()]
    problems += weight_file_problems(folder)
    if problems:
        raise UnusableModel(folder, problems)
    source_spm, target_spm = (read_sentencepiece(folder / name) for name in (SOURCE, TARGET))
    facts = read_json(folder / CONFIG)
    source = target = checked_vocabulary(read_json(folder / VOCABULARY))
    if (folder / TARGET_VOCABULARY).is_file():
        target = checked_vocabulary(read_json(folder / TARGET_VOCABULARY), TARGET_VOCABULARY)
    elif _needs_target_vocabulary(folder, facts):
        missing = f"{TARGET_VOCABULARY} is missing; by {CONFIG} source and target have their own embeddings"
        raise UnusableModel(folder, [missing])
    generation = read_json(folder / GENERATION, is_optional=True)
    return Files(
        facts,
        search_defaults(facts, generation),
        (source, target),
        read_weights(folder),
        (source_spm, target_spm),
        generation=generation,
        notes=left_out_options(facts, generation),
    )


def _needs_target_vocabulary(folder: Path, facts: Mapping[str, Any]) -> bool:
    """Whether the target has its own embedding, and tokenizer_config.json does not set `separate_vocabs` to false.

    Raises OSError, ValueError.
    """
    tokenizer = read_json(folder / TOKENIZER_CONFIG, is_optional=True)
    is_shared = facts.get("share_encoder_decoder_embeddings", True)
    return not is_shared and tokenizer.get("separate_vocabs") is not False


def _own_files(folder: Path) -> Files:
    """Marian's own files. Raises OSError, ValueError."""
    found = read_marian_files(folder)
    source, target = found.vocabularies
    vocabulary = checked_vocabulary(source)
    vocabularies = vocabulary, vocabulary if target is source else checked_vocabulary(target)
    return Files(
        found.facts,
        found.search,
        vocabularies,
        found.weights,
        found.sentencepieces,
        found.shortlist,
        is_own=True,
        notes=found.notes,
    )


def _imported(files: Files, max_length: int | None) -> ImportedModel:
    """Convert checked files. Raises ConfigError."""
    facts, (source, target), protos = files.facts, files.vocabularies, files.sentencepieces
    is_joint = source == target
    orders = [
        piece_order(vocabulary, protos if is_joint else [proto])
        for proto, vocabulary in zip(protos, files.vocabularies, strict=True)
    ]
    length = max(map(len, orders))
    orders = [filled(order, length) for order in orders]
    start = facts["decoder_start_token_id"]
    rows = [
        rows_of(
            vocabulary,
            order,
            Specials(pad=vocabulary[PAD], start=start, end=vocabulary[EOS], unknown=vocabulary[UNK]),
        )
        for vocabulary, order in zip(files.vocabularies, orders, strict=True)
    ]
    # The source's table may lack the start token's row, and no source has the token.
    rows[0][BOS_ID] = source[PAD]
    longest = int(facts["max_position_embeddings"])
    norm: Literal["post", "pre"] = "pre" if files.is_pre_norm else "post"
    tables = Tables.of(facts, files.weights)
    own_tables = tables.own(files.weights)
    longest = min(longest, max_length or longest)
    config = model_config(facts, length + len(FIRST), longest, norm=norm, own_tables=own_tables)
    bias = files.weights["final_logits_bias"].float()[0, rows[1]]
    positions = own_positions if files.is_own else marian_positions
    state = {
        **table_state(config, files.weights, tables, source_rows=rows[0], target_rows=rows[1]),
        "embedding.output_bias": masked_bias(bias, target),
        "embedding.positions": positions(config.max_length, config.d_model),
    }
    left_out = [
        num_left_out([proto], vocabulary)
        for proto, vocabulary in zip(protos, files.vocabularies, strict=True)
    ]
    spells_unknown = can_spell(protos, files.vocabularies)
    return ImportedModel(
        config=config,
        state=state | layer_state(config, files.weights),
        source_spm=reordered(protos[0], orders[0], source, spells_unknown=spells_unknown),
        target_spm=reordered(protos[1], orders[1], target, spells_unknown=spells_unknown),
        tags=tuple(piece for piece in orders[0] if is_tag(piece)),
        num_left_out=sum(left_out),
        beam_size=files.search[0],
        length_penalty=files.search[1],
        shortlist=None if files.shortlist is None else _shortlist(files.shortlist, rows[0], rows[1]),
        notes=files.notes,
    )


def _shortlist(found: MarianShortlist, source_rows: list[int], target_rows: list[int]) -> ImportedShortlist:
    """The shortlist by our ids. source_rows, target_rows: the foreign id of each of our ids."""
    ours: dict[int, list[int]] = {}
    for identity, row in enumerate(target_rows):
        ours.setdefault(row, []).append(identity)
    offsets = found.offsets
    likely = {
        identity: [
            each for row in found.ids[offsets[row] : offsets[row + 1]].tolist() for each in ours.get(row, ())
        ]
        for identity, row in enumerate(source_rows)
        if row + 1 < len(offsets)  # the padding is not in Marian's vocabulary
    }
    return ImportedShortlist(likely, [each for row in range(found.num_first) for each in ours.get(row, ())])


# --- checks


def _config_problems(facts: Mapping[str, Any]) -> list[str]:
    """The fields of config.json that this network does not support."""
    is_pre_norm = facts.get("model_type") == PRE_NORM
    needed = {
        "model_type": PRE_NORM if is_pre_norm else POST_NORM,
        "scale_embedding": True,
        "normalize_before": is_pre_norm,
        "normalize_embedding": False,
        "add_final_layer_norm": is_pre_norm,
        "static_position_embeddings": True,
    }
    # Newer files leave out some fields, for which all models of the type have these values.
    defaults = {
        name: value for name, value in needed.items() if name not in ("model_type", "scale_embedding")
    }
    accepted = {"model_type": f"{POST_NORM!r} and {PRE_NORM!r}"}
    problems = [
        f"{name} of {CONFIG} is {facts.get(name)!r}; only {accepted.get(name, repr(value))} can be imported"
        for name, value in needed.items()
        if facts.get(name, defaults.get(name)) != value
    ]
    return problems + size_problems(facts)


def _vocabulary_problems(
    facts: Mapping[str, Any], vocabulary: Mapping[str, int], name: str, size_name: str
) -> list[str]:
    """Contradictions between a vocabulary and config.json. name: its file. size_name: the field with its size."""
    problems = [f"{name} has no {piece}" for piece in (EOS, UNK, PAD) if piece not in vocabulary]
    size = facts.get(size_name, facts.get("vocab_size"))
    if len(vocabulary) != size:
        problems.append(f"{name} has {len(vocabulary)} pieces, {size_name} of {CONFIG} is {size}")
    # Only sources are padded, so a smaller target vocabulary may have another padding id.
    for piece, id_name in ((EOS, "eos_token_id"), (PAD, "pad_token_id"))[: 2 if name == VOCABULARY else 1]:
        if piece in vocabulary and vocabulary[piece] != facts.get(id_name):
            problems.append(
                f"{piece} is {vocabulary[piece]} in {name}, {id_name} of {CONFIG} is {facts.get(id_name)}"
            )
    return problems


# --- the new model


def marian_positions(max_length: int, d_model: int) -> Tensor:
    """The positions of Hugging Face's Marian, (max_length, d_model), fp32: 10000^(-2i / d_model) as frequency i."""
    return _positions(max_length, d_model, d_model // 2)


def own_positions(max_length: int, d_model: int) -> Tensor:
    """The positions of Marian itself, (max_length, d_model), fp32: 10000^(-i / (d_model / 2 - 1)) as frequency i."""
    return _positions(max_length, d_model, d_model // 2 - 1)


def _positions(max_length: int, d_model: int, num_intervals: int) -> Tensor:
    """Sines in the first half of a row, cosines in the second. Frequency i is 10000^(-i / num_intervals)."""
    position = torch.arange(max_length, dtype=torch.float64)[:, None]
    frequency = torch.exp(
        torch.arange(d_model // 2, dtype=torch.float64) * (-math.log(10000.0) / num_intervals)
    )
    angles = position * frequency
    return torch.cat((angles.sin(), angles.cos()), dim=-1).float()
