"""Loads runners, and implements the Runner over ONNX Runtime's own CPU operators.

Cache pools, inputs and outputs stay in fixed memory, so a step of a known shape binds no memory again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import onnxruntime

from app.errors import BundleError, SettingsError
from app.graphs import GraphPair, KernelChoice, Precision, Variant
from app.runtime import native
from app.runtime.device import Device, choose_precision
from app.runtime.first_subword import num_to_rank, without_first_end
from app.runtime.interface import Floats, Int32s, Limits, StepInput, StepOutput
from app.runtime.kernels import Kernels, choose_kernels
from app.runtime.kv_cache import HostPool, pool_shape
from app.runtime.mapped_files import release_pages
from app.runtime.native_runner import NativeRunner
from app.runtime.prefill import prefill_step
from app.runtime.recurrent_state import STATE, RecurrentState
from app.runtime.session import Session, SessionOptions, choose_device, memory_failures
from app.runtime.source_batches import source_batches
from app.shortlist_file import SHORTLIST, ShortlistError, read_shortlists

if TYPE_CHECKING:
    from app.bundle import Bundle
    from app.runtime.cuda_runner import CudaRunner

logger = logging.getLogger(__name__)

# The maximum number of step shapes whose bindings are kept. If smaller, bindings are made again, which takes a fraction
# of a millisecond each. If larger, the results of each shape take memory.
MAX_BINDINGS = 256


def load_runner(
    bundle: Bundle,
    *,
    precision: Precision | Literal["auto"],
    device: Literal["auto", "cpu", "cuda"],
    num_rows: int,
    num_threads: int,
    kernels: KernelChoice = "auto",
) -> LoadedRunner:
    """Load one variant of a bundle, without its shortlist, with a cache of `num_rows` rows.

    num_threads: threads of one operator on the CPU. kernels: operators on a CPU; `auto` is native if possible. Raises
    BundleError for a missing variant and for graphs that do not load or differ from the manifest, SettingsError for an
    unavailable device or kernels. For caches that do not fit in memory, raises SettingsError on a CPU, and BundleError
    on a GPU.
    """
    chosen = choose_device(device)
    name = choose_precision(bundle, chosen, precision)
    # Imported here, because it imports Pydantic for the manifest, and callers of `load_variant` do not need that.
    from app.runtime.bundle_limits import limits_of

    config = RunnerConfig(name, bundle.manifest.variants[name], limits_of(bundle.manifest, num_rows))
    return load_variant(bundle.path, config, device=chosen, kernels=kernels, num_threads=num_threads)


@dataclass(frozen=True)
class RunnerConfig:
    """The variant of a bundle to load, and the runner's limits.

    starts_threads: False in a process that will fork. The native kernels' threads are then started after the fork.
    has_shortlist: whether native kernels load the bundle's shortlist.
    """

    precision: Precision
    variant: Variant
    limits: Limits
    starts_threads: bool = True
    has_shortlist: bool = False


def load_variant(
    folder: Path,
    config: RunnerConfig,
    *,
    device: Device,
    kernels: KernelChoice,
    num_threads: int,
) -> LoadedRunner:
    """As `load_runner`, from the folder of a checked bundle on a chosen device, with the shortlist if requested.

    Also raises BundleError for a shortlist that cannot be read.
    """
    variant, limits = config.variant, config.limits
    if device == "cuda":
        from app.runtime.cuda_runner import load_cuda_runner

        return load_cuda_runner(folder, variant, limits=limits)
    chosen: Kernels = choose_kernels(variant, kernels)
    options = SessionOptions(device=device, num_threads=num_threads)
    graphs: GraphPair = variant
    if chosen == "native" and variant.native is not None:
        if config.starts_threads:
            native.set_num_threads(num_threads)
        # The kernels use their own threads, not ONNX Runtime's.
        options, graphs = (
            SessionOptions(device, num_threads=1, operators=native.library_path()),
            variant.native,
        )
    sessions = Session(folder, graphs.encoder, options), Session(folder, graphs.decoder, options)
    if chosen == "native":
        release_pages(folder)  # the kernels have copied the weights of products
    try:
        tables = read_shortlists(folder / SHORTLIST) if chosen == "native" and config.has_shortlist else ()
    except (ShortlistError, OSError) as error:  # the file has changed since it was checked
        raise BundleError(folder.name, [f"{SHORTLIST} cannot be used: {error}"]) from error
    try:
        runner: NativeRunner | OrtRunner
        if chosen == "native":
            runner = NativeRunner(*sessions, limits=limits, shortlists=tables)
        else:
            runner = OrtRunner(*sessions, limits=limits)
    except (MemoryError, OverflowError, OSError) as error:
        problem = f"there is no memory for the caches of {limits.num_rows} rows: lower TRANSDUCE_NUM_ROWS"
        raise SettingsError([problem]) from error
    name = f"native {native.used_target()}" if chosen == "native" else chosen
    logger.info(
        "%s on %s with %s kernels, %d threads; each worker has caches of %d rows, up to %.0f MB",
        *(config.precision, device, name, num_threads, limits.num_rows, runner.cache_bytes / 1e6),
    )
    return runner


class StepShape(NamedTuple):
    """The shape that all steps of one binding share. extra: names of the requested optional outputs."""

    num_rows: int
    num_candidates: int
    extra: tuple[str, ...]


@dataclass(frozen=True)
class StepBinding:
    """The bound inputs and outputs of steps of one shape.

    ids, positions, last_source_positions: OrtValues (rows,) on the decoder's device, updated for every step.
    output: views of the result arrays.
    """

    io_binding: Any
    output: StepOutput
    ids: Any
    positions: Any
    last_source_positions: Any


class OrtRunner:
    """One model on the CPU, with ONNX Runtime's own operators. Called from one thread only.

    cache_bytes: size of the self-attention and cross-attention caches, allocated page by page as rows are first used. A
    decoder of SSRUs has a recurrent state instead of the self-attention cache.
    """

    def __init__(self, encoder: Session, decoder: Session, *, limits: Limits) -> None:
        """Make the caches of two loaded graphs, with `limits.num_rows` rows."""
        self._encoder = encoder
        self._decoder = decoder
        self._limits = limits
        specs = {spec.name: spec for spec in decoder.spec.inputs}
        self._num_layers = sum(name.startswith("cross_key_") for name in specs)
        shape = pool_shape(specs["cross_key_0"], num_layers=self._num_layers, num_rows=limits.num_rows)
        self._cross_pool = HostPool(shape)
        self._state: RecurrentState | None = None
        self._self_pool: HostPool | None = None
        if STATE in specs:
            self._state = RecurrentState(decoder.spec, limits.num_rows)
            own_bytes = self._state.num_bytes
        else:
            own_shape = pool_shape(specs["self_key_0"], num_layers=self._num_layers, num_rows=limits.num_rows)
            self._self_pool, own_bytes = HostPool(own_shape), own_shape.num_bytes
        self.cache_bytes = shape.num_bytes + own_bytes
        self._source_positions = np.arange(limits.max_source_length, dtype=np.int32)
        self._last_source_positions = np.zeros(limits.num_rows, np.int32)
        self._bindings: OrderedDict[StepShape, StepBinding] = OrderedDict()
        self._extra: dict[str, Floats] = {}

    @property
    def limits(self) -> Limits:
        """What this runner can hold."""
        return self._limits

    @property
    def num_bindings(self) -> int:
        """Number of step shapes whose bindings are kept, at most MAX_BINDINGS."""
        return len(self._bindings)

    @memory_failures()
    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """As `Runner.encode`. Only sentences of equal length run together, so there is no padding."""
        takes_lengths = self._encoder.spec.has_input("lengths")
        for batch in source_batches(sources, max_padding=0):
            binding = self._encoder.binding()
            binding.bind_cpu_input("ids", batch.ids)
            binding.bind_cpu_input("positions", self._source_positions[: batch.ids.shape[1]])
            if takes_lengths:
                binding.bind_cpu_input("lengths", batch.lengths)
            binding.bind_output("cross_cache", self._encoder.device)
            self._encoder.run(binding)
            targets = [rows[index] for index in batch.indices]
            self._cross_pool.write(binding.get_outputs()[0], targets, batch.lengths)
            self._last_source_positions[targets] = batch.lengths - 1
        if rows and self._limits.prefill_id is not None:
            self._run(prefill_step(rows, max(rows) + 1, self._limits))

    @memory_failures()
    def decode(self, step: StepInput) -> StepOutput:
        """As `Runner.decode`. The next step may overwrite the arrays.

        NaN and infinite scores are returned unchanged. The engine fails the sentences of such rows.
        """
        wanted: tuple[str, ...] = ("log_probabilities",) if step.wants_distributions else ()
        if step.wants_alignment:
            wanted = (*wanted, "alignment")
        output = self._run(step, *wanted).output
        log_probabilities, ids = without_first_end(output.log_probabilities, output.ids, step, self._limits)
        return replace(output, log_probabilities=log_probabilities, ids=ids)

    @memory_failures()
    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """As `Runner.copy_rows`."""
        self._copy_own(sources, targets, lengths)
        self._cross_pool.copy(sources, targets, self._last_source_positions[sources] + 1)
        self._last_source_positions[targets] = self._last_source_positions[sources]

    @memory_failures()
    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """As `Runner.reorder`."""
        self._copy_own(sources, targets, lengths)

    def _copy_own(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """Copy the columns of the self-attention cache, or the recurrent state."""
        if self._state is not None:
            self._state.copy(sources, targets)
        if self._self_pool is not None:
            self._self_pool.copy(sources, targets, lengths + self._limits.num_prefilled)

    def share_cores(self, num_sharing: int) -> None:
        """No effect: the number of ONNX Runtime's threads is fixed when a session is made."""

    def _run(self, step: StepInput, *extra: str) -> StepBinding:
        """Run a step and return the binding that holds its results. Raises EngineFailure."""
        num_rows = len(step.ids)
        binding = self._binding(StepShape(num_rows, num_to_rank(step, self._limits), extra))
        binding.ids.update_inplace(step.ids)
        binding.positions.update_inplace(step.positions + np.int32(self._limits.num_prefilled))
        binding.last_source_positions.update_inplace(self._last_source_positions[:num_rows])
        self._decoder.run(binding.io_binding)
        return binding

    def _binding(self, shape: StepShape) -> StepBinding:
        """The binding of a step shape, made if absent. At MAX_BINDINGS the least recently used one is dropped."""
        binding = self._bindings.pop(shape, None)
        if binding is None:
            if len(self._bindings) == MAX_BINDINGS:
                self._bindings.popitem(last=False)
            binding = self._make_binding(shape)
        self._bindings[shape] = binding
        return binding

    def _make_binding(self, shape: StepShape) -> StepBinding:
        """Bind the inputs, caches and results of steps of one shape."""
        num_rows, num_candidates, extra = shape
        io_binding, device = self._decoder.binding(), self._decoder.device
        inputs = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(num_rows, np.int32), device)
            for name in ("ids", "positions", "last_source_positions")
        }
        for name, value in inputs.items():
            io_binding.bind_ortvalue_input(name, value)
        io_binding.bind_cpu_input("num_candidates", np.array([num_candidates], np.int64))
        if self._limits.has_alignment:
            num_aligned = num_rows if "alignment" in extra else 0
            io_binding.bind_cpu_input("num_aligned", np.array([num_aligned], np.int64))
        top_log_probabilities = np.zeros((num_rows, num_candidates), np.float32)
        top_ids = np.zeros((num_rows, num_candidates), np.int64)
        extras = {name: self._extra_output(name)[:num_rows] for name in extra}
        results = {"top_log_probabilities": top_log_probabilities, "top_ids": top_ids, **extras}
        for name, array in results.items():
            io_binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
        if self._state is not None:
            self._state.bind_input(io_binding, num_rows)
            self._state.bind_output(io_binding, num_rows)
        for layer in range(self._num_layers):
            for plane, kind in ((2 * layer, "key"), (2 * layer + 1, "value")):
                if self._self_pool is not None:
                    self._self_pool.bind(io_binding, f"self_{kind}_{layer}", plane=plane, num_rows=num_rows)
                self._cross_pool.bind(io_binding, f"cross_{kind}_{layer}", plane=plane, num_rows=num_rows)
        distributions, alignment = extras.get("log_probabilities"), extras.get("alignment")
        output = StepOutput(top_log_probabilities, top_ids, distributions, alignment)
        return StepBinding(io_binding, output, **inputs)

    def _extra_output(self, name: str) -> Floats:
        """The array of an optional output, (num_rows, columns), allocated for the first step that wants it."""
        if name not in self._extra:
            spec = next(spec for spec in self._decoder.spec.outputs if spec.name == name)
            self._extra[name] = np.zeros((self._limits.num_rows, int(spec.axes[1])), np.float32)
        return self._extra[name]


# A bundle's model, ready to run.
LoadedRunner: TypeAlias = "OrtRunner | NativeRunner | CudaRunner"
