"""The server put together: settings -> bundle -> runner -> engine -> golden check and warm-up -> ready.

It listens from the first moment, so that /livez answers while the model loads; everything else is refused with
503 until the model has shown, through the very engine that will serve, that it says what its bundle says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app.api.auth import ApiKeys
from app.api.error_table import HTTP_CODES, error_body, plain_error
from app.api.middleware import Gate, RequestScope
from app.api.native import add_native_routes
from app.api.native_schema import RequestLimits
from app.api.probes import add_docs, add_probes
from app.api.protocol import ConnectionLimits
from app.api.server import ServeOptions, Server, hold_signals, listen
from app.api.service import Service
from app.bundle import Golden, Manifest, Precision, load_bundle
from app.decoding.options import DecodingOptions
from app.engine.engine import Engine
from app.engine.limits import EngineLimits
from app.errors import BundleError, ServiceError, SettingsError
from app.observability.logging import configure_logging, log_event
from app.observability.metrics import Metrics
from app.runtime.interface import Runner
from app.settings import Settings, find_bundle, load_settings, read_api_keys
from app.text.tokenizer import Tokenizer, TokenizerError
from app.translator import TranslationRequest, Translator

T = TypeVar("T")
logger = logging.getLogger("app.main")
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
EXIT_ENGINE = 70  # EX_SOFTWARE: whoever supervises the process starts a new one
# For the golden sentences and the warm-up, on the slowest machine that makes sense.
CHECK_TIMEOUT_S = 120.0
NUM_WARM_UP = 3


@dataclass(frozen=True)
class Model:
    """A bundle's variant, loaded. `name`: of its folder."""

    name: str
    manifest: Manifest
    golden: tuple[Golden, ...]
    precision: Precision
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    runner: Runner


def load_model(settings: Settings) -> Model:
    """Read and check the bundle and load its graphs; seconds long. Raises BundleError, SettingsError."""
    # Imported here, off the event loop: ONNX Runtime takes a good part of a second.
    from app.runtime.ort_runner import load_runner
    from app.runtime.session import choose_device, choose_precision

    path = find_bundle(settings)
    bundle = load_bundle(path)
    try:
        source, target = Tokenizer(bundle.file("source.spm")), Tokenizer(bundle.file("target.spm"))
    except TokenizerError as error:
        raise BundleError(path.name, [str(error)]) from error
    vocab_size = bundle.manifest.dimensions.vocab_size
    problems = [
        f"{name}.spm has {tokenizer.vocab_size} pieces, the manifest says {vocab_size}"
        for name, tokenizer in (("source", source), ("target", target))
        if tokenizer.vocab_size != vocab_size
    ]
    if problems:
        raise BundleError(path.name, problems)
    precision = choose_precision(bundle, choose_device(settings.device), settings.precision)
    runner = load_runner(
        bundle,
        precision=precision,
        device=settings.device,
        num_rows=settings.num_rows,
        num_threads=settings.num_threads or num_usable_cores(),
    )
    return Model(path.name, bundle.manifest, bundle.golden, precision, source, target, runner)


def num_usable_cores() -> int:
    """Cores that this process may run on, by its affinity and its cgroup's quota; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:  # noqa: PTH123 - one line of a pseudo file
            quota, period = file.read().split()
        cores = min(cores, max(1, int(quota) // int(period)))  # "max" is no number: no quota
    return cores


class Application:
    """One server's parts. `app` is the ASGI application; its lifespan starts and ends the others.

    on_failure: told, on the event loop, what keeps the server from serving: BundleError or SettingsError at
    start, RuntimeError when the engine has died.
    """

    def __init__(self, settings: Settings, *, load: Callable[[Settings], Model] = load_model) -> None:
        """Raises SettingsError for unusable API keys."""
        self.settings = settings
        self.metrics = Metrics()
        self.service = Service(self.metrics)
        self.engine: Engine | None = None
        self.on_failure: Callable[[Exception], None] = lambda _error: None
        self._load = load
        self._executor = ThreadPoolExecutor(settings.num_text_threads, thread_name_prefix="text")
        self.app = self._build(ApiKeys(read_api_keys(settings)))

    def _build(self, keys: ApiKeys) -> FastAPI:
        settings = self.settings
        app = FastAPI(
            title="Transduce",
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            lifespan=lambda _app: self.lifespan(),
        )
        app.router.redirect_slashes = False
        add_native_routes(app.router, self.service, _request_limits(settings))
        add_probes(app.router, self.service)
        if settings.docs_enabled:
            add_docs(app.router, app.openapi())
        app.add_exception_handler(HTTPException, _routing_error)
        app.add_middleware(Gate, keys=keys, max_body_bytes=settings.max_body_bytes)
        app.add_middleware(RequestScope, metrics=self.metrics)  # added last, so outermost
        return app

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Begin to load; at the end stop the engine."""
        loading = asyncio.create_task(self._become_ready())
        try:
            yield
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await self.close_engine()
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def close_engine(self) -> None:
        """End the engine's work now; whoever waits for it gets NotReady."""
        if self.engine is not None:
            await self.engine.close(drain_timeout_s=0.0)

    async def _become_ready(self) -> None:
        """Load, check, warm up, open; or report what is in the way."""
        try:
            await self._open()
        except (BundleError, SettingsError, ServiceError) as error:
            self.service.become_failed()
            self.on_failure(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server cannot serve
            self.service.become_failed()
            log_event(logger, logging.CRITICAL, "start_failed", error=error)
            self.on_failure(error)

    async def _open(self) -> None:
        started = time.monotonic()
        model = await in_daemon_thread(lambda: self._load(self.settings))
        self.engine = Engine(
            model.runner,
            settings=_engine_limits(self.settings),
            on_steps=self.metrics.record_steps,
            on_death=lambda: self.on_failure(RuntimeError("the engine has died; the log says of what")),
        )
        self.engine.start()
        translator = Translator(
            model.manifest,
            self.engine,
            source_tokenizer=model.source_tokenizer,
            target_tokenizer=model.target_tokenizer,
            executor=self._executor,
            max_sentences=self.settings.max_request_sentences,
        )
        await check_golden(model, translator, min_share=self.settings.golden_min_share)
        await warm_up(model, translator)
        self.metrics.follow_queue(self.engine.health)
        self.metrics.model_info.labels(model.manifest.name, model.manifest.version, model.precision).set(1)
        self.metrics.model_load_seconds.set(time.monotonic() - started)
        self.service.become_ready(translator, precision=model.precision)
        fields = {
            "model": model.manifest.name,
            "version": model.manifest.version,
            "precision": str(model.precision),
            "seconds": f"{time.monotonic() - started:.2f}",
        }
        log_event(logger, logging.INFO, "ready", fields=dict(fields))


async def check_golden(model: Model, translator: Translator, *, min_share: float) -> None:
    """Decode the bundle's golden sentences. Raises BundleError where fewer than min_share come out exactly."""
    defaults, pair = model.manifest.decoding, model.manifest.language_pairs[0]
    engine = translator.engine
    deadline = time.monotonic() + CHECK_TIMEOUT_S
    futures = []
    for line in model.golden:
        options = DecodingOptions(
            beam_size=line.beam_size,
            length_penalty=defaults.length_penalty,
            alpha=defaults.alpha,
            max_target_length=min(model.manifest.max_target_length, engine.limits.max_target_length - 1),
        )
        encoded = translator.encode(line.source, pair)
        if encoded is None:
            raise BundleError(model.name, ["a golden sentence is longer than the model takes"])
        futures.append(engine.submit(encoded.ids, options, request_id="golden", caller="", deadline=deadline))
    results = await asyncio.gather(*futures)
    num_exact = sum(
        result.hypotheses[0].ids == line.ids.get(model.precision)
        for result, line in zip(results, model.golden, strict=True)
    )
    told = f"{num_exact} of {len(results)} golden sentences came out as the bundle says"
    if num_exact < min_share * len(results):
        raise BundleError(model.name, [f"{told}: it does not work on this machine as where it was made"])
    level = logging.INFO if num_exact == len(results) else logging.WARNING
    log_event(logger, level, "golden_checked", fields={"exact": num_exact, "of": len(results)})


async def warm_up(model: Model, translator: Translator) -> None:
    """A few whole requests, one after another, so that the first caller does not pay for first times."""
    pair = model.manifest.language_pairs[0]
    for number, line in enumerate(model.golden[:NUM_WARM_UP]):
        request = TranslationRequest(
            texts=(line.source,),
            source=pair.source,
            target=pair.target,
            request_id=f"warm-up-{number}",
            caller="",
            deadline=time.monotonic() + CHECK_TIMEOUT_S,
        )
        await translator.translate(request)


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run work that cannot be interrupted in a thread that does not hold up the process's end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only beside an error, or as T itself

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed over, whatever it is
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return future


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application, to be run by any server that speaks lifespan. Raises SettingsError."""
    return Application(settings).app


def serve(overrides: dict[str, object]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code.

    0 after a drain, 78 for settings or a bundle that cannot be used (every problem on a line of its own on
    stderr), 70 where the engine died, 128 + the signal where a second one cut the drain short. Raises
    OSError where the address cannot be listened on.
    """
    try:
        settings = load_settings(overrides)
        configure_logging(settings.log_level)
        application = Application(settings)
    except SettingsError as error:
        return _refuse(error.problems)
    return run(application)


def run(application: Application) -> int:
    """Serve an application; as `serve`."""
    settings = application.settings
    hold_signals()
    failures: list[Exception] = []

    def on_failure(error: Exception) -> None:
        if failures:
            return  # a consequence of the first
        failures.append(error)
        is_configuration = isinstance(error, BundleError | SettingsError)
        server.stop(EXIT_CONFIGURATION if is_configuration else EXIT_ENGINE)

    with listen(settings.host, settings.port) as listener:
        server = Server(
            application.app,
            application.service,
            _serve_options(settings),
            close_engine=application.close_engine,
        )
        application.on_failure = on_failure
        host, port = listener.getsockname()[:2]
        log_event(logger, logging.INFO, "listening", fields={"host": host, "port": port})
        server.run(sockets=[listener])
    for failure in failures:
        _refuse(_problems_of(failure))
    _leave_behind_threads(server.exit_code)
    return server.exit_code


def _problems_of(failure: Exception) -> list[str]:
    """One line each."""
    if isinstance(failure, BundleError):
        return [f"bundle {failure.path}: {problem}" for problem in failure.problems]
    if isinstance(failure, SettingsError):
        return list(failure.problems)
    if isinstance(failure, ServiceError | RuntimeError):
        return [str(failure)]
    return [f"unexpected {type(failure).__name__}; the log says where"]


def _refuse(problems: Iterable[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"transduce serve: {problem}\n")
    return EXIT_CONFIGURATION


def _leave_behind_threads(exit_code: int) -> None:
    """End the process here where a thread is still inside native code: it must not outlive the interpreter."""
    if any(thread.daemon and thread.is_alive() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


async def _routing_error(request: Request, error: Exception) -> Response:
    """What the router refuses: 404 and 405."""
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "http_error")
    body = error_body(code, code.replace("_", " "), request.state.request_id)
    return plain_error(error.status_code, body, dict(error.headers or {}))


def _request_limits(settings: Settings) -> RequestLimits:
    names = RequestLimits.__dataclass_fields__
    return RequestLimits(**{name: getattr(settings, name) for name in names})


def _engine_limits(settings: Settings) -> EngineLimits:
    names = EngineLimits.__dataclass_fields__
    return EngineLimits(**{name: getattr(settings, name) for name in names})


def _serve_options(settings: Settings) -> ServeOptions:
    return ServeOptions(
        connections=ConnectionLimits(
            read_timeout_s=settings.read_timeout_s,
            max_header_bytes=settings.max_header_bytes,
            max_connections=settings.max_connections,
        ),
        keep_alive_s=settings.keep_alive_s,
        drain_delay_s=settings.drain_delay_s,
        drain_timeout_s=settings.drain_timeout_s,
    )
