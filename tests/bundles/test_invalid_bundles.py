"""An invalid bundle is an error that names bundle and field. A server ends with exit code 78."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

import pytest

from app.bundle import load_bundle
from app.bundle_files import open_file, read_text
from app.bundle_tokenizers import load_tokenizers
from app.decoding.validation import MAX_ALPHA
from app.errors import BundleError
from app.graph_file import GraphFileError, read_graph
from tests.api.server_process import ServerProcess
from tests.bundles.damage import (
    Damage,
    damage_pieces,
    flip,
    move_graphs,
    put_folder,
    put_nans,
    put_pipe,
    set_field,
    set_golden,
    set_weight,
    update_hashes,
    write,
)
from tests.export.tiny import MAX_LENGTH, VOCAB_SIZE

SERVE = ["transduce", "serve"]
# Lengths and dimensions far above those of the model. Some exceed 32 bits, and the largest exceeds 64 bits.
HUGE = (99_999, 2**31, 2**62)
VAST = (2**31, 2**62, 2**90)

EN_DE = {"source": "en", "target": "de"}


def ids_of(*ids: int) -> dict[str, list[int]]:
    return {precision: list(ids) for precision in ("int8", "fp16", "fp32")}


DIMENSIONS = [
    Damage(f"{field}={value}", set_field(f"dimensions.{field}", value), message)
    for field, values, message in (
        ("vocab_size", (8, *VAST), "log_probabilities has axes"),
        ("d_model", (8, *VAST), "the manifest's dimensions give"),
        ("num_heads", (1,), "alignment.heads"),
        ("num_heads", (3, *VAST), "d_model is not a multiple of num_heads"),
        ("d_ff", (1, 8, *VAST), "dimensions.d_ff is"),
        ("num_encoder_layers", (1, 3, *VAST), "dimensions.num_encoder_layers is"),
        ("num_decoder_layers", (3, *VAST), "dimensions.num_decoder_layers is"),
        ("norm", ("pre",), "dimensions.norm is pre"),
        ("activation", ("silu",), "dimensions.activation is silu"),
        ("decoder", ("lstm",), "dimensions.decoder: "),
        ("decoder", ("ssru",), "fp16 is not possible with dimensions.decoder ssru"),
    )
    for value in values
]
LENGTHS = [
    Damage(f"{field}={value}", set_field(field, value), f"{field} is {value}, and the caches of")
    for field in ("max_source_length", "max_target_length")
    for value in (MAX_LENGTH + 1, *HUGE)
]
SPECIAL = [
    Damage(f"{name}={value}", set_field(f"special_ids.{name}", value), f"special_ids.{name} is {value}")
    for name in ("pad", "bos", "eos", "unk")
    for value in (-1, VOCAB_SIZE, 2**40)
]
OTHERS = [
    Damage(
        "eos of another subword", set_field("special_ids.eos", 7), "special_ids.eos is 7, and int8/native"
    ),
    Damage("aligned layer", set_field("alignment.layer", 99), "alignment.layer: [99]"),
    Damage("another aligned layer", set_field("alignment.layer", 1), "alignment.layer is 1, and int8/native"),
    Damage("aligned heads", set_field("alignment.heads", [99, -1]), "alignment.heads: [99, -1]"),
    Damage("aligned heads twice", set_field("alignment.heads", [0, 0]), "alignment.heads: [0, 0]"),
    Damage("a pair twice", set_field("language_pairs", [EN_DE, EN_DE]), "en to de is there 2 times"),
    Damage(
        "a pair with two tags",
        set_field("language_pairs", [EN_DE, EN_DE | {"source_prefix": "x"}, EN_DE | {"source": "fr"}]),
        "en to de is there 2 times",
    ),
    Damage("no alignment", set_field("alignment", None), "unexpected output alignment"),
    Damage("alpha", set_field("decoding.alpha", float("nan")), "decoding.alpha"),
    Damage("alpha large", set_field("decoding.alpha", MAX_ALPHA + 1), "decoding.alpha"),
    Damage("alpha negative", set_field("decoding.alpha", -1), "decoding.alpha"),
    Damage("weights NaN", set_weight(float("nan")), "int8/weights.bin: the weights"),
    Damage("weights Inf", set_weight(float("-inf")), "values that are not numbers"),
    Damage("weights huge", set_weight(3e38), "have values up to 3.0e+38, and none may be above 65504"),
    Damage("weights in float_data", put_nans, "have 0 values in raw_data or in a file, and their shape has"),
    Damage("graph of random bytes", flip("int8/native_encoder.onnx", 2000), "int8/native_encoder.onnx"),
    Damage(
        "graphs of another folder",
        move_graphs,
        "other/native_encoder.onnx is not in the folder int8/ of its variant",
    ),
    Damage("no golden sentence", write("golden.jsonl", b""), "golden.jsonl holds no sentence"),
    *(
        Damage(f"golden: {name}", set_golden(**fields), f"golden.jsonl: line 2: {message}")
        for name, fields, message in (
            ("pair", {"pair": 1}, "pair is 1: the manifest has 1 language_pairs"),
            ("no beam", {"beam_size": 0}, "beam_size: Input should be greater than or equal to 1"),
            ("wide beam", {"beam_size": 17}, "beam_size: Input should be less than or equal to 16"),
            ("no fp16", {"ids": {"int8": [9], "fp32": [9]}}, "ids has no fp16"),
            ("large id", {"ids": ids_of(VOCAB_SIZE)}, "ids.int8 has an id that is not from 0 to 399"),
            ("negative id", {"ids": ids_of(-1)}, "ids.fp32 has an id that is not from 0 to 399"),
        )
    ),
    Damage("golden: blank", write("golden.jsonl", b"\n"), "golden.jsonl: line 1: it: "),
    Damage("golden: not JSON", write("golden.jsonl", b"{}\nx\n"), "golden.jsonl: line 1: source: "),
    Damage("golden: not UTF-8", write("golden.jsonl", b"\xff"), "golden.jsonl cannot be read"),
    Damage("manifest deep", write("manifest.json", b"[" * 100_000), "manifest.json"),
    Damage("manifest large", write("manifest.json", b" " * 20_000_000), "more than 8000000 bytes"),
    *(
        Damage(f"{name} a {kind}", put(name), message)
        for name, message in (
            ("manifest.json", "manifest.json is missing or unreadable"),
            ("source.spm", "source.spm is not a plain file"),
            ("int8/weights.bin", "int8/weights.bin is not a plain file"),
            ("golden.jsonl", "golden.jsonl is not a plain file"),
            ("weights/model.safetensors", "weights/model.safetensors is not a plain file"),
        )
        for kind, put in (("pipe", put_pipe), ("folder", put_folder))
    ),
]


@pytest.fixture
def bundle(tiny: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(tiny / "bundle", tmp_path / "damaged"))


def test_a_server_does_not_read_the_checkpoint(bundle: Path) -> None:
    file = bundle / "weights" / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    load_bundle(bundle, choose=lambda manifest: "int8")
    with pytest.raises(BundleError, match=r"weights/model\.safetensors has another SHA-256"):
        load_bundle(bundle)


@pytest.mark.parametrize(
    "damage", [*DIMENSIONS, *LENGTHS, *SPECIAL, *OTHERS], ids=lambda damage: str(damage.name)
)
def test_the_error_names_bundle_and_field(damage: Damage, bundle: Path) -> None:
    damage.apply(bundle)
    started_at = time.monotonic()
    with pytest.raises(BundleError) as caught:
        load_bundle(bundle, choose=lambda manifest: "int8")
    assert time.monotonic() - started_at < 20
    assert caught.value.path == "damaged"
    assert any(damage.message in problem for problem in caught.value.problems), caught.value.problems


def test_a_folder_in_the_place_of_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    num_open = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="is not a plain file"):
        open_file(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == num_open


def test_a_text_file_may_have_as_many_bytes_as_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.bundle_files.MAX_TEXT_BYTES", 3)
    file = tmp_path / "manifest.json"
    file.write_bytes(b"{ }")
    assert read_text(file) == b"{ }"
    file.write_bytes(b"{  }")
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_text(file)


def test_a_golden_sentence_may_hold_any_separator_of_lines(bundle: Path) -> None:
    file = bundle / "golden.jsonl"
    first, *others = file.read_text("utf-8").splitlines()
    golden = json.loads(first) | {"source": "a\u2028b\u2029c\x85d"}
    file.write_text("\n".join([json.dumps(golden, ensure_ascii=False), *others, ""]), "utf-8")
    update_hashes(bundle)
    assert load_bundle(bundle).golden[0].source == golden["source"]


@pytest.mark.parametrize("precision", ["int8", "fp16", "fp32"])
def test_the_graphs_of_every_variant_are_checked(precision: str, bundle: Path) -> None:
    set_field("dimensions.d_ff", 48)(bundle)
    with pytest.raises(BundleError, match=f"d_ff is 48, and {precision}/encoder.onnx has"):
        load_bundle(bundle, choose=lambda manifest: precision)  # type: ignore[arg-type, return-value]


def replace_gpu_decoder(bundle: Path) -> None:
    """Put another graph, without attention over a cache, in the place of the decoder for GPUs."""
    shutil.copyfile(bundle / "fp16" / "encoder.onnx", bundle / "fp16" / "gpu_decoder.onnx")
    update_hashes(bundle)


@pytest.mark.parametrize(
    "damage",
    [
        Damage(
            "no such file",
            set_field("variants.fp16.gpu_decoder.file", "fp16/none.onnx"),
            "fp16/none.onnx is not in the manifest's files",
        ),
        Damage(
            "no inputs",
            set_field("variants.fp16.gpu_decoder.inputs", []),
            "fp16/gpu_decoder.onnx has no input ids",
        ),
        Damage(
            "more axes",
            set_field(
                "variants.fp16.gpu_decoder.inputs", [{"name": "ids", "dtype": "int64", "axes": ["rows", 1]}]
            ),
            "input ids has axes ['rows', 1], and the manifest's dimensions give ['*']",
        ),
        Damage("random bytes", flip("fp16/gpu_decoder.onnx", 2000), "fp16/gpu_decoder.onnx"),
        Damage("another graph", replace_gpu_decoder, "and fp16/gpu_decoder.onnx has 0"),
    ],
    ids=lambda damage: str(damage.name),
)
def test_the_decoder_for_gpus_is_checked(damage: Damage, bundle: Path) -> None:
    damage.apply(bundle)
    with pytest.raises(BundleError) as caught:
        load_bundle(bundle, choose=lambda manifest: "fp16")
    assert any(damage.message in problem for problem in caught.value.problems), caught.value.problems


def test_a_piece_that_is_not_utf_8_is_an_error(bundle: Path) -> None:
    damage_pieces(bundle)
    with pytest.raises(BundleError, match=r"source\.spm is not a SentencePiece model, or damaged"):
        load_tokenizers(load_bundle(bundle))


def test_special_ids_must_be_those_of_the_tokenizer(bundle: Path) -> None:
    set_field("special_ids.unk", 5)(bundle)
    with pytest.raises(BundleError, match=r"source\.spm has the unk id 3, the manifest's special_ids\.unk"):
        load_tokenizers(load_bundle(bundle))


@pytest.mark.parametrize("num_bytes", [1, 5, 50])
@pytest.mark.parametrize("name", ["source.spm", "int8/encoder.onnx", "int8/native_decoder.onnx"])
def test_flipped_bytes_raise_no_error_or_a_bundle_error(name: str, num_bytes: int, bundle: Path) -> None:
    flip(name, num_bytes)(bundle)
    with contextlib.suppress(BundleError):  # another error fails the test
        load_tokenizers(load_bundle(bundle, choose=lambda manifest: "int8"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x0a",
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\x3a" + b"\xff" * 9 + b"\x01" + bytes(8),  # a length of -1
        b"\xff" * 20,
        b"\x3b\x01",
        b"\x08\x0a\x12\x00",  # a valid message without the field of the graph
    ],
)
def test_a_file_that_is_not_a_graph_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "graph.onnx").write_bytes(content)
    with pytest.raises(GraphFileError):
        read_graph(tmp_path / "graph.onnx")


SERVED = [
    (1, Damage("pipe", put_pipe("manifest.json"), "manifest.json is missing or unreadable")),
    (2, Damage("length", set_field("max_target_length", 2**62), "max_target_length is")),
    (1, Damage("start token", set_field("special_ids.bos", -1), "special_ids.bos is -1")),
    (2, Damage("weights", set_weight(float("nan")), "int8/weights.bin")),
    (1, Damage("pieces", damage_pieces, "source.spm")),
    (2, Damage("golden", write("golden.jsonl", b""), "golden.jsonl holds no sentence")),
]


@pytest.mark.server
@pytest.mark.parametrize(
    ("num_lanes", "damage"), SERVED, ids=lambda value: str(getattr(value, "name", value))
)
def test_a_server_ends_with_78(damage: Damage, num_lanes: int, bundle: Path) -> None:
    damage.apply(bundle)
    settings: dict[str, object] = {"bundle": bundle, "num_lanes": num_lanes, "golden_min_share": 0}
    with ServerProcess(SERVE, settings) as server:
        assert server.ended() == 78
    assert server.errors
    assert all(line.startswith("transduce serve: bundle damaged: ") for line in server.errors)
    assert damage.message in "".join(server.errors)


@pytest.mark.server
@pytest.mark.parametrize("num_lanes", [1, 2])
def test_a_golden_sentence_with_an_impossible_beam_size_ends_the_server(num_lanes: int, bundle: Path) -> None:
    """The error names the line of golden.jsonl. The engine does not fail."""
    golden = bundle / "golden.jsonl"
    golden.write_bytes(golden.read_bytes().replace(b'"beam_size":4', b'"beam_size":1000', 1))
    update_hashes(bundle)
    settings: dict[str, object] = {"bundle": bundle, "num_lanes": num_lanes}
    with ServerProcess(SERVE, settings) as server:
        assert server.ended() == 78
    (line,) = server.errors
    assert line.startswith("transduce serve: bundle damaged: golden.jsonl: line 2: beam_size")
