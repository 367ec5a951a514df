"""Makes each component's configuration from the settings, and opens the stores that they name."""

from __future__ import annotations

from app.api.files.document_store import DocumentLimits
from app.api.http.auth import ApiKeys
from app.api.http.connections import ConnectionLimits, ConnectionTable, max_per_address
from app.api.http.request_head import PROBES
from app.api.http.server import ServeOptions
from app.api.http.tls import Tls
from app.api.limits import RequestLimits
from app.api.page import PageSettings
from app.engine.limits import EngineLimits
from app.errors import SettingsError
from app.file_worker.messages import WorkerLimits
from app.files import SUFFIXES
from app.observability.tracing import Tracing
from app.settings import Settings
from app.stores.glossaries import GlossaryStore, GlossaryStoreError
from app.stores.usage import Usage
from app.stores.usage_store import SqliteUsageStore, UsageStoreError


def glossaries(settings: Settings) -> GlossaryStore:
    """Open the glossary store. Raises SettingsError."""
    try:
        return GlossaryStore(settings.glossary_path)
    except GlossaryStoreError as error:
        raise SettingsError([f"TRANSDUCE_GLOSSARY_PATH: {error}"]) from error


def usage(settings: Settings) -> Usage:
    """Return the counter of what each caller uses, with its store. Raises SettingsError."""
    if settings.usage_redis_url is not None:
        from app.stores.redis_usage_store import RedisUsageStore

        try:
            return Usage(RedisUsageStore(settings.usage_redis_url.get_secret_value()))
        except ValueError as error:
            problem = "it is no URL of a Redis server, or has a wrong option or database"
            raise SettingsError([f"TRANSDUCE_USAGE_REDIS_URL: {problem}"]) from error
    try:
        return Usage(None if settings.usage_path is None else SqliteUsageStore(settings.usage_path))
    except UsageStoreError as error:
        raise SettingsError([f"TRANSDUCE_USAGE_PATH: {error}"]) from error


def tracing(settings: Settings) -> Tracing | None:
    """The tracing of requests; None if the settings have no endpoint for traces."""
    if settings.traces_endpoint is None:
        return None
    return Tracing(settings.traces_endpoint, share=settings.traces_share, untraced=PROBES)


def request_limits(settings: Settings) -> RequestLimits:
    """The limits of one request."""
    names = RequestLimits.__dataclass_fields__
    return RequestLimits(**{name: getattr(settings, name) for name in names})


def page_settings(settings: Settings, keys: ApiKeys) -> PageSettings:
    """The settings of the server that the web page reads."""
    return PageSettings(
        needs_key=keys.are_needed,
        has_docs=settings.docs_enabled,
        file_suffixes=_file_suffixes(settings),
        max_file_bytes=settings.max_file_bytes,
        max_characters=settings.max_item_characters,
        max_beam_size=settings.max_beam_size,
    )


def _file_suffixes(settings: Settings) -> tuple[str, ...]:
    """Suffixes of the accepted files."""
    return tuple(SUFFIXES) if settings.files_enabled else ()


def document_limits(settings: Settings) -> DocumentLimits:
    """The limits of the file routes and of the file workers."""
    return DocumentLimits(
        max_file_bytes=settings.max_file_bytes,
        max_files=settings.max_files,
        max_kept_bytes=settings.max_kept_file_bytes,
        ttl_s=settings.file_ttl_s,
        timeout_s=settings.file_timeout_s,
        worker=WorkerLimits(
            memory_bytes=settings.file_memory_bytes,
            cpu_s=settings.file_cpu_s,
            # One text of a file becomes one text of a request, so it must fit a request's limits. A sentence has at
            # least two characters with its separator, so the sentence limit bounds the characters too.
            part_characters=min(settings.max_item_characters, 2 * settings.max_request_sentences),
        ),
    )


def engine_limits(settings: Settings) -> EngineLimits:
    """The engine's limits."""
    names = EngineLimits.__dataclass_fields__
    return EngineLimits(**{name: getattr(settings, name) for name in names})


def serve_options(settings: Settings, tls: Tls | None) -> ServeOptions:
    """The limits of connections and of draining, and the certificate."""
    return ServeOptions(
        connections=ConnectionLimits(
            read_timeout_s=settings.read_timeout_s,
            stall_s=settings.reader_stall_s,
            max_header_bytes=settings.max_header_bytes,
        ),
        table=ConnectionTable(
            settings.max_connections,
            max_per_address(settings.max_connections, settings.max_connections_per_address),
            proxies=settings.trusted_proxies,
        ),
        keep_alive_s=settings.keep_alive_s,
        drain_delay_s=settings.drain_delay_s,
        drain_timeout_s=settings.drain_timeout_s,
        tls=tls,
    )
