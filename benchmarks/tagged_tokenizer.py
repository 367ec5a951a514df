"""A bundle's tokenizer with the tag of its first language pair, for the benchmarks that call engines with subwords."""

from __future__ import annotations

from collections.abc import Sequence

from app.bundle import Bundle
from app.bundle_tokenizers import load_tokenizers
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Encoded


class TaggedTokenizer:
    """Encodes sources of the bundle's first language pair, and decodes translations."""

    def __init__(self, bundle: Bundle) -> None:
        self._source, self._target = load_tokenizers(bundle)
        self._tag = bundle.manifest.language_pairs[0].source_prefix

    def encode(self, text: str) -> Encoded:
        """The subwords of a source, with the pair's tag if it has one."""
        return self._source.encode_tagged(text, self._tag)

    def can_encode(self, text: str) -> bool:
        """Whether there is a placeholder symbol for each run of unknown characters."""
        return self._source.num_verbatim_spans(text) <= len(PLACEHOLDER_SYMBOLS)

    def decode(self, ids: Sequence[int], verbatim_spans: Sequence[str] = ()) -> str:
        """The text of a translation."""
        return self._target.decode(ids, verbatim_spans).text
