"""A figure of matplotlib that is saved as PNG or SVG, the same bytes each time, and that a notebook shows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import matplotlib as mpl
from matplotlib.figure import Figure

# Pixels per inch of a PNG file, and of a picture in a notebook. If larger, files are sharper and larger.
DPI, NOTEBOOK_DPI = 120, 60
FORMATS: tuple[Literal["png"], Literal["svg"]] = ("png", "svg")


class Picture:
    """One figure. It needs no display, because it does not use matplotlib's global state."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def content(self, file_format: Literal["png", "svg"], dpi: int = DPI) -> bytes:
        """Return the file's bytes."""
        buffer = io.BytesIO()
        metadata = {"Date": None} if file_format == "svg" else {"Software": None}
        # matplotlib makes the identifiers in an SVG from the salt. With a random salt they would change in each run.
        with mpl.rc_context({"svg.hashsalt": "transduce", "svg.fonttype": "none"}):
            self.figure.savefig(buffer, format=file_format, dpi=dpi, metadata=metadata)
        return buffer.getvalue()

    def save(self, path: Path) -> list[Path]:
        """Write PNG or SVG by the path's suffix, or both if it has neither, and return the files.

        Raises OSError if a file cannot be written.
        """
        chosen = [each for each in FORMATS if path.suffix.lower() == f".{each}"]
        paths = (
            {path: chosen[0]} if chosen else {path.with_name(f"{path.name}.{each}"): each for each in FORMATS}
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        for each, file_format in paths.items():
            each.write_bytes(self.content(file_format))
        return list(paths)

    def _repr_png_(self) -> bytes:
        """Return the PNG that Jupyter shows for a cell that ends in a picture."""
        return self.content("png", NOTEBOOK_DPI)
