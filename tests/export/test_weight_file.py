"""Each array is written as soon as it is stored, so an export needs little memory in addition to the model."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from app.graphs import Precision
from export.bundle_writer import write_variant
from export.weight_file import ALIGNMENT, WeightFile
from export.weights import weights_of
from model.config import preset
from model.transformer import Transformer


def test_an_array_is_stored_once_per_name_and_starts_on_a_cache_line(tmp_path: Path) -> None:
    values = np.arange(300, dtype=np.float32).reshape(3, 100)
    with WeightFile(tmp_path / "weights.bin") as file:
        references = [file.store(name, values) for name in ("a", "b", "a")]
    content = (tmp_path / "weights.bin").read_bytes()
    assert len(content) == 1216 + 1200, "the second array begins at the next multiple of 64"
    assert references[0] == references[2]
    for reference in references:
        found = {entry.key: entry.value for entry in reference.external_data}
        offset, length = int(found["offset"]), int(found["length"])
        assert (offset % ALIGNMENT, found["location"], tuple(reference.dims)) == (0, "weights.bin", (3, 100))
        assert content[offset : offset + length] == values.tobytes()


@pytest.mark.parametrize(("precision", "limit"), [("int8", 0.7), ("fp16", 0.8), ("fp32", 1.5)])
def test_an_export_needs_little_memory(tmp_path: Path, precision: Precision, limit: float) -> None:
    """limit: how many times the size of the embedding Python's and NumPy's memory may reach at its peak."""
    torch.manual_seed(1)
    weights = weights_of(Transformer(preset("tiny", 60_000, num_encoder_layers=1, num_decoder_layers=1)))
    tracemalloc.start()
    try:
        write_variant(tmp_path, weights, precision)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit * weights.target_table.nbytes
