"""Measure time and memory of `transduce import` for a model of OPUS-MT's size with random weights.

Each import runs in a fresh process. Its memory is the peak resident memory, mapped files included, above that of the
process after it has imported all modules. A model with random weights rarely generates the end token. So the golden
translations are as long as the model permits, and their caches are full.

    python -m benchmarks.imports
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import re
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from sentencepiece import sentencepiece_model_pb2

from benchmarks.machine import ROOT, describe_run
from export.ctranslate2_writer import write_ctranslate2
from export.huggingface_writer import write_huggingface
from export.portable import PortableModel
from model.config import preset
from model.imported import FIRST, UNK
from model.transformer import Transformer

RESULT = ROOT / "benchmarks" / "results" / "imports.json"
WRITERS: dict[str, Callable[[PortableModel, Path], None]] = {
    "huggingface": write_huggingface,
    "ctranslate2": write_ctranslate2,
}
# The modules that an import of a model needs. They are loaded before memory is measured.
MODULES = (
    "export.bundle_writer",
    "export.import_cli",
    "model.ctranslate2_files",
    "model.marian",
    "transduce.cli",
)
MARK = "measured:"


class StageRecorder(io.StringIO):
    """Replaces stderr, to which the import writes its stages' names, and records each stage's peak memory."""

    def __init__(self) -> None:
        super().__init__()
        self._name = "read"
        self._start = memory_mb("VmRSS")
        self.peaks: dict[str, float] = {}
        reset_peak()

    def write(self, text: str) -> int:
        """Begin the stage that a line names."""
        if text.strip():
            self.end()
            self._name = text.strip()
        return len(text)

    def end(self) -> None:
        """Record the current stage's peak in 10^6 bytes, and reset the peak."""
        self.peaks[self._name] = round(memory_mb("VmHWM") - self._start, 1)
        reset_peak()


def memory_mb(field: str) -> float:
    """A field of /proc/self/status in 10^6 bytes: VmRSS, or VmHWM for the peak."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def reset_peak() -> None:
    """Reset the process's peak memory to its current memory."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def vocabulary(size: int) -> bytes:
    """A SentencePiece model with ASCII characters and invented words."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    words = ("▁" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=4))
    pieces = itertools.chain(FIRST, ("▁", *string.ascii_letters, *string.digits, *string.punctuation), words)
    Piece = proto.SentencePiece
    for index, piece in enumerate(itertools.islice(pieces, size)):
        special = Piece.UNKNOWN if piece == UNK else Piece.CONTROL
        kind = special if index < 4 else Piece.USER_DEFINED if index < len(FIRST) else Piece.NORMAL
        proto.pieces.add(piece=piece, score=-float(index) - 0.5, type=kind)
    spec = proto.trainer_spec
    spec.vocab_size, spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = size, 0, 1, 2, 3
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = FIRST[:4]
    proto.normalizer_spec.name = "identity"
    return bytes(proto.SerializeToString())


def write_models(folder: Path, *, preset_name: str, vocab_size: int) -> float:
    """Write the model in every format, and return the size of its weights in 10^6 bytes."""
    torch.manual_seed(1)
    model = Transformer(preset(preset_name, vocab_size, activation="silu", output_bias=True)).eval()
    path = folder / "source.spm"
    path.write_bytes(vocabulary(vocab_size))
    pieces = tuple(
        piece.piece
        for piece in sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes()).pieces  # type: ignore[attr-defined]
    )
    portable = PortableModel(model, pieces, path, path)
    for name, write in WRITERS.items():
        write(portable, folder / name)
    return (folder / "huggingface" / "model.safetensors").stat().st_size / 1e6


def measure_here(model: Path, output: Path, precisions: str) -> dict[str, Any]:
    """Import in this process: seconds, and the peak memory of each stage in 10^6 bytes."""
    for name in MODULES:
        import_module(name)
    import_module("tqdm")
    main = import_module("transduce.cli").main
    arguments = ["import", str(model), "--output", str(output), "--source", "en", "--target", "de"]
    started = time.monotonic()
    recorder = StageRecorder()
    with contextlib.redirect_stderr(recorder), contextlib.redirect_stdout(io.StringIO()):
        code = main([*arguments, "--licence", "CC0-1.0", "--precisions", precisions])
    recorder.end()
    assert code == 0, recorder.peaks
    return {"seconds": round(time.monotonic() - started, 1), "peak_mb": recorder.peaks}


def measure(model: Path, precisions: str) -> dict[str, Any]:
    """Import in a fresh process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.imports",
        "--precisions",
        precisions,
        "--measure",
        str(model),
    ]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.rpartition(MARK)[2])
    return found


def main() -> int:
    """Measure, write JSON, print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base", help="sizes of the model (default: base)")
    parser.add_argument("--vocab-size", type=int, default=60_000, help="subwords (default: 60000)")
    parser.add_argument("--precisions", default="int8,fp16", help="variants (default: int8,fp16)")
    parser.add_argument("--formats", default=",".join(WRITERS), help="formats (default: all)")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="imports-") as folder:
        if args.measure is not None:
            print(MARK + json.dumps(measure_here(args.measure, Path(folder) / "bundle", args.precisions)))
            return 0
        result = describe_run("benchmarks.imports")
        size = write_models(Path(folder), preset_name=args.preset, vocab_size=args.vocab_size)
        result["model_mb"] = round(size, 1)
        for name in args.formats.split(","):
            found = measure(Path(folder) / name, args.precisions)
            peak = max(found["peak_mb"].values())
            result[name] = {**found, "largest_peak_mb": peak, "times_the_model": round(peak / size, 2)}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps({name: result[name] for name in ("model_mb", *args.formats.split(","))}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
