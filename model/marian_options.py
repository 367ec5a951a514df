"""Reads Marian's options: the kind and the sizes of the network, and the beam size and length penalty of the search.

The options of the network are in special:model.yml, an array beside the weights. The options of the search are in a
decoder.yml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model.generation_options import checked_search, left_out
from model.huggingface_files import SSRU
from model.imported import EOS, PAD

YAML_CONFIG = "special:model.yml"
# Options with the values that this network supports.
NEEDED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn", None),
    "transformer-postprocess-emb": ("d", "", None),
    "transformer-ffn-depth": (2, None),
    "transformer-decoder-ffn-depth": (2, 0, None),
    "transformer-train-position-embeddings": (False, None),
    "transformer-train-positions": (False, None),
    "transformer-no-projection": (False, None),
    "transformer-no-bias": (False, None),
    "transformer-tied-layers": ([], None),
    "transformer-depth-scaling": (False, True, None),  # changes only the initial weights
    "output-omit-bias": (False, None),
    "lemma-dim-emb": (0, None),
    "right-left": (False, None),
    "ulr": (False, None),
    "transformer-pool": (False, None),
    "transformer-rnn-projection": (False, None),
    "transformer-disable-position-embeddings": (False, None),
    "transformer-attention-mask": ("default", None),
    # Not "gelu": up to version 1.12.0, Marian computes the approximation x * sigmoid(1.702 x).
    "transformer-ffn-activation": ("swish", "relu", None),
}
# What is done before a sub-layer, after it and at the end of a stack. n normalises, a adds the residual, and d is
# dropout, which is left out.
PREPROCESS, POSTPROCESS, TOP = (
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
)
POST_NORM = ("", "an", "")
# The number of positions of every Marian model of Hugging Face.
MAX_POSITIONS = 512
# Options that must be whole numbers, and options that must be whole numbers or missing.
SIZES = ("dim-emb", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn")
OPTIONAL_SIZES = ("transformer-heads-decoder", "transformer-decoder-dim-ffn")
# The beam size and the length penalty where decoder.yml does not have them. For an .npz file: 6 and 0.0. (Marian's own
# defaults are 12 and 0.0.) For a binary file: 1 and 1.0, which are Firefox's.
SEARCH, BINARY_SEARCH = (6, 0.0), (1, 1.0)


def option_problems(options: Mapping[str, Any]) -> list[str]:
    """Messages about options that are missing, of another type or of another network."""
    problems = [
        f"{name} of {YAML_CONFIG} is {options.get(name)!r}; it must be a whole number"
        for name in (*SIZES, *OPTIONAL_SIZES)
        if type(options.get(name)) is not int and (name in SIZES or options.get(name) is not None)
    ]
    problems += [
        f"{name} of {YAML_CONFIG} is {options.get(name)!r}; it must be {_alternatives(known)}"
        for name, known in NEEDED.items()
        if options.get(name) not in known
    ]
    if _steps(options) != POST_NORM:
        found = ", ".join(f"{name} {options.get(name) or ''!r}" for name in (PREPROCESS, POSTPROCESS, TOP))
        problems.append(
            f"{YAML_CONFIG} has {found}; these must be '', 'dan', ''. In pre-norm, Marian normalises the queries of "
            "attention, but not the keys and values, which this network cannot express"
        )
    if has_ssru(options) and options.get("dec-cell") != "ssru":
        problems.append(f"dec-cell of {YAML_CONFIG} is {options.get('dec-cell')!r}; it must be 'ssru'")
    if has_ssru(options) and options.get("layer-normalization"):  # without SSRUs it changes nothing
        found = f"layer-normalization of {YAML_CONFIG} is {options['layer-normalization']!r}"
        problems.append(f"{found}; it must be False in a decoder of SSRUs")
    return problems


def _alternatives(known: Sequence[Any]) -> str:
    return " or ".join(repr(value) for value in known if value is not None)


def has_ssru(options: Mapping[str, Any]) -> bool:
    """Whether the decoder has SSRUs in the place of self-attention."""
    return options.get("transformer-decoder-autoreg") == "rnn"


def _steps(options: Mapping[str, Any]) -> tuple[str, ...]:
    """What is done before and after a sub-layer and at the end of a stack, without dropout."""
    return tuple(str(options.get(name) or "").replace("d", "") for name in (PREPROCESS, POSTPROCESS, TOP))


def is_source_tied(options: Mapping[str, Any]) -> bool:
    """Whether source and target have the same embedding."""
    return bool(options.get("tied-embeddings-all") or options.get("tied-embeddings-src"))


def is_output_tied(options: Mapping[str, Any]) -> bool:
    """Whether the target's embedding is the output's weight."""
    return bool(options.get("tied-embeddings-all") or options.get("tied-embeddings"))


def config_facts(
    options: Mapping[str, Any], source: Mapping[str, int], target: Mapping[str, int]
) -> dict[str, Any]:
    """The fields of Hugging Face's config.json."""
    return {
        "model_type": "marian",
        "share_encoder_decoder_embeddings": is_source_tied(options),
        "tie_word_embeddings": is_output_tied(options),
        "scale_embedding": True,
        "d_model": options["dim-emb"],
        "encoder_layers": options["enc-depth"],
        "decoder_layers": options["dec-depth"],
        "decoder_cell": SSRU if has_ssru(options) else None,
        "encoder_attention_heads": options["transformer-heads"],
        "decoder_attention_heads": options.get("transformer-heads-decoder") or options["transformer-heads"],
        "encoder_ffn_dim": options["transformer-dim-ffn"],
        "decoder_ffn_dim": options.get("transformer-decoder-dim-ffn") or options["transformer-dim-ffn"],
        "activation_function": options.get("transformer-ffn-activation", "swish"),
        "vocab_size": len(source),
        "decoder_vocab_size": len(target),
        "eos_token_id": source.get(EOS),
        "pad_token_id": source[PAD],
        "decoder_start_token_id": target[PAD],
        "max_position_embeddings": MAX_POSITIONS,
    }


def search_options(options: Mapping[str, Any], file: str, *, is_binary: bool) -> tuple[int, float]:
    """The beam size and the length penalty. options: the content of the decoder.yml `file`. Raises ValueError.

    is_binary: whether the weights are in a .bin file. Marian divides a score by length^normalize.
    """
    beam_size, penalty = (
        (f"{name} of {file}", default if options.get(name) is None else options[name])
        for name, default in zip(
            ("beam-size", "normalize"), BINARY_SEARCH if is_binary else SEARCH, strict=True
        )
    )
    return checked_search(beam_size, penalty)


def left_out_options(options: Mapping[str, Any], file: str) -> tuple[str, ...]:
    """Notes about the options of a decoder.yml that the import leaves out, although they change translations."""
    penalty = options.get("word-penalty")
    return (left_out(f"word-penalty of {file}", penalty),) if penalty else ()
