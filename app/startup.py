"""Loads models from bundles, checks their golden sentences and warms them up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from app.bundle import GOLDEN, Bundle, Golden, Manifest, load_bundle, read_manifest
from app.bundle_folders import find_bundles
from app.bundle_tokenizers import load_tokenizers
from app.decoding.options import DecodingOptions
from app.engine.sequence import SequenceResult
from app.engine.worker import Worker
from app.errors import BundleError, EngineFailure, RequestError
from app.graphs import Precision
from app.observability.logging import log_event
from app.runtime.bundle_limits import limits_of
from app.runtime.device import Device, choose_precision, known_device
from app.runtime.interface import Limits
from app.runtime.machine import num_usable_cores
from app.runtime.memory import release_frames, return_memory
from app.settings import Settings
from app.text.detection import LanguageDetector, LazyDetector
from app.text.tokenizer import Tokenizer, TokenizerError
from app.translator import TranslationRequest, Translator
from app.workers.early_start import default_num_workers, start_fork_server
from app.workers.fork_server import ForkServer
from app.workers.model_spec import ModelSpec
from app.workers.thread_worker import ThreadWorker
from app.workers.worker_proxy import WorkerProxy, start_workers

T = TypeVar("T")
logger = logging.getLogger("app.startup")
# Seconds that the golden check, or one warm-up request, may take. A lower value prevents the start on a slow machine.
CHECK_TIMEOUT_S = 120.0
# Requests of the warm-up. Fewer leave first-time costs to the first caller; more delay the start.
NUM_WARM_UP = 3


@dataclass(frozen=True)
class LoadedModel:
    """One loaded variant of a bundle, in one or more workers that share the requests.

    name: the bundle folder's name. path: the folder; None if no bundle holds the model.
    start_worker: starts a worker in place of one that has died, as `start_again` does; None if the worker is a thread.
    kernels, provider: what computes the model, as in `ModelSpec`; empty if no bundle holds the model.
    """

    name: str
    manifest: Manifest
    golden: tuple[Golden, ...]
    precision: Precision
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    workers: Sequence[Worker]
    path: Path | None = None
    start_worker: Callable[[Worker], Worker] | None = None
    kernels: str = ""
    provider: str = ""

    @property
    def limits(self) -> Limits:
        """The limits of each single worker."""
        return self.workers[0].limits


@dataclass(frozen=True)
class LoadedModels:
    """The models of a server, in the order of their bundles. detector: None without language detection."""

    models: Sequence[LoadedModel]
    detector: LazyDetector | None = None


def load_models(settings: Settings, fork_server: ForkServer | None = None) -> LoadedModels:
    """Load all bundles that the settings name; takes seconds. Raises as `load_model`.

    fork_server: as in `load_model`. Only the first bundle uses it.
    """
    loaded: list[LoadedModel] = []
    try:
        paths = find_bundles(settings)
        manifests = [read_manifest(path) for path in paths]
        check_names(paths, manifests)
        pairs = [pair for manifest in manifests for pair in manifest.language_pairs]
        detector = lazy_detector({code for pair in pairs for code in (pair.source, pair.target)})
        detector.start_loading()  # in a thread, in parallel with the models
        for path in paths:
            # The first model takes the fork server that was started early.
            first_server, fork_server = fork_server, None
            loaded.append(load_model(path, settings, first_server))
    except BaseException:
        release_models(LoadedModels(loaded))
        if fork_server is not None:
            fork_server.close()
        raise
    return LoadedModels(loaded, detector)


def check_names(paths: Sequence[Path], manifests: Sequence[Manifest]) -> None:
    """Raise BundleError if two bundles' models have the same name, because requests choose a model by its name."""
    seen: dict[str, Path] = {}
    for path, manifest in zip(paths, manifests, strict=True):
        if manifest.name in seen:
            other = seen[manifest.name]
            problem = f"its model is named {manifest.name!r}, like the model of {other}; rename one of them"
            raise BundleError(path.name, [problem])
        seen[manifest.name] = path


def load_model(path: Path, settings: Settings, fork_server: ForkServer | None = None) -> LoadedModel:
    """Read and check a bundle and load its graphs; takes seconds. Raises BundleError, SettingsError.

    Raises OSError if a worker process does not start, and WorkerEnded if it ends. fork_server: an idle fork server that
    forks the worker processes. It is closed if the model needs none, or if the load fails. None: a fork server is
    started if the model needs worker processes.
    """
    with contextlib.ExitStack() as unless_used:
        if fork_server is not None:
            unless_used.callback(fork_server.close)
        device = find_device(settings)
        bundle = load_bundle(
            path, choose=lambda found: choose_precision(Bundle(path, found, ()), device, settings.precision)
        )
        spec = model_spec(path, bundle.manifest, device, settings)
        if spec.num_workers > 1:
            unless_used.pop_all()
    processes = start_processes(spec, fork_server) if spec.num_workers > 1 else []
    try:
        source, target = load_tokenizers(bundle)
        for process in processes:
            process.load()  # waits until it has loaded
        workers: Sequence[Worker] = processes or [ThreadWorker(spec.load())]
    except BaseException:
        for process in processes:
            process.close()
        raise
    return LoadedModel(
        path.name,
        bundle.manifest,
        bundle.golden,
        spec.precision,
        source,
        target,
        workers,
        path,
        partial(start_again, spec, bundle.manifest) if processes else None,
        spec.used_kernels,
        spec.provider,
    )


def model_spec(path: Path, manifest: Manifest, device: Device, settings: Settings) -> ModelSpec:
    """The variant, device, threads and workers to load a bundle with. Raises BundleError if no variant fits."""
    precision = choose_precision(Bundle(path, manifest, ()), device, settings.precision)
    num_threads = settings.num_threads or num_usable_cores()
    return ModelSpec(
        folder=str(path.resolve()),
        precision=precision,
        variant=manifest.variants[precision],
        limits=limits_of(manifest, settings.rows_on(device), settings.num_kept_rows),
        device=device,
        kernels=settings.kernels,
        num_threads=num_threads,
        num_workers=settings.num_lanes or default_num_workers(device, num_threads),
        log_level=settings.log_level,
        has_shortlist=settings.shortlist and manifest.shortlist is not None,
        loads_at_low_priority=settings.model_memory is not None,
    )


def start_processes(spec: ModelSpec, fork_server: ForkServer | None = None) -> list[WorkerProxy]:
    """Start spec.num_workers worker processes, which begin to load the model. fork_server: as in `load_model`."""
    return start_workers(fork_server or start_fork_server(), spec.num_workers, msgspec.json.encode(spec))


def start_again(spec: ModelSpec, manifest: Manifest, dead: Worker) -> Worker:
    """Start a worker process in place of one that has died; takes seconds, on any thread.

    manifest: of the bundle that the other workers have loaded. Raises BundleError or SettingsError if the bundle cannot
    be loaded or has changed, OSError if the process does not start, and WorkerEnded if it ends.
    """
    assert isinstance(dead, WorkerProxy)
    worker = dead.successor(
        start_fork_server(), msgspec.json.encode(replace(spec, loads_at_low_priority=False))
    )
    try:
        worker.load()
        path = Path(spec.folder)
        if load_bundle(path, choose=lambda _manifest: spec.precision).manifest != manifest:
            raise BundleError(path.name, ["the bundle has changed since the model was loaded; reload it"])
    except BaseException:
        worker.close()
        raise
    return worker


def find_device(settings: Settings) -> Device:
    """The device that the model runs on. Raises SettingsError if a GPU is required and there is none."""
    device = known_device(settings.device)
    if device is None:
        # Imported only if the device must be probed. Else a server whose workers are processes never loads ONNX
        # Runtime, and saves its memory.
        from app.runtime.session import choose_device

        device = choose_device(settings.device)
    return device


def lazy_detector(languages: Collection[str]) -> LazyDetector:
    """A language detector that loads in a thread on first use. languages: codes of the served models."""

    def load() -> LanguageDetector:
        started = time.monotonic()
        log_event(logger, logging.INFO, "detector_loading")
        detector = LanguageDetector(languages)
        return_memory()
        seconds = f"{time.monotonic() - started:.2f}"
        log_event(logger, logging.INFO, "detector_loaded", fields={"seconds": seconds})
        return detector

    return LazyDetector(load)


def model_key(model: LoadedModel) -> str:
    """A key that is equal only for models with the same files, manifest and precision."""
    # The manifest holds the SHA-256 of every file.
    return f"{sha256(model.manifest.model_dump_json().encode()).hexdigest()} {model.precision}"


async def check_golden(model: LoadedModel, translator: Translator, *, min_share: float) -> None:
    """Decode the bundle's golden sentences and compare them with its expected tokens.

    Raises BundleError if the share of sentences that match exactly is below `min_share`, or if a sentence cannot be
    decoded. Raises NotReady, DeadlineExceeded.
    """
    futures = [
        _submit_golden(model, translator, number, line) for number, line in enumerate(model.golden, start=1)
    ]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    results = [outcome for outcome in outcomes if isinstance(outcome, SequenceResult)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # A model whose every forward pass fails also stops the engine. Report an EngineFailure if there is one: it is the
    # cause of the other errors.
    for failure in sorted(failures, key=lambda one: not isinstance(one, EngineFailure)):
        if isinstance(failure, EngineFailure):
            summary = f"{len(failures)} of {len(outcomes)} golden sentences cannot be decoded"
            raise BundleError(model.name, [f"{summary}: {failure.message}"]) from failure
        raise failure
    num_exact = sum(
        result.hypotheses[0].ids == line.ids.get(model.precision)
        for result, line in zip(results, model.golden, strict=True)
    )
    summary = f"{num_exact} of {len(results)} golden sentences match the bundle's translations"
    if num_exact < min_share * len(results):
        reason = "on this machine the model does not compute what it computed at export"
        if num_exact == 0:
            reason += ", or source.spm is not its vocabulary"
        hint = "if it is hardly trained, rounding decides between nearly equal scores: lower TRANSDUCE_GOLDEN_MIN_SHARE"
        raise BundleError(model.name, [f"{summary}: {reason}; {hint}"])
    log_event(logger, logging.INFO, "golden_checked", fields={"exact": num_exact, "of": len(results)})


def _submit_golden(
    model: LoadedModel, translator: Translator, number: int, line: Golden
) -> asyncio.Future[SequenceResult]:
    """Submit one golden sentence to the engine. Raises BundleError if the sentence is not usable, and NotReady.

    number: the line in the bundle's file, from 1.
    """
    defaults, pair = model.manifest.decoding, model.manifest.language_pairs[line.pair]
    engine = translator.engine
    options = DecodingOptions(
        start_id=translator.encoder.start_id(pair),
        beam_size=line.beam_size,
        length_penalty=defaults.length_penalty,
        alpha=defaults.alpha,
        max_target_length=min(model.manifest.max_target_length, engine.limits.max_target_length - 1),
    )
    deadline = time.monotonic() + CHECK_TIMEOUT_S
    try:
        encoded = translator.encode(line.source, pair)
        if encoded is None:
            problem = "source is longer than the model takes, or source.spm is not its vocabulary"
            raise BundleError(model.name, [f"{GOLDEN}: line {number}: {problem}"])
        return engine.submit(encoded.ids, options, request_id="golden", caller="", deadline=deadline)
    except (TokenizerError, RequestError) as error:
        raise BundleError(model.name, [f"{GOLDEN}: line {number}: {error}"]) from error


async def warm_up(model: LoadedModel, translator: Translator) -> None:
    """Translate NUM_WARM_UP golden sentences one after another, so that the first caller pays no first-time costs.

    Raises BundleError if a request fails, and NotReady, Overloaded and DeadlineExceeded.
    """
    for number, line in enumerate(model.golden[:NUM_WARM_UP]):
        pair = model.manifest.language_pairs[line.pair]
        request = TranslationRequest(
            texts=(line.source,),
            source=pair.source,
            target=pair.target,
            request_id=f"warm-up-{number}",
            caller="",
            deadline=time.monotonic() + CHECK_TIMEOUT_S,
        )
        try:
            await translator.translate(request)
        except (RequestError, EngineFailure) as error:
            problem = f"{GOLDEN}: line {number + 1}: its translation failed: {error.message}"
            raise BundleError(model.name, [problem]) from error


def in_daemon_thread(
    work: Callable[[], T], *, on_unused: Callable[[T], None] = lambda _result: None
) -> asyncio.Future[T]:
    """Run `work` in a daemon thread. It cannot be interrupted, but it does not delay the exit of the process.

    on_unused: called with a result that nothing awaits: on the event loop if the future was cancelled, on the daemon
    thread if the event loop is closed.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def succeed(result: T) -> None:
        if future.done():
            on_unused(result)
        else:
            future.set_result(result)

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - passed on to the future
            release_frames(error)
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so the result is not awaited
                loop.call_soon_threadsafe(fail, error)
            return
        try:
            loop.call_soon_threadsafe(succeed, result)
        except RuntimeError:
            on_unused(result)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return future


def release_models(loaded: LoadedModels) -> None:
    """Close the workers of these models. No engine may use the models."""
    for model in loaded.models:
        for worker in model.workers:
            worker.close()
