"""httpx's clients: how they are built, which process uses which, and how a request of asyncio is cancelled."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import anyio  # httpx needs it too
import httpx

from transduce.client.errors import ConnectionFailed
from transduce.client.wire import Endpoint, is_loopback

# The maximum number of calls of one AsyncClient with a request in progress. Streams do not count. More calls could use
# up the process's file descriptors.
MAX_CALLS = 100
# The maximum number of connections that stay open without a request.
MAX_IDLE_CONNECTIONS = 20
# A longer timeout counts as none, because Python's sockets wait at most 2**31 ms.
MAX_TIMEOUT_S = 2_000_000.0
Result = TypeVar("Result")


class AsyncHttp(httpx.AsyncClient):
    """httpx's client for asyncio. calls: a semaphore that each call, other than a stream, holds during its request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.calls = asyncio.Semaphore(MAX_CALLS)


Http = TypeVar("Http", httpx.Client, AsyncHttp)


def http_client(kind: type[Http], endpoint: Endpoint) -> Http:
    """A client of httpx for one server. Raises ValueError if variables of the environment prevent it."""
    is_local = is_loopback(urlsplit(endpoint.url).hostname or "")
    read_s = endpoint.timeout_s if endpoint.timeout_s <= MAX_TIMEOUT_S else None
    try:
        return kind(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {},
            timeout=httpx.Timeout(read_s, connect=endpoint.connect_timeout_s),
            # With a limit, a request would wait for ever while its caller holds that many streams open.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
            verify=_certificates(endpoint.url, is_local=is_local),
            # A proxy cannot reach this machine's loopback, so ignore the proxy variables.
            trust_env=not is_local,
        )
    except (httpx.InvalidURL, ImportError, ValueError, OSError) as error:
        raise ValueError(
            f"the proxy or certificate variables of the environment cannot be used: {error}"
        ) from error


def _certificates(url: str, *, is_local: bool) -> ssl.SSLContext:
    """The certificates to trust: those of `SSL_CERT_FILE` or `SSL_CERT_DIR`, else certifi's."""
    if is_local and url.startswith("http:"):
        # An empty context: loading certificates takes longer than a translation.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.create_ssl_context()


class Connections(Generic[Http]):
    """The connections to one server. A forked process has its own: two readers of one socket mix up the answers."""

    def __init__(self, kind: type[Http], endpoint: Endpoint) -> None:
        self._kind: type[Http] = kind
        self._endpoint = endpoint
        self._owner: tuple[int, Http] = os.getpid(), http_client(kind, endpoint)

    @property
    def http(self) -> Http:
        """httpx's client of this process."""
        pid, http = self._owner
        if pid != os.getpid() and not http.is_closed:
            # The inherited client is dropped, not closed: its connections are the parent's.
            http = http_client(self._kind, self._endpoint)
            self._owner = os.getpid(), http
        return http

    @property
    def is_closed(self) -> bool:
        """Whether the client has been closed."""
        return self.http.is_closed

    @contextmanager
    def request(self) -> Iterator[Http]:
        """The client for one request. Raises TransduceError in place of httpx's errors, or if the client is closed."""
        http = self.http
        try:
            yield http
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            raise self._endpoint.failure(error) from error
        except UnicodeError as error:  # the proxy's name is invalid
            raise ConnectionFailed(f"the proxy cannot be used: {error}") from error
        except RuntimeError as error:
            if not http.is_closed:
                raise
            raise ConnectionFailed("the client is closed") from error


@asynccontextmanager
async def own_task(work: Callable[[], Awaitable[Result]]) -> AsyncIterator[asyncio.Task[Result]]:
    """Yield a task that awaits `work()`. The end of the `with` block cancels the task if it still runs.

    If asyncio cancels a task that waits for a connection, httpcore loses that connection (httpcore's issues 830 and
    1093). httpcore handles only anyio's cancellation, so this function cancels the task through anyio.
    """
    scope = anyio.CancelScope()

    async def run() -> Result:
        with scope:
            return await work()
        raise asyncio.CancelledError

    task = asyncio.create_task(run())
    # Read the task's error. If nothing reads it, as when the caller is cancelled, asyncio logs it.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        yield task
    finally:
        scope.cancel()
        await asyncio.wait([task])


async def result_of(task: asyncio.Task[Result]) -> Result:
    """Wait for a task, which goes on if the caller is cancelled."""
    await asyncio.wait([task])
    return task.result()
