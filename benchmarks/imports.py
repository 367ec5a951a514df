"""Measure time and memory of `transduce import` for a model with random weights, of OPUS-MT's size by default.

Each import runs in a fresh process. Its memory is the process's peak resident memory, mapped files included, minus its
resident memory after all modules are loaded. A model with random weights rarely generates the end token. So the golden
translations are as long as the model permits, and fill the decoder's caches.

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
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from sentencepiece import sentencepiece_model_pb2

from benchmarks.machine import ROOT, describe_run
from export.ctranslate2_writer import write_ctranslate2
from export.huggingface_writer import write_huggingface
from export.portable import PortableModel
from model.config import preset
from model.huggingface_files import SAFETENSORS, module_names
from model.imported import FIRST, UNK
from model.transformer import Transformer

RESULT = ROOT / "benchmarks" / "results" / "imports.json"


def write_nllb(portable: PortableModel, folder: Path) -> None:
    """Write the model in NLLB's format.

    Tokens of NLLB replace some pieces of the model, and an imported NLLB model has NLLB's positions. Neither changes
    the cost of an import.
    """
    folder.mkdir()
    config, state = portable.model.config, portable.model.state_dict()
    weights = {"model.shared.weight": state["embedding.weight"]}
    for ours, theirs in module_names(config):
        weights |= {f"{theirs}.{part}": state[f"{ours}.{part}"] for part in ("weight", "bias")}
    save_file(weights, folder / SAFETENSORS)
    sizes = {
        **{f"{stack}_attention_heads": config.num_heads for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": config.d_ff for stack in ("encoder", "decoder")},
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
    }
    facts = {
        "model_type": "m2m_100",
        "activation_function": config.activation,
        "max_position_embeddings": 1024,
    }
    ids = {"d_model": config.d_model, "vocab_size": config.vocab_size, "pad_token_id": 1, "eos_token_id": 2}
    write_json(folder / "config.json", facts | sizes | ids | {"decoder_start_token_id": 2})
    languages = ("deu_Latn", "eng_Latn")
    first = config.vocab_size - len(languages)
    pieces = ("<unk>", "<s>", "</s>", *portable.pieces[len(FIRST) :])[: first - 1]
    (folder / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(pieces))
    vocabulary = ("<s>", "<pad>", "</s>", "<unk>", *pieces[3:])
    added = [{"id": first + index, "content": code} for index, code in enumerate(languages)]
    by_id = {piece: index for index, piece in enumerate(vocabulary)}
    write_json(folder / "tokenizer.json", {"model": {"vocab": by_id}, "added_tokens": added})


def write_json(path: Path, content: object) -> None:
    """Write a file of JSON."""
    path.write_text(json.dumps(content), "utf-8")


WRITERS: dict[str, Callable[[PortableModel, Path], None]] = {
    "nllb": write_nllb,
    "huggingface": write_huggingface,
    "ctranslate2": write_ctranslate2,
}
# The modules that an import of a model needs. They are loaded before memory is measured.
MODULES = (
    "export.bundle_writer",
    "export.import_cli",
    "model.ctranslate2_files",
    "model.m2m",
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


def words() -> Iterator[str]:
    """ASCII characters and invented words, as pieces."""
    yield from ("▁", *string.ascii_letters, *string.digits, *string.punctuation)
    yield from ("▁" + "".join(letters) for letters in itertools.product(string.ascii_lowercase, repeat=4))


def vocabulary(size: int) -> bytes:
    """A SentencePiece model with `size` pieces: the special pieces, then the pieces that `words` yields."""
    return sentencepiece_model(tuple(itertools.islice(itertools.chain(FIRST, words()), size)))


def sentencepiece_model(pieces: Sequence[str]) -> bytes:
    """A SentencePiece model with these pieces."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    Piece = proto.SentencePiece
    for index, piece in enumerate(pieces):
        special = Piece.UNKNOWN if piece == UNK else Piece.CONTROL
        kind = special if piece in FIRST[:4] else Piece.USER_DEFINED if piece in FIRST else Piece.NORMAL
        proto.pieces.add(piece=piece, score=-float(index) - 0.5, type=kind)
    spec = proto.trainer_spec
    spec.vocab_size = len(pieces)
    spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = (
        pieces.index(piece) if piece in pieces else -1 for piece in FIRST[:4]
    )
    spec.pad_piece, spec.bos_piece, spec.eos_piece, spec.unk_piece = FIRST[:4]
    proto.normalizer_spec.name = "identity"
    return bytes(proto.SerializeToString())


def write_models(folder: Path, args: argparse.Namespace, formats: Sequence[str]) -> float:
    """Write the model in each of the formats, and return the size of its weights in 10^6 bytes."""
    torch.manual_seed(1)
    changes = {"activation": "silu", "output_bias": True}
    if args.num_layers:
        changes |= {"num_encoder_layers": args.num_layers, "num_decoder_layers": args.num_layers}
    # NLLB is always pre-norm. The other formats can be pre-norm or post-norm.
    changes["norm"] = "pre" if "nllb" in formats else "post"
    model = Transformer(preset(args.preset, args.vocab_size, **changes)).eval()
    path = folder / "source.spm"
    path.write_bytes(vocabulary(args.vocab_size))
    pieces = tuple(
        piece.piece
        for piece in sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes()).pieces  # type: ignore[attr-defined]
    )
    portable = PortableModel(model, pieces, path, path)
    for name in formats:
        WRITERS[name](portable, folder / name)
    return max(path.stat().st_size for path in (folder / formats[0]).iterdir()) / 1e6


def measure_here(model: Path, output: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Import in this process. Returns the seconds, and the peak memory of each stage in 10^6 bytes."""
    for name in MODULES:
        import_module(name)
    import_module("tqdm")
    main = import_module("transduce.cli").main
    arguments = ["import", str(model), "--output", str(output), "--source", "en", "--target", "de"]
    started = time.monotonic()
    recorder = StageRecorder()
    with contextlib.redirect_stderr(recorder), contextlib.redirect_stdout(io.StringIO()):
        limits = ("--precisions", args.precisions, "--max-length", str(args.max_length))
        code = main([*arguments, "--licence", "CC0-1.0", *limits])
    recorder.end()
    assert code == 0, recorder.peaks
    return {"seconds": round(time.monotonic() - started, 1), "peak_mb": recorder.peaks}


def measure(model: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Call `measure_here` in a fresh process, and return its result."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.imports",
        *("--precisions", args.precisions, "--max-length", str(args.max_length)),
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
    parser.add_argument("--num-layers", type=int, help="layers of each stack (default: the preset's)")
    parser.add_argument("--max-length", type=int, default=256, help="as in `transduce import` (default: 256)")
    formats = "huggingface,ctranslate2"
    among = ", ".join(WRITERS)
    parser.add_argument(
        "--formats",
        default=formats,
        help=f"formats, separated by commas, out of {among} (default: {formats})",
    )
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="imports-") as folder:
        if args.measure is not None:
            print(MARK + json.dumps(measure_here(args.measure, Path(folder) / "bundle", args)))
            return 0
        result = describe_run("benchmarks.imports")
        chosen = args.formats.split(",")
        size = write_models(Path(folder), args, chosen)
        result["model_mb"] = round(size, 1)
        for name in chosen:
            found = measure(Path(folder) / name, args)
            peak = max(found["peak_mb"].values())
            result[name] = {**found, "largest_peak_mb": peak, "times_the_model": round(peak / size, 2)}
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps({name: result[name] for name in ("model_mb", *chosen)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
