"""The input sentences of `transduce distill`, and the pairs that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path


@dataclass(frozen=True)
class Sentence:
    """A sentence to translate, and its domain."""

    text: str
    domain: str


@dataclass(frozen=True)
class PairForm:
    """The format of a sentence and its translation as a line.

    is_back_translation: the sentence is the line's target and the translation its source; else the reverse. source_tag:
    put before the source with a space; empty for none. domain_tag: appended to the domain with a dash; empty for none.
    """

    is_back_translation: bool = False
    source_tag: str = ""
    domain_tag: str = ""

    def line(self, sentence: Sentence, translation: str) -> str:
        """Return domain, source and target separated by tabs, without a newline."""
        original, translated = one_line(sentence.text), one_line(translation)
        source, target = (translated, original) if self.is_back_translation else (original, translated)
        if self.source_tag:
            source = f"{self.source_tag} {source}"
        domain = f"{sentence.domain}-{self.domain_tag}" if self.domain_tag else sentence.domain
        return f"{domain}\t{source}\t{target}"


def one_line(text: str) -> str:
    """Return the text with each run of white space replaced by a space, without white space at its ends."""
    return " ".join(text.split())


def read_sentences(
    data: Iterable[str], texts: Iterable[Path], *, is_back_translation: bool
) -> Iterator[Sentence]:
    """Yield the sentences to translate: of parallel text, then of monolingual files.

    data: as for `model.corpus.read_data`; its source side is translated, or its target side for back-translation.
    texts: files for `read_monolingual`. Raises CorpusError if a file cannot be read, or for a line with a wrong number
    of columns.
    """
    from model.corpus import read_data

    pairs = chain.from_iterable(map(read_data, data))
    yield from (Sentence(pair.target if is_back_translation else pair.source, pair.domain) for pair in pairs)
    for path in texts:
        yield from read_monolingual(path)


def read_monolingual(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file. Each line holds a sentence, or a domain, a tab and a sentence.

    The default domain is the file's name up to its first dot. Raises CorpusError if the file cannot be read, or for a
    line with more than two columns.
    """
    from model.corpus import CorpusError, read_lines

    own_domain = path.name.split(".")[0]
    for number, line in enumerate(read_lines(path), 1):
        domain, separator, text = line.partition("\t")
        if "\t" in text:
            raise CorpusError(f"{path}, line {number}: more than 2 columns, where 1 or 2 are needed")
        yield Sentence(text, domain) if separator else Sentence(line, own_domain)
