"""A bundle is written completely or not at all. A bundle with changed files is not read.

Of the variants that are not loaded, only the sizes of the files are checked.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
import torch

from app.bundle import Alignment, load_bundle
from app.errors import BundleError
from app.text.tokenizer import Tokenizer
from export.bundle_writer import write_bundle
from export.output_folder import ExportError, replace_folder
from export.portable import read_checkpoint, write_new_folder
from model.checkpoint import CheckpointError, load_model
from model.transformer import Transformer
from tests.export.tiny import bundle_request, names, random_model, write_checkpoint
from tests.forked import start_fork

MARK = "a file that no bundle has"
# A request of another version than the tiny bundle's.
ONLY_INT8 = replace(bundle_request(version="2"), precisions=("int8",))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_the_contents_of_a_bundle(tiny: Path) -> None:
    bundle = load_bundle(tiny / "bundle")
    manifest = bundle.manifest
    assert set(contents(tiny / "bundle")) == set(manifest.files) | {"manifest.json"}
    assert set(manifest.variants) == {"int8", "fp16", "fp32"}
    assert manifest.variants["fp16"].encoder.outputs[0].dtype == "float16"
    assert all(set(line.ids) == set(manifest.variants) for line in bundle.golden)
    assert {line.beam_size for line in bundle.golden} == {1, 4}
    card = bundle.file("MODEL_CARD.md").read_text("utf-8")
    assert "# tiny-en-de 1" in card
    assert "CC0-1.0" in card
    assert "licences stand beside each corpus" in card
    sizes = {name: entry.size for name, entry in manifest.files.items()}
    assert sizes["int8/weights.bin"] < sizes["fp16/weights.bin"] < sizes["fp32/weights.bin"]
    assert {name: v.native is not None for name, v in manifest.variants.items()} == {
        "int8": True,
        "fp16": False,
        "fp32": True,
    }


def test_graphs_of_a_variant_share_its_weights(tiny: Path) -> None:
    graphs = {
        name: onnx.load(tiny / "bundle" / "int8" / f"{name}.onnx", load_external_data=False)
        for name in ("decoder", "native_decoder")
    }
    places = {
        name: {
            (entry["offset"], entry["length"])
            for tensor in graph.graph.initializer
            if (entry := {pair.key: pair.value for pair in tensor.external_data})
        }
        for name, graph in graphs.items()
    }
    size = (tiny / "bundle" / "int8" / "weights.bin").stat().st_size
    assert all(int(offset) + int(length) <= size for found in places.values() for offset, length in found)
    # Not shared: the output table (transposed in `decoder`), its scales, and the embedding's scales (of another shape).
    assert len(places["decoder"] & places["native_decoder"]) > 0.8 * len(places["native_decoder"])


@pytest.mark.seconds
def test_the_weights_folder_is_a_checkpoint_in_half_precision(tiny: Path) -> None:
    ours, original = load_model(tiny / "bundle" / "weights"), load_model(tiny / "checkpoint")
    for (name, found), expected in zip(ours.named_parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(found, expected.half().float(), rtol=0, atol=0, msg=name)


@pytest.mark.seconds
def test_max_source_length_is_at_most_the_models_max_length(tiny: Path, tmp_path: Path) -> None:
    positions = load_model(tiny / "checkpoint").config.max_length
    for max_length, expected in ((20, 20), (None, positions), (positions + 1, positions)):
        changed = dataclasses.replace(bundle_request(), max_source_length=max_length, precisions=("fp32",))
        bundle = write_bundle(tiny / "checkpoint", tmp_path / str(max_length), changed)
        assert (bundle.manifest.max_source_length, bundle.manifest.max_target_length) == (expected, positions)


@pytest.mark.seconds
def test_the_same_checkpoint_gives_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    write_bundle(tiny / "checkpoint", tmp_path / "again", bundle_request())
    assert contents(tmp_path / "again") == contents(tiny / "bundle")


# --- reading: errors. A function that damages a bundle returns a part of the expected problem. ---


def flip_a_byte(bundle: Path) -> str:
    file = bundle / "int8" / "decoder.onnx"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return "int8/decoder.onnx has another SHA-256"


def truncate(bundle: Path) -> str:
    file = bundle / "source.spm"
    file.write_bytes(file.read_bytes()[:-1])
    return "source.spm has"


def remove(bundle: Path) -> str:
    (bundle / "MODEL_CARD.md").unlink()
    return "MODEL_CARD.md is missing"


def add_a_file(bundle: Path) -> str:
    (bundle / "int8" / "more.bin").write_bytes(b"")
    return "int8/more.bin is not in the manifest"


def replace_by_a_link(bundle: Path) -> str:
    file = bundle / "target.spm"
    file.unlink()
    file.symlink_to("source.spm")
    return "target.spm is a link"


def link_a_folder(bundle: Path) -> str:
    (bundle / "elsewhere").symlink_to(bundle.parent, target_is_directory=True)
    return "elsewhere is a link"


def change_manifest(change: Callable[[dict[str, object]], None], bundle: Path) -> None:
    file = bundle / "manifest.json"
    fields = json.loads(file.read_text("utf-8"))
    change(fields)
    file.write_text(json.dumps(fields), "utf-8")


def list_a_path(path: str) -> Callable[[Path], str]:
    def damage(bundle: Path) -> str:
        entry = {"size": 1, "sha256": "0" * 64}
        change_manifest(lambda fields: fields["files"].update({path: entry}), bundle)  # type: ignore[attr-defined]
        return f"{path!r} is not a plain path"

    return damage


def claim_another_format(bundle: Path) -> str:
    change_manifest(lambda fields: fields.update(format_version=2), bundle)
    return "format_version"


def add_a_field(bundle: Path) -> str:
    change_manifest(lambda fields: fields.update(surprise=1), bundle)
    return "surprise"


def damage_golden(bundle: Path) -> str:
    file = bundle / "golden.jsonl"
    file.write_bytes(file.read_bytes().replace(b"{", b"[", 1))
    return "golden.jsonl has another SHA-256"


DAMAGES = [
    flip_a_byte, truncate, remove, add_a_file, replace_by_a_link, link_a_folder, list_a_path("/etc/passwd"),
    list_a_path("../up.onnx"), list_a_path("int8/../../up.onnx"), list_a_path("int8\\decoder.onnx"), list_a_path("./x"),
    claim_another_format, add_a_field, damage_golden,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_bundle_is_an_error(damage: Callable[[Path], str], own_bundle: Path) -> None:
    load_bundle(own_bundle)
    expected = damage(own_bundle)
    with pytest.raises(BundleError) as caught:
        load_bundle(own_bundle)
    assert any(expected in problem for problem in caught.value.problems), caught.value.problems


def test_only_the_sizes_of_unread_files_are_checked(own_bundle: Path) -> None:
    flip_a_byte(own_bundle)
    load_bundle(own_bundle, choose=lambda manifest: "fp32")
    with pytest.raises(BundleError, match="SHA-256"):
        load_bundle(own_bundle, choose=lambda manifest: "int8")
    (own_bundle / "int8" / "decoder.onnx").write_bytes(b"short")
    with pytest.raises(BundleError, match="has 5 bytes"):
        load_bundle(own_bundle, choose=lambda manifest: "fp32")


def test_all_problems_are_listed_together(own_bundle: Path) -> None:
    changes = (flip_a_byte, truncate, remove, add_a_file, link_a_folder, list_a_path("/etc/passwd"))
    expected = [damage(own_bundle) for damage in changes]
    with pytest.raises(BundleError) as caught:
        load_bundle(own_bundle)
    for text in expected:
        assert any(text in problem for problem in caught.value.problems), text
    assert len(caught.value.problems) == len(expected)


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "missing"), (b"{", "Invalid JSON"), (b"\xff", "manifest")]
)
def test_an_unreadable_manifest_is_an_error(content: bytes | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(BundleError, match=problem):
        load_bundle(tmp_path)


# --- writing ---


class Interruption(Exception):
    """An error that interrupts an export."""


@pytest.mark.parametrize("stage", ["int8 graphs", "golden sentences", "checking"])
def test_an_interrupted_export_leaves_the_old_bundle(stage: str, tiny: Path, own_bundle: Path) -> None:
    before = contents(own_bundle)

    def interrupt(name: str) -> None:
        if name == stage:
            raise Interruption

    with pytest.raises(Interruption):
        write_bundle(tiny / "checkpoint", own_bundle, ONLY_INT8, on_progress=interrupt)
    assert contents(own_bundle) == before
    assert names(own_bundle.parent) == [own_bundle.name]


def export_until_killed(checkpoint: Path, bundle: Path) -> None:
    def kill(stage: str) -> None:
        if stage == "checking":
            os.kill(os.getpid(), signal.SIGKILL)

    write_bundle(checkpoint, bundle, ONLY_INT8, on_progress=kill)


@pytest.mark.server
def test_a_killed_export_leaves_the_old_bundle(tiny: Path, own_bundle: Path) -> None:
    before = contents(own_bundle)
    process = start_fork(export_until_killed, tiny / "checkpoint", own_bundle)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert contents(own_bundle) == before
    load_bundle(own_bundle)


def test_a_finished_export_replaces_the_old_bundle(tiny: Path, own_bundle: Path) -> None:
    alignment = Alignment(layer=1, heads=(1,))
    write_bundle(tiny / "checkpoint", own_bundle, replace(ONLY_INT8, alignment=alignment))
    manifest = load_bundle(own_bundle).manifest
    assert (manifest.version, set(manifest.variants)) == ("2", {"int8"})
    assert manifest.alignment == alignment
    assert names(own_bundle.parent) == [own_bundle.name]


def test_another_folder_is_not_replaced(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / MARK).write_text("precious")
    with pytest.raises(ExportError, match="is not a bundle"):
        write_bundle(tiny / "checkpoint", tmp_path, bundle_request())
    assert names(tmp_path) == [MARK]


@pytest.mark.parametrize("name", [".", ".."])
def test_the_current_folder_is_not_replaced(
    name: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(ExportError, match="name another folder"):
        write_bundle(tiny / "checkpoint", Path(name), bundle_request())
    with pytest.raises(ExportError, match="name another folder"):
        write_new_folder(Path(name), Path.mkdir)


@pytest.mark.seconds
def test_missing_parents_are_made_and_a_file_is_no_parent(tiny: Path, tmp_path: Path) -> None:
    write_bundle(tiny / "checkpoint", tmp_path / "new" / "er" / "bundle", ONLY_INT8)
    assert load_bundle(tmp_path / "new" / "er" / "bundle").manifest.name == "tiny-en-de"
    (tmp_path / "file").touch()
    with pytest.raises(ExportError, match="file is not a folder"):
        write_bundle(tiny / "checkpoint", tmp_path / "file" / "bundle", ONLY_INT8)


@pytest.mark.parametrize(
    ("invalid", "problem"),
    [
        (bundle_request(name="Tiny EN-DE"), "name"),
        (bundle_request(version=""), "version"),
        (replace(bundle_request(), target="deutsch!"), "target"),
        (replace(bundle_request(), alignment=Alignment(layer=2, heads=(0,))), "alignment: layer"),
        (replace(bundle_request(), alignment=Alignment(layer=1, heads=(0, 2))), "alignment: heads"),
        (replace(bundle_request(), alignment=Alignment(layer=1, heads=(1, 1))), "alignment: heads"),
    ],
)
def test_an_invalid_request_is_an_error(invalid: object, problem: str, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=problem):
        write_bundle(tiny / "checkpoint", tmp_path / "new", invalid)  # type: ignore[arg-type]
    assert names(tmp_path) == []


def test_a_tokenizer_with_another_vocabulary_size_is_an_error(tmp_path: Path) -> None:
    model = random_model(max_length=16)
    larger = Transformer(replace(model.config, vocab_size=model.config.vocab_size + 8))
    checkpoint = write_checkpoint(tmp_path, larger)
    assert Tokenizer(checkpoint / "tokenizer.spm").vocab_size == model.config.vocab_size
    with pytest.raises(CheckpointError, match="400 subwords, the model's embedding 408"):
        write_bundle(checkpoint, tmp_path / "bundle", bundle_request())
    with pytest.raises(CheckpointError, match="400 subwords, the model's embedding 408"):
        read_checkpoint(checkpoint)


def test_a_checkpoint_without_a_tokenizer_is_an_error(tiny: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(tiny / "checkpoint", checkpoint)
    (checkpoint / "tokenizer.spm").unlink()
    with pytest.raises(
        CheckpointError, match=r"checkpoint/tokenizer\.spm is missing: copy the model's .* source\.spm"
    ):
        write_bundle(checkpoint, tmp_path / "bundle", bundle_request())
    with pytest.raises(CheckpointError, match=r"checkpoint/tokenizer\.spm is missing"):
        read_checkpoint(checkpoint)
    assert names(tmp_path) == ["checkpoint"]


def test_an_interrupted_replacement_keeps_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, output = tmp_path / "new", tmp_path / "bundle"
    for folder in (new, output):
        folder.mkdir()
        (folder / folder.name).touch()
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if path == new:
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(new, output)
    assert [path.name for path in output.iterdir()] == ["bundle"]
