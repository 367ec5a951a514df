"""Drop caps of Word documents. Word has the large first letter of a paragraph in a paragraph of its own before it.

Both are translated as one text. The first letter of its translation becomes the drop cap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from app.files.docx_paragraph import Paragraph, Raw
from app.files.tagged_text import Piece, TaggedText

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
    return replace(following, tagged=tagged, drop_cap=drop_cap)


def divided(
    paragraph: Paragraph, pieces: Sequence[Piece[Raw]]
) -> list[tuple[Paragraph, Sequence[Piece[Raw]]]]:
    """The paragraph with its translated pieces. The drop cap before it, if any, gets the start of the first text."""
    if paragraph.drop_cap is None:
        return [(paragraph, pieces)]
    index = next((at for at, piece in enumerate(pieces) if isinstance(piece, str)), len(pieces))
    text = "".join(piece for piece in pieces[index : index + 1] if isinstance(piece, str))
    match = _INITIAL.match(text)
    end = len(text) if match is None else match.end()
    return [
        (paragraph.drop_cap, [text[:end]]),
        (paragraph, [*pieces[:index], text[end:], *pieces[index + 1 :]]),
    ]
