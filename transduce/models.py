"""`transduce models`: lists the bundles in a folder."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.bundle import Manifest

# Maximum number of language pairs that a cell of the table lists. If larger, the line of a model of many languages does
# not fit on a screen.
MAX_PAIRS = 12
HEAD = ("bundle", "model", "languages", "variants", "licence", "MB")


@dataclass(frozen=True)
class BundleRow:
    """One bundle, as a row of the list.

    languages: pairs such as en-de. num_bytes: size of the files that its manifest lists.
    """

    bundle: str
    model: str
    version: str
    languages: tuple[str, ...]
    variants: tuple[str, ...]
    licence: str
    num_bytes: int

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> BundleRow:
        """The row of a bundle with this manifest."""
        return cls(
            bundle=str(folder),
            model=manifest.name,
            version=manifest.version,
            languages=tuple(f"{pair.source}-{pair.target}" for pair in manifest.language_pairs),
            variants=tuple(sorted(manifest.variants)),
            licence=manifest.weights_licence,
            num_bytes=sum(entry.size for entry in manifest.files.values()),
        )

    def cells(self) -> tuple[str, ...]:
        """The texts below HEAD."""
        return (
            self.bundle,
            f"{self.model} {self.version}",
            ", ".join(self.languages) if len(self.languages) <= MAX_PAIRS else f"{len(self.languages)} pairs",
            ", ".join(self.variants),
            self.licence,
            f"{self.num_bytes / 1e6:.1f}",
        )


def add_models_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `transduce models`."""
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("bundles"),
        metavar="FOLDER",
        help="a bundle, or a folder of bundles (default: bundles)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="also check every file; the server checks only those that it loads",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each bundle")


def run_models(args: argparse.Namespace) -> int:
    """Print the bundles of a folder, by name. Returns 0, or 1 if one of them is unusable; stderr says why.

    Raises FileNotFoundError if there is no bundle.
    """
    from app.bundle import MANIFEST, read_manifest
    from app.bundle_folders import bundle_folders
    from app.errors import BundleError

    folder: Path = args.folder
    is_bundle = (folder / MANIFEST).is_file()
    folders = [folder] if is_bundle else bundle_folders(folder)
    if not folders:
        raise FileNotFoundError(f"{folder} holds no bundle")
    found, has_problems = [], False
    for path in folders:
        try:
            manifest = _checked(path) if args.check else read_manifest(path)
        except BundleError as error:
            has_problems = True
            print(error, file=sys.stderr)
            continue
        found.append(BundleRow.of(path, manifest))
    if args.json:
        for row in found:
            print(json.dumps(asdict(row)))
    elif found:
        print(text_table([HEAD, *(row.cells() for row in found)]))
    return 1 if has_problems else 0


def _checked(folder: Path) -> Manifest:
    """The manifest of a bundle, after a check of all files, and of the vocabularies. Raises BundleError."""
    from app.bundle import load_bundle
    from app.bundle_tokenizers import load_tokenizers

    bundle = load_bundle(folder)
    load_tokenizers(bundle)
    return bundle.manifest


def text_table(rows: list[tuple[str, ...]]) -> str:
    """Rows as lines with aligned columns. The last column has numbers and is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for *texts, number in rows:
        cells = [text.ljust(width) for text, width in zip(texts, widths[:-1], strict=True)]
        lines.append("  ".join([*cells, number.rjust(widths[-1])]))
    return "\n".join(lines)
