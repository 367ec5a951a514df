"""The attacks on a running server: what one caller sends, what stops it, and what happens."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from benchmarks.files import UPLOAD, docx, resident_mb, send, upload_body
from benchmarks.server_process import HOST, Process

ATTACKER, NEIGHBOUR = "127.0.0.1", "127.0.0.2"
NUM_IDLE = 2000
NUM_SLOW = 50
NUM_SLOW_FILES = 8
NUM_KEPT_FILES = 101  # one more than MAX_FILES
FLOOD_S = 5
FILE_LIMIT_S = 610.0  # longer than FILE_TIMEOUT_S
# The time limit of a socket. Longer than READ_TIMEOUT_S and READER_STALL_S, after which the server closes a connection.
WAIT_S = 15.0
SLOW_MARKDOWN = b"![" * 450_000
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
GET_OPENAPI = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
BAD_HEADS = (
    b"GET /livez\r\n\r\n",
    b"GET /livez HTTP/1.1\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    POST + b"transfer-encoding: gzip, chunked\r\n\r\n",
    POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
    POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
    POST.replace(b"1.1", b"1.0") + b"transfer-encoding: chunked\r\n\r\n",
)


@dataclass(frozen=True)
class Attack:
    """limit: the setting or the rule that stops it. run: attacks a server, and describes what happens."""

    name: str
    limit: str
    run: Callable[[Process], str]


def post(
    port: int,
    body: object,
    *,
    path: str = "/v1/translate",
    address: str = ATTACKER,
    headers: Mapping[str, str] = JSON,
    timeout_s: float = 60,
) -> int:
    """Send a translation request on a new connection. Returns the status. Raises OSError and HTTPException.

    body: sent as it is if it is bytes, else as JSON. A dict gets a source and a target language. address: the caller's.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s, source_address=(address, 0))
    if isinstance(body, dict):
        body = {"source": "en", "target": "de", **body}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request("POST", path, content, dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _connect(server: Process) -> socket.socket:
    return socket.create_connection((HOST, server.port), timeout=WAIT_S, source_address=(ATTACKER, 0))


def _status_after(server: Process, *parts: bytes) -> tuple[str, int]:
    """Send parts until the server closes the connection or all are sent.

    Returns the status and the number of bytes sent. The status is `closed` if there is no response.
    """
    num_sent = 0
    with _connect(server) as connection:
        with suppress(OSError):
            for part in parts:
                connection.sendall(part)
                num_sent += len(part)
        with suppress(OSError):
            answer = connection.recv(4096)
            if answer.startswith(b"HTTP/"):
                return answer.split()[1].decode(), num_sent
    return "closed", num_sent


def _counts(outcomes: Counter[str]) -> str:
    """Each status, with how often it occurred, as text."""
    return ", ".join(f"{status} ({number} times)" for status, number in sorted(outcomes.items()))


def idle_connections(server: Process) -> str:
    """Open many connections and send nothing."""
    with ExitStack() as opened:
        connections = [opened.enter_context(_connect(server)) for _ in range(NUM_IDLE)]
        time.sleep(2)
        num_open = 0
        for connection in connections:
            connection.setblocking(False)
            try:
                connection.recv(1)
            except BlockingIOError:
                num_open += 1
            except OSError:
                pass
    return f"{num_open} of {NUM_IDLE} stay open, the others are closed"


def flood(server: Process) -> str:
    """Open and close connections as fast as possible, in eight threads."""
    until = time.monotonic() + FLOOD_S

    def connect(_: int) -> int:
        number = 0
        while time.monotonic() < until:
            with suppress(OSError), _connect(server):
                number += 1
        return number

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return f"{sum(pool.map(connect, range(8))) / FLOOD_S:,.0f} connections a second"


def slow_headers(server: Process) -> str:
    """Send headers at one byte a second."""
    return _byte_by_byte(server, POST + b"x: ")


def slow_bodies(server: Process) -> str:
    """Send bodies at one byte a second."""
    return _byte_by_byte(server, POST + b"content-length: 100000\r\n\r\n")


def _byte_by_byte(server: Process, begin: bytes) -> str:
    """Begin requests, and send one more byte of each a second."""
    started_at = time.perf_counter()
    with ExitStack() as opened:
        connections = [opened.enter_context(_connect(server)) for _ in range(NUM_SLOW)]
        for connection in connections:
            connection.sendall(begin)
        num_open = len(connections)
        while num_open and time.perf_counter() - started_at < 2 * WAIT_S:
            time.sleep(1)
            num_open = 0
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(b"a")
                    num_open += 1
    return f"{NUM_SLOW - num_open} of {NUM_SLOW} are closed after {time.perf_counter() - started_at:.0f} s"


def long_header(server: Process) -> str:
    """Send an endless header."""
    status, num_sent = _status_after(server, POST + b"x: ", *[b"a" * 65_536] * 800)
    return f"{status} after {num_sent / 1e6:.1f} MB were sent"


def long_body(server: Process) -> str:
    """Announce a body of 50 MB."""
    status, num_sent = _status_after(server, POST + b"content-length: 50000000\r\n\r\n")
    return f"{status} before any of the body is sent ({num_sent} bytes of header)"


def long_extension(server: Process) -> str:
    """Send a chunk whose extension has no end."""
    head = POST + b"transfer-encoding: chunked\r\n\r\n5;a="
    status, num_sent = _status_after(server, head, *[b"a" * 65_536] * 800)
    return f"{status} after {num_sent / 1e6:.1f} MB were sent"


def bad_heads(server: Process) -> str:
    """Send heads that proxies and servers understand differently."""
    return _counts(Counter(_status_after(server, head)[0] for head in BAD_HEADS))


def upgrade(server: Process) -> str:
    """Offer HTTP/2, as Java's client and `curl --http2` do."""
    offer = {**JSON, "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    return f"{post(server.port, {'text': 'The house is green.'}, headers=offer)} over HTTP/1.1"


def nested_arrays(server: Process) -> str:
    """Send a megabyte of opening brackets."""
    started_at = time.perf_counter()
    status = post(server.port, b"[" * 999_000)
    return f"{status} after {1000 * (time.perf_counter() - started_at):.0f} ms"


def escaped_form(server: Process) -> str:
    """Send a megabyte of percent escapes in a form."""
    body = b"source=en&target=de&q=" + b"%41" * 333_000
    started_at = time.perf_counter()
    status = post(server.port, body, path="/translate", headers=FORM)
    return f"{status} after {1000 * (time.perf_counter() - started_at):.0f} ms"


def long_texts(server: Process) -> str:
    """Send a text that is too long, too many texts, and too wide a beam."""
    bodies: Sequence[dict[str, object]] = (
        {"text": "a " * 2501},
        {"text": ["a"] * 129},
        {"text": "a", "beam_size": 17},
    )
    return _counts(Counter(str(post(server.port, body)) for body in bodies))


def cross_site(server: Process) -> str:
    """Post a form from a page of another site."""
    headers = {**FORM, "Origin": "http://other.example"}
    return str(post(server.port, b"q=house&source=en&target=de", headers=headers))


def wide_requests(server: Process) -> str:
    """Send 128 lines with beam 16 from 16 clients, for five seconds."""
    until = time.monotonic() + 5
    lines = [f"The old man number {number} walks slowly to the river." for number in range(128)]

    def client(_: int) -> Counter[str]:
        statuses: Counter[str] = Counter()
        while time.monotonic() < until:
            body = {"text": lines, "beam_size": 16, "timeout_ms": 20_000}
            statuses[str(post(server.port, body))] += 1
        return statuses

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return _counts(sum(pool.map(client, range(16)), Counter()))


def unread_answers(server: Process) -> str:
    """Pipeline requests and read nothing."""
    before, largest = resident_mb(server.pid), 0.0
    with ExitStack() as opened:
        readers = []
        for _ in range(8):
            reader = opened.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.bind((ATTACKER, 0))
            reader.connect((HOST, server.port))
            reader.settimeout(WAIT_S)
            reader.sendall(240 * GET_OPENAPI)
            readers.append(reader)
        started_at = time.perf_counter()
        num_open = len(readers)
        while num_open and time.perf_counter() - started_at < 2 * WAIT_S:
            time.sleep(0.2)
            largest = max(largest, resident_mb(server.pid) - before)
            num_open = 0
            for reader in readers:
                with suppress(OSError):
                    reader.sendall(b"\r\n")
                    num_open += 1
    time_s = time.perf_counter() - started_at
    return f"{8 - num_open} of 8 are closed after {time_s:.0f} s; memory grows by {largest:.0f} MB"


def _upload_slow_file(server: Process, opened: ExitStack) -> None:
    """Upload Markdown that is slow to parse, on a connection that `opened` closes."""
    body = upload_body("a.md", SLOW_MARKDOWN, source="en", target="de")
    head = f"POST /translate_file HTTP/1.1\r\nhost: x\r\ncontent-type: {UPLOAD}\r\ncontent-length: {len(body)}\r\n\r\n"
    connection = opened.enter_context(_connect(server))
    connection.sendall(head.encode() + body)


def slow_file(server: Process) -> str:
    """Upload slow Markdown and disconnect, twice. Then upload a good file."""
    for _ in range(2):
        with ExitStack() as opened:
            _upload_slow_file(server, opened)
            time.sleep(0.5)
    started_at = time.perf_counter()
    status = send(server, "txt", b"The house is green.")
    return f"a good file then gets {status} after {time.perf_counter() - started_at:.1f} s"


def slow_files(server: Process) -> str:
    """Upload more slow Markdown than there are file workers, and stay. Upload a good file from another address."""
    with ExitStack() as opened:
        for _ in range(NUM_SLOW_FILES):
            _upload_slow_file(server, opened)
        time.sleep(1)
        started_at = time.perf_counter()
        status = post(
            server.port,
            upload_body("a.txt", b"The house is green.", source="en", target="de"),
            path="/translate_file",
            address=NEIGHBOUR,
            headers={"Content-Type": UPLOAD},
            timeout_s=FILE_LIMIT_S,
        )
    return f"another caller's good file gets {status} after {time.perf_counter() - started_at:.0f} s"


def kept_files(server: Process) -> str:
    """Upload more files than the server keeps, and fetch none. Then upload a file from another address."""
    headers = {"Content-Type": UPLOAD}
    body = upload_body("a.txt", b"House.", source="en", target="de")
    path = "/translate_file"
    outcomes = Counter(
        str(post(server.port, body, path=path, headers=headers)) for _ in range(NUM_KEPT_FILES)
    )
    status = post(server.port, body, path=path, address=NEIGHBOUR, headers=headers)
    return f"{_counts(outcomes)}; another caller's file then gets {status}"


def file_bomb(server: Process) -> str:
    """Upload a small Word file that unpacks to 300 MB."""
    content = docx("<w:p/>" * 50_000_000)
    started_at = time.perf_counter()
    status = send(server, "docx", content)
    return (
        f"a file of {len(content) / 1e6:.1f} MB gets {status} after {time.perf_counter() - started_at:.1f} s"
    )


ATTACKS = (
    Attack(
        f"{NUM_IDLE:,} connections that send nothing",
        "`MAX_CONNECTIONS`, `MAX_CONNECTIONS_PER_ADDRESS`",
        idle_connections,
    ),
    Attack(f"a flood of connections for {FLOOD_S} s", "a backlog of 2,048 connections", flood),
    Attack(
        f"{NUM_SLOW} requests whose headers arrive at one byte a second", "`READ_TIMEOUT_S`", slow_headers
    ),
    Attack(f"{NUM_SLOW} requests whose bodies arrive at one byte a second", "`READ_TIMEOUT_S`", slow_bodies),
    Attack("an endless header", "`MAX_HEADER_BYTES`", long_header),
    Attack("a body of 50 MB", "`MAX_BODY_BYTES`", long_body),
    Attack("an endless chunk extension", "`MAX_HEADER_BYTES`", long_extension),
    Attack(
        f"{len(BAD_HEADS)} requests with an ambiguous request line or ambiguous headers",
        "RFC 9112",
        bad_heads,
    ),
    Attack("an upgrade to HTTP/2 is offered", "RFC 9110, section 7.8", upgrade),
    Attack("a megabyte of `[`", "`MAX_BODY_BYTES` / 8 brackets `[` and `{`", nested_arrays),
    Attack("a form of a megabyte of `%41`", "`MAX_ITEM_CHARACTERS`", escaped_form),
    Attack(
        "5,002 characters; 129 texts; beam 17",
        "`MAX_ITEM_CHARACTERS`, `MAX_ITEMS`, `MAX_BEAM_SIZE`",
        long_texts,
    ),
    Attack("a form from another site's page", "Origin header", cross_site),
    Attack("16 clients, 128 lines each, beam 16", "each caller's share", wide_requests),
    Attack("8 clients that read no answer", "`READER_STALL_S` (here 2 s)", unread_answers),
    Attack(
        "two Markdown files that are slow to parse; their callers leave", "file workers are killed", slow_file
    ),
    Attack(
        f"{NUM_SLOW_FILES} Markdown files that are slow to parse; their callers stay",
        "callers take turns",
        slow_files,
    ),
    Attack("a Word file that unpacks to 300 MB", "file worker's limits", file_bomb),
    # The last attack, because the attacker's files then fill the store of MAX_FILES files.
    Attack(f"{NUM_KEPT_FILES} files that are never fetched", "`MAX_FILES`, shared by callers", kept_files),
)
