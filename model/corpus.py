"""Reads and filters parallel text, and encodes it as subwords."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from app.text.tokenizer import Tokenizer, TokenizerError
from model.variants import as_typed, with_placeholders, with_strange_ends

Int32s = NDArray[np.int32]
# The seed of `sample_pairs`.
SAMPLE_SEED = 1
# A corpus stores the domain of each pair as an int16 index.
MAX_DOMAINS = 32_767


class CorpusError(ValueError):
    """A file is missing or is not parallel text, or no pair can be used."""


class NoPairError(CorpusError):
    """A text has no pair, or every pair was left out."""


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation and the domain that it comes from."""

    source: str
    target: str
    domain: str


def read_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file (plain, .gz or .xz) without line ends, which are \n or \r\n.

    A byte order mark at the start is left out, and so is what follows the last intact stream of an .xz file.
    Raises CorpusError as `check_file` does. Also raises it for a line that is not UTF-8, and for a broken compressed
    file. The message then has the number of that line, or of the last line that was read.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text:  # empty only in a file of nothing but the mark
                    yield text.removesuffix("\r\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}, line {number}: not UTF-8 ({error.reason})") from error
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise CorpusError(f"{path}, after line {number}: the compressed file is broken ({error})") from error


def open_bytes(path: Path) -> BinaryIO:
    """Open a file (plain, .gz or .xz).

    Raises CorpusError as `check_file`, and EOFError for a .gz file of 0 bytes.
    """
    check_file(path)
    if path.suffix == ".xz":
        return io.BufferedReader(lzma.open(path))
    if path.suffix == ".gz":
        if path.stat().st_size == 0:  # gzip reads it as empty text
            raise EOFError("it has 0 bytes")
        return io.BufferedReader(gzip.open(path))
    return path.open("rb")


def check_file(path: Path) -> None:
    """Raise CorpusError unless the path is that of a regular file with a suffix that `open_bytes` can read."""
    if not path.exists():
        raise CorpusError(f"{path} does not exist")
    if path.is_dir():
        raise CorpusError(f"{path} is a folder; name its files")
    if not path.is_file():
        raise CorpusError(f"{path} is not a regular file")
    if path.suffix in (".zst", ".bz2"):
        raise CorpusError(f"{path}: only .gz and .xz are read compressed")


def read_tsv(path: Path) -> Iterator[Pair]:
    """The pairs of a TSV file with the columns domain, source and target, or source and target.

    Without a domain column, the domain is the file's name up to its first dot. Raises CorpusError that names a line
    with another number of columns.
    """
    domain = path.name.split(".")[0]
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) not in (2, 3):
            raise CorpusError(f"{path}, line {number}: {len(columns)} columns, where 2 or 3 are needed")
        yield Pair(columns[-2], columns[-1], columns[0] if len(columns) == 3 else domain)


def read_parallel(source: Path, target: Path) -> Iterator[Pair]:
    """The pairs of two files, line by line. Raises CorpusError if one file is longer.

    The domain is the name of `source` up to its first dot.
    """
    domain = source.name.split(".")[0]
    for number, (one, other) in enumerate(zip_longest(read_lines(source), read_lines(target)), 1):
        if one is None or other is None:
            raise CorpusError(
                f"{source if one is None else target} ends before line {number} of the other file"
            )
        yield Pair(one, other, domain)


def read_data(specification: str) -> Iterator[Pair]:
    """The pairs of `FILE.tsv[.gz|.xz]`, of a folder of such files, or of two parallel files `SOURCE:TARGET`.

    Raises CorpusError for a folder without such files.
    """
    source, separator, target = specification.partition(":")
    if separator:
        return read_parallel(Path(source), Path(target))
    path = Path(source)
    return chain.from_iterable(map(read_tsv, tsv_files(path))) if path.is_dir() else read_tsv(path)


def tsv_files(folder: Path) -> list[Path]:
    """Return the TSV files in a folder, by name. Raises CorpusError if there is none."""
    files = sorted(path for pattern in ("*.tsv", "*.tsv.gz", "*.tsv.xz") for path in folder.glob(pattern))
    if not files:
        raise CorpusError(f"{folder} holds no TSV file")
    return files


def sample_pairs(pairs: Iterable[Pair], count: int) -> list[Pair]:
    """A random sample of at most `count` pairs, the same in each run (algorithm R of Vitter 1985)."""
    choose = random.Random(SAMPLE_SEED)
    kept: list[Pair] = []
    for number, pair in enumerate(pairs):
        if number < count:
            kept.append(pair)
        elif (place := choose.randrange(number + 1)) < count:
            kept[place] = pair
    return kept


def check_domains(chosen: Iterable[str], known: Collection[str]) -> None:
    """Raise CorpusError if a chosen domain is not in `known`, the domains of the pairs."""
    if unknown := sorted(set(chosen).difference(known)):
        raise CorpusError(
            f"no pair has the domain {', '.join(unknown)}; the pairs have {', '.join(sorted(known))}"
        )


def check_num_domains(names: Collection[str]) -> None:
    """Raise CorpusError if there are more than MAX_DOMAINS domains."""
    if len(names) > MAX_DOMAINS:
        examples = ", ".join(map(repr, islice(names, 2)))
        raise CorpusError(
            f"more than {MAX_DOMAINS:,} domains, such as {examples}: is the first of three columns a domain?"
        )


@dataclass
class Corpus:
    """Encoded pairs, end tokens included.

    ids: every subword, sources and targets in turn. starts: (2 * pairs + 1,) where each sentence begins, and the end.
    domains: (pairs,) index into domain_names. dropped: how many pairs were left out, by reason. A pair counts once for
    each direction. lost_domains: domains without a pair that stayed.
    """

    ids: Int32s
    starts: NDArray[np.int64]
    domains: NDArray[np.int16]
    domain_names: tuple[str, ...]
    dropped: Counter[str] = field(default_factory=Counter)
    lost_domains: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.domains)

    def source(self, index: int) -> Int32s:
        """Subwords of one source, the end token last."""
        return self.ids[self.starts[2 * index] : self.starts[2 * index + 1]]

    def target(self, index: int) -> Int32s:
        """Subwords of one target, the end token last."""
        return self.ids[self.starts[2 * index + 1] : self.starts[2 * index + 2]]

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lengths of sources and of targets, each (pairs,), end tokens included."""
        lengths = np.diff(self.starts)
        return lengths[0::2], lengths[1::2]


def counts_by_reason(dropped: Mapping[str, int]) -> str:
    """The numbers of pairs that were left out, such as `2 empty, 1 too long`, or `none`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items()) or "none"


# Of the pairs that get unknown characters, the share that gets them at one end. In the other pairs, unknown characters
# replace words. If no word can be replaced, they stand at one end there, too.
ENDS_SHARE = 0.25


@dataclass(frozen=True)
class Filter:
    """Selects and varies pairs.

    max_length: maximum number of subwords on either side, end token included.
    max_ratio: the longer side has at most this many times the shorter side's subwords, plus 8.
    strange_share: share of pairs, 0-1, that get unknown characters, so that the model learns to copy these.
    typed_share: share of all pairs, 0-1, that are written as people type: without a final mark, in lower case, in
        title case. None of them gets unknown characters. The sum of both shares is at most 1.
    excluded: domains that are left out.
    """

    max_length: int = 128
    max_ratio: float = 2.5
    strange_share: float = 0.06
    typed_share: float = 0.0
    excluded: frozenset[str] = frozenset()

    def reason_to_skip(self, pair: Pair) -> str | None:
        """Why a pair is left out before it is encoded, or None."""
        if pair.domain in self.excluded:
            return "excluded domain"
        if not pair.source.strip() or not pair.target.strip():
            return "empty"
        return None

    def vary(self, pair: Pair, random_numbers: random.Random, lexicon: Mapping[str, str]) -> Pair:
        """The pair, or a variant of it, at random by the shares above. lexicon: translations by source word."""
        chance = random_numbers.random()
        texts = pair.source, pair.target
        if chance < self.strange_share:
            varied = with_placeholders(*texts, random_numbers, lexicon)
            if varied == texts or random_numbers.random() < ENDS_SHARE:
                varied = with_strange_ends(*texts, random_numbers)
        elif chance < self.strange_share + self.typed_share:
            varied = as_typed(*texts, random_numbers)
        else:
            varied = texts
        return Pair(*varied, pair.domain)

    def reason_against(self, source: Sequence[int], target: Sequence[int]) -> str | None:
        """Why an encoded pair is left out, or None."""
        shortest, longest = sorted((len(source), len(target)))
        if longest > self.max_length:
            return "too long"
        if longest > self.max_ratio * shortest + 8:
            return "lengths differ too much"
        return None


@dataclass(frozen=True)
class Direction:
    """A direction of translation that a model learns.

    tag: the subword before each source, which names the target language; None in a model of one direction.
    is_reversed: the data's target column is the source.
    lexicon: translations of this direction's source words, for placeholders in the middle of sentences.
    """

    tag: str | None = None
    is_reversed: bool = False
    lexicon: Mapping[str, str] = field(default_factory=dict)

    def of(self, pair: Pair) -> Pair:
        """The pair in this direction."""
        return Pair(pair.target, pair.source, pair.domain) if self.is_reversed else pair


def _encoded(
    pair: Pair, tag: str | None, tokenizer: Tokenizer, keep: Filter
) -> tuple[Sequence[int], Sequence[int]] | str:
    """The subwords of source and target, or the reason why the pair is left out."""
    prefix = () if tag is None else (tokenizer.id_of(tag),)
    try:
        encoded = tokenizer.encode(pair.source)
        source, target = (*prefix, *encoded.ids), tokenizer.encode_target(pair.target, encoded.verbatim_spans)
    except TokenizerError:
        return "unknown characters"
    return keep.reason_against(source, target) or (source, target)


def is_kept(pair: Pair, tokenizer: Tokenizer, keep: Filter, directions: Sequence[Direction]) -> bool:
    """Whether `encode_corpus` keeps a pair in every direction, if no pair is varied. Raises as `encode_corpus`."""
    return keep.reason_to_skip(pair) is None and not any(
        isinstance(_encoded(one.of(pair), one.tag, tokenizer, keep), str) for one in directions
    )


def encode_corpus(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    *,
    keep: Filter,
    seed: int = 1,
    directions: Sequence[Direction] = (Direction(),),
    one_way: Iterable[tuple[Pair, Direction]] = (),
) -> Corpus:
    """Filter and encode pairs, each in every direction. The same seed gives the same corpus.

    one_way: more pairs, each with the only direction in which it is encoded.
    Raises NoPairError if no pair is left, CorpusError if there are more than MAX_DOMAINS domains, and TokenizerError
    for a tag that the vocabulary does not have.
    """
    random_numbers = random.Random(seed)
    ids: list[Int32s] = []
    domains: list[int] = []
    names: dict[str, int] = {}
    dropped: Counter[str] = Counter()
    lost: set[str] = set()
    both_ways = ((pair, direction) for pair in pairs for direction in directions)
    for pair, direction in tqdm(chain(both_ways, one_way), desc="encode", unit=" pairs", disable=None):
        if reason := keep.reason_to_skip(pair):
            dropped[reason] += 1
            lost.add(pair.domain)
            continue
        varied = keep.vary(direction.of(pair), random_numbers, direction.lexicon)
        found = _encoded(varied, direction.tag, tokenizer, keep)
        if isinstance(found, str):
            dropped[found] += 1
            lost.add(pair.domain)
            continue
        ids += [np.array(side, np.int32) for side in found]
        domains.append(names.setdefault(pair.domain, len(names)))
        check_num_domains(names)
    if not ids:
        left_out = f"no pair is left (left out: {counts_by_reason(dropped)})"
        raise NoPairError(left_out if dropped else "there is no pair")
    starts = np.concatenate([[0], np.cumsum([len(sentence) for sentence in ids])])
    lost_domains = tuple(sorted(lost.difference(names)))
    return Corpus(
        np.concatenate(ids), starts, np.array(domains, np.int16), tuple(names), dropped, lost_domains
    )
