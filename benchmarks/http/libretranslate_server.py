"""Runs LibreTranslate's own server with another sentence splitter, and with a tag before each source.

LibreTranslate's splitter is a neural network that is downloaded at the first request. The texts of the benchmark are
single sentences, so the splitter of this module returns a text unchanged. This takes less time than the original.

A model of two directions needs the target language's tag as the first subword of a source. LibreTranslate has no option
for such a tag. The environment variable SOURCE_TAG has the tag.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any


class WholeText:
    """A sentence splitter for texts of one sentence, with the interface of Argos Translate."""

    def __init__(self, package: Any) -> None:
        self.pkg = package

    def split_sentences(self, text: str) -> list[str]:
        """The whole text as one sentence."""
        return [text]


def add_tag(tokenizer: Any, tag: str) -> None:
    """Let the class `tokenizer` begin each source with the tag."""
    encode = tokenizer.encode

    def encode_tagged(self: Any, sentence: str) -> list[str]:
        return [tag, *encode(self, sentence)]

    tokenizer.encode = encode_tagged


def main() -> None:
    """Serve."""
    translate: Any = import_module("argostranslate.translate")
    if not hasattr(translate, "MiniSBDSentencizer"):
        sys.exit("this Argos Translate has no MiniSBDSentencizer to replace")
    translate.MiniSBDSentencizer = WholeText
    if tag := os.environ.get("SOURCE_TAG"):
        add_tag(import_module("argostranslate.tokenizer").SentencePieceTokenizer, tag)
    import_module("libretranslate.main").main()


if __name__ == "__main__":
    main()
