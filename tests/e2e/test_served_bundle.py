"""`transduce serve` with a bundle of random weights, end to end over sockets."""

from __future__ import annotations

import json
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.bundle import load_bundle
from app.model_host import installed_version
from app.runtime.native import used_target
from app.text.tokenizer import Tokenizer
from export.verify import MAX_NATIVE_DIFFERENT
from tests.api.server_process import HANG_TIMEOUT_S, ServerProcess
from tests.e2e.conftest import SERVE, SERVE_BY_FORK


def translated(client: httpx.Client, text: object, **options: object) -> Any:
    answer = client.post("/v1/translate", json={"text": text, "source": "en", "target": "de", **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


def wait_for_log(server: ServerProcess, client: httpx.Client) -> None:
    """Wait until the log has the lines of all earlier requests of this client."""
    client.get("/v1/models", headers={"x-request-id": "logged"})
    server.wait_for_request("logged")


def test_golden_sentences_over_http(
    server: ServerProcess, tiny_bundle: Path, request: pytest.FixtureRequest
) -> None:
    """With ONNX Runtime's operators, each translation equals the golden one.

    With native operators, a translation may differ if two subwords are equally probable.

    Sentences that the text layer splits or corrects are left out, because golden.jsonl holds the uncorrected output.
    """
    bundle = load_bundle(tiny_bundle)
    tokenizer = Tokenizer(bundle.file("target.spm"))
    longest = bundle.manifest.max_target_length - 1
    with server.client() as client:
        precision = client.get("/v1/models").json()["models"][0]["precision"]
        checked, different = 0, 0
        for line in bundle.golden:
            answer = translated(client, line.source, beam_size=line.beam_size, max_target_length=longest)
            segments = answer["translations"][0]["segments"]
            if len(segments) == 1 and "fallbacks" not in segments[0]:
                verbatim_spans = tokenizer.encode(line.source).verbatim_spans
                expected = tokenizer.decode(line.ids[precision], verbatim_spans).text
                if not any(character.isalnum() for character in expected):
                    continue  # the server decodes the sentence again, because its output has no words
                different += answer["translations"][0]["text"] != expected
                checked += 1
    assert checked
    is_standard = "standard" in request.node.name
    assert different <= (0 if is_standard else max(1, MAX_NATIVE_DIFFERENT * checked))


def test_the_metrics_name_the_kernels_that_compute(
    server: ServerProcess, request: pytest.FixtureRequest
) -> None:
    kernels = "standard" if "standard" in request.node.name else used_target() or "standard"
    labels = f'kernels="{kernels}",providers="CPUExecutionProvider",version="{installed_version()}"'
    assert server.metric(f"transduce_build_info{{{labels}}}") == 1


def test_concurrent_requests_give_the_same_translations_as_single_ones(server: ServerProcess) -> None:
    texts = [
        f"The {word} is near the old bridge {number}." for number, word in enumerate(["station", "tower"] * 6)
    ]
    with server.client() as client:
        alone = [translated(client, text, beam_size=1 + index % 5) for index, text in enumerate(texts)]
        num_steps = server.metric("transduce_decode_steps_total")
        with ThreadPoolExecutor(8) as pool:
            together = list(
                pool.map(
                    lambda each: translated(client, each[1], beam_size=1 + each[0] % 5), enumerate(texts)
                )
            )
    assert [each["translations"][0]["text"] for each in together] == [
        each["translations"][0]["text"] for each in alone
    ]
    assert server.metric("transduce_decode_steps_total") > num_steps


def test_line_breaks_and_blank_lines_are_kept(server: ServerProcess) -> None:
    text = "  The station is open.\n\n\tThe tower is large. The bridge is small.\r\n--\r\n"
    with server.client() as client:
        answer = translated(client, text)["translations"][0]
    assert len(answer["segments"]) == 3
    rebuilt, done = "", 0
    for segment in answer["segments"]:
        source, target = segment["source"], segment["target"]
        rebuilt += text[done : source["start"]] + answer["text"][target["start"] : target["end"]]
        done = source["end"]
    assert rebuilt + text[done:] == answer["text"]


def test_a_sentence_longer_than_the_models_limit_is_translated(server: ServerProcess) -> None:
    text = "the old green station is near the new bridge, " * 20
    with server.client() as client:
        answer = translated(client, text)["translations"][0]
    assert len(answer["segments"]) > 5
    covered = "".join(text[s["source"]["start"] : s["source"]["end"]] for s in answer["segments"])
    assert covered.replace(" ", "") == text.replace(" ", "")


def test_no_log_line_holds_request_text(server: ServerProcess) -> None:
    canary = "Xylophon7391"
    with server.client() as client:
        translated(client, f"The {canary} is open.")
        for content in (f'{{"text": "{canary}', json.dumps({"text": canary, canary: 1})):
            client.post("/v1/translate", content=content, headers={"content-type": "application/json"})
        client.get(
            f"/{canary}?{canary}", headers={"x-request-id": f"{canary} {canary}", "user-agent": canary}
        )
        wait_for_log(server, client)
    assert canary not in "".join(server.log)
    assert canary not in "".join(server.errors)


def test_every_log_line_is_one_json_object_in_ascii(server: ServerProcess) -> None:
    with server.client() as client:
        forged = '\n{"level": "error"}\x1b[31m\u2028'
        translated(client, forged)
        client.get("/%0a%7b%22level%22%3a1%7d")
        wait_for_log(server, client)
    for line in server.log:
        assert line.isascii()
        assert {"time", "level", "logger", "event"} <= json.loads(line).keys()


def copy_of(tiny_bundle: Path, tmp_path: Path) -> Path:
    """A copy of the bundle, in the folder `broken`, which the test breaks."""
    return Path(shutil.copytree(tiny_bundle, tmp_path / "broken"))


def refusal(bundle: Path, **settings: object) -> list[str]:
    """The lines that a server writes to stderr as it refuses to start."""
    with ServerProcess(SERVE_BY_FORK, {"bundle": bundle, "num_threads": 1, **settings}) as server:
        assert server.ended() == 78  # the exit code for an unusable bundle or setting
        assert not [line for line in server.log if '"event": "ready"' in line]
        assert not [line for line in server.errors if "Traceback" in line]
        return server.errors


def test_every_problem_of_a_bundle_has_its_own_line(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(tiny_bundle, tmp_path)
    graph = bundle / "fp32" / "decoder.onnx"
    content = bytearray(graph.read_bytes())
    content[-100] ^= 0xFF
    graph.write_bytes(content)
    (bundle / "MODEL_CARD.md").unlink()
    (bundle / "extra").write_text("x", "utf-8")
    lines = refusal(bundle, precision="fp32")
    assert len(lines) == 3
    assert all(line.startswith("transduce serve: bundle broken: ") for line in lines)
    assert [name for name in ("decoder.onnx", "MODEL_CARD.md", "extra") if name in "".join(lines)] == [
        "decoder.onnx",
        "MODEL_CARD.md",
        "extra",
    ]


@pytest.mark.parametrize("what", ["missing", "empty", "a file"])
def test_a_path_without_a_bundle_stops_the_start_with_one_line(tmp_path: Path, what: str) -> None:
    bundle = tmp_path / "nothing"
    if what == "empty":
        bundle.mkdir()
    if what == "a file":
        bundle.write_text("", "utf-8")
    (line,) = refusal(bundle)
    assert line.startswith("transduce serve: bundle nothing: ")


def test_wrong_golden_sentences_are_detected(tiny_bundle: Path, tmp_path: Path) -> None:
    """Weights and hashes are right, but the model's translations differ from the golden ones."""
    import hashlib

    bundle = copy_of(tiny_bundle, tmp_path)
    golden = bundle / "golden.jsonl"
    lines = [json.loads(line) for line in golden.read_text("utf-8").splitlines()]
    for line in lines:
        line["ids"] = {precision: [5, *ids] for precision, ids in line["ids"].items()}
    golden.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    content = golden.read_bytes()
    manifest["files"]["golden.jsonl"] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    (line,) = refusal(bundle)
    assert f"0 of {len(lines)} golden sentences" in line


def test_a_signal_while_the_model_loads_ends_the_server(tiny_bundle: Path) -> None:
    with ServerProcess(SERVE_BY_FORK, {"bundle": tiny_bundle, "num_threads": 1}) as server:
        server.listening()
        server.signal()
        assert server.ended() == 0
        assert server.errors == []


def test_a_misspelled_variable_stops_the_start(tiny_bundle: Path) -> None:
    lines = refusal(tiny_bundle, prot=1, max_beam_size=99)
    assert lines == [
        "transduce serve: TRANSDUCE_PROT is not a setting; did you mean TRANSDUCE_PORT?\n",
        "transduce serve: TRANSDUCE_MAX_BEAM_SIZE: Input should be less than or equal to 16\n",
    ]


def test_cuda_without_a_gpu_stops_the_start(tiny_bundle: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    (line,) = refusal(tiny_bundle, device="cuda")
    assert "cuda" in line.lower() or "gpu" in line.lower()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_server_listens_ends_it(tiny_bundle: Path, number: signal.Signals) -> None:
    """The signal arrives when the server has its first child process, long before it reads its settings."""
    settings: dict[str, object] = {"bundle": tiny_bundle, "num_lanes": 2}
    with ServerProcess(SERVE, settings) as server:
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
        until = time.monotonic() + HANG_TIMEOUT_S
        while not children.read_text("ascii"):
            assert time.monotonic() < until
        server.signal(number)
        assert server.ended() == 0
        assert server.errors == []
