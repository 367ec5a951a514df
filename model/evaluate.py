"""Translates in PyTorch without a cache, and scores translations: BLEU and chrF by sacreBLEU, with its signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from tqdm import tqdm

from app.text.tokenizer import Encoded, Tokenizer, TokenizerError
from model.config import BOS_ID, EOS_ID, PAD_ID
from model.corpus import Pair
from model.search import beam_search, pad
from model.transformer import Transformer, padding_mask

# Subwords. "maximum output length during inference to input length + 50" (section 6.1).
EXTRA_TARGET_LENGTH = 50


@dataclass(frozen=True)
class Scores:
    """Corpus BLEU and chrF, 0-100, with the signatures that make them comparable."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def score(translations: Sequence[str], references: Sequence[str]) -> Scores:
    """Score translations against one reference each, both detokenised."""
    bleu, chrf = BLEU(), CHRF()
    bleu_score = bleu.corpus_score(translations, [references]).score
    chrf_score = chrf.corpus_score(translations, [references]).score
    return Scores(bleu_score, chrf_score, str(bleu.get_signature()), str(chrf.get_signature()))


@torch.no_grad()
def greedy_batch(
    model: Transformer, sources: Sequence[Sequence[int]], *, max_target_length: int
) -> list[list[int]]:
    """The ids of greedy search, without start and end tokens, for many sentences at once.

    Unlike in `model.search`, a translation may be empty.
    """
    device = model.embedding.weight.device
    source = pad(sources, device)
    mask = padding_mask(source)
    memory = model.encode(source, mask)
    target = torch.full((len(sources), 1), BOS_ID, device=device)
    is_done = torch.zeros(len(sources), dtype=torch.bool, device=device)
    while target.size(1) <= max_target_length and not bool(is_done.all()):
        logits = model.embedding.project(model.decode(target, memory, mask)[:, -1])
        following = logits.argmax(-1).masked_fill(is_done, PAD_ID)
        target = torch.cat((target, following[:, None]), dim=1)
        is_done |= following == EOS_ID
    return [[token for token in row[1:] if token not in (EOS_ID, PAD_ID)] for row in target.tolist()]


def encode_texts(
    model: Transformer, tokenizer: Tokenizer, texts: Sequence[str], tag: str | None = None
) -> list[Encoded]:
    """The subwords of each text. tag: the subword before each source, if the model has one.

    Raises TokenizerError if the vocabulary lacks the tag, and for a text that `Tokenizer.encode` refuses. Raises
    ValueError for a text that is longer than the model's positions.
    """
    encoded = []
    longest = model.config.max_length
    if tag is not None:
        tokenizer.id_of(tag)
    for number, text in enumerate(texts, start=1):
        try:
            one = tokenizer.encode_tagged(text, tag)
        except TokenizerError as error:
            raise TokenizerError(f"text {number}: {error}") from error
        if len(one.ids) > longest:
            raise ValueError(
                f"text {number} has {len(one.ids)} subwords, and the model takes at most {longest}"
            )
        encoded.append(one)
    return encoded


def translate_encoded(
    model: Transformer,
    sources: Sequence[Encoded],
    target_tokenizer: Tokenizer,
    *,
    beam_size: int,
    alpha: float = 0.6,
) -> list[str]:
    """Translations by greedy search in batches if beam_size is 1, otherwise by beam search, sentence by sentence.

    target_tokenizer: the vocabulary of the targets. alpha: that of a beam's length penalty (Wu et al. 2016).
    """
    if beam_size == 1:
        return _translate_in_batches(model, sources, target_tokenizer)
    translations = []
    for encoded in tqdm(sources, desc="translate", unit=" sentences", disable=None):
        limit = min(model.config.max_length - 1, len(encoded.ids) + EXTRA_TARGET_LENGTH)
        best, *_ = beam_search(model, encoded.ids, beam_size=beam_size, max_target_length=limit, alpha=alpha)
        translations.append(target_tokenizer.decode(best.ids, encoded.verbatim_spans).text)
    return translations


def _translate_in_batches(
    model: Transformer, sources: Sequence[Encoded], target_tokenizer: Tokenizer
) -> list[str]:
    """Greedy translations in the order of the sources, decoded in batches of similar lengths."""
    order = sorted(range(len(sources)), key=lambda index: len(sources[index].ids))
    translations = [""] * len(sources)
    for start in range(0, len(order), 64):
        chosen = order[start : start + 64]
        longest = max(len(sources[index].ids) for index in chosen)
        limit = min(model.config.max_length - 1, longest + EXTRA_TARGET_LENGTH)
        found = greedy_batch(model, [sources[index].ids for index in chosen], max_target_length=limit)
        for index, ids in zip(chosen, found, strict=True):
            translations[index] = target_tokenizer.decode(ids, sources[index].verbatim_spans).text
    return translations


def translate(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    beam_size: int,
    tag: str | None = None,
    target_tokenizer: Tokenizer | None = None,
) -> list[str]:
    """Translations of texts, as `translate_encoded` makes them with its default alpha.

    tag: the subword before each source, if the model has one. target_tokenizer: None if sources and targets have one
    vocabulary. Raises as `encode_texts`.
    """
    encoded = encode_texts(model, tokenizer, texts, tag)
    return translate_encoded(model, encoded, target_tokenizer or tokenizer, beam_size=beam_size)


def translate_greedily(
    model: Transformer,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    tag: str | None = None,
    target_tokenizer: Tokenizer | None = None,
) -> list[str]:
    """As `translate` with a beam of 1."""
    return translate(model, tokenizer, texts, beam_size=1, tag=tag, target_tokenizer=target_tokenizer)


def greedy_bleu(
    model: Transformer, tokenizer: Tokenizer, pairs: Sequence[Pair], *, tag: str | None = None
) -> float:
    """BLEU of greedy translations. tag: the subword before each source, if the model has one."""
    translations = translate_greedily(model, tokenizer, [pair.source for pair in pairs], tag=tag)
    return score(translations, [pair.target for pair in pairs]).bleu
