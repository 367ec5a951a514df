"""The estimate of a model's memory on a GPU is what the runner allocates, and models must fit in the budget.

`HostCuda` stands for the GPU.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.bundle import Bundle
from app.errors import SettingsError
from app.graphs import Precision
from app.known_models import estimated_bytes, preloaded, read_model, read_models
from app.runtime.bundle_limits import limits_of
from app.workers.model_spec import ModelSpec
from tests.export.tiny import random_model
from tests.runtime.host_cuda import load_both, one_variant
from tests.test_pooled_models import add_model, settings_of

NUM_ROWS = 12


def cache_bytes(bundle: Bundle, precision: Precision) -> int:
    """The part of the estimate that depends on the number of rows."""
    spec = ModelSpec(
        folder=str(bundle.path),
        precision=precision,
        variant=bundle.manifest.variants[precision],
        limits=limits_of(bundle.manifest, NUM_ROWS),
        device="cuda",
        kernels="auto",
        num_threads=1,
        num_workers=1,
        log_level="INFO",
    )
    without_rows = replace(spec, limits=replace(spec.limits, num_rows=0))
    return estimated_bytes(bundle.manifest, spec) - estimated_bytes(bundle.manifest, without_rows)


def test_caches_on_a_gpu_count_in_full_and_with_their_staging_memory(tmp_path: Path) -> None:
    """A row has a column for each position of the graph. The graph has more positions than the longest source needs."""
    bundle = one_variant(random_model(max_length=24), "fp32", tmp_path)
    bundle.manifest = bundle.manifest.model_copy(update={"max_source_length": 8})
    _, runner, _ = load_both(bundle, num_rows=NUM_ROWS)
    blocks = runner._cuda.library.blocks
    pools = (runner._self_pool, runner._cross_pool)
    addresses = {pool.block.address for pool in pools} | {pool._staging.address for pool in pools}
    assert len(addresses) == 3, "the pools share their staging memory"
    # HostCuda allocates 256 bytes more than each block needs, to align it.
    assert cache_bytes(bundle, "fp32") == sum(len(blocks[address]) - 256 for address in addresses)


@pytest.mark.parametrize(("precision", "item_bytes"), [("fp16", 2), ("fp32", 4)])
def test_numbers_in_caches_on_a_gpu_have_the_graphs_type(
    tmp_path: Path, precision: Precision, item_bytes: int
) -> None:
    model = random_model(max_length=24)
    bundle = one_variant(model, precision, tmp_path)
    pool_bytes = NUM_ROWS * 2 * model.config.num_decoder_layers * 24 * model.config.d_model * item_bytes
    assert cache_bytes(bundle, precision) == 3 * pool_bytes


def test_a_model_may_take_the_whole_budget(tmp_path: Path) -> None:
    add_model(tmp_path, "a")
    needed = read_model(tmp_path / "a", settings_of(tmp_path)).num_bytes
    fits, too_small = (
        settings_of(tmp_path).model_copy(update={"model_memory": budget, "preload": ("a",)})
        for budget in (needed, needed - 1)
    )
    assert [model.name for model in preloaded(read_models(fits), fits)] == ["a"]
    with pytest.raises(SettingsError, match=f"the model a needs about {needed} bytes"):
        read_models(too_small)


def test_a_model_that_is_named_twice_is_loaded_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        add_model(tmp_path, name)
    known = read_models(settings_of(tmp_path))
    budget = sum(model.num_bytes for model in known)
    settings = settings_of(tmp_path).model_copy(update={"model_memory": budget, "preload": ("b", "a", "b")})
    assert [model.name for model in preloaded(known, settings)] == ["b", "a"]
