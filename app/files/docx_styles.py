"""The style of a run of a Word document."""

from __future__ import annotations

import re

from app.files.run_styles import RunStyle

# Run properties that do not affect the appearance: language, and whether spelling is checked.
_IGNORED_PROPERTIES = re.compile(r"<w:(?:lang|noProof)\b[^>]*/>")
# Run properties that show on blanks.
_ON_BLANKS = re.compile(r"<w:(?:u|strike|dstrike|highlight|shd|bdr)\b[^>]*>")


def word_style(properties: str) -> RunStyle:
    """The style of a run. properties: the XML of its properties; empty for none."""
    key = _IGNORED_PROPERTIES.sub("", properties)
    return RunStyle(
        f"<w:r>{properties}",
        "</w:r>",
        "" if key in {"<w:rPr></w:rPr>", "<w:rPr/>"} else key,
        tuple(_ON_BLANKS.findall(properties)),
    )
