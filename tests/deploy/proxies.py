"""Runs the proxies of deploy/proxy with a certificate of the tests, in front of a port of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests.api.certificates import trusting
from tests.api.server_process import HANG_TIMEOUT_S
from tests.house_rules.project import ROOT
from transduce.local_server import free_port

FOLDER = ROOT / "deploy" / "proxy"
# The folders of the programs: the environment's, and that of `make envoy`.
PATH = f"{os.environ['PATH']}:{ROOT}/build/envoy/envoy/_bin"
# What nginx needs beside the file of deploy/proxy. It writes into the folder of the test only.
NGINX = """
daemon off; pid {folder}/nginx.pid; error_log stderr; worker_processes 1; {user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/transduce.conf;
}}
"""
# What the log of a proxy has, in lower or upper case, if its port is taken.
TAKEN = "address already in use"
# Caddy must neither open the ports 80 and 2019 nor install its own certificate.
CADDY = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """The text with every change. Fails if one of them changes nothing."""
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    return text


def nginx(
    folder: Path, port: int, upstream: int, pair: tuple[Path, Path], others: Mapping[str, str]
) -> list[str]:
    """Write nginx's files, and return its command."""
    changes = {
        **others,
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{upstream};",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "/etc/ssl/certs/translate.example.org.pem": str(pair[0]),
        "/etc/ssl/private/translate.example.org.key": str(pair[1]),
    }
    (folder / "transduce.conf").write_text(replaced((FOLDER / "nginx.conf").read_text("utf-8"), changes))
    # Without this line, workers of root's nginx run as its default user, which cannot write into the test's folder.
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    return ["nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(
    folder: Path, port: int, upstream: int, pair: tuple[Path, Path], others: Mapping[str, str]
) -> list[str]:
    """Write Caddy's file, and return its command."""
    changes = {
        **others,
        "translate.example.org {": f"https://127.0.0.1:{port} {{",
        "127.0.0.1:8000": f"127.0.0.1:{upstream}",
        "/etc/ssl/certs/translate.example.org.pem": str(pair[0]),
        "/etc/ssl/private/translate.example.org.key": str(pair[1]),
    }
    (folder / "Caddyfile").write_text(CADDY + replaced((FOLDER / "Caddyfile").read_text("utf-8"), changes))
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def envoy(
    folder: Path, port: int, upstream: int, pair: tuple[Path, Path], others: Mapping[str, str]
) -> list[str]:
    """Write Envoy's file, and return its command."""
    changes = {
        **others,
        "address: 0.0.0.0, port_value: 443": f"address: 127.0.0.1, port_value: {port}",
        "port_value: 8000": f"port_value: {upstream}",
        "/etc/ssl/certs/translate.example.org.pem": str(pair[0]),
        "/etc/ssl/private/translate.example.org.key": str(pair[1]),
    }
    (folder / "envoy.yaml").write_text(replaced((FOLDER / "envoy.yaml").read_text("utf-8"), changes))
    # Without hot restarts, Envoy uses no shared memory, so several can run at once.
    return ["envoy", "-c", str(folder / "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart"]


PROXIES = {"nginx": nginx, "caddy": caddy, "envoy": envoy}


@contextlib.contextmanager
def running(
    name: str, folder: Path, upstream: int, pair: tuple[Path, Path], changes: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a proxy and yield its URL. Skips the test if the program is not installed.

    upstream: the port of the server behind it. pair: the files of the certificate and of its key. changes: further
    texts of the proxy's file, each with the text that replaces it.
    """
    if shutil.which(name, path=PATH) is None:
        pytest.skip(f"{name} is not installed")
    url = None
    while url is None:
        port = free_port()
        with started(name, folder, PROXIES[name](folder, port, upstream, pair, changes or {})) as process:
            url = ready_url(process, port, pair[0], folder / f"{name}.log")
            if url is not None:
                yield url


@contextlib.contextmanager
def started(name: str, folder: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a proxy's command, and end it. Its output is in NAME.log."""
    environment = {**os.environ, "PATH": PATH, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(HANG_TIMEOUT_S)


def ready_url(process: subprocess.Popen[bytes], port: int, certificate: Path, log: Path) -> str | None:
    """Wait until a proxy answers. Returns its URL, or None if another process has taken the port meanwhile."""
    url, until = f"https://127.0.0.1:{port}", time.monotonic() + HANG_TIMEOUT_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(url, verify=trusting(certificate), trust_env=False)
            return url
        has_ended, text = process.poll() is not None, log.read_text("utf-8")
        if has_ended and TAKEN in text.lower():
            return None
        assert not has_ended, text
        assert time.monotonic() < until, text
        time.sleep(0.05)
