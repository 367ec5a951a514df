"""What `transduce distill` translates, and the pairs that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path


@dataclass(frozen=True)
class Sentence:
    """A sentence that the teacher translates, and the domain that it comes from."""

    text: str
    domain: str


@dataclass(frozen=True)
class PairForm:
    """How a sentence and its translation become a line.

    is_back_translation: the sentence is the line's target and the translation its source; else the other way round.
    source_tag: put before the line's source, with a space; empty for none. domain_tag: put behind the
    domain, with a dash; empty for none.
    """

    is_back_translation: bool = False
    source_tag: str = ""
    domain_tag: str = ""

    def line(self, sentence: Sentence, translation: str) -> str:
        """Return domain, source and target with tabs between them, without a newline."""
        given, found = one_line(sentence.text), one_line(translation)
        source, target = (found, given) if self.is_back_translation else (given, found)
        if self.source_tag:
            source = f"{self.source_tag} {source}"
        domain = f"{sentence.domain}-{self.domain_tag}" if self.domain_tag else sentence.domain
        return f"{domain}\t{source}\t{target}"


def one_line(text: str) -> str:
    """Return the text with every run of white space as one space."""
    return " ".join(text.split())


def read_sentences(
    data: Iterable[str], texts: Iterable[Path], *, is_back_translation: bool
) -> Iterator[Sentence]:
    """Yield the sentences to translate: of parallel text, then of monolingual files.

    data: as for `model.corpus.read_data`; its source side, or its target side for back-translation. texts: a sentence a
    line, or domain and sentence. Raises CorpusError for a file that cannot be read and for a line of other columns.
    """
    from model.corpus import read_data

    pairs = chain.from_iterable(map(read_data, data))
    yield from (Sentence(pair.target if is_back_translation else pair.source, pair.domain) for pair in pairs)
    for path in texts:
        yield from read_monolingual(path)


def read_monolingual(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file of one sentence a line, or domain and sentence; its name is the domain by default.

    Raises CorpusError that names a line of more columns.
    """
    from model.corpus import CorpusError, read_lines

    own_domain = path.name.split(".")[0]
    for number, line in enumerate(read_lines(path), 1):
        domain, separator, text = line.partition("\t")
        if "\t" in text:
            raise CorpusError(f"{path}, line {number}: more than 2 columns, where 1 or 2 are needed")
        yield Sentence(text, domain) if separator else Sentence(line, own_domain)
