"""Makes the shortlists of a bundle: the likely target subwords of each source subword.

Shortlists are learned from sentence pairs, or come with an imported model. A learned shortlist has the target subwords
that are most probable by IBM Model 1 over subwords (`model.lexicon`). Learning needs no model and no GPU, only pairs of
the kind that the model was trained on.
"""

from __future__ import annotations

import random
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece

from app.shortlist_file import MIN_ALWAYS, ShortlistTable
from app.text.tokenizer import SPACE, Tokenizer, TokenizerError
from model.corpus import SAMPLE_SEED, Pair
from model.lexicon import Table, translation_table

# Maximum number of subwords on either side of a pair. Longer pairs say little about single subwords. Time and memory
# grow with the product of both lengths.
MAX_SUBWORDS = 40
# Maximum number, over all pairs, of combinations of a source subword or the empty word with a target subword of the
# same pair. Each combination takes about 80 bytes, so the probabilities take about 4 GB. If larger, the command takes
# more memory. If smaller, fewer pairs are used.
MAX_COMBINATIONS = 50_000_000
# The id of the empty word in `model.lexicon`. It is also the id of padding, which no sentence contains.
EMPTY = 0

Sentences = list[tuple[Sequence[int], Sequence[int]]]


class ShortlistSizes(NamedTuple):
    """num_best: likely target subwords of each source subword.

    num_frequent: frequent target subwords that every shortlist has.
    """

    num_best: int
    num_frequent: int


class EncodedPairs(NamedTuple):
    """Encoded pairs. num_skipped: pairs with an unusable side. num_left_out: pairs beyond the limit of memory."""

    sentences: Sentences
    num_skipped: int
    num_left_out: int


def encode_pairs(
    pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer, *, is_reversed: bool
) -> EncodedPairs:
    """The subwords of each pair, without end tokens. Skips pairs with a side that is empty, long or not encodable.

    The pairs are in random order, the same in each run. They end before the pair that would exceed MAX_COMBINATIONS.
    is_reversed: the pair's target is the source.
    """
    sentences: Sentences = []
    num_skipped = num_combinations = 0
    for pair in random.Random(SAMPLE_SEED).sample(pairs, len(pairs)):
        texts = (pair.target, pair.source) if is_reversed else (pair.source, pair.target)
        try:
            encoded = source.encode(texts[0])
            ids = [each for each in encoded.ids if each != source.eos_id]
            target_ids = target.encode_target(texts[1], encoded.verbatim_spans)[:-1]
        except TokenizerError:
            num_skipped += 1
            continue
        if not (0 < len(ids) <= MAX_SUBWORDS and 0 < len(target_ids) <= MAX_SUBWORDS):
            num_skipped += 1
            continue
        num_combinations += (len(ids) + 1) * len(target_ids)
        if num_combinations > MAX_COMBINATIONS:
            break
        sentences.append((ids, target_ids))
    return EncodedPairs(sentences, num_skipped, len(pairs) - len(sentences) - num_skipped)


def learn_table(sentences: Sentences, *, source: Path, target: Path, sizes: ShortlistSizes) -> ShortlistTable:
    """The table of one direction. source, target: the SentencePiece models. sentences: at least one."""
    counts = Counter(each for _, target_ids in sentences for each in target_ids)
    frequent = [each for each, _ in counts.most_common(sizes.num_frequent)]
    likely = _best(translation_table(sentences), sizes.num_best)
    return make_table(likely, frequent, source=source, target=target)


def make_table(
    likely: Mapping[int, Iterable[int]], frequent: Iterable[int], *, source: Path, target: Path
) -> ShortlistTable:
    """The table of one direction, in which each source subword can also be copied.

    likely: target ids of each source id. frequent: target ids that every shortlist has. source, target: the
    SentencePiece models.
    """
    always = _always(target, frequent)
    copies = _copies(source, target)
    vocab_size = len(copies)
    is_always = np.zeros(vocab_size, bool)
    is_always[always] = True
    lists = [
        sorted(each for each in {*likely.get(source_id, ()), *copies[source_id]} if not is_always[each])
        for source_id in range(vocab_size)
    ]
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint32)
    ids = np.array([each for one in lists for each in one], np.uint32)
    return ShortlistTable(np.array(always, np.uint32), ids, offsets)


def _best(table: Table, count: int) -> dict[int, list[int]]:
    """The `count` most probable target subwords of each source subword."""
    order = np.lexsort((-table.p, table.e))
    e, f = table.e[order], table.f[order]
    starts = np.flatnonzero(np.diff(e, prepend=-1))
    ends = [*starts[1:], len(e)]
    return {
        int(e[start]): f[start : min(end, start + count)].tolist()
        for start, end in zip(starts, ends, strict=True)
        if e[start] != EMPTY
    }


def _always(target: Path, frequent: Iterable[int]) -> list[int]:
    """Ids that every shortlist has, ascending.

    These are special ids, placeholder symbols, subwords without letters, single letters of scripts with capitals,
    `frequent`, and the first MIN_ALWAYS ids of any kind. So numbers, marks and names in such scripts can always be
    written. Not all byte subwords, such as `<0xC3>`, are in this list: a placeholder replaces text that would be
    copied in bytes.
    """
    pieces = _Pieces(target)
    ids = {each for each in range(pieces.vocab_size) if pieces.is_always(each)}
    ids.update(frequent)
    ids.update(range(min(MIN_ALWAYS, pieces.vocab_size)))
    return sorted(ids)


def _copies(source: Path, target: Path) -> list[list[int]]:
    """The target subwords that spell the text of each source subword, by source id."""
    sources, targets = _Pieces(source), _Pieces(target)
    if sources.names == targets.names:
        return [[each] for each in range(sources.vocab_size)]
    return [targets.spell(name) for name in sources.names]


class _Pieces:
    """The subwords of a SentencePiece model. names: by id."""

    def __init__(self, path: Path) -> None:
        self._processor = processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.vocab_size = int(processor.vocab_size())
        self.names = [str(processor.id_to_piece(each)) for each in range(self.vocab_size)]
        self._ids = {name: each for each, name in enumerate(self.names)}

    def is_always(self, identity: int) -> bool:
        """Whether a subword is in every shortlist, whatever its frequency."""
        text = self.names[identity].replace(SPACE, "")
        categories = [unicodedata.category(character) for character in text]
        has_no_letter = not any(category.startswith(("L", "M")) for category in categories)
        is_cased_letter = len(text) == 1 and categories[0] in ("Lu", "Ll")
        is_special = self._processor.is_control(identity) or self._processor.is_unknown(identity)
        return has_no_letter or is_cased_letter or is_special

    def spell(self, name: str) -> list[int]:
        """The id of the subword `name`, or else the ids of the subwords that spell its text."""
        if name in self._ids:
            return [self._ids[name]]
        return [int(each) for each in self._processor.encode(name.replace(SPACE, " ").strip())]
