"""Converts M2M-100 and NLLB, models of many languages, to our Transformer and vocabulary.

The network is the Transformer of Vaswani et al. 2017 with pre-norm and the positions of fairseq. A source begins with
the language token, and ends with the end token. With `legacy_behaviour` of NLLB, a source begins with its text, and
ends with the end token and the language token. A target begins with the end token and the language token. The end token
is therefore our start token, too, and the manifest has the language token as `target_start`. `model.imported` converts
the vocabulary.

M2M-100 and NLLB have the same configuration fields and weight names. Their vocabularies differ, and
`model.m2m_vocabulary` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.config import ConfigError
from model.generation_options import contradictions, left_out_options, search_defaults
from model.huggingface_files import (
    CONFIG,
    GENERATION,
    Tables,
    layer_state,
    model_config,
    read_json,
    read_weights,
    size_problems,
    weight_file_problems,
    weight_problems,
)
from model.imported import (
    EOS,
    FIRST,
    PAD,
    UNK,
    ImportedModel,
    Specials,
    UnusableModel,
    can_spell,
    masked_bias,
    num_left_out,
    piece_order,
    reordered,
    rows_of,
)
from model.m2m_vocabulary import read_vocabulary

MODEL_TYPE, MIXTURE_OF_EXPERTS = "m2m_100", "nllb-moe"


def is_m2m(folder: Path) -> bool:
    """Whether config.json says that this is M2M-100 or NLLB, a mixture of experts included.

    Raises UnusableModel for a config.json that is damaged.
    """
    try:
        kind = read_json(folder / CONFIG, is_optional=True).get("model_type")
    except (OSError, ValueError) as error:
        raise UnusableModel(folder, [str(error)]) from error
    return kind in (MODEL_TYPE, MIXTURE_OF_EXPERTS)


def read_m2m(folder: Path, *, max_length: int | None = None) -> ImportedModel:
    """Read a model in Hugging Face's format.

    max_length: maximum number of subwords of a source or target. The model's own limit applies if it is lower, or if
    max_length is None.
    Raises UnusableModel.
    """
    problems = [] if (folder / CONFIG).is_file() else [f"{CONFIG} is missing"]
    problems += weight_file_problems(folder)
    facts: dict[str, Any] = {}
    search: dict[str, Any] = {}
    defaults = (1, 1.0)
    weights: dict[str, Tensor] = {}
    try:
        facts = read_json(folder / CONFIG, is_optional=True)
        if facts.get("model_type") == MIXTURE_OF_EXPERTS:
            problem = f"model_type of {CONFIG} is {MIXTURE_OF_EXPERTS!r}: mixtures of experts are not served"
            raise UnusableModel(folder, [f"{problem}; the dense models of NLLB-200 are"])
        search = read_json(folder / GENERATION, is_optional=True)
        defaults = search_defaults(facts, search)
        weights = {} if problems else read_weights(folder)
    except UnusableModel:
        raise
    except (OSError, ValueError) as error:
        problems.append(str(error))
    vocabulary, vocabulary_problems = read_vocabulary(folder, facts)
    problems += vocabulary_problems
    if facts:
        problems += _config_problems(facts, search)
    if not problems:
        problems = weight_problems(facts, weights, is_pre_norm=True, has_bias=False)
    if problems or vocabulary is None:
        raise UnusableModel(folder, problems)
    longest = int(facts["max_position_embeddings"])
    order = piece_order(vocabulary.ids, [vocabulary.proto])
    try:
        config = model_config(facts, len(order) + len(FIRST), min(longest, max_length or longest), norm="pre")
    except ConfigError as error:
        raise UnusableModel(folder, [str(error)]) from error
    ids = vocabulary.ids
    rows = rows_of(ids, order, Specials(pad=ids[PAD], start=ids[EOS], end=ids[EOS], unknown=ids[UNK]))
    embedding = weights[Tables.of(facts, weights).target].float()[rows]
    state = {
        "embedding.weight": embedding,
        "embedding.output_bias": masked_bias(torch.zeros(len(rows)), ids),
        "embedding.positions": fairseq_positions(config.max_length, config.d_model, padding=ids[PAD]),
    }
    spm = reordered(
        vocabulary.proto,
        order,
        ids,
        spells_unknown=can_spell([vocabulary.proto], [ids]),
        language_tokens=vocabulary.languages.values(),
    )
    return ImportedModel(
        config=config,
        state=state | layer_state(config, weights),
        source_spm=spm,
        target_spm=spm,
        tags=(),  # a language token is no tag: it may begin any source and any target
        num_left_out=num_left_out([vocabulary.proto], ids),
        beam_size=defaults[0],
        length_penalty=defaults[1],
        language_tokens=vocabulary.languages,
        tag_follows_source=vocabulary.tag_follows_source,
        # A forced first token is a target language, which each language pair of the bundle names.
        notes=left_out_options(facts, search, kept=("forced_bos_token_id",)),
    )


def _config_problems(facts: Mapping[str, Any], search: Mapping[str, Any]) -> list[str]:
    """Messages about fields of config.json that this network does not support or generation_config.json contradicts."""
    # A missing field has this value in all models of the type.
    needed = {"scale_embedding": True, "tie_word_embeddings": True, "is_encoder_decoder": True}
    problems = [
        f"{name} of {CONFIG} is {facts[name]!r}; only {value!r} can be imported"
        for name, value in needed.items()
        if facts.get(name, value) != value
    ]
    problems += size_problems(facts)
    if facts.get("decoder_start_token_id") != facts.get("eos_token_id"):
        problems.append(
            f"decoder_start_token_id of {CONFIG} is {facts.get('decoder_start_token_id')}; "
            f"only eos_token_id, {facts.get('eos_token_id')}, can be imported"
        )
    return problems + contradictions(facts, search)


def fairseq_positions(max_length: int, d_model: int, *, padding: int) -> Tensor:
    """Sines in the first half of a row, cosines in the second: (max_length, d_model), fp32.

    padding: the id of the padding token. The first token has position padding + 1.
    The lowest frequency is 1 / 10000; the lowest of Vaswani et al. is higher. The numbers are rounded to fp32 at each
    step, as in fairseq and `transformers`.
    """
    half = d_model // 2
    exponents = torch.arange(half, dtype=torch.int64).float() * -(math.log(10000) / (half - 1))
    positions = torch.arange(padding + 1, padding + 1 + max_length, dtype=torch.int64).float()
    angles = positions[:, None] * torch.exp(exponents)
    return torch.cat((angles.sin(), angles.cos()), dim=1)
