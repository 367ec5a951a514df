"""Trains the joint SentencePiece vocabulary."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from app.text.tokenizer import PLACEHOLDER_SYMBOLS
from model.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from model.corpus import Pair, sample_pairs
from model.imported import read_sentencepiece
from model.output_files import write_file

# Maximum number of pairs that a vocabulary is learnt from. If larger, training takes more time and memory. If smaller,
# rare subwords are chance.
MAX_PAIRS = 500_000
# SentencePiece leaves out longer sentences.
MAX_SENTENCE_BYTES = 4192


def train_tokenizer(
    pairs: Iterable[Pair],
    output: Path,
    *,
    vocab_size: int,
    character_coverage: float = 0.99999,
    tags: Sequence[str] = (),
) -> None:
    """Train one byte-pair vocabulary (section 5.1) over both sides, and write it atomically to `output`.

    Of more than MAX_PAIRS pairs, a random sample is used, which is the same in each run. Sentences of more than
    MAX_SENTENCE_BYTES in UTF-8 are left out. Text is normalised to Unicode NFC, and not in any other way. Digits are
    split, so that numbers are copied digit by digit. The vocabulary has all bytes. They spell characters of a target
    that the vocabulary and the source lack (`Tokenizer.encode_target`). tags: subwords that no text contains, one for
    each target language of a model that has several, such as >>de<<. Raises ValueError if SentencePiece cannot train
    the vocabulary, for example because the text is too small for vocab_size.
    """
    sample = sample_pairs(pairs, MAX_PAIRS)
    # The tokenizer composes text before it encodes it, so the vocabulary must have the composed letters.
    texts = (unicodedata.normalize("NFC", text) for pair in sample for text in (pair.source, pair.target))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts,
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            split_digits=True,
            byte_fallback=True,
            user_defined_symbols=list(PLACEHOLDER_SYMBOLS),
            control_symbols=list(tags),
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            max_sentence_length=MAX_SENTENCE_BYTES,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2]  # without the place in SentencePiece's code
        if "sentences_.empty()" in str(error):
            reason = f"the text has no sentence of at most {MAX_SENTENCE_BYTES:,} bytes"
        # SentencePiece names its own options, which the command has with dashes.
        reason = reason.replace(" with --character_coverage option", "")
        reason = re.sub(
            r"\b(vocab_size|character_coverage)\b", lambda name: "--" + name[0].replace("_", "-"), reason
        )
        raise ValueError(f"the vocabulary cannot be trained: {reason or error}") from error
    write_file(output, model.getvalue())


def add_tags(vocabulary: Path, output: Path, tags: Sequence[str]) -> None:
    """Write `vocabulary` to `output` with the tags in place of its rarest merged subwords.

    The size and all other ids stay, so training can continue from weights that use the old vocabulary. Raises
    ValueError for a file that is no SentencePiece model, for an empty tag, for one that the vocabulary already has, for
    two equal tags, and for more tags than merged subwords.
    """
    model = read_sentencepiece(vocabulary)
    if len(set(tags)) < len(tags):
        raise ValueError("two tags are equal")
    if "" in tags:
        raise ValueError("a tag is empty")
    if known := {piece.piece for piece in model.pieces}.intersection(tags):
        raise ValueError(f"{vocabulary} has {', '.join(sorted(known))} already")
    # Merges are ordered by rank, and only later merges use the result of a merge. So the last merges can be replaced.
    merged = [piece for piece in model.pieces if piece.type == piece.NORMAL and len(piece.piece) > 1]
    if len(tags) > len(merged):
        raise ValueError(f"{vocabulary} has {len(merged)} merged subwords, fewer than the {len(tags)} tags")
    for piece, tag in zip(reversed(merged), tags, strict=False):
        piece.piece, piece.type = tag, piece.CONTROL
    write_file(output, model.SerializeToString())
