"""Measure the cost of files that are slow to parse or write, by size, and the delay of other requests.

Each file is sent with equal source and target language, so the server parses and writes it but translates nothing. A
file above a limit is refused, and its figures end at the refusal. The result has for each file:

- the CPU seconds of the file workers. The start of a new worker takes about 0.1 s of them;
- the peak memory of a file worker since its start, in 10^6 bytes. The peak may come from an earlier file, because a
  worker that has used little memory reads several files;
- the largest latency of /livez, which another connection requests during the upload.

Linux only.

    python -m benchmarks.files --output benchmarks/results/files.json
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_run
from benchmarks.server_process import HOST, Process, serve_command

RESULT = Path(__file__).with_name("results") / "files.json"
SIZES = (10_000, 20_000, 40_000, 80_000)
# After a file above this size, wait SETTLE_S seconds: the server frees its memory within a second after the response.
SETTLED_BYTES, SETTLE_S = 500_000, 2.0
UPLOAD = "multipart/form-data; boundary=x"  # the content type of `upload_body`
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
# Fragments that are repeated to fill a file, by suffix.
FRAGMENTS = {
    "html": ("<a ", "&#1;", "<http:", "<", "<!--", "&", "<b>", "<a b='", "<a b=c "),
    "md": (
        "[a](",
        "<a ",
        "&#1;",
        "<http:",
        "<",
        "<!--",
        "_a_",
        "*a ",
        "[",
        "![a](b)",
        "[a]: b\n",
        "&",
        "<b>",
    ),
    "po": ('msgid "a"\nmsgstr ""\n\n',),
    "srt": ("1\n00:00:01,000 --> 00:00:02,000\n<i>a\n\n",),
    "txt": ("a", "a. "),
}


def docx(body: str) -> bytes:
    """A Word document."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as entries:
        entries.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}">{body}</w:document>')
    return archive.getvalue()


# Name -> suffix, and the function that returns the content.
LARGE: dict[str, tuple[str, Callable[[], bytes]]] = {
    "text of 9.9 MB in one line": ("txt", lambda: b"The house. " * 900_000),
    "JSON of a million keys": (
        "json",
        lambda: json.dumps(
            dict.fromkeys(map("{:x}".format, range(1_000_000)), 1), separators=(",", ":")
        ).encode(),
    ),
    "Word, 20 MB of tiny paragraphs": ("docx", lambda: docx("<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 588_000)),
    "Word, 20 MB of empty paragraphs": ("docx", lambda: docx("<w:p/>" * 3_333_000)),
    "Word, one text of 20 MB": (
        "docx",
        lambda: docx(f"<w:p><w:r><w:t>{'a ' * 10_000_000}</w:t></w:r></w:p>"),
    ),
    "Word, one attribute of 20 MB": ("docx", lambda: docx(f'<w:p w:a="{"a" * 20_000_000}"/>')),
    "Markdown, 1 MB of `![`": ("md", lambda: b"![" * 500_000),
}


@dataclass
class Sampler:
    """Samples a server's file workers and the latency of /livez, in threads. cpu_s, memory_mb: by process id.

    livez_ms: the latency of every request, failed requests included.
    """

    server: Process
    cpu_s: dict[int, float] = field(default_factory=dict)
    memory_mb: dict[int, float] = field(default_factory=dict)
    livez_ms: list[float] = field(default_factory=list)

    def __enter__(self) -> Sampler:
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._sample_workers, self._probe)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _sample_workers(self) -> None:
        while not self._is_over.wait(0.005):
            for name in (
                Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text("ascii").split()
            ):
                with suppress(OSError):
                    self._sample_process(int(name))

    def _sample_process(self, process_id: int) -> None:
        folder = Path(f"/proc/{process_id}")
        if b"app.file_worker" not in (folder / "cmdline").read_bytes():
            return
        ticks = (folder / "stat").read_text("ascii").rpartition(") ")[2].split()
        self.cpu_s[process_id] = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        status = (folder / "status").read_text("ascii").splitlines()
        peak = next((line.split()[1] for line in status if line.startswith("VmHWM:")), "0")
        self.memory_mb[process_id] = int(peak) * 1024 / 1e6

    def _probe(self) -> None:
        connection = http.client.HTTPConnection(HOST, self.server.port, timeout=60)
        while not self._is_over.wait(0.01):
            started = time.perf_counter()
            try:
                connection.request("GET", "/livez")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()  # the next request opens it again
            finally:
                self.livez_ms.append(1000 * (time.perf_counter() - started))
        connection.close()


def upload_body(name: str, content: bytes, *, source: str, target: str) -> bytes:
    """The body of an upload of a file."""
    fields = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in (("source", source), ("target", target))
    )
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return (fields + head).encode() + content + b"\r\n--x--\r\n"


def send(server: Process, suffix: str, content: bytes) -> int:
    """Upload a file. Returns the status of the response."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=300)
    body = upload_body(f"a.{suffix}", content, source="en", target="en")
    connection.request("POST", "/translate_file", body, {"Content-Type": UPLOAD})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def resident_mb(process_id: int) -> float:
    """Resident memory of a process in 10^6 bytes."""
    status = Path(f"/proc/{process_id}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in status if line.startswith("VmRSS:"))


def measure(server: Process, name: str, suffix: str, content: bytes) -> dict[str, Any]:
    """Measure one file."""
    memory = resident_mb(server.pid)
    with Sampler(server) as watch:
        time.sleep(0.02)
        before = dict(watch.cpu_s)
        started = time.perf_counter()
        status = send(server, suffix, content)
        seconds = time.perf_counter() - started
    if len(content) > SETTLED_BYTES:
        time.sleep(SETTLE_S)
    cpu_s = sum(used - before.get(process_id, 0.0) for process_id, used in watch.cpu_s.items())
    return {
        "case": name,
        "bytes": len(content),
        "status": status,
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu_s, 2),
        "worker_mb": round(max(watch.memory_mb.values(), default=0.0)),
        "livez_ms": round(max(watch.livez_ms, default=0.0)),
        "server_grown_mb": round(resident_mb(server.pid) - memory, 1),
    }


def main() -> int:
    """Measure, write JSON, print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args()
    run = describe_run("benchmarks.files")
    runs, large, small = [], [], []
    with Process(serve_command(sys.executable, None, {"max_files": "10000"})) as server:
        small = [measure(server, "small", "md", b"The house is *small*.\n") for _ in range(6)]
        for suffix, fragments in FRAGMENTS.items():
            for fragment in fragments:
                for size in SIZES:
                    content = (fragment * (size // len(fragment))).encode()
                    runs.append(measure(server, f"{suffix} {fragment!r}", suffix, content))
        for name, (suffix, make) in LARGE.items():
            large.append(measure(server, name, suffix, make()))
            print(large[-1], flush=True)
    result = {
        **run,
        "small": small,
        "runs": runs,
        "large": large,
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(table(runs))
    return 0


def table(runs: list[dict[str, Any]]) -> str:
    """CPU time by case and size, as a Markdown table."""
    lines = ["| file of | 10 KB | 20 KB | 40 KB | 80 KB | /livez at most |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(run["case"] for run in runs):
        of_case = [run for run in runs if run["case"] == name]
        cells = [f"{run['cpu_s']:.2f} s" for run in of_case]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {max(run['livez_ms'] for run in of_case)} ms |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
