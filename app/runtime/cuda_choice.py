"""Chooses at start how ONNX Runtime computes decoder steps on the GPU at hand, by measuring each way.

Which kernels are faster depends on the GPU, on the model's sizes and on the number of rows. Each way rounds
differently, so a near tie between two subwords may be decided differently.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from app.errors import EngineFailure
from app.runtime.interface import Floats, Int32s, Limits, Runner, StepInput
from app.runtime.session import Session, SessionOptions

logger = logging.getLogger(__name__)

# Seconds of all measurements, without the sessions' loading. If smaller, chance decides. If larger, the server starts
# later.
BUDGET_S = 0.5
# Steps before a measurement. The first one captures a CUDA graph.
NUM_WARM_UP = 3
# A switch is chosen if its steps take at most this share of the time of the steps without it.
MAX_SHARE = 0.97
# Steps of 1 row, of this many (a usual load) and of all rows are measured.
MIDDLE_ROWS = 64
# The mean number of subwords of a source.
SOURCE_LENGTH = 32
# Steps whose results are compared.
NUM_COMPARED = 8
# How far apart a log-probability may be with a switch and without: rounding changes it by some 0.03 (docs/gpu.md). If
# smaller, rounding excludes a switch. If larger, a kernel with wrong results can be chosen.
MAX_DIFFERENCE = 0.2


@dataclass(frozen=True)
class Switch:
    """One way to compute steps that differs from ONNX Runtime's default.

    name: for the log. environment, disabled_optimizers, config: as in `app.runtime.session.SessionOptions`.
    has_own_attention: whether the decoder is the variant's `gpu_decoder`.
    """

    name: str
    environment: tuple[tuple[str, str], ...] = ()
    disabled_optimizers: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    has_own_attention: bool = False


OWN_ATTENTION = Switch("the project's attention kernel", has_own_attention=True)
SWITCHES = (
    Switch("flash decoding for self-attention instead of XQA", environment=(("ORT_ENABLE_XQA", "0"),)),
    Switch("biases added after products", disabled_optimizers=("MatMulAddFusion",)),
    Switch("tuned products", config=(("ep.cuda.enable_gemm_auto_tune", "1"),)),
    OWN_ATTENTION,
)


def switched(options: SessionOptions, switches: Sequence[Switch]) -> SessionOptions:
    """The options of a session with these switches."""
    return replace(
        options,
        environment=tuple(each for switch in switches for each in switch.environment),
        disabled_optimizers=tuple(each for switch in switches for each in switch.disabled_optimizers),
        config=tuple(each for switch in switches for each in switch.config),
    )


class SwitchableRunner(Runner, Protocol):
    """A runner whose decoder can be replaced."""

    def use_decoder(self, decoder: Session) -> None:
        """Compute all later steps with this session, whose graph has the same inputs and outputs."""


def choose_switches(
    runner: SwitchableRunner,
    load_decoder: Callable[[Sequence[Switch]], Session],
    *,
    switches: Sequence[Switch] = SWITCHES,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Switch, ...]:
    """Measure each switch together with those chosen before it, and let the runner use the chosen ones.

    runner: has a decoder without switches. load_decoder: loads the decoder with given switches. clock: in seconds.
    Returns the chosen switches. A switch is not chosen if steps fail with it, or if its log-probabilities differ by
    more than MAX_DIFFERENCE from those without switches. Raises EngineFailure if steps fail without any switch, and the
    errors of `load_decoder`.
    """
    limits = runner.limits
    runner.encode([_source(row, limits) for row in range(limits.num_rows)], range(limits.num_rows))
    expected = _results(runner)
    budget_s = BUDGET_S / (len(switches) + 1)
    chosen: tuple[Switch, ...] = ()
    best = _step_times_s(runner, budget_s, clock)
    found = [f"without switches {_in_ms(best)}"]
    for switch in switches:
        runner.use_decoder(load_decoder((*chosen, switch)))
        try:
            difference = float(np.abs(_results(runner) - expected).max())
            times_s = _step_times_s(runner, budget_s, clock)
        except EngineFailure as error:
            found.append(f"{switch.name} fails ({error})")
            continue
        if not difference <= MAX_DIFFERENCE:  # also if it is NaN
            found.append(f"{switch.name} has other results (log-probabilities {difference:.2g} apart)")
            continue
        is_chosen = _share(times_s, best) <= MAX_SHARE
        found.append(f"{switch.name} {_in_ms(times_s)}{' (chosen)' if is_chosen else ''}")
        if is_chosen:
            chosen, best = (*chosen, switch), times_s
    # Loaded anew, because the CUDA graphs of a measured session write to the addresses of the measured steps.
    runner.use_decoder(load_decoder(chosen))
    logger.info("milliseconds of decoder steps, by rows: %s", "; ".join(found))
    return chosen


def _source(row: int, limits: Limits) -> Int32s:
    """A source for a row. Its length is SOURCE_LENGTH in the mean of many rows, if the model's limit allows it."""
    length = min(1 + row * 5 % (2 * SOURCE_LENGTH - 1), limits.max_source_length)
    ids = (row + np.arange(length, dtype=np.int32)) % limits.vocab_size
    ids[-1] = limits.eos_id
    return ids


def _results(runner: Runner) -> Floats:
    """The largest log-probability of each of MIDDLE_ROWS rows in NUM_COMPARED steps: (steps, rows).

    Fewer of both if the limits are lower. Raises EngineFailure.
    """
    limits = runner.limits
    rows = np.arange(min(MIDDLE_ROWS, limits.num_rows), dtype=np.int32)
    steps = [
        StepInput((rows + 7 * position) % limits.vocab_size, np.full_like(rows, position), 1)
        for position in range(min(NUM_COMPARED, limits.max_target_length))
    ]
    # Copied, because the next step overwrites a step's results.
    return np.stack([runner.decode(step).log_probabilities[:, 0].copy() for step in steps])


def _step_times_s(runner: Runner, budget_s: float, clock: Callable[[], float]) -> dict[int, float]:
    """Median seconds of a step, by the number of its rows. Raises EngineFailure."""
    limits, found = runner.limits, dict[int, float]()
    counts = sorted({1, min(MIDDLE_ROWS, limits.num_rows), limits.num_rows})
    for num_rows in counts:
        ids = np.full(num_rows, limits.bos_id, np.int32)
        step = StepInput(ids, np.full(num_rows, limits.max_target_length // 2, np.int32), 1)
        for _ in range(NUM_WARM_UP):
            runner.decode(step)
        times_s, ends_at = list[float](), clock() + budget_s / len(counts)
        while not times_s or clock() < ends_at:
            began_at = clock()
            runner.decode(step)
            times_s.append(clock() - began_at)
        found[num_rows] = statistics.median(times_s)
    return found


def _share(times_s: dict[int, float], base_s: dict[int, float]) -> float:
    """The geometric mean, over the numbers of rows, of a time divided by its base."""
    return math.exp(statistics.fmean(math.log(times_s[rows] / base_s[rows]) for rows in base_s))


def _in_ms(times_s: dict[int, float]) -> str:
    return ", ".join(f"{rows}: {seconds * 1e3:.3f}" for rows, seconds in times_s.items())
