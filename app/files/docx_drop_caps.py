"""Drop caps of Word documents. Word has the large first letter of a paragraph in a paragraph of its own before it.

Both are translated as one text. The first letter of its translation becomes the drop cap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.files.styled_paragraph import Paragraph, Raw
from app.files.tagged_text import Piece, TaggedText
from app.files.xml_tree import Node

_DROP_CAP = re.compile(r"""<w:framePr\s[^>]*\bw:dropCap\s*=\s*["'](?:drop|margin)["']""")
# The start of a text up to its first letter or digit, with combining accents after it.
_INITIAL = re.compile(r"[\W_]*[^\W_][\u0300-\u036f]*")


def is_drop_cap(paragraph: Paragraph) -> bool:
    """Whether a paragraph is a drop cap of one letter. Punctuation marks may be beside it."""
    pieces = paragraph.tagged.pieces
    is_letter = len(pieces) == 1 and sum(map(str.isalpha, paragraph.tagged.plain)) == 1
    return is_letter and _DROP_CAP.search(paragraph.head) is not None


def with_drop_cap(drop_cap: Paragraph, following: Paragraph) -> Paragraph:
    """The paragraph that follows a drop cap, with the letter of the drop cap at the start of its text."""
    tagged = TaggedText.of([drop_cap.tagged.plain, *following.tagged.pieces])
    return _WithDropCap(
        following.node, following.head, tagged, following.base, following.write_text, drop_cap=drop_cap
    )


@dataclass(frozen=True, slots=True)
class _WithDropCap(Paragraph):
    """A paragraph after a drop cap. Its text begins with the letter of the drop cap."""

    drop_cap: Paragraph = field(kw_only=True)

    def replacements(self, pieces: Sequence[Piece[Raw]]) -> list[tuple[Node, Iterator[str | Node]]]:
        """Both paragraphs. The drop cap gets the start of the first text."""
        index = next((at for at, piece in enumerate(pieces) if isinstance(piece, str)), len(pieces))
        text = "".join(piece for piece in pieces[index : index + 1] if isinstance(piece, str))
        match = _INITIAL.match(text)
        end = len(text) if match is None else match.end()
        following = [*pieces[:index], text[end:], *pieces[index + 1 :]]
        return [
            (self.drop_cap.node, self.drop_cap.written([text[:end]])),
            (self.node, self.written(following)),
        ]
