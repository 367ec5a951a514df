"""Ways in which a bundle can be wrong while its hashes are right: each changes a copy."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.graph_file import read_graph

Spoil = Callable[[Path], None]


@dataclass(frozen=True)
class Wrong:
    """What is done to a bundle, and what the refusal says of it."""

    name: str
    spoil: Spoil
    told: str


def mend_hashes(bundle: Path) -> None:
    """Have the manifest list the files as they are now."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    for name in manifest["files"]:
        content = (bundle / name).read_bytes()
        entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest["files"][name] = entry
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def set_field(path: str, value: Any) -> Spoil:
    """Another value for a field of the manifest, by its path."""

    def spoil(bundle: Path) -> None:
        file = bundle / "manifest.json"
        manifest = json.loads(file.read_text("utf-8"))
        part = manifest
        *folders, last = path.split(".")
        for folder in folders:
            part = part[folder]
        part[last] = value
        file.write_text(json.dumps(manifest), "utf-8")

    return spoil


def set_weights(value: float) -> Spoil:
    """Some of the int8 variant's weights of floating point take a value: the scales of its embedding."""

    def spoil(bundle: Path) -> None:
        graph = read_graph(bundle / "int8" / "encoder.onnx")
        place = next(c.external for c in graph.constants if c.element_type == 1 and c.external)
        content = bytearray((bundle / "int8" / "weights.bin").read_bytes())
        begin = int(place["offset"]) + 64
        content[begin : begin + 4] = np.array(value, "<f4").tobytes()
        (bundle / "int8" / "weights.bin").write_bytes(content)
        mend_hashes(bundle)

    return spoil


def flip(name: str, num_bytes: int) -> Spoil:
    """Other bytes at random places of a file."""

    def spoil(bundle: Path) -> None:
        draw = random.Random(num_bytes)
        content = bytearray((bundle / name).read_bytes())
        for _ in range(num_bytes):
            content[draw.randrange(len(content))] = draw.randrange(256)
        (bundle / name).write_bytes(content)
        mend_hashes(bundle)

    return spoil


def spoil_pieces(bundle: Path) -> None:
    """A piece of the source's vocabulary is not UTF-8 any more."""
    file = bundle / "source.spm"
    content = file.read_bytes()
    space = "\u2581".encode()
    assert space in content
    file.write_bytes(content.replace(space, b"\xe2\x28\xa1", 1))
    mend_hashes(bundle)


def put_pipe(name: str) -> Spoil:
    """A pipe that nobody writes to in a file's place."""

    def spoil(bundle: Path) -> None:
        (bundle / name).unlink()
        os.mkfifo(bundle / name)

    return spoil


def put_folder(name: str) -> Spoil:
    """A folder in a file's place."""

    def spoil(bundle: Path) -> None:
        (bundle / name).unlink()
        (bundle / name).mkdir()

    return spoil


def write(name: str, content: bytes) -> Spoil:
    """Other content for a file."""

    def spoil(bundle: Path) -> None:
        (bundle / name).write_bytes(content)
        if name != "manifest.json":
            mend_hashes(bundle)

    return spoil
