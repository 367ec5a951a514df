"""A bundle that contradicts itself is refused by name and field: in the reader, and by a server with exit code 78."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from pathlib import Path

import pytest

from app.bundle import load_bundle
from app.decoding.validation import MAX_ALPHA
from app.errors import BundleError
from app.graph_file import GraphFileError, read_graph
from app.startup import load_tokenizers
from tests.api.server_process import ServerProcess
from tests.bundles.spoil import (
    Wrong,
    flip,
    mend_hashes,
    put_folder,
    put_pipe,
    set_field,
    set_weights,
    spoil_pieces,
    write,
)
from tests.export.tiny import MAX_LENGTH, VOCAB_SIZE, write_tiny_bundle

SERVE = [sys.executable, "-W", "error", "-m", "transduce", "serve"]
HUGE = (99_999, 2**31, 2**62)
VAST = (2**31, 2**62, 2**90)

DIMENSIONS = [
    Wrong(f"{field}={value}", set_field(f"dimensions.{field}", value), told)
    for field, values, told in (
        ("vocab_size", (8, *VAST), "log_probabilities has axes"),
        ("d_model", (8, *VAST), "by the dimensions they are"),
        ("num_heads", (1,), "alignment.heads"),
        ("num_heads", (3, *VAST), "d_model is not a multiple of num_heads"),
        ("d_ff", (1, 8, *VAST), "dimensions.d_ff is"),
        ("num_encoder_layers", (1, 3, *VAST), "dimensions.num_encoder_layers is"),
        ("num_decoder_layers", (3, *VAST), "dimensions.num_decoder_layers is"),
        ("norm", ("pre",), "dimensions.norm is pre"),
        ("activation", ("silu",), "dimensions.activation is silu"),
    )
    for value in values
]
LENGTHS = [
    Wrong(f"{field}={value}", set_field(field, value), f"{field} is {value}, and the caches of")
    for field in ("max_source_length", "max_target_length")
    for value in (MAX_LENGTH + 1, *HUGE)
]
SPECIAL = [
    Wrong(f"{name}={value}", set_field(f"special_ids.{name}", value), f"special_ids.{name} is {value}")
    for name in ("pad", "bos", "eos", "unk")
    for value in (-1, VOCAB_SIZE, 2**40)
]
OTHERS = [
    Wrong("eos of another subword", set_field("special_ids.eos", 7), "special_ids.eos is 7, and int8/native"),
    Wrong("aligned layer", set_field("alignment.layer", 99), "alignment.layer: [99]"),
    Wrong("another aligned layer", set_field("alignment.layer", 1), "alignment.layer is 1, and int8/native"),
    Wrong("aligned heads", set_field("alignment.heads", [99, -1]), "alignment.heads: [99, -1]"),
    Wrong("aligned heads twice", set_field("alignment.heads", [0, 0]), "alignment.heads: [0, 0]"),
    Wrong("no alignment", set_field("alignment", None), "unexpected output alignment"),
    Wrong("alpha", set_field("decoding.alpha", float("nan")), "decoding.alpha"),
    Wrong("alpha large", set_field("decoding.alpha", MAX_ALPHA + 1), "decoding.alpha"),
    Wrong("alpha negative", set_field("decoding.alpha", -1), "decoding.alpha"),
    Wrong("weights NaN", set_weights(float("nan")), "int8/weights.bin: the weights"),
    Wrong("weights Inf", set_weights(float("-inf")), "values that are not numbers"),
    Wrong("weights huge", set_weights(3e38), "have values up to 3.0e+38, and none may be above 65504"),
    Wrong("graph of random bytes", flip("int8/native_encoder.onnx", 2000), "int8/native_encoder.onnx"),
    Wrong("no golden sentence", write("golden.jsonl", b""), "golden.jsonl holds no sentence"),
    Wrong("golden: blank", write("golden.jsonl", b"\n"), "golden.jsonl: line 1: it: "),
    Wrong("golden: not JSON", write("golden.jsonl", b"{}\nx\n"), "golden.jsonl: line 1: source: "),
    Wrong("golden: not UTF-8", write("golden.jsonl", b"\xff"), "golden.jsonl cannot be read"),
    Wrong("manifest deep", write("manifest.json", b"[" * 100_000), "manifest.json"),
    Wrong("manifest large", write("manifest.json", b" " * 20_000_000), "more than 8000000 bytes"),
    *(
        Wrong(f"{name} a {kind}", put(name), told)
        for name, told in (
            ("manifest.json", "manifest.json is missing or unreadable"),
            ("source.spm", "source.spm is not a plain file"),
            ("int8/weights.bin", "int8/weights.bin is not a plain file"),
            ("golden.jsonl", "golden.jsonl is not a plain file"),
            ("weights/model.safetensors", "weights/model.safetensors is not a plain file"),
        )
        for kind, put in (("pipe", put_pipe), ("folder", put_folder))
    ),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_tiny_bundle(folder)
    return folder / "bundle"


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(whole, tmp_path / "spoiled"))


@pytest.mark.parametrize(
    "wrong", [*DIMENSIONS, *LENGTHS, *SPECIAL, *OTHERS], ids=lambda wrong: str(wrong.name)
)
def test_what_is_wrong_is_told_by_name_and_field(wrong: Wrong, bundle: Path) -> None:
    wrong.spoil(bundle)
    started_at = time.monotonic()
    with pytest.raises(BundleError) as caught:
        load_bundle(bundle, choose=lambda manifest: "int8")
    assert time.monotonic() - started_at < 20
    assert caught.value.path == "spoiled"
    assert any(wrong.told in problem for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize("precision", ["int8", "fp16", "fp32"])
def test_every_variant_s_own_graphs_are_compared(precision: str, bundle: Path) -> None:
    set_field("dimensions.d_ff", 48)(bundle)
    with pytest.raises(BundleError, match=f"d_ff is 48, and {precision}/encoder.onnx has"):
        load_bundle(bundle, choose=lambda manifest: precision)  # type: ignore[arg-type, return-value]


def test_a_piece_that_is_not_utf_8(bundle: Path) -> None:
    spoil_pieces(bundle)
    with pytest.raises(BundleError, match=r"source\.spm is not a SentencePiece model, or damaged"):
        load_tokenizers(load_bundle(bundle))


def test_special_ids_are_the_tokenizer_s(bundle: Path) -> None:
    set_field("special_ids.unk", 5)(bundle)
    with pytest.raises(BundleError, match=r"source\.spm has the unk id 3, the manifest's special_ids\.unk"):
        load_tokenizers(load_bundle(bundle))


@pytest.mark.parametrize("num_bytes", [1, 5, 50])
@pytest.mark.parametrize("name", ["source.spm", "int8/encoder.onnx", "int8/native_decoder.onnx"])
def test_flipped_bytes_are_a_bundle_s_error_or_none(name: str, num_bytes: int, bundle: Path) -> None:
    flip(name, num_bytes)(bundle)
    with contextlib.suppress(BundleError):  # another error fails the test
        load_tokenizers(load_bundle(bundle, choose=lambda manifest: "int8"))


@pytest.mark.parametrize("content", [b"", b"\x0a", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 20, b"\x3b\x01"])
def test_what_is_no_graph(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "graph.onnx").write_bytes(content)
    with pytest.raises(GraphFileError):
        read_graph(tmp_path / "graph.onnx")


SERVED = [
    (1, Wrong("pipe", put_pipe("manifest.json"), "manifest.json is missing or unreadable")),
    (2, Wrong("length", set_field("max_target_length", 2**62), "max_target_length is")),
    (1, Wrong("start token", set_field("special_ids.bos", -1), "special_ids.bos is -1")),
    (2, Wrong("weights", set_weights(float("nan")), "int8/weights.bin")),
    (1, Wrong("pieces", spoil_pieces, "source.spm")),
    (2, Wrong("golden", write("golden.jsonl", b""), "golden.jsonl holds no sentence")),
]


@pytest.mark.parametrize(("num_lanes", "wrong"), SERVED, ids=lambda given: str(getattr(given, "name", given)))
def test_a_server_ends_with_78(wrong: Wrong, num_lanes: int, bundle: Path) -> None:
    wrong.spoil(bundle)
    settings: dict[str, object] = {"bundle": bundle, "num_lanes": num_lanes, "golden_min_share": 0}
    with ServerProcess(SERVE, settings) as server:
        assert server.ended() == 78
    assert server.errors
    assert all(line.startswith("transduce serve: bundle spoiled: ") for line in server.errors)
    assert wrong.told in "".join(server.errors)


@pytest.mark.parametrize("num_lanes", [1, 2])
def test_golden_sentences_that_cannot_be_decoded(num_lanes: int, bundle: Path) -> None:
    """A beam that no engine runs: told by the line of golden.jsonl, not as an engine that died."""
    golden = bundle / "golden.jsonl"
    golden.write_bytes(golden.read_bytes().replace(b'"beam_size":4', b'"beam_size":1000', 1))
    mend_hashes(bundle)
    settings: dict[str, object] = {"bundle": bundle, "num_lanes": num_lanes}
    with ServerProcess(SERVE, settings) as server:
        assert server.ended() == 78
    (line,) = server.errors
    assert line.startswith("transduce serve: bundle spoiled: golden.jsonl: line 2: beam_size")
