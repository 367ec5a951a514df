"""What happens before the first request: load the bundle, see that it says what it promises, warm up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

import msgspec

from app.bundle import GOLDEN, Bundle, Golden, Manifest, load_bundle
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
from app.runtime.memory import return_memory
from app.settings import Settings, find_bundle
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
# For the golden sentences and the warm-up, on the slowest machine that makes sense.
CHECK_TIMEOUT_S = 120.0
NUM_WARM_UP = 3


@dataclass(frozen=True)
class LoadedModel:
    """A bundle's variant, loaded, in as many workers as will share the work.

    name: of its folder. detector: None where no language is detected.
    """

    name: str
    manifest: Manifest
    golden: tuple[Golden, ...]
    precision: Precision
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    workers: Sequence[Worker]
    detector: LazyDetector | None = None

    @property
    def limits(self) -> Limits:
        """What it can hold, each worker by itself."""
        return self.workers[0].limits


def load_model(settings: Settings, fork_server: ForkServer | None = None) -> LoadedModel:
    """Read and check the bundle and load its graphs; seconds long. Raises BundleError, SettingsError.

    fork_server: of the workers' processes, where it was started before; it is left where it is of no use.
    """
    path = find_bundle(settings)
    device = find_device(settings)

    def choose(manifest: Manifest) -> Precision:
        return choose_precision(Bundle(path, manifest, ()), device, settings.precision)

    bundle = load_bundle(path, choose=choose)
    languages = {code for pair in bundle.manifest.language_pairs for code in (pair.source, pair.target)}
    detector = lazy_detector(languages)
    detector.loaded()  # it loads beside the model
    precision = choose(bundle.manifest)
    num_threads = settings.num_threads or num_usable_cores()
    num_workers = settings.num_lanes or default_num_workers(device, num_threads)
    spec = ModelSpec(
        folder=str(path.resolve()),
        precision=precision,
        variant=bundle.manifest.variants[precision],
        limits=limits_of(bundle.manifest, settings.num_rows, settings.num_kept_rows),
        device=device,
        kernels=settings.kernels,
        num_threads=num_threads,
        num_workers=num_workers,
        log_level=settings.log_level,
    )
    processes = start_processes(spec, fork_server) if num_workers > 1 else []
    if fork_server is not None and not processes:
        fork_server.close()
    try:
        source, target = load_tokenizers(bundle)
        for process in processes:
            process.load()
        workers: Sequence[Worker] = processes or [ThreadWorker(spec.load())]
    except BaseException:
        for process in processes:
            process.close()
        raise
    return LoadedModel(
        path.name, bundle.manifest, bundle.golden, precision, source, target, workers, detector
    )


def start_processes(spec: ModelSpec, fork_server: ForkServer | None = None) -> list[WorkerProxy]:
    """The workers of a spec in processes of their own, which begin to load. fork_server: as for `load_model`."""
    return start_workers(fork_server or start_fork_server(), spec.num_workers, msgspec.json.encode(spec))


def find_device(settings: Settings) -> Device:
    """Where the model will run. Raises SettingsError where a GPU is asked for and there is none."""
    device = known_device(settings.device)
    if device is None:
        # Imported only where it has to be asked: a server whose workers are processes needs none of its memory.
        from app.runtime.session import choose_device

        device = choose_device(settings.device)
    return device


def load_tokenizers(bundle: Bundle) -> tuple[Tokenizer, Tokenizer]:
    """Of the source and the target language, one object where they are the same. Raises BundleError."""
    files = bundle.manifest.files
    try:
        source = Tokenizer(bundle.file("source.spm"))
        is_joint = files["source.spm"] == files["target.spm"]
        target = source if is_joint else Tokenizer(bundle.file("target.spm"))
    except TokenizerError as error:
        raise BundleError(bundle.path.name, [str(error)]) from error
    tokenizers = (("source", source), ("target", target))
    vocab_size = bundle.manifest.dimensions.vocab_size
    problems = [
        f"{name}.spm has {tokenizer.vocab_size} pieces, the manifest's dimensions.vocab_size is {vocab_size}"
        for name, tokenizer in tokenizers
        if tokenizer.vocab_size != vocab_size
    ]
    problems += [
        f"{name}.spm has the {special} id {found}, the manifest's special_ids.{special} is {said}"
        for name, tokenizer in tokenizers
        for special, said in bundle.manifest.special_ids
        if (found := getattr(tokenizer, f"{special}_id")) != said
    ]
    if problems:
        raise BundleError(bundle.path.name, problems)
    return source, target


def lazy_detector(languages: Collection[str]) -> LazyDetector:
    """A detector of the known languages and these, which are served."""

    def load() -> LanguageDetector:
        started = time.monotonic()
        log_event(logger, logging.INFO, "detector_loading")
        detector = LanguageDetector(languages)
        return_memory()
        fields = {"seconds": f"{time.monotonic() - started:.2f}"}
        log_event(logger, logging.INFO, "detector_loaded", fields=dict(fields))
        return detector

    return LazyDetector(load)


def model_key(model: LoadedModel) -> str:
    """Names the weights, all that is done with them, and their precision: the manifest has every file's SHA-256."""
    return f"{sha256(model.manifest.model_dump_json().encode()).hexdigest()} {model.precision}"


async def check_golden(model: LoadedModel, translator: Translator, *, min_share: float) -> None:
    """Decode the bundle's golden sentences.

    Raises BundleError where fewer than min_share come out exactly, and where they cannot be decoded; NotReady,
    Overloaded, DeadlineExceeded.
    """
    futures = [
        _submit_golden(model, translator, number, line) for number, line in enumerate(model.golden, start=1)
    ]
    found = await asyncio.gather(*futures, return_exceptions=True)
    results = [one for one in found if isinstance(one, SequenceResult)]
    failures = [one for one in found if isinstance(one, BaseException)]
    # A model that fails every forward ends the engine, too; its own failures come before that.
    for failure in sorted(failures, key=lambda one: not isinstance(one, EngineFailure)):
        if isinstance(failure, EngineFailure):
            told = f"{len(failures)} of {len(found)} golden sentences cannot be decoded"
            raise BundleError(model.name, [f"{told}: {failure.message}"]) from failure
        raise failure
    num_exact = sum(
        result.hypotheses[0].ids == line.ids.get(model.precision)
        for result, line in zip(results, model.golden, strict=True)
    )
    told = f"{num_exact} of {len(results)} golden sentences came out as the bundle says"
    if num_exact < min_share * len(results):
        raise BundleError(model.name, [f"{told}: it does not work on this machine as where it was made"])
    level = logging.INFO if num_exact == len(results) else logging.WARNING
    log_event(logger, level, "golden_checked", fields={"exact": num_exact, "of": len(results)})


def _submit_golden(
    model: LoadedModel, translator: Translator, number: int, line: Golden
) -> asyncio.Future[SequenceResult]:
    """Begin to decode one golden sentence, by its line. Raises BundleError where it cannot be one; NotReady."""
    defaults, pair = model.manifest.decoding, model.manifest.language_pairs[line.pair]
    engine = translator.engine
    options = DecodingOptions(
        beam_size=line.beam_size,
        length_penalty=defaults.length_penalty,
        alpha=defaults.alpha,
        max_target_length=min(model.manifest.max_target_length, engine.limits.max_target_length - 1),
    )
    deadline = time.monotonic() + CHECK_TIMEOUT_S
    try:
        encoded = translator.encode(line.source, pair)
        if encoded is None:
            raise BundleError(model.name, [f"{GOLDEN}: line {number}: source is longer than the model takes"])
        return engine.submit(encoded.ids, options, request_id="golden", caller="", deadline=deadline)
    except (TokenizerError, RequestError) as error:
        raise BundleError(model.name, [f"{GOLDEN}: line {number}: {error}"]) from error


async def warm_up(model: LoadedModel, translator: Translator) -> None:
    """A few whole requests, one after another, so that the first caller does not pay for first times.

    Raises BundleError where the model cannot answer one; NotReady, Overloaded, DeadlineExceeded.
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
            told = f"{GOLDEN}: line {number + 1} cannot be translated as a request: {error.message}"
            raise BundleError(model.name, [told]) from error


def in_daemon_thread(
    work: Callable[[], T], *, on_unused: Callable[[T], None] = lambda _result: None
) -> asyncio.Future[T]:
    """Run work that cannot be interrupted in a thread that does not hold up the process's end.

    on_unused: called on that thread or the event loop's with a result that is no longer awaited.
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
        except Exception as error:  # noqa: BLE001 - handed over, whatever it is
            with contextlib.suppress(RuntimeError):  # the loop has closed: the result is no longer awaited
                loop.call_soon_threadsafe(fail, error)
            return
        try:
            loop.call_soon_threadsafe(succeed, result)
        except RuntimeError:
            on_unused(result)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return future


def release_model(model: LoadedModel) -> None:
    """Let go of a model that no engine has taken."""
    for worker in model.workers:
        worker.close()
