"""Chaos: four classes of clients use one server, whose workers are killed or stopped, and whose bundle is replaced.

The classes: good clients, clients with malformed requests, clients that disconnect, and processes that are killed.

The server has the bundled model in two workers. Faults come one after another at random times: SIGKILL of a worker,
SIGSTOP of a worker for up to a second, or another version of the bundle. Every good answer must be right. Afterwards
the server must be as before: requests, processes, descriptors and memory. Linux only.

    python -m tests.faults.chaos --minutes 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from benchmarks.soak import private_memory
from tests.api.server_process import HANG_TIMEOUT_S, HEADERS, ROOT, ServerProcess
from tests.bundles.copies import copy_bundle
from transduce.loadtest.server_side import processes_of

BUNDLED = ROOT / "bundles" / "en-de"
COMMAND = [sys.executable, "-W", "error", "-m", "transduce", "serve"]
NUM_WORKERS = 2
# No sentence is cached, so each good answer is decoded. The queue is short, so some requests get 429.
SETTINGS: dict[str, object] = {
    "num_threads": NUM_WORKERS,
    "num_lanes": NUM_WORKERS,
    "device": "cpu",
    "precision": "int8",
    "sentence_cache_bytes": 0,
    "coalesce": "false",
    "max_worker_restarts": 1000,
    "max_pending_sentences": 64,
    "max_request_sentences": 16,
    "max_items": 16,
}
NUM_GOOD = 3  # good clients
ROUTE = "/v1/translate"
TEXTS = [
    f"The {size} house near the {place} is empty."
    for size in ("old", "new", "red")
    for place in ("bridge", "station")
]
BODIES = [
    json.dumps(
        {
            "text": TEXTS[first : first + count],
            "source": "en",
            "target": "de",
            "beam_size": beam,
            "timeout_ms": 60_000,
        }
    ).encode()
    for first, count, beam in ((0, 1, 1), (1, 2, 4), (2, 4, 2), (0, 6, 1), (3, 3, 6), (5, 1, 4))
]
HEAD = f"POST {ROUTE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
# Closing a socket with this option resets the connection.
RESET = b"\x01\x00\x00\x00\x00\x00\x00\x00"
# A client process: sends a request, says so, and waits until it is killed.
DOOMED = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(sys.stdin.buffer.read())
print(flush=True)
connection.recv(1)
import time; time.sleep(600)
"""
# How much the private memory of the server and its workers together may grow, in 10^6 bytes. A worker that replaces a
# dead worker shares no weights until the next reload. So the memory is compared after a reload.
MAX_GROWTH_MB = 60.0
# Statuses that the server may count for a client that left. 499: the server has noticed that the client left.
UNSEEN_STATUSES = {200, 429, 499, 504}
# An error in the log that contains one of these texts is caused by the faults. A worker may be killed while it loads,
# and a worker of the old model may die while the bundle is replaced: the old model then gets no other worker, and the
# reload starts new ones.
CAUSED_BY_FAULTS = (
    '"event": "engine_process_died"',
    "an engine process ended while it loaded, with signal 9",
    "the bundle has changed since the model was loaded",
)
GAUGES = ("transduce_inflight_requests", "transduce_queue_depth", "transduce_queue_tokens")


@dataclass
class Seen:
    """What the clients saw.

    good, malformed: statuses of the answers to good and to malformed requests. num_left: clients that disconnected
    before the answer. num_killed: killed client processes. num_begun: clients of these two kinds that sent at least a
    whole header. failures: answers that are wrong or have a status that is not allowed.
    """

    good: Counter[int] = field(default_factory=Counter)
    malformed: Counter[int] = field(default_factory=Counter)
    num_left: int = 0
    num_killed: int = 0
    num_begun: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def is_enough(self, min_actions: int) -> bool:
        """Whether each class of clients has acted at least this often, and each fault has come at least once."""
        clients = (self.good[200], self.malformed.total(), self.num_left, self.num_killed)
        return min(clients) >= min_actions and all(self.faults[name] for name in FAULTS)


def translations(body: bytes) -> list[str]:
    """The translations of an answer."""
    return [each["text"] for each in json.loads(body)["translations"]]


def is_busy(answer: httpx.Response) -> bool:
    """Whether the server has refused the request for now, and says when to try again."""
    return answer.status_code in {429, 503} and "retry-after" in answer.headers


class Chaos:
    """The clients and the faults on one server. bundle: the folder of the served bundle, which swaps replace."""

    def __init__(self, server: ServerProcess, bundle: Path, *, seed: int) -> None:
        self.seen = Seen()
        self._server, self._bundle, self._seed = server, bundle, seed
        self._version = 1
        self._ends, self._counting = threading.Event(), threading.Lock()
        with server.client() as client:
            answers = [client.post(ROUTE, content=body, headers=HEADERS) for body in BODIES]
        self.seen.good.update(answer.status_code for answer in answers)
        self._expected = [translations(answer.content) for answer in answers]

    def run(self, seconds: float, *, min_actions: int) -> None:
        """Run for some seconds, and longer until `Seen.is_enough`. Raises what a client or a fault raised."""
        loops = [self._good] * NUM_GOOD + [self._malformed, self._leave, self._kill_clients, self._break]
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(len(loops)) as pool:
            running = [pool.submit(self._loop, act, self._seed + number) for number, act in enumerate(loops)]
            while time.monotonic() < until or not self.seen.is_enough(min_actions):
                if any(each.done() for each in running):
                    break
                time.sleep(0.1)
            self._ends.set()
            for each in running:
                each.result()

    def _loop(self, act: Callable[[random.Random], None], seed: int) -> None:
        draw = random.Random(seed)
        while not self._ends.is_set():
            act(draw)

    def _good(self, draw: random.Random) -> None:
        """A few requests over one connection."""
        with self._server.client() as client:
            for _ in range(draw.randint(1, 20)):
                number = draw.randrange(len(BODIES))
                answer = client.post(ROUTE, content=BODIES[number], headers=HEADERS)
                with self._counting:
                    self.seen.good[answer.status_code] += 1
                if answer.status_code == 200:
                    if translations(answer.content) != self._expected[number]:
                        self.seen.failures.append(f"a wrong answer to body {number}: {answer.text}")
                elif is_busy(answer):
                    time.sleep(0.05)
                else:
                    self.seen.failures.append(f"{answer.status_code}: {answer.text}")

    def _malformed(self, draw: random.Random) -> None:
        """A body that is cut, has an unknown field, or is nested too deeply."""
        body = draw.choice(BODIES)
        body = draw.choice(
            [body[: draw.randrange(len(body))], body.replace(b'"text"', b'"txt"'), b"[" * 1000]
        )
        with self._server.client() as client:
            answer = client.post(ROUTE, content=body, headers=HEADERS)
        self.seen.malformed[answer.status_code] += 1
        if answer.status_code not in {400, 422} and not is_busy(answer):
            self.seen.failures.append(f"{answer.status_code} to a malformed body: {answer.text}")
        time.sleep(0.02)

    def _leave(self, draw: random.Random) -> None:
        """Disconnect before the answer, some with a reset and some in the middle of the request."""
        body = draw.choice(BODIES)
        whole = (HEAD % len(body)).encode() + body
        sent = whole[: draw.choice([len(whole), len(whole), len(whole) // 2, 10])]
        with self._server.connect() as connection:
            connection.sendall(sent)
            time.sleep(draw.choice([0.0, 0.01, 0.1]))
            if draw.random() < 0.5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.seen.num_left += 1
        with self._counting:
            self.seen.num_begun += b"\r\n\r\n" in sent

    def _kill_clients(self, draw: random.Random) -> None:
        """Kill a client process while its request is decoded."""
        body = draw.choice(BODIES)
        command = [sys.executable, "-S", "-c", DOOMED, str(self._server.port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write((HEAD % len(body)).encode() + body)
            client.stdin.close()
            client.stdout.readline()
            time.sleep(draw.random() * 0.05)
            client.kill()
        self.seen.num_killed += 1
        with self._counting:
            self.seen.num_begun += 1

    def _worker(self, draw: random.Random) -> psutil.Process:
        """The process of a random worker. It may have just ended."""
        return draw.choice(psutil.Process(self._server.pid).children())

    def _break(self, draw: random.Random) -> None:
        """One fault, after a pause. Returns when the server has all its workers again."""
        self._ends.wait(draw.uniform(0.2, 1.5))
        name = draw.choice(sorted(FAULTS, key=lambda name: self.seen.faults[name])[:2])
        FAULTS[name](self, draw)
        self._server.wait_until("transduce_workers", NUM_WORKERS)
        self.seen.faults[name] += 1

    def kill_worker(self, draw: random.Random) -> None:
        """Kill a random worker."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._worker(draw).send_signal(signal.SIGKILL)

    def stop_worker(self, draw: random.Random) -> None:
        """Stop a random worker, and let it go on after up to a second."""
        with contextlib.suppress(psutil.NoSuchProcess):
            worker = self._worker(draw)
            worker.send_signal(signal.SIGSTOP)
            time.sleep(draw.random())
            worker.send_signal(signal.SIGCONT)

    def swap(self, _draw: random.Random) -> None:
        """Replace the bundle by another version, and wait until the server has loaded it."""
        self._version += 1
        write_bundle(self._bundle, self._version)
        name = 'transduce_reloads_total{outcome="done"}'
        before = self._server.metric(name)
        self._server.signal(signal.SIGHUP)
        self._server.wait_until(name, before + 1)


FAULTS: dict[str, Callable[[Chaos, random.Random], None]] = {
    "killed workers": Chaos.kill_worker,
    "stopped workers": Chaos.stop_worker,
    "swapped models": Chaos.swap,
}


def write_bundle(folder: Path, version: int) -> Path:
    """Put the bundled model into `folder`, with this version. Returns the folder."""
    return copy_bundle(BUNDLED, folder, name="en-de", version=str(version))


@dataclass(frozen=True)
class State:
    """What must not grow.

    num_descriptors: of the server, without its TCP sockets. memory_mb: private memory of the server and its workers.
    """

    num_children: int
    num_descriptors: int
    num_threads: int
    memory_mb: float

    @classmethod
    def of(cls, server: ServerProcess) -> State:
        """The state of an idle server, read when the workers of old models have ended.

        Raises TimeoutError if the processes of the server cannot be read.
        """
        process, until = psutil.Process(server.pid), time.monotonic() + HANG_TIMEOUT_S
        found: State | None = None
        while time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):  # a process has just ended
                found = cls(
                    num_children=len(process.children()),
                    num_descriptors=process.num_fds() - len(process.net_connections("tcp")),
                    num_threads=process.num_threads(),
                    memory_mb=sum(sum(private_memory(pid).values()) for pid in processes_of(server.pid)),
                )
                if found.num_children <= NUM_WORKERS:
                    return found
            time.sleep(0.1)
        if found is None:
            raise TimeoutError("the processes of the server cannot be read")
        return found

    def growth_over(self, before: State) -> list[str]:
        """What is more than before, one line each."""
        now, then = self.__dict__, before.__dict__
        return [
            f"{name}: {now[name]:.0f}, before {then[name]:.0f}"
            for name, more in (
                ("num_children", 0),
                ("num_descriptors", 0),
                ("num_threads", 1),
                ("memory_mb", MAX_GROWTH_MB),
            )
            if now[name] > then[name] + more
        ]


def miscounted(server: ServerProcess, seen: Seen) -> list[str]:
    """Statuses whose counter does not agree with what the clients saw, one line each.

    A client that left sees no status: its request may have been answered, or the server may have counted 499. A request
    that a busy server does not read gets 503 and is not counted.
    """
    found, unseen = [], seen.num_begun
    observed = seen.good + seen.malformed
    observed.pop(503, None)
    with server.client() as client:
        lines = client.get("/metrics").text.splitlines()
    counted = {
        int(line.split('code="')[1][:3]): int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith("transduce_http_requests_total{") and f'route="{ROUTE}"' in line
    }
    for status in sorted(observed.keys() | counted.keys()):
        more = counted.get(status, 0) - observed[status]
        if not 0 <= more <= (unseen if status in UNSEEN_STATUSES else 0):
            found.append(f"{status}: counted {counted.get(status, 0)}, seen {observed[status]}")
    num_more = sum(counted.values()) - observed.total()
    if num_more > unseen:
        found.append(f"{num_more} more requests counted than seen; {unseen} clients left after a header")
    return found


def run_chaos(folder: Path, *, seconds: float, min_actions: int, seed: int) -> tuple[Seen, list[str]]:
    """Start a server and run chaos. Returns what the clients saw, and every problem. folder: an empty one."""
    bundle = write_bundle(folder / "bundle", 1)
    with ServerProcess([*COMMAND, "--bundle", str(bundle)], SETTINGS) as server:
        chaos = Chaos(server.ready(), bundle, seed=seed)
        draw = random.Random(seed)
        chaos.swap(draw)  # so that `before` includes the memory that a reload takes
        before = State.of(server)
        chaos.run(seconds, min_actions=min_actions)
        for gauge in GAUGES:
            server.wait_until(gauge, 0)
        problems = list(chaos.seen.failures)
        problems += miscounted(server, chaos.seen)
        chaos.swap(draw)
        problems += remaining_growth(server, before)
        errors = [line for line in server.log if '"level": "error"' in line]
        problems += [line for line in errors if not any(part in line for part in CAUSED_BY_FAULTS)]
        server.signal()
        if (code := server.ended()) != 0:
            problems.append(f"the server ended with {code}")
    return chaos.seen, problems


def remaining_growth(server: ServerProcess, before: State) -> list[str]:
    """What still exceeds the state before, once the old workers and connections have ended. One line each."""
    until = time.monotonic() + HANG_TIMEOUT_S / 4
    while (found := State.of(server).growth_over(before)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def main() -> int:
    """Run chaos for some minutes, and print what was seen. Exit code 1 if there is a problem."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="default: 20")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices (default: 1)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen, problems = run_chaos(Path(folder), seconds=60 * args.minutes, min_actions=1, seed=args.seed)
    print(json.dumps({name: value for name, value in vars(seen).items() if name != "failures"}, indent=1))
    print("\n".join(problems) or "no problem")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
