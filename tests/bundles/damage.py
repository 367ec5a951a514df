"""Changes that make a copied bundle invalid. Its hashes stay correct."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from app.graph_file import read_graph

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Damage:
    """A change to a bundle, and a part of the expected error message."""

    name: str
    apply: Change
    message: str


def update_hashes(bundle: Path) -> None:
    """Update the manifest's file entries."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    for name in manifest["files"]:
        content = (bundle / name).read_bytes()
        entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest["files"][name] = entry
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def set_field(path: str, value: Any) -> Change:
    """A change of one manifest field, named by its path."""

    def apply(bundle: Path) -> None:
        file = bundle / "manifest.json"
        manifest = json.loads(file.read_text("utf-8"))
        part = manifest
        *folders, last = path.split(".")
        for folder in folders:
            part = part[folder]
        part[last] = value
        file.write_text(json.dumps(manifest), "utf-8")

    return apply


def set_golden(**fields: Any) -> Change:
    """A change of fields of the second golden sentence."""

    def apply(bundle: Path) -> None:
        file = bundle / "golden.jsonl"
        first, second, *others = file.read_text("utf-8").splitlines()
        changed = json.dumps(json.loads(second) | fields)
        file.write_text("\n".join([first, changed, *others, ""]), "utf-8")
        update_hashes(bundle)

    return apply


def move_graphs(bundle: Path) -> None:
    """Rename the folder of the int8 graphs, on the disk and in the manifest."""
    (bundle / "int8").rename(bundle / "other")
    file = bundle / "manifest.json"
    file.write_text(file.read_text("utf-8").replace('"int8/', '"other/'), "utf-8")


def set_weight(value: float, index: int = 0) -> Change:
    """A change of one float32 number of the int8 encoder's weights to a value. index: of the changed tensor."""

    def apply(bundle: Path) -> None:
        graph = read_graph(bundle / "int8" / "encoder.onnx")
        places = [one.external_data for one in graph.initializers if one.data_type == 1 and one.external_data]
        content = bytearray((bundle / "int8" / "weights.bin").read_bytes())
        begin = int(places[index]["offset"]) + 64
        content[begin : begin + 4] = np.array(value, "<f4").tobytes()
        (bundle / "int8" / "weights.bin").write_bytes(content)
        update_hashes(bundle)

    return apply


def negate_rows(precision: str, ids: Sequence[int]) -> Change:
    """A change that negates the weights of these subwords, in a variant's tables for inputs and for outputs."""

    def apply(bundle: Path) -> None:
        manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
        shape = [manifest["dimensions"][name] for name in ("vocab_size", "d_model")]
        dtype = np.dtype(np.int8 if precision == "int8" else "<f4")
        content = bytearray((bundle / precision / "weights.bin").read_bytes())
        tables = {
            int(table.external_data["offset"]): list(table.shape)
            for path in (bundle / precision).glob("*.onnx")
            for table in read_graph(path).initializers
            if sorted(table.shape) == sorted(shape)
        }
        for begin, found in tables.items():
            table = np.frombuffer(content, dtype, math.prod(shape), begin).reshape(
                found
            )  # a view of the content
            rows = table if found == shape else table.T
            rows[ids] = np.negative(rows[ids])
        (bundle / precision / "weights.bin").write_bytes(content)
        update_hashes(bundle)

    return apply


def put_nans(bundle: Path) -> None:
    """Replace a float32 tensor of the int8 encoder by NaNs in ONNX's field float_data."""
    path = bundle / "int8" / "encoder.onnx"
    graph = onnx.load(path, load_external_data=False)
    tensor = next(one for one in graph.graph.initializer if one.data_type == 1 and one.external_data)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    tensor.float_data.extend([float("nan")] * math.prod(tensor.dims))
    onnx.save(graph, path)
    update_hashes(bundle)


def flip(name: str, num_bytes: int) -> Change:
    """A change of `num_bytes` random bytes of a file, the same in every run."""

    def apply(bundle: Path) -> None:
        draw = random.Random(num_bytes)
        content = bytearray((bundle / name).read_bytes())
        for _ in range(num_bytes):
            content[draw.randrange(len(content))] = draw.randrange(256)
        (bundle / name).write_bytes(content)
        update_hashes(bundle)

    return apply


def damage_pieces(bundle: Path) -> None:
    """Replace a piece of the source's vocabulary by bytes that are not UTF-8."""
    file = bundle / "source.spm"
    content = file.read_bytes()
    space = "\u2581".encode()
    assert space in content
    file.write_bytes(content.replace(space, b"\xe2\x28\xa1", 1))
    update_hashes(bundle)


def put_pipe(name: str) -> Change:
    """A replacement of a file by a pipe without a writer."""

    def apply(bundle: Path) -> None:
        (bundle / name).unlink()
        os.mkfifo(bundle / name)

    return apply


def put_folder(name: str) -> Change:
    """A replacement of a file by a folder."""

    def apply(bundle: Path) -> None:
        (bundle / name).unlink()
        (bundle / name).mkdir()

    return apply


def write(name: str, content: bytes) -> Change:
    """A change of a file's content."""

    def apply(bundle: Path) -> None:
        (bundle / name).write_bytes(content)
        if name != "manifest.json":
            update_hashes(bundle)

    return apply
