r"""Reads `first_words.tsv` and decides whether an answer to one of its entries is acceptable.

The file's columns:

- `id`: e001 to e150 English to German, d001 to d150 German to English.
- `direction`: `en-de` or `de-en`.
- `kind`: greeting, word, button, and so on; the report has a line for each.
- `source`: what is typed. `\n` stands for a line break.
- `acceptable`: patterns of acceptable answers, separated by ` || `. `[a|b]` in a pattern is a choice; the text in
  `[ a|]` may be left out. A pattern stands for all its combinations.
- `must`: pieces that an answer must contain (numbers, names, addresses), separated by ` && `; the accepted forms of a
  piece are separated by ` || `. `-` where there is none.

The rule of comparison, for the answer and for every acceptable answer:

1. Both are normalised to Unicode NFC. In each line, every run of white space becomes one space, except at the ends of
   the line, where white space is removed.
2. Quotes become straight: double quotes and guillemets become `"`, single quotes and apostrophes become `'`.
3. The final mark of a line (`.`, `!`, `?`, `...`) may be missing in either text. `.`, `!` and `...` count as the same
   mark; `?` does not.
4. All else must be equal: letters, their case, punctuation inside, digits and separators.

A `paragraph` has too many good translations for a list. Its answer is acceptable when it contains all `must` pieces,
has as many sentences as the acceptable answers, and each of its sentences has a chrF (sacreBLEU's defaults) of at least
MIN_CHRF against the nearest acceptable sentence at its place, after the steps 1 and 2. One bad sentence fails the
paragraph; the chrF of the whole would hide it.

An answer drops a number if it lacks a `must` piece that has a form with a digit. A form that begins or ends with a
digit is not found where the text continues the number at that end: `3` is found in `3rd` and `3kg`, but not in `3.5`,
`13` or `3,000`. A form that begins or ends with a letter is not found where the text continues the word: `ten` is not
found in `often`.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from sacrebleu.metrics.chrf import CHRF

from app.text.segmentation import sentence_spans

FILE = Path(__file__).with_name("first_words.tsv")
COLUMNS = ("id", "direction", "kind", "source", "acceptable", "must")
PARAGRAPH = "paragraph"
# chrF of a sentence, 0 to 100. Lower accepts sentences with another meaning. Higher rejects good free translations.
MIN_CHRF = 70.0
_NONE = "-"
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_FINAL_MARK = re.compile(r"\s*([.!?…]+)$")
_STRAIGHT = str.maketrans(dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‘’‚‛‹›`´", "'"))
_NO_LETTER_BEFORE, _NO_LETTER_AFTER = r"(?<![^\W\d_])", r"(?![^\W\d_])"
_CHRF = CHRF()


@dataclass(frozen=True)
class Entry:
    """A row of the file. patterns: of acceptable answers. must: for each piece its accepted forms."""

    id: str
    direction: str
    kind: str
    source: str
    patterns: tuple[str, ...]
    must: tuple[tuple[str, ...], ...]

    @property
    def example(self) -> str:
        """One acceptable answer: the first pattern, with the first option of each choice."""
        return _CHOICE.sub(lambda choice: choice[1].split("|")[0], self.patterns[0])

    @cached_property
    def acceptable(self) -> tuple[str, ...]:
        """All distinct acceptable answers, in order. Not for a paragraph, which has too many."""
        return tuple(dict.fromkeys(answer for pattern in self.patterns for answer in expand(pattern)))

    @cached_property
    def sentences(self) -> tuple[tuple[str, ...], ...]:
        """For a paragraph: the acceptable sentences by position.

        Raises ValueError if the patterns do not all have the same number of sentences.
        """
        by_pattern = [
            [expand(sentence) for sentence in split_sentences(pattern, self.target)]
            for pattern in self.patterns
        ]
        return tuple(tuple(itertools.chain(*variants)) for variants in zip(*by_pattern, strict=True))

    @property
    def target(self) -> str:
        """The language of the answers."""
        return self.direction.partition("-")[2]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer. missing: the first form of each `must` piece that the answer lacks."""

    is_acceptable: bool
    is_empty: bool
    drops_number: bool
    missing: tuple[str, ...]


def read_entries(path: Path = FILE) -> list[Entry]:
    """The entries of a file. Raises ValueError with the line number for other columns or an empty field."""
    header, *lines = path.read_text("utf-8").splitlines()
    if tuple(header.split("\t")) != COLUMNS:
        raise ValueError(f"{path.name}, line 1: the columns are not {', '.join(COLUMNS)}")
    return [_entry(line, f"{path.name}, line {number}") for number, line in enumerate(lines, 2)]


def _entry(line: str, place: str) -> Entry:
    fields = line.split("\t")
    if len(fields) != len(COLUMNS) or not all(fields):
        raise ValueError(f"{place}: {len(COLUMNS)} fields with a value are expected")
    name, direction, kind, source, acceptable, must = (field.replace("\\n", "\n") for field in fields)
    pieces = () if must == _NONE else must.split(" && ")
    return Entry(
        name,
        direction,
        kind,
        source,
        tuple(acceptable.split(" || ")),
        tuple(tuple(piece.split(" || ")) for piece in pieces),
    )


def expand(pattern: str) -> list[str]:
    """All combinations of a pattern's choices."""
    # Choices and plain text alternate, so every second part is a choice.
    parts = _CHOICE.split(pattern)
    choices = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(combination) for combination in itertools.product(*choices)]


@cache
def fold(text: str) -> str:
    """The text in NFC with white space folded in each line and with straight quotes."""
    lines = unicodedata.normalize("NFC", text).translate(_STRAIGHT).strip().splitlines()
    return "\n".join(" ".join(line.split()) for line in lines)


def are_equal(answer: str, acceptable: str) -> bool:
    """Whether two texts are equal by the rule of comparison."""
    answer_lines, acceptable_lines = fold(answer).split("\n"), fold(acceptable).split("\n")
    return len(answer_lines) == len(acceptable_lines) and all(
        map(_are_equal_lines, answer_lines, acceptable_lines)
    )


def _are_equal_lines(one: str, other: str) -> bool:
    (one_body, one_mark), (other_body, other_mark) = _split_mark(one), _split_mark(other)
    return one_body == other_body and (one_mark == other_mark or not one_mark or not other_mark)


def _split_mark(line: str) -> tuple[str, str]:
    """The line without its final mark, and the mark: `?`, `.` for any other, or an empty string."""
    found = _FINAL_MARK.search(line)
    if not found:
        return line, ""
    return line[: found.start()], "?" if "?" in found[1] else "."


def contains(text: str, form: str) -> bool:
    """Whether the form occurs in the text where the text does not continue the form's number or word."""
    form = fold(form)
    before = r"(?<!\d)(?<!\d[.,])" if form[0].isdigit() else _NO_LETTER_BEFORE if form[0].isalpha() else ""
    after = r"(?!\d)(?![.,]\d)" if form[-1].isdigit() else _NO_LETTER_AFTER if form[-1].isalpha() else ""
    return re.search(before + re.escape(form) + after, fold(text)) is not None


def missing_pieces(entry: Entry, text: str) -> list[tuple[str, ...]]:
    """The `must` pieces of which the text contains no form."""
    return [forms for forms in entry.must if not any(contains(text, form) for form in forms)]


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, as the server splits it."""
    return [span.of(text) for span in sentence_spans(text, language)]


def lowest_chrf(entry: Entry, answer: str) -> float:
    """chrF, 0 to 100, of the worst sentence of a paragraph's answer; 0 if the number of sentences differs."""
    sentences = split_sentences(fold(answer), entry.target)
    if len(sentences) != len(entry.sentences):
        return 0.0
    return min(map(_nearest_chrf, sentences, entry.sentences))


def _nearest_chrf(sentence: str, variants: tuple[str, ...]) -> float:
    # With several references, sacreBLEU takes the one with the highest score.
    return float(_CHRF.sentence_score(sentence, list(map(fold, variants))).score)


def judge(entry: Entry, answer: str) -> Verdict:
    """The verdict of the rules on an answer to an entry."""
    missing = missing_pieces(entry, answer)
    if entry.kind == PARAGRAPH:
        is_acceptable = not missing and lowest_chrf(entry, answer) >= MIN_CHRF
    else:
        is_acceptable = any(are_equal(answer, each) for each in entry.acceptable)
    return Verdict(
        is_acceptable,
        is_empty=not answer.strip(),
        drops_number=any(any(map(str.isdigit, "".join(forms))) for forms in missing),
        missing=tuple(forms[0] for forms in missing),
    )
