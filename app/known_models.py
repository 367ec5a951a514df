"""What the server knows of its models before it loads them: their manifests, and an estimate of their memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app.bundle import Manifest, read_manifest
from app.bundle_folders import find_bundles
from app.errors import SettingsError
from app.graphs import Precision
from app.runtime.device import Device
from app.settings import PREFIX, Settings
from app.startup import check_names, find_device, model_spec
from app.workers.model_spec import ModelSpec

# Constants of the estimate, from measurements of PSS with the bundled model. If larger, fewer models fit in the budget
# than memory allows. If smaller, the server takes more memory than its budget.
# Memory of one copy of the weights on a CPU and on a GPU, as a multiple of the files' size. A CPU computes with fp16
# weights in 32 bits.
WEIGHTS_FACTOR: dict[Precision, float] = {"int8": 1.6, "fp32": 1.6, "fp16": 3.2}
GPU_WEIGHTS_FACTOR = 1.6
# Bytes of a worker without weights and caches, if it is a thread and if it is a process.
THREAD_BYTES, PROCESS_BYTES = 4_000_000, 26_000_000
# Bytes of a model's tokenizers.
TEXT_BYTES = 6_000_000
# The share of the key-value caches on a CPU that is written to when all rows have sentences of ordinary length.
CACHE_SHARE = 1 / 8
# Bytes of a number in these caches, as in fp32. The estimate counts 4 for every variant on a CPU, although a number has
# 2 in fp16, and in int8 with native kernels.
CACHE_ITEM_BYTES = 4


@dataclass(frozen=True)
class KnownModel:
    """A bundle whose manifest is read. spec: how to load its model. num_bytes: estimated memory of the loaded model."""

    path: Path
    manifest: Manifest
    spec: ModelSpec
    num_bytes: int

    @property
    def name(self) -> str:
        """The model's name."""
        return self.manifest.name


def read_models(settings: Settings) -> list[KnownModel]:
    """Read the manifests of all bundles that the settings name, without loading a model.

    Raises BundleError. Raises SettingsError if there is no bundle, if a required GPU is missing, and for a model
    that is larger than the memory budget.
    """
    paths = find_bundles(settings)
    device = find_device(settings)
    known = [read_model(path, settings, device) for path in paths]
    check_names(paths, [model.manifest for model in known])
    return known


def read_model(path: Path, settings: Settings, device: Device | None = None) -> KnownModel:
    """Read one manifest. device: None to choose it by the settings. Raises BundleError and SettingsError."""
    manifest = read_manifest(path)
    spec = model_spec(path, manifest, device or find_device(settings), settings)
    num_bytes = estimated_bytes(manifest, spec)
    budget = settings.model_memory
    if budget is not None and num_bytes > budget:
        raise SettingsError([_too_large([manifest.name], num_bytes, budget)])
    return KnownModel(path, manifest, spec, num_bytes)


def preloaded(known: Sequence[KnownModel], settings: Settings) -> list[KnownModel]:
    """The models to load at the start: those that the settings name, or else the first one.

    Raises SettingsError for a name that is neither a model's nor a folder's, and if the models exceed the budget.
    """
    chosen = []
    for name in settings.preload:
        matching = [model for model in known if name in (model.name, model.path.name)]
        if not matching:
            names = ", ".join(model.name for model in known)
            raise SettingsError([f"{PREFIX}PRELOAD: there is no model or folder {name}; there are: {names}"])
        chosen += [model for model in matching if model not in chosen]
    num_bytes = sum(model.num_bytes for model in chosen)
    if settings.model_memory is not None and num_bytes > settings.model_memory:
        raise SettingsError([_too_large([model.name for model in chosen], num_bytes, settings.model_memory)])
    return chosen or [*known[:1]]


def estimated_bytes(manifest: Manifest, spec: ModelSpec) -> int:
    """The memory of a loaded model with all its workers at ordinary load, in bytes."""
    folders = {PurePosixPath(graph.file).parent for graph in (spec.variant.encoder, spec.variant.decoder)}
    file_bytes = sum(
        entry.size for name, entry in manifest.files.items() if PurePosixPath(name).parent in folders
    )
    # Workers that are forked after the load share the weights. Other workers load their own.
    num_copies = 1 if spec.is_native else spec.num_workers
    factor = GPU_WEIGHTS_FACTOR if spec.device == "cuda" else WEIGHTS_FACTOR[spec.precision]
    worker_bytes = PROCESS_BYTES if spec.num_workers > 1 else THREAD_BYTES
    cache_bytes = _gpu_cache_bytes(spec) if spec.device == "cuda" else _cpu_cache_bytes(manifest, spec)
    return int(
        TEXT_BYTES + num_copies * factor * file_bytes + spec.num_workers * (worker_bytes + cache_bytes)
    )


def _cpu_cache_bytes(manifest: Manifest, spec: ModelSpec) -> float:
    """The bytes of its caches that a worker writes to at ordinary load."""
    limits, dimensions = spec.limits, manifest.dimensions
    # The state of a decoder of SSRUs is as small as one column.
    own_length = 1 if dimensions.decoder == "ssru" else limits.max_target_length
    length = limits.max_source_length + own_length
    row_bytes = 2 * dimensions.num_decoder_layers * dimensions.d_model * length * CACHE_ITEM_BYTES
    return CACHE_SHARE * limits.num_rows * row_bytes


def _gpu_cache_bytes(spec: ModelSpec) -> int:
    """The bytes that a worker's `CudaRunner` allocates when it loads the model.

    These are the pools of the self-attention and of the cross-attention cache, and staging memory as large as the
    larger pool. The graph's axes are not checked yet. An axis with a name is taken to be the number of rows.
    """
    own, cross = (
        sum(
            math.prod(axis for axis in tensor.axes if isinstance(axis, int))
            * (2 if tensor.dtype == "float16" else 4)
            for tensor in spec.variant.decoder.inputs
            if tensor.name.startswith(prefix)
        )
        for prefix in ("self_", "cross_")
    )
    return spec.limits.num_rows * (own + cross + max(own, cross))


def _too_large(names: Sequence[str], num_bytes: int, budget: int) -> str:
    what = f"the model {names[0]} needs" if len(names) == 1 else f"{', '.join(names)} together need"
    return f"{what} about {num_bytes} bytes, and {PREFIX}MODEL_MEMORY is {budget}: raise it" + (
        f", or name fewer in {PREFIX}PRELOAD" if len(names) > 1 else ""
    )
