"""Imported models: the type that an import returns, and the conversion of vocabularies to the server's order.

The server's ids begin with padding, start, end and unknown, and the placeholder symbols. A foreign model numbers its
pieces in another order and mostly has no placeholder symbols. Each import therefore puts the rows of the embedding
into one new order, and rewrites the SentencePiece models in that order:

- A piece may be in the vocabulary but not in a SentencePiece model. It is then UNUSED in that model. Such a piece is
  decoded, but no text is encoded with it.
- A piece of a BPE model may be missing from the vocabulary, because longer pieces have replaced it wherever it
  occurred. The merges that make the longer pieces need it (Sennrich et al. 2016, section 3.2), so it is UNUSED, too.
- A vocabulary without the placeholder symbols gets them with the embedding row of `<unk>`. Such a model cannot output
  `<unk>`. Of the placeholder symbols, it can output only the first, which the server replaces by a verbatim span of the
  source.
- If all SentencePiece models of such a model have byte fallback, it has learned to read and write unknown characters in
  bytes. SPELLED_SCORE then marks the symbols, which stand only for the server's placeholders (`app.text.tokenizer`).
- A vocabulary with all placeholder symbols is that of one of our models, which `transduce export --to` wrote. The
  symbols keep their rows and their biases.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor

from app.text.tokenizer import PLACEHOLDER_SYMBOLS, SPELLED_SCORE
from model.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, ModelConfig

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
# The pieces that have the first ids.
FIRST = (PAD, BOS, EOS, UNK, *PLACEHOLDER_SYMBOLS)
# A logit so low that its piece is never chosen. Half precision can represent it.
NEVER = -30_000.0
# The score of a piece that is not used. Not a whole number, because `app.text.tokenizer` takes whole scores at the end
# of a model for ranks of BPE merges.
UNUSED_SCORE = -1000.5
# The number and the names of the pieces of byte fallback.
NUM_BYTES = 256
BYTES = frozenset(f"<0x{number:02X}>" for number in range(NUM_BYTES))
# Maximum number of names of a list in a message.
MAX_SHOWN = 10


class UnusableModel(ValueError):
    """The folder holds no model that can be imported. The message lists all problems."""

    def __init__(self, folder: Path, problems: list[str]) -> None:
        super().__init__(f"{folder} cannot be imported: {'; '.join(problems)}")
        self.problems = problems


@dataclass(frozen=True)
class ImportedShortlist:
    """Which target subwords a source subword may become, by our ids.

    likely: the target ids of each source id. frequent: target ids that the shortlist of every sentence has.
    """

    likely: Mapping[int, list[int]]
    frequent: list[int]


@dataclass(frozen=True)
class ImportedModel:
    """An imported model.

    state: state dict of `Transformer(config)`. source_spm, target_spm: SentencePiece models.
    tags: subwords that name a target language, such as >>deu<<.
    num_left_out: how many used pieces of the SentencePiece models have no row in the model, added up over both.
    beam_size, length_penalty: the defaults of the model, or of its format. Scores are divided by length^length_penalty.
    ends_source: whether sources end with the end token. languages: source and target, if the files name them.
    language_tokens: for a model that translates between any two languages, the subword of each language. Sources and
        targets begin with it.
    tag_follows_source: whether a source's language token follows its end token instead.
    shortlist: None if the model has none. notes: for the user, about options of the search that are left out.
    """

    config: ModelConfig
    state: dict[str, Tensor]
    source_spm: bytes
    target_spm: bytes
    tags: tuple[str, ...]
    num_left_out: int
    beam_size: int
    length_penalty: float
    ends_source: bool = True
    languages: tuple[str, str] | None = None
    language_tokens: dict[str, str] = field(default_factory=dict)
    tag_follows_source: bool = False
    shortlist: ImportedShortlist | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_distinct_placeholders(self) -> bool:
        """Whether the model can write each placeholder symbol, not only the first; see `masked_bias`."""
        bias = self.state["embedding.output_bias"]
        return bool((bias[UNK_ID + 2 : len(FIRST)] > NEVER / 2).all())


def shown(names: Sequence[str]) -> str:
    """Names for a message, at most MAX_SHOWN."""
    return ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")


def read_sentencepiece(path: Path) -> Any:
    """The SentencePiece model in a file. Raises OSError, ValueError."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    content = path.read_bytes()
    try:
        proto.ParseFromString(content)
    except Exception as error:  # the module of protobuf's DecodeError differs between versions
        raise ValueError(f"{path.name} is not a SentencePiece model") from error
    if not proto.pieces:
        raise ValueError(f"{path.name} is not a SentencePiece model")
    return proto


def is_tag(piece: str) -> bool:
    """Whether a piece names a target language, such as >>deu<<."""
    return piece.startswith(">>") and piece.endswith("<<")


def is_used(piece: Any) -> bool:
    """Whether texts are encoded with a piece of a SentencePiece model."""
    return bool(piece.type in (piece.NORMAL, piece.USER_DEFINED, piece.BYTE))


def piece_order(vocabulary: Mapping[str, int], protos: Sequence[Any] = ()) -> list[str]:
    """The pieces of a foreign vocabulary that are not in FIRST, in the order of their ids, then the `merged_pieces`."""
    own = sorted(set(vocabulary) - set(FIRST), key=vocabulary.__getitem__)
    return [*own, *merged_pieces(protos, vocabulary)]


def filled(order: list[str], length: int) -> list[str]:
    """`order`, extended to `length` by made-up pieces, which no text contains."""
    return [*order, *(f"<no piece {index}>" for index in range(len(order), length))]


def merged_pieces(protos: Sequence[Any], vocabulary: Mapping[str, int]) -> list[str]:
    """The pieces that the vocabulary lacks, and that the BPE models among `protos` merge into longer ones."""
    found = [
        piece.piece
        for proto in protos
        if proto.trainer_spec.model_type == proto.trainer_spec.BPE
        for piece in proto.pieces
        if piece.type == piece.NORMAL and len(piece.piece) > 1 and piece.piece not in vocabulary
    ]
    return list(dict.fromkeys(found))


def can_spell(protos: Sequence[Any], vocabularies: Sequence[Mapping[str, int]]) -> bool:
    """Whether a model reads and writes unknown characters in bytes.

    protos, vocabularies: of sources and of targets.
    """
    return all(map(_has_byte_fallback, protos, vocabularies))


def _has_byte_fallback(proto: Any, vocabulary: Mapping[str, int]) -> bool:
    """Whether this is a foreign vocabulary whose SentencePiece model spells unknown characters in its bytes."""
    is_spelled = any(
        piece.piece == PLACEHOLDER_SYMBOLS[0] and piece.score == SPELLED_SCORE for piece in proto.pieces
    )
    # `transduce export --to` writes the symbols also for a model that was imported with a foreign vocabulary.
    is_foreign = is_spelled or not _has_symbols(vocabulary)
    return bool(proto.trainer_spec.byte_fallback) and _has_all_bytes(vocabulary) and is_foreign


def _has_all_bytes(vocabulary: Mapping[str, int]) -> bool:
    """Whether a vocabulary has all pieces of byte fallback. If it lacks one, none is used.

    SentencePiece reads no model that has some of them, and none that has them without byte_fallback.
    """
    return vocabulary.keys() >= BYTES


def reordered(
    proto: Any,
    order: list[str],
    vocabulary: Mapping[str, int],
    *,
    spells_unknown: bool = False,
    language_tokens: Collection[str] = (),
) -> bytes:
    """A SentencePiece model with the pieces FIRST and `order`. It encodes texts as `proto` does.

    vocabulary: the foreign one. No text is encoded with a piece that it lacks. spells_unknown: from `can_spell`.
    language_tokens: pieces that name languages, beside those of `is_tag`.
    """
    known = {piece.piece: piece for piece in proto.pieces}
    new = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    new.trainer_spec.CopyFrom(proto.trainer_spec)
    new.normalizer_spec.CopyFrom(proto.normalizer_spec)
    new.denormalizer_spec.CopyFrom(proto.denormalizer_spec)
    Piece = new.SentencePiece
    for piece in FIRST[:4]:
        new.pieces.add(piece=piece, score=0.0, type=Piece.UNKNOWN if piece == UNK else Piece.CONTROL)
    for piece in PLACEHOLDER_SYMBOLS:
        score = SPELLED_SCORE if spells_unknown else 0.0
        new.pieces.add(piece=piece, score=score, type=Piece.USER_DEFINED)
    has_bytes = _has_all_bytes(vocabulary)
    for piece in order:
        old = known.get(piece)
        if is_tag(piece) or piece in language_tokens:
            new.pieces.add(piece=piece, score=0.0, type=Piece.CONTROL)
        elif old is not None and is_used(old):
            is_usable = piece in vocabulary and (has_bytes or old.type != Piece.BYTE)
            kind = old.type if is_usable else Piece.UNUSED
            new.pieces.add(piece=piece, score=old.score, type=kind)
        else:
            new.pieces.add(piece=piece, score=UNUSED_SCORE, type=Piece.UNUSED)
    spec = new.trainer_spec
    spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = PAD_ID, BOS_ID, EOS_ID, UNK_ID
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = FIRST[:4]
    spec.vocab_size, spec.byte_fallback = len(new.pieces), spec.byte_fallback and has_bytes
    return bytes(new.SerializeToString())


@dataclass(frozen=True)
class Specials:
    """A foreign model's ids of the padding, start, end and unknown tokens."""

    pad: int
    start: int
    end: int
    unknown: int


def rows_of(vocabulary: Mapping[str, int], order: list[str], specials: Specials) -> list[int]:
    """The foreign row of each of our ids: FIRST, then `order`. A piece that the vocabulary lacks has `<unk>`'s row.

    Placeholder symbols have `<unk>`'s row, too, unless the vocabulary has all of them.
    """
    first = [specials.pad, specials.start, specials.end, specials.unknown]
    symbols = [
        vocabulary[symbol] if _has_symbols(vocabulary) else specials.unknown for symbol in PLACEHOLDER_SYMBOLS
    ]
    return [*first, *symbols, *(vocabulary.get(piece, specials.unknown) for piece in order)]


def masked_bias(bias: Tensor, vocabulary: Mapping[str, int]) -> Tensor:
    """The output's bias (vocab_size,) by our ids, set to NEVER for the pieces that no translation may contain.

    These are padding, start and unknown, the pieces of `merged_pieces` and `filled`, all placeholder symbols except the
    first, and the bytes if the vocabulary lacks one. If the vocabulary has all placeholder symbols, only
    `merged_pieces`, `filled` and such bytes are set to NEVER.
    """
    masked, order = bias.clone(), piece_order(vocabulary)
    masked[len(FIRST) + len(order) :] = NEVER
    if not _has_all_bytes(vocabulary):
        masked[[index for index, piece in enumerate(order, len(FIRST)) if piece in BYTES]] = NEVER
    if not _has_symbols(vocabulary):
        masked[torch.tensor([PAD_ID, BOS_ID, UNK_ID, *range(UNK_ID + 2, len(FIRST))])] = NEVER
    return masked


def _has_symbols(vocabulary: Mapping[str, int]) -> bool:
    """Whether a vocabulary has all placeholder symbols, as the vocabularies of `transduce export --to` have."""
    return vocabulary.keys() >= set(PLACEHOLDER_SYMBOLS)


def num_left_out(protos: list[Any], vocabulary: Mapping[str, int]) -> int:
    """How many used pieces of the SentencePiece models the vocabulary does not have, added up over the models."""
    return sum(is_used(piece) and piece.piece not in vocabulary for proto in protos for piece in proto.pieces)
