"""The Runner on a GPU. Caches and bound memory are on the device.

The parts outside CUDA are tested on the CPU (docs/gpu.md).

Steps of one shape without optional outputs share a CUDA graph. A graph records addresses and shapes, so both must be
fixed. The numbers of rows and of candidates are therefore padded to buckets. Padding rows are the cache rows after the
step's last one, at column 0. A runner may write to such rows, and their results are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from app.errors import BundleError, EngineFailure
from app.graphs import GraphSpec, Variant
from app.runtime.beams import BeamOutcome
from app.runtime.cuda_attention import attention_library
from app.runtime.cuda_beams import BeamSteps, states_of, with_beam_inputs
from app.runtime.cuda_choice import SWITCHES, Switch, choose_switches, switched
from app.runtime.cuda_copies import KernelCopier, make_copier
from app.runtime.cuda_greedy import GreedySteps
from app.runtime.cuda_kernels import Kernels, load_kernels
from app.runtime.cuda_memory import Cuda
from app.runtime.cuda_pool import CudaPool
from app.runtime.cuda_step import BoundStep, Result, StepInputs, StepShape
from app.runtime.cuda_threads import WHOLE_DEVICE, free_attributes
from app.runtime.first_subword import num_to_rank, without_first_end
from app.runtime.interface import Int32s, Limits, StepInput, StepOutput
from app.runtime.kv_cache import pool_shape
from app.runtime.prefill import prefill_step
from app.runtime.recurrent_state import STATE
from app.runtime.session import Session, SessionOptions
from app.runtime.source_batches import SourceBatch, source_batches

logger = logging.getLogger(__name__)

# The graph id of a run that is neither captured nor replayed.
EAGER = -1
# Allowed attention kernels of ONNX Runtime, as bits: flash 1, memory-efficient 2, plain 16, decoding 512. cuDNN's
# kernel, ONNX Runtime's first choice on Hopper, is not allowed: it is compiled for every shape, and the encoder's shape
# changes with every call.
ATTENTION = 1 + 2 + 16 + 512

# The maximum number of padding ids in one call of the encoder. If larger, padding takes longer than another call
# would. If smaller, there are more calls. A call takes about 80 launches, and in their time an H100 encodes about 1,024
# subwords (estimated for the base size).
MAX_PADDING = 1024
# The maximum number of decoder steps in one call. If smaller, a sentence takes more calls. If larger, the results take
# more memory.
MAX_STEPS = 64


def load_cuda_runner(
    folder: Path,
    variant: Variant,
    *,
    limits: Limits,
    has_graphs: bool = True,
    switches: Sequence[Switch] = SWITCHES,
) -> CudaRunner:
    """Load one variant on GPU 0.

    has_graphs: whether steps are captured as CUDA graphs. switches: ways to compute a step. With has_graphs they are
    measured and the faster ones used, else all are used. The project's attention is not used without its kernel. Raises
    BundleError for graphs that do not load or would run a node on the CPU, for steps that fail, for a decoder of SSRUs,
    if the caches do not fit, and if a library of CUDA is missing.
    """
    if variant.decoder.has_input(STATE):
        problem = "its decoder of SSRUs runs on a CPU only: set TRANSDUCE_DEVICE=cpu"
        raise BundleError(folder.name, [problem])
    try:
        cuda = Cuda()
        common = (("user_compute_stream", str(cuda.stream)), ("sdpa_kernel", str(ATTENTION)))
        captured = (("enable_cuda_graph", "1"),) if has_graphs else ()
        options = SessionOptions("cuda", num_threads=1, provider=common)
        encoder = _load(folder, variant.encoder, options)
        kernels = load_kernels(cuda)
        operators = attention_library(variant, kernels)

        def load_decoder(chosen: Sequence[Switch]) -> Session:
            """The decoder with these switches."""
            with_graphs = replace(options, provider=(*common, *captured))
            if variant.gpu_decoder and any(switch.has_own_attention for switch in chosen):
                own = switched(replace(with_graphs, operators=operators), chosen)
                return _load(folder, variant.gpu_decoder, own)
            return _load(folder, variant.decoder, switched(with_graphs, chosen))

        usable = [switch for switch in switches if operators or not switch.has_own_attention]
        runner = CudaRunner(
            encoder,
            load_decoder(() if has_graphs else usable),
            limits=limits,
            cuda=cuda,
            kernels=kernels,
            has_graphs=has_graphs,
        )
        if has_graphs and usable:
            choose_switches(runner, load_decoder, switches=usable)
        free, total = cuda.free_and_total_bytes()
    except (EngineFailure, OSError) as error:
        raise BundleError(folder.name, [f"it does not load on the GPU: {error}"]) from error
    logger.info(
        "encoder, decoder and caches on GPU 0 (compute capability %d.%d), CUDA graphs %s, rows in buckets of %s; "
        "calls of up to %d steps; tokenising, other searches and scheduling on the CPU; %.0f of %.0f MB of the GPU are "
        "free",
        *cuda.compute_capability(),
        "on" if has_graphs else "off",
        ", ".join(map(str, buckets(limits.num_rows))),
        runner.limits.max_steps,
        free / 1e6,
        total / 1e6,
    )
    return runner


class GpuSession(Session):
    """A session on the GPU. `free_attributes` frees it while no other thread captures a CUDA graph.

    This also holds for a session that is freed because a later part of the load has failed.
    """

    def __del__(self) -> None:
        """Free the session."""
        free_attributes(self)


def _load(folder: Path, spec: GraphSpec, options: SessionOptions) -> Session:
    """A session on the GPU. Raises BundleError."""
    with WHOLE_DEVICE:
        return GpuSession(folder, spec, options)


def bucket_of(number: int, largest: int) -> int:
    """The least power of two that is at least `number`, but at most `largest`. Requires number <= largest."""
    return min(1 << (number - 1).bit_length(), largest)


def buckets(largest: int) -> list[int]:
    """All values of `bucket_of`, ascending."""
    return sorted({bucket_of(number, largest) for number in range(1, largest + 1)})


class CudaRunner:
    """One model on GPU 0. Called from one thread only, because a CUDA graph belongs to the thread that captured it."""

    def __init__(
        self,
        encoder: Session,
        decoder: Session,
        *,
        limits: Limits,
        cuda: Cuda,
        kernels: Kernels | None,
        has_graphs: bool,
    ) -> None:
        """Allocate all memory of two loaded graphs, except the memory of the results. Raises EngineFailure.

        kernels: None if they cannot be compiled. Each call then takes one step.
        """
        self._encoder, self._decoder, self._cuda = encoder, decoder, cuda
        max_steps = min(MAX_STEPS, limits.max_target_length) if kernels else 1
        self._limits = limits = replace(limits, max_steps=max_steps)
        self._has_graphs = has_graphs
        specs = {spec.name: spec for spec in decoder.spec.inputs}
        self._num_layers = sum(name.startswith("self_key_") for name in specs)
        shapes = [
            pool_shape(specs[name], num_layers=self._num_layers, num_rows=limits.num_rows)
            for name in ("self_key_0", "cross_key_0")
        ]
        itemsize = np.dtype(shapes[0].dtype).itemsize
        copier = make_copier(cuda, kernels, shapes[0].head_dim * itemsize)
        staging = cuda.allocate(max(shape.num_bytes for shape in shapes))
        self._self_pool, self._cross_pool = (
            CudaPool(shape, cuda, copier, staging=staging) for shape in shapes
        )
        self._last_source_positions = np.zeros(limits.num_rows, np.int32)
        self._inputs = StepInputs(cuda, limits.num_rows)
        self._greedy = GreedySteps(cuda, kernels, self._inputs, limits=limits) if kernels else None
        self._beams: BeamSteps | None = None
        if kernels and isinstance(copier, KernelCopier):
            self._limits = limits = replace(limits, advances_beams=True)
            self._beams = BeamSteps(cuda, kernels, self._inputs, self._self_pool, limits=limits)
        self._source_positions = self._resident(np.arange(limits.max_source_length, dtype=np.int32))
        # For each set of outputs, at most one entry for each pair of a bucket of rows and a bucket of candidates.
        self._steps: dict[StepShape, BoundStep] = {}
        self._shapes_run: set[StepShape] = set()
        self._extra: dict[str, Result] = {}
        self._run_options = _run_options(EAGER)
        cuda.wait()

    def __del__(self) -> None:
        """Free the sessions and all memory."""
        free_attributes(self)

    def _resident(self, values: Int32s) -> int:
        """The device address of a permanent copy of values."""
        memory, address = self._cuda.allocate_host(values.nbytes), self._cuda.allocate(values.nbytes)
        memory[:] = values.view(np.uint8)
        self._cuda.copy_in(address, memory, values.nbytes)
        return address

    @property
    def limits(self) -> Limits:
        """What this runner can hold."""
        return self._limits

    def use_decoder(self, decoder: Session) -> None:
        """Compute all later steps with this new session, whose graph has the same inputs and outputs.

        Each shape is captured anew.
        """
        with WHOLE_DEVICE:  # frees the earlier session
            self._decoder = decoder
            self._steps.clear()
        self._shapes_run.clear()

    def encode(self, sources: Sequence[Int32s], rows: Sequence[int]) -> None:
        """As `Runner.encode`. Sentences of several lengths run together if the graph takes their lengths."""
        takes_lengths = self._encoder.spec.has_input("lengths")
        for batch in source_batches(sources, max_padding=MAX_PADDING if takes_lengths else 0):
            binding = self._bind_sources(batch, takes_lengths=takes_lengths)
            self._encoder.run(binding, self._run_options)
            targets = [rows[index] for index in batch.indices]
            self._cross_pool.write(binding.get_outputs()[0], targets, batch.lengths)
            self._last_source_positions[targets] = batch.lengths - 1
        if rows and self._limits.prefill_id is not None:
            # The step has all rows, because a row of padding would overwrite column 0 of a running sequence, which is
            # the prefilled one.
            self._run(prefill_step(rows, self._limits.num_rows, self._limits))

    def _bind_sources(self, batch: SourceBatch, *, takes_lengths: bool) -> Any:
        """The encoder's inputs, uploaded and bound, and its output."""
        binding, device = self._encoder.binding(), self._cuda.device
        num_sentences, longest = batch.ids.shape
        ids, lengths = self._cuda.upload(batch.ids, batch.lengths)
        binding.bind_input("ids", device, 0, np.int32, [num_sentences, longest], ids)
        binding.bind_input("positions", device, 0, np.int32, [longest], self._source_positions)
        if takes_lengths:
            binding.bind_input("lengths", device, 0, np.int64, [num_sentences], lengths)
        binding.bind_output("cross_cache", device)
        return binding

    def decode(self, step: StepInput) -> StepOutput:
        """As `Runner.decode`. The next call overwrites the arrays."""
        if step.beams:
            return self._decode_beams(step)
        if step.num_steps > 1:
            assert self._greedy is not None
            bound = self._enqueue_inputs(step)
            return self._greedy.run(step, bound, lambda: self._run_decoder(bound))
        return self._output(step, self._run(step, *_extra(step)))

    def _decode_beams(self, step: StepInput) -> StepOutput:
        """Run a call with beams. An undecided beam's rows have the candidates of the step that it has not taken."""
        assert self._beams is not None
        states = states_of(step.beams)
        step = with_beam_inputs(step, states)
        bound = self._enqueue_inputs(step, *_extra(step))
        num_steps = self._beams.enqueue(step, states, bound, lambda: self._run_decoder(bound))
        found = self._results(bound, step)
        outcomes = self._beams.apply(step.beams, num_steps, found.get("alignment"))
        # Only undecided beams have candidates that the host reads, so the last step's input has only their ids.
        undecided = [
            beam
            for beam, outcome in zip(step.beams, outcomes, strict=True)
            if outcome == BeamOutcome.UNDECIDED
        ]
        last = with_beam_inputs(step, states_of(undecided))
        return replace(self._output(last, found), num_steps=num_steps, outcomes=outcomes)

    def _output(self, step: StepInput, found: dict[str, Any]) -> StepOutput:
        """The output of a call. found: the last step's results by name. step: the last step's ids and positions."""
        return StepOutput(
            *without_first_end(found["top_log_probabilities"], found["top_ids"], step, self._limits),
            found.get("log_probabilities"),
            found.get("alignment"),
        )

    def copy_rows(self, sources: Int32s, targets: Int32s, lengths: Int32s) -> None:
        """As `Runner.copy_rows`."""
        self._self_pool.copy(sources, targets, lengths + self._limits.num_prefilled)
        self._cross_pool.copy(sources, targets, self._last_source_positions[sources] + 1)
        self._last_source_positions[targets] = self._last_source_positions[sources]

    def share_cores(self, num_sharing: int) -> None:
        """No effect: the graphs run on the GPU."""

    def reorder(self, sources: Int32s, targets: Int32s, lengths: Int32s, shared: Int32s) -> None:
        """As `Runner.reorder`."""
        self._self_pool.copy(sources, targets, lengths + self._limits.num_prefilled)

    def _run(self, step: StepInput, *extra: str) -> dict[str, Any]:
        """Run a step. Returns its results by name, without padding. Raises EngineFailure.

        A step that runs twice writes the same values to the same columns, so capturing a graph may run it repeatedly.
        """
        bound = self._enqueue_inputs(step, *extra)
        self._run_decoder(bound)
        return self._results(bound, step)

    def _results(self, bound: BoundStep, step: StepInput) -> dict[str, Any]:
        """Wait for all enqueued steps. Returns the results of the last one by name, without padding."""
        for result in bound.results.values():
            self._cuda.copy_out(result.memory, result.address, result.values.nbytes)
        self._cuda.wait()
        found = {name: result.values[: len(step.ids)] for name, result in bound.results.items()}
        for name in ("top_log_probabilities", "top_ids"):
            found[name] = found[name][:, : num_to_rank(step, self._limits)]
        return found

    def _enqueue_inputs(self, step: StepInput, *extra: str) -> BoundStep:
        """Enqueue the copy of a call's inputs. Returns the binding of its shape, made if absent."""
        shape = StepShape(
            bucket_of(len(step.ids), self._limits.num_rows),
            bucket_of(num_to_rank(step, self._limits), self._limits.vocab_size),
            extra,
        )
        if shape not in self._steps:
            self._steps[shape] = self._make_step(shape)
        self._inputs.enqueue(
            step,
            self._last_source_positions,
            first=self._limits.num_prefilled,
            num_padded=shape.num_rows,
        )
        return self._steps[shape]

    def _run_decoder(self, bound: BoundStep) -> None:
        if bound.shape in self._shapes_run:
            self._decoder.run(bound.binding, bound.run_options)
            return
        # Captures the graph. ONNX Runtime's tuned products also capture one, if the step itself is not captured.
        with WHOLE_DEVICE:
            self._decoder.run(bound.binding, bound.run_options)
        self._shapes_run.add(bound.shape)

    def _make_step(self, shape: StepShape) -> BoundStep:
        """Bind the inputs, caches and results of steps of one shape."""
        num_rows, num_candidates, extra = shape
        binding, device = self._decoder.binding(), self._cuda.device
        for name in ("ids", "positions", "last_source_positions"):
            binding.bind_input(name, device, 0, np.int32, [num_rows], self._inputs.addresses[name])
        binding.bind_cpu_input("num_candidates", np.array([num_candidates], np.int64))
        if self._limits.has_alignment:
            num_aligned = num_rows if "alignment" in extra else 0
            binding.bind_cpu_input("num_aligned", np.array([num_aligned], np.int64))
        results = {
            "top_log_probabilities": self._make_result(num_rows, num_candidates, np.float32),
            "top_ids": self._make_result(num_rows, num_candidates, np.int64),
            **{name: self._extra_result(name, num_rows) for name in extra},
        }
        for name, result in results.items():
            values = result.values
            binding.bind_output(name, device, 0, values.dtype.type, list(values.shape), result.address)
        for layer in range(self._num_layers):
            for plane, kind in ((2 * layer, "key"), (2 * layer + 1, "value")):
                self._self_pool.bind(binding, f"self_{kind}_{layer}", plane=plane, num_rows=num_rows)
                self._cross_pool.bind(binding, f"cross_{kind}_{layer}", plane=plane, num_rows=num_rows)
        graph = len(self._steps) + 1 if self._has_graphs and not extra else EAGER
        return BoundStep(shape, binding, _run_options(graph), results)

    def _make_result(self, num_rows: int, num_columns: int, dtype: type[np.float32 | np.int64]) -> Result:
        num_bytes = num_rows * num_columns * np.dtype(dtype).itemsize
        memory = self._cuda.allocate_host(num_bytes)
        values = memory.view(dtype).reshape(num_rows, num_columns)
        return Result(self._cuda.allocate(num_bytes), memory, values)

    def _extra_result(self, name: str, num_rows: int) -> Result:
        """The memory of an optional output, allocated for all rows when a step first wants it."""
        if name not in self._extra:
            spec = next(spec for spec in self._decoder.spec.outputs if spec.name == name)
            self._extra[name] = self._make_result(self._limits.num_rows, int(spec.axes[1]), np.float32)
        whole = self._extra[name]
        return Result(whole.address, whole.memory, whole.values[:num_rows])


def _extra(step: StepInput) -> tuple[str, ...]:
    """The names of the optional outputs that a step requests."""
    wanted = (("log_probabilities", step.wants_distributions), ("alignment", step.wants_alignment))
    return tuple(name for name, is_wanted in wanted if is_wanted)


def _run_options(graph: int) -> Any:
    """Options of a run of one CUDA graph, or with EAGER of no graph. The runner itself waits for the stream."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph))
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options
