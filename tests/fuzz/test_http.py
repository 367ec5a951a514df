"""No request makes a server answer 500, answer what its OpenAPI document excludes, or stall its event loop."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.files import SUFFIXES
from tests.api.server_process import HANG_TIMEOUT_S, ROOT, ServerProcess
from tests.files.samples import SAMPLES
from tests.fuzz.examples import SECONDS, changed, examples
from tests.fuzz.loop_probe import LoopProbe
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.server
# CPU time of the event loop's thread between two answers to a probe, in seconds.
MAX_STALL_S = 0.25
# 429, 503 and 504 are correct answers of a busy server.
FAULTS = {500, 501, 502, 505}
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def probe(fuzzed: ServerProcess) -> Iterator[LoopProbe]:
    with LoopProbe(fuzzed.pid, fuzzed.port) as running:
        yield running


@pytest.fixture(scope="module")
def client(fuzzed: ServerProcess) -> Iterator[httpx.Client]:
    with fuzzed.client() as client:
        yield client


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_the_probe_sees_a_stall_and_the_end_of_the_server() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.stalling_server"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        url = f"http://127.0.0.1:{port}"
        with (
            LoopProbe(server.pid, port) as probe,
            httpx.Client(base_url=url, trust_env=False, timeout=HANG_TIMEOUT_S) as client,
        ):
            client.get("/quick")
            assert probe.take_max_cpu_s() < MAX_STALL_S
            client.get("/stall")
            assert probe.take_max_cpu_s() > MAX_STALL_S
            server.kill()
            server.wait()
            with pytest.raises(ConnectionError):
                [probe.take_max_cpu_s() for _ in range(3)]  # an answer may have come before the kill
    finally:
        server.kill()
        server.communicate()


def test_requests_made_from_the_document(fuzzed: ServerProcess, probe: LoopProbe) -> None:
    """schemathesis makes valid and invalid requests for every operation, and checks the answers."""
    probe.take_max_cpu_s()
    command = [
        sys.executable,
        "-m",
        "schemathesis.cli",
        "--config-file",
        "tests/fuzz/schemathesis.toml",
        "run",
    ]
    options = ["--max-examples", str(examples(2, per_s=1)), "--max-time", str(SECONDS or 8)]
    if SECONDS is None:
        options += ["--seed", "1"]
    done = subprocess.run(
        [*command, f"{fuzzed.url}/openapi.json", *options],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert probe.take_max_cpu_s() < MAX_STALL_S
    assert not [line for line in fuzzed.log if '"level": "error"' in line]


def filled(path: str) -> str:
    """The path with values for its parameters."""
    return path.replace("{name}", "en-de-small").replace("{number}", "1")


def bodies_of(document: dict[str, Any]) -> list[tuple[str, str, bytes]]:
    """Path, content type and example of each body in JSON or as a form."""
    found = []
    for path, methods in document["paths"].items():
        for media, content in methods.get("post", {}).get("requestBody", {}).get("content", {}).items():
            if media in {JSON, FORM}:
                example = content["example"]
                raw = (
                    json.dumps(example).encode() if media == JSON else urlencode(example, doseq=True).encode()
                )
                found.append((filled(path), media, raw))
    return found


def check_answer(schema: Any, path: str, answer: httpx.Response, probe: LoopProbe) -> None:
    """Check an answer to a POST and the event loop."""
    assert answer.status_code not in FAULTS, answer.text
    operation = schema[path]["POST"]
    assert str(answer.status_code) in operation.definition.raw["responses"]
    operation.validate_response(answer)
    assert probe.take_max_cpu_s() < MAX_STALL_S


def test_damaged_bodies(client: httpx.Client, document: dict[str, Any], probe: LoopProbe) -> None:
    schema, bodies = schemathesis.openapi.from_dict(document), bodies_of(document)
    assert len(bodies) >= 12
    paths = {filled(path): path for path in document["paths"]}

    @settings(
        max_examples=examples(30, per_s=10),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.sampled_from(bodies), st.data())
    def check(body: tuple[str, str, bytes], data: st.DataObject) -> None:
        path, media, raw = body
        sent = data.draw(changed(raw, TARGETS["bodies"].tokens))
        headers = {
            "content-type": data.draw(st.sampled_from([media, media, media, JSON, FORM, "text/plain"]))
        }
        if "infer" in path:
            headers["inference-header-content-length"] = str(data.draw(st.integers(-1, len(sent) + 1)))
        probe.take_max_cpu_s()
        check_answer(schema, paths[path], client.post(path, content=sent, headers=headers), probe)

    check()


def test_damaged_files(client: httpx.Client, document: dict[str, Any], probe: LoopProbe) -> None:
    schema = schemathesis.openapi.from_dict(document)

    @settings(
        max_examples=examples(3, per_s=2),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.sampled_from(sorted(SUFFIXES.items())), st.data())
    def check(kind: tuple[str, Any], data: st.DataObject) -> None:
        suffix, file_format = kind
        content = data.draw(changed(SAMPLES[file_format], TARGETS["bodies"].tokens))
        probe.take_max_cpu_s()
        request = client.build_request(
            "POST",
            "/translate_file",
            data={"source": "en", "target": "de"},
            files={"file": (f"a{suffix}", content)},
        )
        request.read()  # schemathesis looks at the body
        answer = client.send(request)
        check_answer(schema, "/translate_file", answer, probe)

    check()
