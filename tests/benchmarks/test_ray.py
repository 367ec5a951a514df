"""The comparison of the answers of a server and of Ray. Neither runs here: two small servers answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.load import make_request
from benchmarks.ray import compared

NUM_REQUESTS = 20


@contextmanager
def serving(*, other: bytes = b"") -> Iterator[int]:
    """A server that answers each request with the request's body, and the first request late. Yields the port.

    other: the server gives another answer to requests that contain this text; empty: to no request.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if b"text 0 " in body:
                time.sleep(0.2)
            answer = b"other" if other and other in body else body
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_the_answers_to_all_requests_are_compared() -> None:
    requests = [
        make_request(number, f"text {number} ", pair=("en", "de"), beam_size=4)
        for number in range(NUM_REQUESTS)
    ]
    with serving() as own, serving(other=b"text 0 ") as ray:
        assert compared(own, own, requests) == {"num_compared": NUM_REQUESTS, "num_different": 0}
        assert compared(own, ray, requests) == {"num_compared": NUM_REQUESTS, "num_different": 1}
