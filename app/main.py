"""Assembles the server: settings -> bundle -> workers -> engine -> golden check and warm-up -> ready.

The server listens immediately, so that /livez answers while the models load. /readyz and all requests that need a model
get 503 until each model of the start has passed its golden check and its warm-up.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.api.admin import AdminToken, add_admin_routes
from app.api.dialects import DIALECTS, add_dialects
from app.api.http.auth import ApiKeys, NamedKeys
from app.api.http.connections import reserve_open_files
from app.api.http.cors import CrossOrigin
from app.api.http.dialect import Dialect
from app.api.http.ending import exit_without_joining
from app.api.http.error_table import HTTP_CODES, error_body, plain_error
from app.api.http.middleware import Gate, RequestScope
from app.api.http.ready_line import print_address
from app.api.http.request_route import RequestRoute
from app.api.http.server import Server, block_signals, listen
from app.api.key_admin import add_key_routes, key_figures
from app.api.native.routes import add_native_routes
from app.api.native.stream import StreamLimits, add_stream_route
from app.api.openapi import describe
from app.api.page import add_page
from app.api.plain_translation import PlainTranslator
from app.api.probes import add_docs, add_probes
from app.api.row_trace import add_trace_route
from app.api.service import Service
from app.errors import BundleError, NotReady, ServiceError, SettingsError
from app.key_reload import KeyReload
from app.model_host import ModelHost
from app.model_starter import BundleLoader, ModelLoader
from app.observability.cgroup_memory import CgroupMemory
from app.observability.key_metrics import KeyCollector
from app.observability.logging import close_log, configure_logging, log_event, num_dropped_lines
from app.observability.loop_lag import LoopLag
from app.observability.metrics import Metrics
from app.observability.tracing import OFF
from app.runtime.memory import freeze_and_trim, limit_pauses
from app.secret_settings import read_admin_token, read_api_keys, read_tls
from app.settings import Settings, load_settings
from app.translator.text_threads import TextThreads
from app.wiring import (
    document_limits,
    glossaries,
    page_settings,
    request_limits,
    serve_options,
    tracing,
    usage,
)
from app.workers.fork_server import ForkServer

if TYPE_CHECKING:
    from app.api.files.document_jobs import DocumentJobs

logger = logging.getLogger("app.main")
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
EXIT_ENGINE = 70  # EX_SOFTWARE: the process's supervisor starts a new one
DEAD_ENGINE = "the engine has died; see the log for the cause"


class Application:
    """The components of one server. `app` is the ASGI application. Its lifespan starts and stops the other components.

    on_failure: called on the event loop with the error that keeps the server from serving: any error of the start, such
    as BundleError or SettingsError, or RuntimeError if an engine dies. on_ready: called on the event loop when the
    server accepts requests.
    """

    def __init__(self, settings: Settings, *, loader: ModelLoader | None = None) -> None:
        """loader: loads the models; None: a `BundleLoader`.

        Raises SettingsError for unusable secrets, certificates, glossaries or stores of the keys' counts.
        """
        self.settings = settings
        self.metrics = Metrics()
        self.metrics.readings.track_log(num_dropped_lines)
        self.metrics.readings.track_gauges(CgroupMemory().gauges())
        self.tracing = tracing(settings)
        self.service = Service(self.metrics, glossaries(settings), self.tracing, usage(settings))
        self.on_failure: Callable[[Exception], None] = lambda _error: None
        self.on_ready: Callable[[], None] = lambda: None
        self._text_threads = TextThreads(settings.num_text_threads)
        self.host = ModelHost(
            settings,
            self.service,
            text_threads=self._text_threads,
            loader=loader or BundleLoader(),
            on_death=self._on_death,
        )
        self._document_jobs: DocumentJobs | None = None
        self._passed_check = False  # whether each model of the start has passed its golden check and warm-up
        self._engine_died = False
        self.tls = read_tls(settings)
        self.keys = ApiKeys(())
        self._key_reload = KeyReload(
            lambda: read_api_keys(settings), self._replace_keys, path=settings.api_keys_file
        )
        self._replace_keys(read_api_keys(settings))
        self._track_keys()
        self.app = self._build(read_admin_token(settings))

    def _replace_keys(self, found: Sequence[NamedKeys]) -> None:
        """Accept these keys, with their limits, from now on."""
        usage = self.service.usage
        self.keys.replace(found)
        usage.set_limits({keys.name: keys.limits for keys in found})
        if usage.saver is None and any(keys.limits.counted for keys in found):
            log_event(logger, logging.WARNING, "usage_not_kept")  # a restart forgets what keys have used

    def _track_keys(self) -> None:
        """Add the metrics of the keys."""
        usage = self.service.usage
        collector = KeyCollector(
            lambda: key_figures(usage),
            num_failures=lambda: 0 if usage.saver is None else usage.saver.num_failures,
            num_reloads=self._key_reload.outcomes,
        )
        self.metrics.registry.register(collector)

    def _build(self, admin_token: str | None) -> FastAPI:
        settings, keys = self.settings, self.keys
        app = FastAPI(
            title="Transduce",
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            lifespan=lambda _app: self.lifespan(),
            telemetry=OFF if self.tracing is None else self.tracing.telemetry,
        )
        app.router.redirect_slashes = False
        app.router.route_class = RequestRoute
        limits = request_limits(settings)
        add_native_routes(app.router, self.service, limits)
        stream_limits = StreamLimits(settings.stream_keep_alive_s)
        add_stream_route(app.router, self.service, limits, stream_limits)
        plain = PlainTranslator(self.service, limits, timeout_s=settings.compat_timeout_s)
        max_bytes_by_path: dict[str, int] = {}  # largest body in bytes, for paths with their own limit
        if settings.files_enabled:
            # With files disabled, the modules of the file routes are not imported.
            from app.api.files.document_jobs import DocumentJobs
            from app.api.files.routes import UPLOAD_PATHS

            self._document_jobs = DocumentJobs(plain, document_limits(settings))
            max_bytes_by_path = dict.fromkeys(UPLOAD_PATHS, settings.max_file_bytes)
        add_dialects(app.router, plain, keys, self._document_jobs)
        add_probes(app.router, self.service)
        if admin_token is not None:
            token = AdminToken(admin_token)
            add_admin_routes(app.router, self.host, token)
            add_trace_route(app.router, self.service, token)
            add_key_routes(app.router, self.service.usage, token)
        if settings.docs_enabled:
            add_docs(app.router, lambda: describe(app, limits, DIALECTS))
        if settings.page_enabled:
            add_page(app.router, page_settings(settings, keys))
        app.add_exception_handler(HTTPException, _routing_error)
        app.add_middleware(
            Gate,
            keys=keys,
            max_body_bytes=settings.max_body_bytes,
            max_bytes_by_path=max_bytes_by_path,
            allowed_origins=settings.cors_origins,
        )
        app.add_middleware(RequestScope, metrics=self.metrics, dialects=DIALECTS, tracing=self.tracing)
        if settings.cors_origins:
            app.add_middleware(CrossOrigin, origins=settings.cors_origins)
        if settings.trusted_proxies:  # added last, so outermost: all others see the caller's address
            app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=sorted(settings.trusted_proxies))
        return app

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start loading the models; at shutdown stop the engines and the file workers."""
        loading = asyncio.create_task(self._become_ready())
        lag = LoopLag(self.metrics.loop_lag_seconds.observe)
        lag.start()
        if self.settings.watch:
            self._key_reload.watch()
        try:
            yield
        finally:
            lag.stop()
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            if self._document_jobs is not None:
                await self._document_jobs.close()
            await self.host.close()
            await self._key_reload.close()
            await self.service.usage.close()
            self._text_threads.shutdown(wait=False, cancel_futures=True)
            if self.tracing is not None:
                await self.tracing.close()

    async def _become_ready(self) -> None:
        """Load, check, warm up and open the server, or report why it cannot serve."""
        try:
            await self._open()
        except NotReady:  # the server is shutting down, or the engine died
            self.service.become_failed()
            if self._engine_died:
                self.on_failure(RuntimeError(DEAD_ENGINE))
        except (BundleError, SettingsError, ServiceError) as error:
            self.service.become_failed()
            self.on_failure(error)
        except Exception as error:  # noqa: BLE001 - any error here keeps the server from serving
            self.service.become_failed()
            log_event(logger, logging.CRITICAL, "start_failed", error=error)
            self.on_failure(error)
        finally:
            gc.enable()  # transduce.serve disables it for a faster start

    def reload(self) -> None:
        """Read the bundles and the keys again, after SIGHUP."""
        self.host.reload()
        self._key_reload.reload()

    async def close_engine(self) -> None:
        """Stop the engines now; pending sentences end with NotReady."""
        await self.host.close()

    def _on_death(self) -> None:
        """Report that an engine died. Until all models have started, `_become_ready` reports it."""
        self._engine_died = True
        if self._passed_check:
            self.on_failure(RuntimeError(DEAD_ENGINE))

    async def _open(self) -> None:
        started = time.monotonic()
        if self._document_jobs is not None:
            await self._document_jobs.open()
        await self.host.open()
        if self._engine_died:  # after its own warm-up, while other models were loaded
            raise NotReady(DEAD_ENGINE)
        self._passed_check = True
        freeze_and_trim()
        self.metrics.model_load_seconds.set(time.monotonic() - started)
        self.service.become_ready(self.host.models)
        self.host.report("ready", started)
        self.on_ready()


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application, for any server that supports lifespan. Raises SettingsError."""
    return Application(settings).app


def serve(overrides: dict[str, object], fork_server: ForkServer | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. fork_server: an idle fork server that runs already.

    Returns the exit code. If threads still run, it ends the process with the exit code instead. Raises OSError if the
    address cannot be bound. The exit code is

    - 0 after a drain;
    - 78 for unusable settings or an unusable bundle, with one line per problem on stderr;
    - 70 if an engine died, if another error ended the start, or if the process did not end in time after its drain;
    - 128 + the signal if a second signal cut the drain short.
    """
    try:
        settings = load_settings(overrides)
        configure_logging(settings.log_level)
        reserve_open_files(settings.max_connections)
        application = Application(settings, loader=BundleLoader(fork_server))
    except SettingsError as error:
        return _print_problems(error.problems)
    return run(application, at_end=lambda: None if fork_server is None else fork_server.close())


def run(application: Application, at_end: Callable[[], None] = lambda: None) -> int:
    """Serve an application, and end as `serve` does. at_end: called after the server has stopped."""
    settings = application.settings
    block_signals()
    limit_pauses()
    failures: list[Exception] = []

    def on_failure(error: Exception) -> None:
        if failures:
            return  # later failures follow from the first
        failures.append(error)
        is_configuration = isinstance(error, BundleError | SettingsError)
        server.stop(EXIT_CONFIGURATION if is_configuration else EXIT_ENGINE)

    with contextlib.ExitStack() as listeners:
        listener = listeners.enter_context(listen(settings.host, settings.port))
        server = Server(
            application.app,
            application.service,
            serve_options(settings, application.tls),
            close_engine=application.close_engine,
            reload=application.reload,
        )
        application.on_failure = on_failure
        host, port = listener.getsockname()[:2]
        scheme = "http" if application.tls is None else "https"
        application.on_ready = lambda: print_address(scheme, host, port, has_page=settings.page_enabled)
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
    """The lines to print for a failure."""
    if isinstance(failure, BundleError):
        return [f"bundle {failure.path}: {problem}" for problem in failure.problems]
    if isinstance(failure, SettingsError):
        return list(failure.problems)
    if isinstance(failure, ServiceError | RuntimeError):
        return [str(failure)]
    return [f"unexpected {type(failure).__name__}; see the log"]


def _print_problems(problems: Iterable[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"transduce serve: {problem}\n")
    return EXIT_CONFIGURATION


async def _routing_error(request: Request, error: Exception) -> Response:
    """The response to a request that no route accepts: 404 or 405."""
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "http_error")
    headers = dict(error.headers or {})
    if "Allow" in headers:  # Starlette names only the first route of the path
        headers["Allow"] = _allowed_methods(request)
    message = "this server has no such route" if error.status_code == 404 else code.replace("_", " ")
    if request.state.dialect is not None:
        dialect: Dialect = request.state.dialect
        return dialect.answer(error.status_code, message, headers)
    body = error_body(code, message, request.state.request_id)
    return plain_error(error.status_code, body, headers)


def _allowed_methods(request: Request) -> str:
    """The methods of all routes of the request's path."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    matching = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    methods = {method for route in matching for method in route.methods or ()}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
