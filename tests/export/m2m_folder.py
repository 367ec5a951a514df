"""Writes folders of M2M-100 and NLLB with `transformers` and SentencePiece: random weights, or trained for a while."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece
import torch

from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Tokenizer
from model.m2m_vocabulary import LANGUAGES, NUM_MADE_UP, read_vocabulary
from tests.export.marian_folder import sentencepiece_model
from tests.model.sentences import pairs

transformers: Any = import_module("transformers")  # its types do not describe what a model returns

MAX_LENGTH = 64
NLLB_LANGUAGES = ("ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hant")


def bpe_model(vocab_size: int, *, byte_fallback: bool = False) -> bytes:
    """A BPE model with SentencePiece's default normalisation, as M2M-100 and NLLB have."""
    texts = [text for pair in pairs() for text in (pair.source, pair.target)]
    return sentencepiece_model(texts, vocab_size, "bpe", byte_fallback=byte_fallback)


def pieces_of(folder: Path) -> list[str]:
    """The pieces of the folder's SentencePiece model in its order."""
    processor = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.bpe.model"))
    return [processor.id_to_piece(index) for index in range(processor.vocab_size())]


def write_m2m(
    folder: Path, *, seed: int = 1, special: Sequence[str] = ("<s>", "<pad>", "</s>", "<unk>"), **changes: Any
) -> Any:
    """Write a folder as facebook/m2m100_418M has it, and return its model.

    special: the pieces with the first ids. changes: fields of the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(bpe_model(160))
    ordinary = sorted(set(pieces_of(folder)) - set(special))  # in another order than the SentencePiece model
    vocabulary = {piece: index for index, piece in enumerate((*special, *ordinary))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), "utf-8")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})
    size = len(vocabulary) + len(LANGUAGES["m2m100"].split()) + NUM_MADE_UP
    return write_model(folder, size, seed, changes)


def write_nllb(folder: Path, *, seed: int = 1, **changes: Any) -> Any:
    """Write a folder as facebook/nllb-200-distilled-600M has it, and return its model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(bpe_model(160))
    first = len(pieces_of(folder)) + 1  # the tokenizer adds <pad>, which the SentencePiece model lacks
    settings = {
        "tokenizer_class": "NllbTokenizer",
        "src_lang": "eng_Latn",
        "additional_special_tokens": [*NLLB_LANGUAGES],
    }
    write_json(folder / "tokenizer_config.json", settings)
    converted = transformers.NllbTokenizer.from_pretrained(folder).backend_tokenizer
    write_json(folder / "tokenizer.json", with_languages(json.loads(converted.to_str()), first))
    # <mask> follows the languages, and then two rows without a piece, as in released models.
    return write_model(folder, first + len(NLLB_LANGUAGES) + 3, seed, changes)


def with_languages(tokenizer: dict[str, Any], first: int) -> dict[str, Any]:
    """A tokenizer.json in which the languages and then <mask> have the ids from `first` on, as in released models."""
    ids = {piece: first + index for index, piece in enumerate((*NLLB_LANGUAGES, "<mask>"))}
    tokenizer["model"]["vocab"] |= ids
    for token in tokenizer["added_tokens"]:
        token["id"] = ids.get(token["content"], token["id"])
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    for special in tokenizer["post_processor"]["special_tokens"].values():
        special["ids"] = [
            ids.get(piece, identity)
            for piece, identity in zip(special["tokens"], special["ids"], strict=True)
        ]
    return tokenizer


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), "utf-8")


def write_model(folder: Path, vocab_size: int, seed: int, changes: dict[str, Any]) -> Any:
    """Write config.json and random weights, and return the model. changes: fields of the configuration."""
    torch.manual_seed(seed)
    config = transformers.M2M100Config(
        **{
            "vocab_size": vocab_size, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
            "max_position_embeddings": MAX_LENGTH, "init_std": 0.1, "dropout": 0.0, "attention_dropout": 0.0,
            "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
        } | changes
    )  # fmt: skip
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "layer_norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def tokenizer_of(folder: Path, source: str) -> Any:
    """The tokenizer of `transformers` for a source language."""
    kind = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["tokenizer_class"]
    return getattr(transformers, kind).from_pretrained(folder, src_lang=source)


def ids_of(folder: Path, tokenizer: Tokenizer) -> dict[int, int]:
    """The bundle's id of each id of the folder's model. The first placeholder symbol has the row of <unk>."""
    vocabulary, problems = read_vocabulary(folder, json.loads((folder / "config.json").read_text("utf-8")))
    assert vocabulary is not None, problems
    found = {
        identity: tokenizer.id_of(piece)
        for piece, identity in vocabulary.ids.items()
        if piece not in ("<s>", "<pad>", "<unk>")
    }
    return found | {vocabulary.ids["<unk>"]: tokenizer.id_of(PLACEHOLDER_SYMBOLS[0])}


def train(model: Any, folder: Path, languages: tuple[str, str, str], *, num_steps: int) -> None:
    """Train for num_steps batches of 24 pairs, and write the weights.

    languages: English, German, and a language whose texts are the English texts with reversed order of words.
    """
    english, german, other = languages
    rows = []
    for pair in pairs():
        texts = {english: pair.source, german: pair.target, other: " ".join(reversed(pair.source.split()))}
        rows += [(english, german, texts), (english, other, texts), (german, english, texts)]
    tokenizers = {code: tokenizer_of(folder, code) for code in languages}
    sources = [tokenizers[source](texts[source]).input_ids for source, _, texts in rows]
    targets = [tokenizers[target](texts[target]).input_ids for _, target, texts in rows]
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(num_steps):
        chosen = torch.randint(len(rows), (24,), generator=generator).tolist()
        source, target = (
            padded([sources[row] for row in chosen], 1),
            padded([targets[row] for row in chosen], -100),
        )
        loss = model(input_ids=source, attention_mask=(source != 1).long(), labels=target).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)


def padded(sequences: list[list[int]], value: int) -> torch.Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([[*ids, *[value] * (longest - len(ids))] for ids in sequences])


class Kind(NamedTuple):
    """A kind of model.

    write: writes a folder. codes: the codes of English, German and French. token: the form of a subword for a language.
    """

    write: Callable[..., Any]
    codes: tuple[str, str, str]
    token: str

    def code(self, language: str) -> str:
        return self.codes[("en", "de", "fr").index(language)]


KINDS = {
    "m2m": Kind(write_m2m, ("en", "de", "fr"), "__{}__"),
    "nllb": Kind(write_nllb, ("eng_Latn", "deu_Latn", "fra_Latn"), "{}"),
}


def change(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit a JSON file in place."""
    content = json.loads(path.read_text("utf-8"))
    edit(content)
    write_json(path, content)
