"""Training the joint SentencePiece vocabulary."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import sentencepiece

from app.text.tokenizer import PLACEHOLDERS
from model.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from model.corpus import Pair


def train_tokenizer(
    pairs: Iterable[Pair], output: Path, *, vocab_size: int, character_coverage: float = 0.99999
) -> None:
    """Train one byte-pair vocabulary (section 5.1) over both sides and write it to `output`, whole or not at all.

    Identity normalisation keeps every character as it is; bytes stand in for what the vocabulary lacks;
    digits are split, so that numbers are copied digit by digit. Raises RuntimeError where the text is
    too small for the vocabulary.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for pair in pairs for text in (pair.source, pair.target)),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        byte_fallback=True,
        user_defined_symbols=list(PLACEHOLDERS),
        pad_id=PAD_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        input_sentence_size=1_000_000,
        shuffle_input_sentence=False,
        minloglevel=2,
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_suffix(".tmp")
    temporary.write_bytes(model.getvalue())
    temporary.replace(output)
