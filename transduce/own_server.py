"""A server that a command starts on a free loopback port and stops at its own end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from transduce.errors import CommandError
from transduce.local_server import LOOPBACK, PREFIX, environment_without_settings, free_port

# Seconds until a server that is not ready counts as failed. If too small, a large model on a busy machine fails to
# start.
START_LIMIT_S = 300.0
# Seconds between SIGTERM and SIGKILL. If too small, running requests are cut off.
END_LIMIT_S = 30.0
POLL_S = 0.1


class OwnServer:
    """`transduce serve` as a child process.

    Use it as a context manager; on entry it waits until the server is ready.

    The environment's settings (TRANSDUCE_...) are not passed on, because they may be those of another server.
    """

    def __init__(self, bundle: Path) -> None:
        """bundle: the bundle to serve."""
        self._bundle = bundle
        self._port = 0

    @property
    def url(self) -> str:
        """The server's root. Valid only inside the `with` block."""
        return f"http://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        """Start the server.

        Raises:
            CommandError: the server ends, or is not ready in time; the message has its last line of output.
        """
        self._port = free_port()
        command = [sys.executable, "-m", "transduce", "serve", "--host", LOOPBACK, "--port", str(self._port)]
        environment = environment_without_settings()
        # The output is a file, and a line for each request would fill it.
        environment[f"{PREFIX}LOG_LEVEL"] = "warning"
        self._output = tempfile.TemporaryFile()  # closed in __exit__
        self._process = subprocess.Popen(
            [*command, "--bundle", str(self._bundle)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server: SIGTERM first, SIGKILL after END_LIMIT_S."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()

    def _wait_until_ready(self) -> None:
        """Wait until /readyz returns 200."""
        until = time.monotonic() + START_LIMIT_S
        with httpx.Client(base_url=self.url, timeout=10.0, trust_env=False) as client:
            while self._process.poll() is None and time.monotonic() < until:
                try:
                    if client.get("/readyz").status_code == httpx.codes.OK:
                        return
                except httpx.HTTPError:
                    pass
                time.sleep(POLL_S)
        raise CommandError(f"no server could be started with {self._bundle}: {self._last_line()}")

    def _last_line(self) -> str:
        """The server's last line of output."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"
