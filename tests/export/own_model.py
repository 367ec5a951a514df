"""A tiny trained model of our own architecture as a checkpoint, and our search, to compare with other projects.

The checkpoint has byte fallback, placeholder symbols and tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from app.text.tokenizer import Tokenizer
from model.checkpoint import Saved, save
from model.config import BOS_ID, preset
from model.search import beam_search, greedy_search, pad
from model.tokenizer_training import train_tokenizer
from model.transformer import Transformer
from tests.model.sentences import pairs

TAG, OTHER_TAG = ">>de<<", ">>en<<"
MAX_LENGTH, NUM_STEPS = 64, 100
# The maximum number of subwords of a translation by `reference_search`.
MAX_TARGET_LENGTH = 50
EMOJI = "\U0001f642"


def write_own_checkpoint(folder: Path, **changes: Any) -> Transformer:
    """Train for NUM_STEPS batches, so that translations end and differ. changes: fields of the configuration."""
    folder.mkdir(parents=True)
    tokenizer_file = folder / "trained.spm"
    train_tokenizer(pairs(), tokenizer_file, vocab_size=400, tags=(TAG, OTHER_TAG))
    tokenizer = Tokenizer(tokenizer_file)
    torch.manual_seed(1)
    model = Transformer(
        preset("tiny", tokenizer.vocab_size, **{"max_length": MAX_LENGTH, "dropout": 0.0, **changes})
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    sources = [tokenizer.encode_tagged(pair.source, TAG).ids for pair in pairs()]
    targets = [tokenizer.encode_target(pair.target) for pair in pairs()]
    for _ in range(NUM_STEPS):
        rows = torch.randint(len(sources), (16,)).tolist()
        target = pad([targets[row] for row in rows])
        shifted = F.pad(target[:, :-1], (1, 0), value=BOS_ID)
        logits = model(pad([sources[row] for row in rows]), shifted)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    save(
        folder / "checkpoint",
        Saved(model.state_dict(), {"model": model.config.to_json()}, {}, {}),
        tokenizer_file,
    )
    return model.eval()


def reference_search(
    model: Transformer, sources: Sequence[tuple[int, ...]], beam_size: int, alpha: float
) -> list[tuple[int, ...]]:
    """The ids of our reference search, which divides by length^alpha."""
    options: dict[str, Any] = {
        "max_target_length": MAX_TARGET_LENGTH,
        "alpha": alpha,
        "formula": "power",
    }
    if beam_size == 1:
        return [greedy_search(model, source, **options).ids for source in sources]
    return [beam_search(model, source, beam_size=beam_size, **options)[0].ids for source in sources]
