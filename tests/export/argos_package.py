"""Writes an Argos package with CTranslate2's own model specification. Its sources have no end token."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import torch.nn.functional as F

from benchmarks.engine.ctranslate2_model import Quantization, write_ctranslate2
from model.config import preset
from model.transformer import Transformer
from tests.export.marian_folder import sentencepiece_model
from tests.model.sentences import pairs

ctranslate2: Any = import_module("ctranslate2")
MAX_LENGTH = 64
# SentencePiece's default ids, which OpenNMT uses. `<unk>` is 0.
START_ID, END_ID = 1, 2
# The sentences that the tests translate, and the maximum number of subwords of a translation.
SENTENCES = [pair.source for pair in pairs()][:200]
MAX_TOKENS = 56


def trained(processor: Any, *, num_steps: int) -> Transformer:
    """Train a model on `pairs`. With 120 steps its translations end, and differ from each other.

    A batch holds only pairs of the same two lengths, so it needs no padding.
    """
    torch.manual_seed(1)
    model = Transformer(
        preset(
            "tiny", processor.vocab_size(), norm="pre", max_length=MAX_LENGTH, dropout=0.0, output_bias=True
        )
    )
    assert model.embedding.output_bias is not None
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    examples = [
        (processor.encode(pair.source), [START_ID, *processor.encode(pair.target), END_ID])
        for pair in pairs()
    ]
    by_length: dict[tuple[int, int], list[tuple[list[int], list[int]]]] = {}
    for source, target in examples:
        by_length.setdefault((len(source), len(target)), []).append((source, target))
    groups = sorted(by_length.values(), key=len, reverse=True)[:40]
    for step in range(num_steps):
        chosen = groups[step % len(groups)]
        sources, targets = (torch.tensor(side) for side in zip(*chosen, strict=True))
        memory = model.encode(sources)
        logits = model.embedding.project(model.decode(targets[:, :-1], memory))
        loss = F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def occurring_ids(processor: Any, sentences: list[str]) -> list[int]:
    """Return the ids of special tokens, of single characters, and of the pieces that occur in these sentences."""
    occurring = {index for ids in processor.encode(sentences) for index in ids}
    characters = {index for index in range(processor.vocab_size()) if len(processor.id_to_piece(index)) == 1}
    return sorted({0, START_ID, END_ID} | occurring | characters)


def with_vocabulary(model: Transformer, kept: list[int]) -> Transformer:
    """Return the model with only the rows `kept` of its vocabulary."""
    smaller = Transformer(replace(model.config, vocab_size=len(kept)))
    state = model.state_dict()
    for name in ("embedding.weight", "embedding.output_bias"):
        state[name] = state[name][kept]
    smaller.load_state_dict(state)
    return smaller.eval()


def write_argos(
    folder: Path, *, quantization: Quantization = "float32", num_steps: int = 120, is_bpe: bool = False
) -> Any:
    """Write a package. Returns CTranslate2's translator of it.

    is_bpe: with a BPE model. The vocabulary then has only special tokens, single characters, and those pieces
    that occur in the training data.
    """
    folder.mkdir(parents=True)
    sentences = [text for pair in pairs() for text in (pair.source, pair.target)]
    content = sentencepiece_model(sentences, 200, "bpe") if is_bpe else sentencepiece_model(sentences, 110)
    (folder / "sentencepiece.model").write_bytes(content)
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    model, kept = trained(processor, num_steps=num_steps), list(range(processor.vocab_size()))
    if is_bpe:
        kept = occurring_ids(processor, sentences)
        model = with_vocabulary(model, kept)
    write_ctranslate2(model, folder / "model", quantization)
    vocabulary = [processor.id_to_piece(index) for index in kept]
    (folder / "model" / "shared_vocabulary.json").write_text(json.dumps(vocabulary), "utf-8")
    config = json.loads((folder / "model" / "config.json").read_text("utf-8"))
    config |= {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "decoder_start_token": "<s>",
    }  # fmt: skip
    (folder / "model" / "config.json").write_text(json.dumps(config), "utf-8")
    metadata = {"package_version": "1.0", "from_code": "en", "to_code": "de", "from_name": "English"}
    (folder / "metadata.json").write_text(json.dumps(metadata), "utf-8")
    return ctranslate2.Translator(
        str(folder / "model"), device="cpu", compute_type="float32", inter_threads=1, intra_threads=1
    )
