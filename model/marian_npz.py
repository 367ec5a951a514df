"""Reads Marian's own files: one .npz with the weights and their configuration, and a vocabulary in YAML.

Releases of the Tatoeba Challenge hold them, with source.spm and target.spm. The result has the names, shapes and fields
of Hugging Face's Marian, so that `model.marian` handles both formats in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from model.imported import EOS, PAD

YAML_CONFIG = "special:model.yml"
# Options with the values that this network supports.
NEEDED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "tied-embeddings-all": (True,),
    "transformer-decoder-autoreg": ("self-attention", None),
    "transformer-preprocess": ("", None),
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-emb": ("d", "", None),
    "transformer-ffn-depth": (2, None),
    "transformer-train-position-embeddings": (False, None),
    "transformer-no-projection": (False, None),
    "transformer-no-bias": (False, None),
    "transformer-tied-layers": ([], None),
    "transformer-depth-scaling": (False, True, None),  # changes the first weights only
    "lemma-dim-emb": (0, None),
}
# The number of positions of every Marian model of Hugging Face.
MAX_POSITIONS = 512


def read_npz(folder: Path) -> tuple[dict[str, Any], dict[str, int], dict[str, Tensor]]:
    """Return the fields of config.json, the vocabulary and the weights, by the names of Hugging Face.

    The padding is a new last piece with a row of zeros, because Marian's decoder starts with zeros. Raises ValueError
    for files that are missing, damaged or of another network.
    """
    arrays = _arrays(_only(folder, "*.npz"))
    if YAML_CONFIG not in arrays:
        raise ValueError(f"the .npz file has no {YAML_CONFIG}")
    options = _yaml(arrays.pop(YAML_CONFIG).tobytes().rstrip(b"\0"), YAML_CONFIG)
    if problems := [
        f"{name} of {YAML_CONFIG} is {options.get(name)!r}; it must be {known[0]!r}"
        for name, known in NEEDED.items()
        if options.get(name) not in known
    ]:
        raise ValueError("; ".join(problems))
    path = _only(folder, "*vocab.yml")
    vocabulary = _vocabulary(path)
    if PAD in vocabulary:
        raise ValueError(f"{path.name} has {PAD}, which Marian's vocabularies do not have")
    vocabulary[PAD] = len(vocabulary)
    try:
        facts, weights = _facts(options, len(vocabulary), vocabulary.get(EOS)), _weights(arrays, options)
    except KeyError as error:
        raise ValueError(f"the .npz file has no {error.args[0]}") from error
    return facts, vocabulary, weights


def _only(folder: Path, pattern: str) -> Path:
    """The only file that matches a pattern. Raises ValueError if there are several, or none."""
    found = sorted(folder.glob(pattern))
    # A release may have the same vocabulary twice, for both sides.
    if not found or len({path.read_bytes() for path in found}) > 1:
        raise ValueError(f"{len(found)} files are called {pattern}, where one is needed")
    return found[0]


def _arrays(path: Path) -> dict[str, Any]:
    """All arrays. Raises ValueError. NumPy reads no pickled objects here."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged archive can fail in any way
        raise ValueError(f"{path.name} is not an archive of arrays ({type(error).__name__})") from error


def _yaml(content: bytes, name: str) -> dict[str, Any]:
    """A YAML mapping as plain data. Raises ValueError."""
    try:
        found = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is not YAML") from error
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a table of YAML")  # noqa: TRY004 - the file is wrong, not a type
    return found


def _vocabulary(path: Path) -> dict[str, int]:
    """Pieces and their ids. Raises ValueError. All values are read as text: `no` and `1.5` are pieces."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(path.read_bytes())
    try:
        found = loader.get_single_data()
        return {piece: int(identity) for piece, identity in found.items()}
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} does not give each piece a number") from error
    finally:
        loader.dispose()


def _facts(options: Mapping[str, Any], vocab_size: int, end: int | None) -> dict[str, Any]:
    """The fields of Hugging Face's config.json. Raises KeyError for an option that is missing."""
    return {
        "model_type": "marian",
        "scale_embedding": True,
        "d_model": options["dim-emb"],
        "encoder_layers": options["enc-depth"],
        "decoder_layers": options["dec-depth"],
        "encoder_attention_heads": options["transformer-heads"],
        "decoder_attention_heads": options.get("transformer-heads-decoder") or options["transformer-heads"],
        "encoder_ffn_dim": options["transformer-dim-ffn"],
        "decoder_ffn_dim": options.get("transformer-decoder-dim-ffn") or options["transformer-dim-ffn"],
        "activation_function": options.get("transformer-ffn-activation", "swish"),
        "vocab_size": vocab_size,
        "eos_token_id": end,
        "pad_token_id": vocab_size - 1,
        "decoder_start_token_id": vocab_size - 1,
        "max_position_embeddings": MAX_POSITIONS,
        "num_beams": int(options.get("beam-size") or 6),
        "length_penalty": float(options.get("normalize") or 0.0),
    }


def _weights(arrays: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights by the names of Hugging Face, removed from `arrays`. Raises KeyError for a missing one."""

    def matrix(name: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(arrays.pop(name).astype(np.float32, copy=False).T))

    def vector(name: str) -> Tensor:
        return torch.from_numpy(arrays.pop(name).astype(np.float32).reshape(-1))

    embedding = torch.from_numpy(arrays.pop("Wemb").astype(np.float32, copy=False))
    bias = vector("decoder_ff_logit_out_b")
    weights = {
        "model.shared.weight": torch.cat([embedding, torch.zeros(1, embedding.size(1))]),
        "final_logits_bias": torch.cat([bias, torch.zeros(1)])[None],
    }
    attentions = {
        "encoder": {"self": "self_attn"},
        "decoder": {"self": "self_attn", "context": "encoder_attn"},
    }
    for stack, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for layer in range(options[depth]):
            own, name = f"{stack}_l{layer + 1}", f"model.{stack}.layers.{layer}"
            for theirs, ours in attentions[stack].items():
                for letter, projection in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "out")):
                    weights[f"{name}.{ours}.{projection}_proj.weight"] = matrix(f"{own}_{theirs}_W{letter}")
                    weights[f"{name}.{ours}.{projection}_proj.bias"] = vector(f"{own}_{theirs}_b{letter}")
                weights |= _norm(vector, f"{name}.{ours}_layer_norm", f"{own}_{theirs}_Wo")
            for number in (1, 2):
                weights[f"{name}.fc{number}.weight"] = matrix(f"{own}_ffn_W{number}")
                weights[f"{name}.fc{number}.bias"] = vector(f"{own}_ffn_b{number}")
            weights |= _norm(vector, f"{name}.final_layer_norm", f"{own}_ffn_ffn")
    return weights


def _norm(vector: Any, ours: str, theirs: str) -> dict[str, Tensor]:
    return {f"{ours}.weight": vector(f"{theirs}_ln_scale"), f"{ours}.bias": vector(f"{theirs}_ln_bias")}
