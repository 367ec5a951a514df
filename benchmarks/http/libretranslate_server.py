"""LibreTranslate's own server, with the Python and the arguments of its environment.

One thing is replaced. Its sentence splitter is a network that it downloads at the first request; here texts are single
sentences and the splitter returns them whole, which costs it less than its own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


class WholeText:
    """A splitter for texts of one sentence."""

    def __init__(self, package: Any) -> None:
        self.pkg = package

    def split_sentences(self, text: str) -> list[str]:
        """The text."""
        return [text]


def main() -> None:
    """Serve."""
    translate: Any = import_module("argostranslate.translate")
    if not hasattr(translate, "MiniSBDSentencizer"):
        sys.exit("this Argos Translate has no MiniSBDSentencizer to replace")
    translate.MiniSBDSentencizer = WholeText
    import_module("libretranslate.main").main()


if __name__ == "__main__":
    main()
