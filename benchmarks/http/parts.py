"""The parts of the HTTP benchmark, with the servers and the cores of each. A part takes up to about half an hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.http.context import Context, Cores, print_progress, separate_cores, shared_cores
from benchmarks.http.goodput import measure_bimodal, measure_slo
from benchmarks.http.latency import measure_latency
from benchmarks.http.marian_engine import MarianSettings
from benchmarks.http.models import (
    LibreTranslate,
    ModelFormats,
    best_choices,
    best_marian_settings,
    pinned,
    prepare,
)
from benchmarks.http.overhead import measure_overhead
from benchmarks.http.scaling import measure_scaling
from benchmarks.http.subjects import (
    ALONE,
    LIBRETRANSLATE,
    MARIAN_ALONE,
    MARIAN_WINDOW,
    WINDOW,
    Subject,
    ctranslate2,
    echo,
    libretranslate,
    marian,
    ours,
    transformers,
)


def subjects_of(served: ModelFormats, context: Context, cores: Cores) -> list[Subject]:
    """All servers except Hugging Face's and the echo server.

    With the window batcher, CTranslate2 and Marian get the batch size that is fastest on this number of cores. A run
    searches for this size once for each number of cores. Without the window batcher, each request is a batch.
    """
    num_threads = len(cores.server)
    if num_threads not in context.choices:
        with pinned(cores.server):
            context.choices[num_threads] = best_choices(
                served, num_threads=num_threads, is_quick=context.effort.is_quick
            )
    alone, window = context.choices[num_threads][1], context.choices[num_threads][32]
    found = [ours(served.bundle.path, context.python)]
    # One call on all threads is best for one sentence, and one call per thread is best for many. Both are measured.
    layouts = (1,) if num_threads == 1 else (1, num_threads)
    for workers in layouts:
        threads = num_threads // workers
        suffix = f"@{workers} x {threads}" if len(layouts) > 1 else ""
        first, many = (
            replace(choice, settings=replace(choice.settings, inter_threads=workers, intra_threads=threads))
            for choice in (replace(alone, settings=replace(alone.settings, max_batch_size=0)), window)
        )
        found.append(ctranslate2(served, first, has_window=False, name=ALONE + suffix))
        found.append(ctranslate2(served, many, has_window=True, name=WINDOW + suffix))
        if isinstance(served.libretranslate, LibreTranslate):
            name = LIBRETRANSLATE + suffix
            found.append(libretranslate(served.bundle, served.libretranslate, first, name=name))
    if served.marian is not None:
        with pinned(cores.server):
            settings = context.once(
                f"marian {num_threads}", lambda: best_marian_settings(served, num_threads=num_threads)
            )
        # A process uses one thread for a call of one sentence.
        single = MarianSettings(num_threads=1, batch_size=1, num_processes=num_threads)
        found.append(marian(served, served.marian, single, has_window=False, name=MARIAN_ALONE))
        found.append(marian(served, served.marian, settings, has_window=True, name=MARIAN_WINDOW))
    if isinstance(served.libretranslate, str):
        print_progress(f"LibreTranslate is not measured: {served.libretranslate}")
    return found


def _prepared(context: Context) -> ModelFormats:
    return context.once(
        "served",
        lambda: prepare(
            context.bundle,
            context.folder,
            with_libretranslate=context.with_libretranslate,
            marian_programs=context.marian_programs,
        ),
    )


def _slow(served: ModelFormats, context: Context, cores: Cores) -> list[Subject]:
    """Hugging Face's server, except in a quick run. It is slow, so a quick run has it only in the part `latency`."""
    return [] if context.effort.is_quick else [transformers(served, num_threads=len(cores.server))]


def _missing_servers(served: ModelFormats) -> dict[str, Any]:
    found = served.libretranslate
    return {} if isinstance(found, LibreTranslate) else {"libretranslate_is_missing": found}


def latency(context: Context) -> dict[str, Any]:
    """Latency with one client, saturation, starts, memory and quality, with the server on its own core."""
    served, cores = _prepared(context), separate_cores()
    slow = transformers(served, num_threads=len(cores.server))
    subjects = [*subjects_of(served, context, cores), slow, echo()]
    return {**measure_latency(subjects, cores, context, with_starts=True), **_missing_servers(served)}


def goodput(context: Context) -> dict[str, Any]:
    """Mixed-length traffic, with the server on its own core."""
    served, cores = _prepared(context), separate_cores()
    subjects = [*subjects_of(served, context, cores), *_slow(served, context, cores)]
    return {**measure_slo(subjects, cores, context), **_missing_servers(served)}


def bimodal(context: Context) -> dict[str, Any]:
    """Short sentences beside long ones, with the server on its own core."""
    served, cores = _prepared(context), separate_cores()
    subjects = [*subjects_of(served, context, cores), *_slow(served, context, cores)]
    return {**measure_bimodal(subjects, cores, context, window=WINDOW), **_missing_servers(served)}


def together(context: Context) -> dict[str, Any]:
    """Latency with one client, saturation and mixed-length traffic, with server and tester on all cores.

    Each peer gets the mixed-length traffic only in its thread layout with the highest throughput. Hugging Face's server
    is left out, because on one core (part `latency`) it is many times slower than the others.
    """
    served, cores = _prepared(context), shared_cores()
    subjects = subjects_of(served, context, cores)
    found = measure_latency([*subjects, echo()], cores, context, with_starts=False)
    best_layouts = [
        subject for subject in subjects if subject.name == best_layout(subject.name, found["saturated"])
    ]
    saturated = {name: flow["per_s"] for name, flow in found["saturated"].items()}
    traffic = measure_slo(best_layouts, cores, context, saturated)
    return {
        **found,
        **{name: traffic[name] for name in ("slo", "trial_s", "characters_per_request", "goodput")},
        **_missing_servers(served),
    }


def best_layout(name: str, saturated: dict[str, Any]) -> str:
    """The name of the same server in its thread layout with the highest throughput."""
    kind = name.partition("@")[0]
    layouts = [each for each in saturated if each.partition("@")[0] == kind]
    return max(layouts, key=lambda each: saturated[each]["per_s"])


def overhead(context: Context) -> dict[str, Any]:
    """The overhead of a request of ten words."""
    return measure_overhead(context, separate_cores())


def scaling(context: Context) -> dict[str, Any]:
    """Throughput by rows, threads and replicas."""
    return measure_scaling(context, separate_cores())


PARTS: dict[str, Callable[[Context], dict[str, Any]]] = {
    "latency": latency,
    "goodput": goodput,
    "bimodal": bimodal,
    "together": together,
    "overhead": overhead,
    "scaling": scaling,
}
