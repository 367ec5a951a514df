"""A server of many connections at once. It returns each text, begins streams without an end, and lists no models."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.transduce.bad_server import START

EVENT = f"event: start\ndata: {json.dumps(START)}\n\n".encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: EchoServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("stream"):
            self._answer({"translations": [{"text": body["text"], "source": "en", "segments": []}]})
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(EVENT) + 1))
        self.end_headers()
        self.wfile.write(EVENT)
        self.server.is_over.wait()
        self.close_connection = True

    def do_GET(self) -> None:
        self._answer({"models": []})

    def _answer(self, answer: object) -> None:
        content = json.dumps(answer).encode()
        with self.server.counting:
            self.server.num_now += 1
            self.server.max_at_once = max(self.server.max_at_once, self.server.num_now)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        *first, last = [content[place : place + 8] for place in range(0, len(content), 8)]
        for piece in first:
            self.wfile.write(piece)
            self.server.is_over.wait(self.server.pause_s)
        # Before the last piece is written, because the client sends its next request after that piece.
        with self.server.counting:
            self.server.num_now -= 1
        self.wfile.write(last)

    def handle(self) -> None:
        with suppress(OSError):  # the client has closed the connection
            super().handle()

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


class EchoServer(ThreadingHTTPServer):
    """max_at_once: the maximum number of answers that were written at the same time.

    pause_s: seconds between two pieces of an answer. is_over: set when the server stops.
    """

    daemon_threads = True
    request_queue_size = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_over, self.counting = threading.Event(), threading.Lock()
        self.num_now = self.max_at_once = 0
        self.pause_s = 0.0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def echo_server(tls: ssl.SSLContext | None = None) -> Iterator[EchoServer]:
    with EchoServer() as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
            server.url = server.url.replace("http:", "https:")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            server.shutdown()
            thread.join()
