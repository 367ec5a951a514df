"""The server put together: settings -> bundle -> runner -> engine -> golden check and warm-up -> ready.

It listens from the first moment, so that /livez answers while the model loads; everything else is refused with
503 until the model has shown, through the very engine that will serve, that it says what its bundle says.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app.api.dialects import DIALECTS, add_dialects
from app.api.http.auth import ApiKeys
from app.api.http.connections import reserve_open_files
from app.api.http.cors import CrossOrigin
from app.api.http.dialect import Dialect
from app.api.http.ending import exit_without_joining
from app.api.http.error_table import HTTP_CODES, error_body, plain_error
from app.api.http.middleware import Gate, RequestScope
from app.api.http.ready_line import print_address
from app.api.http.routing import PathRouter, PlainApp, PlainRoute
from app.api.http.server import Server, block_signals, listen
from app.api.native.routes import add_native_routes
from app.api.native.stream import StreamLimits, add_stream_route
from app.api.openapi import describe
from app.api.page import add_page
from app.api.plain_translation import PlainTranslator
from app.api.probes import add_docs, add_probes
from app.api.service import Service
from app.engine.engine import Engine
from app.engine.origin import Origin
from app.errors import BundleError, NotReady, ServiceError, SettingsError
from app.observability.logging import close_log, configure_logging, log_event, num_dropped_lines
from app.observability.metrics import Metrics
from app.runtime.memory import freeze_and_trim, limit_pauses
from app.settings import Settings, load_settings, read_api_keys
from app.startup import (
    LoadedModel,
    check_golden,
    in_daemon_thread,
    load_model,
    model_key,
    release_model,
    warm_up,
)
from app.stores.usage import UsageCounter
from app.translator import AnswerLimits, Extras, Translator
from app.translator.decoder import DecoderSettings, SentenceDecoder
from app.wiring import document_limits, engine_limits, glossaries, page_facts, request_limits, serve_options

if TYPE_CHECKING:
    from app.api.files.document_jobs import DocumentJobs

logger = logging.getLogger("app.main")
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
EXIT_ENGINE = 70  # EX_SOFTWARE: whoever supervises the process starts a new one
DEAD_ENGINE = "the engine has died; the log says of what"


class Application:
    """One server's parts. `app` is the ASGI application; its lifespan starts and ends the others.

    on_failure: told, on the event loop, what keeps the server from serving: BundleError or SettingsError at
    start, RuntimeError when the engine has died. on_ready: called on the event loop when requests are taken.
    """

    def __init__(self, settings: Settings, *, load: Callable[[Settings], LoadedModel] = load_model) -> None:
        """Raises SettingsError for unusable API keys or glossaries."""
        self.settings = settings
        self.metrics = Metrics()
        self.metrics.track_log(num_dropped_lines)
        self.service = Service(self.metrics, glossaries(settings))
        self.engine: Engine | None = None
        self.on_failure: Callable[[Exception], None] = lambda _error: None
        self.on_ready: Callable[[], None] = lambda: None
        self._load = load
        self._executor = ThreadPoolExecutor(settings.num_text_threads, thread_name_prefix="text")
        self._document_jobs: DocumentJobs | None = None
        self._is_checked = False  # the engine, by what the bundle says
        self._has_died = False  # the engine
        self.app = self._build(ApiKeys(read_api_keys(settings)))

    def _build(self, keys: ApiKeys) -> FastAPI:
        settings = self.settings
        app = PlainApp(
            title="Transduce",
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            lifespan=lambda _app: self.lifespan(),
        )
        app.router.redirect_slashes = False
        app.router.route_class = PlainRoute
        limits = request_limits(settings)
        add_native_routes(app.router, self.service, limits)
        stream_limits = StreamLimits(settings.stream_keep_alive_s)
        add_stream_route(app.router, self.service, limits, stream_limits)
        plain = PlainTranslator(self.service, limits, timeout_s=settings.compat_timeout_s)
        usage = UsageCounter(settings.quota_characters)
        larger: dict[str, int] = {}
        if settings.files_enabled:
            # A server that takes no files does not load what reads them.
            from app.api.files.document_jobs import DocumentJobs
            from app.api.files.routes import UPLOAD_PATHS

            self._document_jobs = DocumentJobs(plain, document_limits(settings), usage)
            larger = dict.fromkeys(UPLOAD_PATHS, settings.max_file_bytes)
        add_dialects(app.router, plain, keys, usage, self._document_jobs)
        add_probes(app.router, self.service)
        if settings.docs_enabled:
            add_docs(app.router, lambda: describe(app, limits))
        if settings.page_enabled:
            add_page(app.router, page_facts(settings, keys))
        app.add_exception_handler(HTTPException, _routing_error)
        app.add_middleware(PathRouter, routes=app.routes)
        app.add_middleware(
            Gate,
            keys=keys,
            max_body_bytes=settings.max_body_bytes,
            larger=larger,
            allowed_origins=settings.cors_origins,
        )
        app.add_middleware(RequestScope, metrics=self.metrics, dialects=DIALECTS)
        if settings.cors_origins:
            app.add_middleware(CrossOrigin, origins=settings.cors_origins)  # added last, so outermost
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
            if self._document_jobs is not None:
                await self._document_jobs.close()
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
        except NotReady:  # the server is shutting down, or the engine has died
            self.service.become_failed()
            if self._engine_died:
                self.on_failure(RuntimeError(DEAD_ENGINE))
        except (BundleError, SettingsError, ServiceError) as error:
            self.service.become_failed()
            self.on_failure(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the server cannot serve
            self.service.become_failed()
            log_event(logger, logging.CRITICAL, "start_failed", error=error)
            self.on_failure(error)
        finally:
            gc.enable()  # where whoever started the process had turned it off

    def _on_death(self) -> None:
        """The engine has died. While it is being checked the check says why: the bundle may be the reason."""
        self._engine_died = True
        if self._passed_check:
            self.on_failure(RuntimeError(DEAD_ENGINE))

    async def _open(self) -> None:
        started = time.monotonic()
        if self._document_jobs is not None:
            await self._document_jobs.open()
        model = await in_daemon_thread(lambda: self._load(self.settings), on_unused=release_model)
        self.engine = Engine(
            model.lanes,
            settings=engine_limits(self.settings),
            on_steps=self.metrics.record_steps,
            on_death=self._on_death,
        )
        self.engine.start()
        decoder = SentenceDecoder(
            self.engine,
            model_key=model_key(model),
            settings=DecoderSettings(self.settings.sentence_cache_bytes, self.settings.coalesce),
        )
        translator = Translator(
            model.manifest,
            self.engine,
            source_tokenizer=model.source_tokenizer,
            target_tokenizer=model.target_tokenizer,
            executor=self._executor,
            extras=Extras(
                detector=model.detector,
                glossaries=self.service.glossaries,
                decoder=decoder,
                limits=AnswerLimits(self.settings.max_request_sentences, self.settings.max_token_lists),
            ),
        )
        await check_golden(model, translator, min_share=self.settings.golden_min_share)
        await warm_up(model, translator)
        if model.detector is not None and model.detector.has_begun:
            await asyncio.wrap_future(model.detector.loaded())
        self._passed_check = True
        self.engine.end_warm_up()
        decoder.clear()
        freeze_and_trim()
        self.metrics.track_cache(decoder.facts)
        self.metrics.track_queue(self.engine.health)
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
        self.on_ready()


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application, to be run by any server that speaks lifespan. Raises SettingsError."""
    return Application(settings).app


def serve(overrides: dict[str, object], origin: Origin | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code. origin: of the engine's processes, where it was started.

    0 after a drain, 78 for settings or a bundle that cannot be used (every problem on a line of its own on
    stderr), 70 where the engine died, 128 + the signal where a second one cut the drain short. Raises
    OSError where the address cannot be listened on.
    """
    try:
        settings = load_settings(overrides)
        configure_logging(settings.log_level)
        reserve_open_files(settings.max_connections)
        application = Application(settings, load=partial(load_model, origin=origin))
    except SettingsError as error:
        return _print_problems(error.problems)
    return run(application, at_end=lambda: None if origin is None else origin.leave())


def run(application: Application, at_end: Callable[[], None] = lambda: None) -> int:
    """Serve an application; as `serve`."""
    settings = application.settings
    block_signals()
    limit_pauses()
    failures: list[Exception] = []

    def on_failure(error: Exception) -> None:
        if failures:
            return  # a consequence of the first
        failures.append(error)
        is_configuration = isinstance(error, BundleError | SettingsError)
        server.stop(EXIT_CONFIGURATION if is_configuration else EXIT_ENGINE)

    with contextlib.ExitStack() as listeners:
        listener = listeners.enter_context(listen(settings.host, settings.port))
        server = Server(
            application.app,
            application.service,
            serve_options(settings),
            close_engine=application.close_engine,
        )
        application.on_failure = on_failure
        host, port = listener.getsockname()[:2]
        application.on_ready = lambda: print_address(host, port, has_page=settings.page_enabled)
        if settings.probe_port is not None:
            server.probe_listener = listeners.enter_context(listen(settings.host, settings.probe_port))
            _log_listening("listening_for_probes", server.probe_listener)
        _log_listening("listening", listener)
        server.run(sockets=[listener])
    for failure in failures:
        _print_problems(_problems_of(failure))
    at_end()
    close_log()
    exit_without_joining(server.exit_code)
    return server.exit_code


def _log_listening(event: str, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    log_event(logger, logging.INFO, event, fields={"host": host, "port": port})


def _problems_of(failure: Exception) -> list[str]:
    """One line each."""
    if isinstance(failure, BundleError):
        return [f"bundle {failure.path}: {problem}" for problem in failure.problems]
    if isinstance(failure, SettingsError):
        return list(failure.problems)
    if isinstance(failure, ServiceError | RuntimeError):
        return [str(failure)]
    return [f"unexpected {type(failure).__name__}; the log says where"]


def _print_problems(problems: Iterable[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"transduce serve: {problem}\n")
    return EXIT_CONFIGURATION


async def _routing_error(request: Request, error: Exception) -> Response:
    """What the router refuses: 404 and 405."""
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "http_error")
    if request.state.dialect is not None:
        dialect: Dialect = request.state.dialect
        return dialect.answer(error.status_code, code.replace("_", " "), dict(error.headers or {}))
    body = error_body(code, code.replace("_", " "), request.state.request_id)
    return plain_error(error.status_code, body, dict(error.headers or {}))
