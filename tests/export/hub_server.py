"""A server on 127.0.0.1 that speaks the part of the Hugging Face hub's protocol that downloads need.

`huggingface_hub` asks for the commit of a revision, for the list of the commit's files, and for the size and hash of
each file with HEAD before it fetches the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_a_token_of_the_test"


@dataclass
class Hub:
    """What the server offers, and a record of its requests.

    models: the folder of each model. revisions: the revisions of every model. gated: models whose files need TOKEN.
    fetched: names of fetched files, in order. requests: the paths of all requests, without queries.
    url: the address of the server.
    """

    models: dict[str, Path]
    revisions: tuple[str, ...] = ("main", "v2", COMMIT)
    gated: set[str] = field(default_factory=set)
    fetched: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serve until the block ends. Sets `hub.url`."""

    class Handler(_Handler):
        known = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    known: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.known.requests.append(path)
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(?:revision|tree)/([^/]+)", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = listing or file
        if found is None or found[1] not in self.known.models:
            # For a model that it does not have, the hub answers as for a private model: 401 to a listing.
            self._send(401 if listing else 404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif found[2] not in self.known.revisions:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif listing:
            self._send(200, json.dumps(self._listing(found[1], is_tree="/tree/" in path)).encode(), {})
        elif found[1] in self.known.gated and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        else:
            self._send_file(self.known.models[found[1]] / found[3])

    def do_HEAD(self) -> None:
        self.do_GET()

    def _listing(self, name: str, *, is_tree: bool) -> object:
        folder = self.known.models[name]
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        names = [path.relative_to(folder).as_posix() for path in files]
        if not is_tree:
            return {"id": name, "sha": COMMIT, "siblings": [{"rfilename": each} for each in names]}
        return [
            {"type": "file", "path": each, "size": path.stat().st_size, "oid": _hash_of(path)}
            for each, path in zip(names, files, strict=True)
        ]

    def _send_file(self, path: Path) -> None:
        if self.command != "HEAD":
            self.known.fetched.append(path.name)
        self._send(200, path.read_bytes(), {"ETag": f'"{_hash_of(path)}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _hash_of(path: Path) -> str:
    return hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
