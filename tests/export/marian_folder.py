"""Writes Marian models with `transformers` and SentencePiece, in Hugging Face's format and in Marian's own.

Their weights are random, or trained for a while.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from safetensors.torch import load_file

from model.corpus import Pair
from tests.model.sentences import pairs

transformers: Any = import_module("transformers")  # its types do not describe what a model returns

TAGS = (">>deu<<", ">>nld<<")
# Options of `transduce import` for a model from English to German.
IMPORT_OPTIONS = ("--source", "en", "--target", "de", "--licence", "MIT", "--precisions", "fp32")
# The names of the classes of the configuration and of the model. The key is whether the model is in pre-norm.
CLASSES = {
    False: ("MarianConfig", "MarianMTModel"),
    True: ("PegasusConfig", "PegasusForConditionalGeneration"),
}


def sentencepiece_model(
    sentences: Sequence[str], vocab_size: int, model_type: str = "unigram", *, byte_fallback: bool = False
) -> bytes:
    """A model with SentencePiece's default normalisation, as OPUS-MT has. Each is trained once in a process."""
    return trained_sentencepiece(tuple(sentences), vocab_size, model_type, byte_fallback)


@cache
def trained_sentencepiece(
    sentences: tuple[str, ...], vocab_size: int, model_type: str, byte_fallback: bool
) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=written,
        vocab_size=vocab_size,
        model_type=model_type,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return written.getvalue()


def vocabulary(models: list[bytes], tags: tuple[str, ...]) -> dict[str, int]:
    """The id of each piece of the models and of each tag. In order: end, unknown, others alphabetically, padding."""
    pieces: set[str] = set(tags)
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces |= {processor.id_to_piece(index) for index in range(processor.vocab_size())}
    ordered = ["</s>", "<unk>", *sorted(pieces - {"<s>", "</s>", "<unk>"}), "<pad>"]
    return {piece: index for index, piece in enumerate(ordered)}


def write_marian(
    folder: Path,
    *,
    tags: tuple[str, ...] = (),
    seed: int = 1,
    has_target_vocabulary: bool = False,
    is_pre_norm: bool = False,
    byte_fallback: bool = False,
    **changes: Any,
) -> Any:
    """Write a folder and return its model. changes: fields of the configuration.

    has_target_vocabulary: whether sources and targets have vocabularies and tables of their own. is_pre_norm: write
    PEGASUS, the same network in pre-norm. byte_fallback: whether the SentencePiece models have a piece for each byte.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sides = [pair.source for pair in pairs()], [pair.target for pair in pairs()]
    models = [
        sentencepiece_model(texts, size + 256 * byte_fallback, byte_fallback=byte_fallback)
        for texts, size in zip(sides, (90, 100), strict=True)
    ]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    own = [models[:1], models[1:]] if has_target_vocabulary else [models]
    vocabularies = [vocabulary(side, tags if side is own[0] else ()) for side in own]
    for name, pieces in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (folder / name).write_text(json.dumps(pieces), "utf-8")
    if has_target_vocabulary:
        (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    sizes = [len(pieces) for pieces in vocabularies]
    torch.manual_seed(seed)
    config_class, model_class = CLASSES[is_pre_norm]
    config = getattr(transformers, config_class)(
        **{
            "vocab_size": sizes[0], "decoder_vocab_size": sizes[-1], "d_model": 64, "encoder_layers": 2,
            "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128, "activation_function": "swish", "scale_embedding": True,
            "max_position_embeddings": 64, "init_std": 0.1, "dropout": 0.0, "attention_dropout": 0.0,
            "pad_token_id": sizes[0] - 1, "eos_token_id": 0, "decoder_start_token_id": sizes[-1] - 1,
            "forced_eos_token_id": None, "share_encoder_decoder_embeddings": not has_target_vocabulary,
        } | changes
    )  # fmt: skip
    marian = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for name, parameter in marian.named_parameters():
            if name.endswith("bias") or "layer_norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
        marian.final_logits_bias.normal_(std=0.5)
        start, table = config.decoder_start_token_id, marian.get_decoder().embed_tokens.weight
        table[start] = 0.1 * torch.randn(config.d_model)  # <pad>, which `transformers` sets to zeros
        # Without tied embeddings these are separate tables. All get the same values.
        if not has_target_vocabulary:
            marian.model.shared.weight.copy_(table)
            marian.get_encoder().embed_tokens.weight.copy_(table)
    marian.save_pretrained(folder)
    return marian


def train(marian: Any, folder: Path, *, num_steps: int, examples: Sequence[Pair] = ()) -> None:
    """Train for num_steps batches of 16 examples, and write the weights.

    examples: by default the pairs that the SentencePiece models were trained on.
    """
    tokenizer = tokenizer_of(folder)
    examples = examples or pairs()
    batch = tokenizer(
        [pair.source for pair in examples],
        text_target=[pair.target for pair in examples],
        return_tensors="pt",
        padding=True,
    )
    labels = batch.labels.masked_fill(batch.labels == marian.config.pad_token_id, -100)
    optimizer = torch.optim.Adam([*marian.parameters(), marian.final_logits_bias.requires_grad_()], lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_steps):
        rows = torch.randint(len(labels), (16,), generator=generator)
        loss = marian(
            input_ids=batch.input_ids[rows], attention_mask=batch.attention_mask[rows], labels=labels[rows]
        ).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    marian.final_logits_bias.requires_grad_(False)
    marian.save_pretrained(folder)


def tokenizer_of(folder: Path) -> Any:
    """The tokenizer of `transformers`."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # not used for ids
        return transformers.MarianTokenizer.from_pretrained(folder)


def write_npz(folder: Path, output: Path, *, is_old: bool = False) -> None:
    """Convert a post-norm folder of Hugging Face to Marian's own files.

    They are an .npz, vocabularies in YAML, the .spm, and decoder.yml as in a release of OPUS-MT.

    is_old: if the output matrix is not tied to the embeddings, store it as Marian did before 2019.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    search = json.loads((folder / "generation_config.json").read_text("utf-8"))
    state = load_file(folder / "model.safetensors")
    output.mkdir()
    has_target_vocabulary = (folder / "target_vocab.json").is_file()
    names = {"vocab.json": "opus.spm32k-spm32k.vocab.yml"}
    if has_target_vocabulary:
        names = {"vocab.json": "opus.src.vocab.yml", "target_vocab.json": "opus.trg.vocab.yml"}
    for hf_name, marian_name in names.items():
        pieces = json.loads((folder / hf_name).read_text("utf-8"))
        del pieces["<pad>"]  # the last piece; Marian has no padding
        lines = [
            f"{json.dumps(piece, ensure_ascii=False)}: {identity}\n" for piece, identity in pieces.items()
        ]
        (output / marian_name).write_text("".join(lines), "utf-8")
    for name in ("source.spm", "target.spm"):
        (output / name).write_bytes((folder / name).read_bytes())
    is_tied = config["tie_word_embeddings"]
    options = {
        "type": "transformer", "tied-embeddings-all": is_tied and not has_target_vocabulary,
        "tied-embeddings-src": not has_target_vocabulary, "tied-embeddings": is_tied,
        "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False,
        "transformer-guided-alignment-layer": "last",
        "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-top": "",
        "transformer-postprocess-emb": "d",
        "dim-emb": config["d_model"], "enc-depth": config["encoder_layers"], "dec-depth": config["decoder_layers"],
        "transformer-heads": config["encoder_attention_heads"], "transformer-dim-ffn": config["encoder_ffn_dim"],
        "transformer-ffn-activation": config["activation_function"],
    }  # fmt: skip
    decoder = {
        "models": ["opus.npz"],
        "beam-size": search.get("num_beams") or 1,
        "normalize": 1,
        "word-penalty": 0,
    }
    (output / "decoder.yml").write_text(yaml.safe_dump(decoder), "utf-8")
    arrays = {
        "special:model.yml": np.frombuffer(yaml.safe_dump(options).encode() + b"\0", np.int8),
        "decoder_ff_logit_out_b": state["final_logits_bias"][:, :-1].numpy(),
    }
    tables = {"model.shared.weight": "Wemb"}
    if has_target_vocabulary:
        tables = {f"model.{stack}.embed_tokens.weight": f"{stack}_Wemb" for stack in ("encoder", "decoder")}
    arrays |= {marian_name: state[hf_name][:-1].numpy() for hf_name, marian_name in tables.items()}
    if not is_tied:
        matrix = state["lm_head.weight"][:-1].numpy()
        old = {"decoder_ff_logit_out_W": np.ascontiguousarray(matrix.T)}
        arrays |= old if is_old else {"decoder_ff_logit_out_Wt": matrix}
    for name, tensor in state.items():
        if key := npz_name(name):
            arrays[key] = (tensor.T if tensor.dim() > 1 else tensor[None]).contiguous().numpy()
    np.savez(output / "opus.npz", **arrays)  # type: ignore[arg-type]


def change_decoder(folder: Path, options: dict[str, Any]) -> None:
    """Replace options of the search in a folder that `write_npz` has written, or add them."""
    path = folder / "decoder.yml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text("utf-8")) | options), "utf-8")


def change_npz(folder: Path, options: dict[str, Any], arrays: dict[str, Any] | None = None) -> None:
    """Replace options and arrays in a folder that `write_npz` has written, or add them."""
    found = dict(np.load(folder / "opus.npz")) | (arrays or {})
    changed = yaml.safe_load(found["special:model.yml"].tobytes().rstrip(b"\0")) | options
    found["special:model.yml"] = np.frombuffer(yaml.safe_dump(changed).encode(), np.int8)
    np.savez(folder / "opus.npz", **found)


def npz_name(name: str) -> str | None:
    """Marian's name of a layer's weight; None for other weights."""
    if ".layers." not in name:
        return None
    _, stack, *rest = name.split(".")
    part = {"weight": "scale", "bias": "bias"}[rest[-1]]
    _, layer, module, *_ = rest
    own = f"{stack}_l{int(layer) + 1}"
    letter = {"weight": "W", "bias": "b"}[rest[-1]]
    attention = {"self_attn": "self", "encoder_attn": "context"}.get(module.removesuffix("_layer_norm"))
    if module.endswith("_layer_norm"):
        block = f"{attention}_Wo" if attention else "ffn_ffn"
        return f"{own}_{block}_ln_{part}"
    return f"{own}_{attention}_{letter}{rest[3][0]}" if attention else f"{own}_ffn_{letter}{module[-1]}"
