"""The requests of a run: built-in mixes of the sentences in `sentences.txt`, or the lines of a user's file.

A server may cache translations, so each text of a built-in mix is replaced by a distinct one of about the same length
(`grammar.py`), unless texts may be repeated. A file's lines are sent unchanged; `--distinct` puts distinct words before
each of them. `grammar.py` makes no numbers, because a server may translate a text with a number more than once.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.loadtest.dialects import RequestSpec
from transduce.loadtest.grammar import distinct_opening, distinct_sentence

SENTENCES = Path(__file__).with_name("sentences.txt")
# The number of requests of a mix that is drawn at random. The mix `arrays` has a tenth of this number.
NUM_PREPARED = 500
ARRAY_LENGTH = 32
SHORT_WORDS = 7
# Most requests are short and some are very long. The mix shows the waiting time of short requests behind a long one.
BIMODAL_LONG_SHARE = 0.2
BIMODAL_CLAUSES = 14
BEAMS = (1, 2, 4, 8)
# Share of news sentences by their number of words, bounds included.
NEWS_LENGTHS = (((3, 9), 0.15), ((10, 18), 0.35), ((19, 30), 0.38), ((31, 60), 0.12))
# Default of Workload.
DISCONNECT_WITHIN_S = 0.5
SENTENCE_ENDS = ".!?…"


# Returns a distinct text for a text, a seed, and a number that is unique in the run.
MakeDistinct = Callable[[str, int, int], str]


@dataclass(frozen=True)
class Workload:
    """The requests of a run, repeated in an order that the seed determines.

    Attributes:
        name: for the report.
        requests: at least one.
        make_distinct: replaces every text by a distinct one, if set; the same seed gives the same texts.
        disconnect_share: share of requests, 0 to 1, that the tester cancels at a random time. A request that is
            answered before that time is not cancelled.
        disconnect_within_s: the largest of these times, in seconds.
        references: human translations of each request's texts in the same order, if set; not with `make_distinct`.
    """

    name: str
    requests: tuple[RequestSpec, ...]
    make_distinct: MakeDistinct | None = None
    disconnect_share: float = 0.0
    disconnect_within_s: float = DISCONNECT_WITHIN_S
    references: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError without requests, or if a share or time is out of range, or references do not match."""
        if not self.requests:
            raise ValueError("a workload needs at least one request")
        if not 0 <= self.disconnect_share <= 1 or self.disconnect_within_s <= 0:
            raise ValueError("the share of disconnects must be from 0 to 1 and their time above 0")
        if self.references is not None and [len(texts) for texts in self.references] != [
            len(spec.texts) for spec in self.requests
        ]:
            raise ValueError("every text needs one reference")
        if self.references is not None and self.is_distinct:
            raise ValueError(
                "distinct texts cannot be compared with references, because no reference translates them"
            )

    @property
    def is_distinct(self) -> bool:
        """Whether no text of a run occurs twice."""
        return self.make_distinct is not None

    def sequence(self, seed: int) -> RequestSequence:
        """The sequence of requests for a seed."""
        return RequestSequence(self, seed)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One request of a run.

    Attributes:
        number: index in `Workload.requests`.
        spec: its content.
        disconnect_after_s: seconds after which the tester cancels it if it is not answered; None to never cancel it.
        num_words: number of words of its texts, split at white space.
    """

    number: int
    spec: RequestSpec
    disconnect_after_s: float | None
    num_words: int


class RequestSequence:
    """The requests of a run by index: rounds of all the workload's requests, each round in a new random order."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._seed = seed
        self._max_texts = max(len(spec.texts) for spec in workload.requests)
        self._order = functools.lru_cache(maxsize=2)(self._shuffled)

    def _shuffled(self, round_number: int) -> list[int]:
        order = list(range(len(self._workload.requests)))
        random.Random(f"order {self._seed} {round_number}").shuffle(order)
        return order

    def __call__(self, index: int) -> RunRequest:
        """The request at `index`, from 0."""
        workload = self._workload
        round_number, position = divmod(index, len(workload.requests))
        number = self._order(round_number)[position]
        spec = workload.requests[number]
        if workload.make_distinct is not None:
            spec = _distinct_request(spec, workload.make_distinct, self._seed, index * self._max_texts)
        num_words = sum(len(text.split()) for text in spec.texts)
        return RunRequest(number, spec, self._disconnect_after_s(index), num_words)

    def _disconnect_after_s(self, index: int) -> float | None:
        workload = self._workload
        if not workload.disconnect_share:
            return None
        draw = random.Random(f"disconnect {self._seed} {index}")
        if draw.random() >= workload.disconnect_share:
            return None
        return draw.uniform(0, workload.disconnect_within_s)


def _distinct_request(spec: RequestSpec, make_distinct: MakeDistinct, seed: int, first: int) -> RequestSpec:
    """The request with texts that occur nowhere else in the run. first: the number of its first text in the run."""
    texts = tuple(make_distinct(text, seed, first + offset) for offset, text in enumerate(spec.texts))
    return RequestSpec(texts, spec.is_array, spec.options)


def distinct_replacement(text: str, seed: int, number: int) -> str:
    """A distinct sentence with about as many words as the text."""
    return distinct_sentence(len(text.split()), seed, number)


def with_distinct_opening(text: str, seed: int, number: int) -> str:
    """The text with distinct words before it."""
    return f"{distinct_opening(seed, number)} {text}"


def own_sentences() -> list[str]:
    """The sentences of `sentences.txt`, short to long."""
    return read_lines(SENTENCES)


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file that are not blank.

    Raises OSError, and ValueError if all lines are blank, or if a line is not UTF-8.
    """
    found = [line for line in _lines(path) if line]
    if not found:
        raise ValueError(f"{path} holds no text")
    return found


def read_pairs(texts: Path, references: Path) -> list[tuple[str, str]]:
    """The lines of two files, side by side, without those that are blank in both.

    Raises OSError, and ValueError for files of different lengths, a line that is blank in one file only, a line that is
    not UTF-8, or no lines.
    """
    columns = _lines(texts), _lines(references)
    if len(columns[0]) != len(columns[1]):
        raise ValueError(f"there are {len(columns[0])} lines of texts but {len(columns[1])} of references")
    found = []
    for number, pair in enumerate(zip(*columns, strict=True), 1):
        if all(pair):
            found.append(pair)
        elif any(pair):
            raise ValueError(f"line {number} is blank in {texts if pair[1] else references} only")
    if not found:
        raise ValueError(f"{texts} holds no text")
    return found


def _lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without white space at their ends and without blank lines at the end of the file.

    A byte order mark is left out. Raises OSError, and ValueError if a line is not UTF-8.
    """
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {number} of {path} is not UTF-8") from error
    return [line.strip() for line in text.rstrip().split("\n")]


def from_texts(
    texts: Sequence[str], *, name: str = "texts", references: Sequence[str] | None = None
) -> Workload:
    """A workload with one request per text."""
    pairs = tuple((reference,) for reference in references) if references is not None else None
    return Workload(name, _singles(texts), references=pairs)


def _singles(texts: Sequence[str]) -> tuple[RequestSpec, ...]:
    return tuple(RequestSpec((text,)) for text in texts)


def _short(draw: random.Random, sentences: Sequence[str]) -> tuple[RequestSpec, ...]:
    return _singles([text for text in sentences if len(text.split()) <= SHORT_WORDS])


def _news(draw: random.Random, sentences: Sequence[str]) -> tuple[RequestSpec, ...]:
    return _singles([_news_sentence(draw, sentences) for _ in range(NUM_PREPARED)])


def _news_sentence(draw: random.Random, sentences: Sequence[str]) -> str:
    ((low, high),) = draw.choices(
        [bounds for bounds, _ in NEWS_LENGTHS], [share for _, share in NEWS_LENGTHS]
    )
    return draw.choice([text for text in sentences if low <= len(text.split()) <= high])


def _bimodal(draw: random.Random, sentences: Sequence[str]) -> tuple[RequestSpec, ...]:
    short = [text for text in sentences if len(text.split()) <= SHORT_WORDS and text.endswith(".")]
    texts = []
    for _ in range(NUM_PREPARED):
        is_long = draw.random() < BIMODAL_LONG_SHARE
        texts.append(_one_long_sentence(draw, short) if is_long else draw.choice(short))
    return _singles(texts)


def _one_long_sentence(draw: random.Random, short: Sequence[str]) -> str:
    """Clauses joined so that no sentence splitter separates them."""
    clauses = [text.rstrip(SENTENCE_ENDS) for text in draw.sample(short, BIMODAL_CLAUSES)]
    return ", and ".join(clauses).capitalize() + "."


def _arrays(draw: random.Random, sentences: Sequence[str]) -> tuple[RequestSpec, ...]:
    return tuple(
        RequestSpec(tuple(_news_sentence(draw, sentences) for _ in range(ARRAY_LENGTH)), is_array=True)
        for _ in range(NUM_PREPARED // 10)
    )


def _beams(draw: random.Random, sentences: Sequence[str]) -> tuple[RequestSpec, ...]:
    return tuple(
        RequestSpec((_news_sentence(draw, sentences),), options={"beam_size": draw.choice(BEAMS)})
        for _ in range(NUM_PREPARED)
    )


Maker = Callable[[random.Random, Sequence[str]], tuple[RequestSpec, ...]]
MIXES: dict[str, tuple[str, Maker]] = {
    "short": (f"sentences of at most {SHORT_WORDS} words", _short),
    "news": ("one sentence per request, lengths as in newspapers", _news),
    "bimodal": (f"{1 - BIMODAL_LONG_SHARE:.0%} short sentences, the rest very long ones", _bimodal),
    "arrays": (f"arrays of {ARRAY_LENGTH} sentences", _arrays),
    "beams": (f"as news, with beams of {', '.join(map(str, BEAMS))} (dialect native or stream)", _beams),
}


def built_in(name: str, *, seed: int = 1, is_distinct: bool = True) -> Workload:
    """The workload of one of MIXES. Raises KeyError for another name.

    is_distinct: whether each text is replaced by a distinct one with about as many words.
    """
    _, make = MIXES[name]
    requests = make(random.Random(f"mix {seed}"), own_sentences())
    return Workload(name, requests, make_distinct=distinct_replacement if is_distinct else None)
