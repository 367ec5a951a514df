"""Finds symbols and code that must be in a translation unchanged.

- blanks to fill in and dotted lines: `____`, `__/__/____`, `.....`, `. . . .`, but not `Wait....` or
  `Soup....2`;
- lines of marks beside a text: `-----Title-----`, `==== Title ====`, `+++ Title +++`, but not `word----word`;
- the mark of a price without cents: the `,-` of `5,-`;
- operators between spaces: `&&`, `!=`, `->`;
- emoticons that no word touches: `:-)`, `;)`, `:D`, `<3`, `xD`;
- user names such as `@anna`, and numbers such as `#5`;
- stars and other marks next to a word: `**bold**`, `_so_`, `~~old~~`, `price*`, but not `5*3`;
- code: text in backticks, `call()`, and `names_with_underscores`, but not the German `Lehrer_innen`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.text.segmentation import Span

# Every match of _SYMBOLS has one of these. Most texts have none, and are scanned only once.
_HINT = re.compile(
    r"[@`_*]|~~|-{4}|={3}|#{3}|\+{3}|\d,[\-\u2013]|#\d|\.{4}|\u2026{3}|\. \. \.|\(\)"
    r"|(?:^|\s)(?:[:;=<&|!>+\-/][^\w\s]|[:;][DPpOo]|<3|[xX]D|\^)"
)
# The place after a word, or after a word and one mark.
_AFTER_WORD = r"(?:(?<=[^\W_])|(?<=[^\W_][.!?)\u2026]))"
_SYMBOLS = re.compile(
    # Blanks, then dotted lines.
    r"(?<!\w)_{2,}+(?>(?:[./:\-]_{2,}+)*)(?!\w)"
    r"|(?:(?<!\S)\.{4,}+|(?<!\.)\.{6,}+)(?! ?\d)|(?<!\u2026)\u2026{3,}+|(?<!\S)\.(?>(?: \.){2,})(?!\S)"
    # Lines of marks.
    r"|(?<![\-=~*+#])(?:(?<!\w)|(?=[\-=~*+#]++(?!\w)))(?P<rule>[\-=~*+#])(?P=rule){3,}"
    r"|(?<!\S)(?:={3}|~{3}|\*{3}|#{3}|\+{3})(?!\S)"
    # The mark of a price without cents.
    r"|(?<=\d),(?:--?|\u2013)(?=[\s.,!?;:)]|\Z)(?!\s*\d)"
    # Operators. A dash such as `--` is none, and neither is the French ` !!`.
    r"|(?<=\S\s)(?!(?:-+|!+)\s)[&|=!<>+\-*/:]{2,4}+(?=\s)"
    # Emoticons.
    r"|(?<!\S)(?:[:;]'?-?(?:[()*|/\\]{1,3}+|[DPpOo])|=[()]|</?3{1,5}+|\^_?\^|[xX]D)(?=[\s.,!?]|\Z)"
    # Stars before and after words: of emphasis, and of footnotes.
    r"|(?<![^\s(\"'\u201c\u201e])\*{1,3}(?=[^\W_])"
    rf"|{_AFTER_WORD}\*(?![*\w])|(?<=[^\s*])\*{{2,3}}(?![*\w])"
    # Other marks of emphasis.
    rf"|(?<!\w)_{{1,2}}(?=[^\W_])|{_AFTER_WORD}_{{1,2}}(?!\w)"
    r"|(?<![~\w])~~(?=\w)|(?<=[^\s~])~~(?![~\w])"
    # Numbers, then user names.
    r"|(?<![\w&#/])#\d+(?!\w)"
    r"|(?<![\w.@/\-])@[A-Za-z_](?>(?:[.\-]?[A-Za-z0-9_])*)(?![\w@])"
    # Code: in backticks, a call, and a name with underscores.
    r"|(?<![`\w])(?P<mark>`{1,2})(?![\s`])[^`\n]{1,200}+(?<!\s)(?P=mark)(?![`\w])"
    r"|(?<![\w.])[A-Za-z_](?>(?:\.?[A-Za-z0-9_])*)\(\)"
    r"|(?<!\w)(?![A-Z][a-z]*+_in(?:nen[a-z]*+)?(?!\w))[A-Za-z][A-Za-z0-9]*+(?>(?:_[A-Za-z0-9]++)+)(?!\w)"
)


def symbol_spans(text: str) -> Iterator[Span]:
    """Yield the symbols and code of the module's docstring, in order. The time is linear in the length of the text."""
    if _HINT.search(text):
        yield from (Span(*match.span()) for match in _SYMBOLS.finditer(text))
