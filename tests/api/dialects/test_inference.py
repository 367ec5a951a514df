"""The Open Inference Protocol at /v2, against the echo server."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.api.dialects.conftest import KEY
from tests.api.server_process import HEADERS, ServerProcess

INFER = "/v2/models/echo/infer"
LENGTH = "Inference-Header-Content-Length"
GERMAN = "Der Fluss fließt langsam unter der alten Brücke hindurch."


def tensor(texts: list[Any], **changes: Any) -> dict[str, Any]:
    return {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts, **changes}


def inferred(http: httpx.Client, body: dict[str, Any], path: str = INFER) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def packed(*texts: str) -> bytes:
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(each)) + each for each in encoded)


def test_the_server_and_its_health(http: httpx.Client) -> None:
    found = http.get("/v2").json()
    assert (found["name"], found["extensions"]) == ("transduce", ["binary_tensor_data"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["version"])
    assert http.get("/v2/health/live").json() == {"live": True}
    assert http.get("/v2/health/ready").json() == {"ready": True}


@pytest.mark.parametrize("path", ["/v2/models/echo", "/v2/models/echo/versions/1"])
def test_the_metadata_of_the_model(http: httpx.Client, path: str) -> None:
    tensors = [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("text", "translation")]
    found = http.get(path).json()
    assert found["outputs"].pop() == {"name": "source_language", "datatype": "BYTES", "shape": [-1]}
    assert found == {
        "name": "echo",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": tensors[:1],
        "outputs": tensors[1:],
    }
    assert http.get(f"{path}/ready").json() == {"name": "echo", "ready": True}
    assert inferred(http, {"inputs": [tensor(["Anna."])]}, f"{path}/infer")["model_version"] == "1"


def test_inference_is_refused_while_the_model_loads(echo_command: list[str], load_file: Path) -> None:
    # The echo server loads its model as long as `load_file` exists.
    command = [*echo_command, f"load_file={load_file}"]
    with ServerProcess(command) as server, server.listening().client() as http:
        assert http.get("/v2/health/live").status_code == 200
        not_ready = http.get("/v2/health/ready")
        assert (not_ready.status_code, not_ready.json()) == (503, {"ready": False})
        answer = http.post(INFER, json={"inputs": [tensor(["Anna."])]})
        assert (answer.status_code, list(answer.json())) == (503, ["error"])
        load_file.unlink()
        server.wait_for("ready")
        assert http.get("/v2/health/ready").status_code == 200


def test_texts_in_json(http: httpx.Client) -> None:
    texts = ["Anna sees 7 cats.", "", "5 % Ärger 🎉"]
    assert inferred(http, {"id": "42", "inputs": [tensor(texts)]}) == {
        "model_name": "echo",
        "model_version": "1",
        "id": "42",
        "outputs": [
            {"name": "translation", "shape": [3], "datatype": "BYTES", "data": texts},
            {"name": "source_language", "shape": [3], "datatype": "BYTES", "data": ["en"] * 3},
        ],
    }


def test_a_tensor_may_have_as_many_texts_as_a_request(http: httpx.Client) -> None:
    texts = ["a"] * 20
    assert inferred(http, {"inputs": [tensor(texts)]})["outputs"][0]["data"] == texts


@pytest.mark.parametrize(
    ("shape", "data"),
    [([2, 1], ["a", "b"]), ([2, 1], [["a"], ["b"]]), ([1, 2], [["a", "b"]]), ([2], ["a", "b"])],
)
def test_the_shape_is_kept(http: httpx.Client, shape: list[int], data: list[Any]) -> None:
    body = {"inputs": [tensor(data, shape=shape)], "outputs": [{"name": "translation"}]}
    (output,) = inferred(http, body)["outputs"]
    assert (output["shape"], output["data"]) == (shape, ["a", "b"])


def test_all_accepted_parameters(http: httpx.Client) -> None:
    texts = ["Anna sees the river today.", GERMAN]
    body = {
        "inputs": [tensor(texts)],
        "parameters": {
            "source": "auto",
            "target": "de",
            "format": "text",
            "priority": 1,
            "sequence_id": None,
            "timeout": 5_000_000,
        },
    }
    translation, source = inferred(http, body)["outputs"]
    assert translation["data"] == texts
    assert source["data"] == ["en", "de"]


def test_a_timeout_in_microseconds(echo_command: list[str]) -> None:
    with ServerProcess([*echo_command, "step_s=0.1"]) as server, server.ready().client() as http:
        body = {"inputs": [tensor(["Anna sees."])], "parameters": {"timeout": 150_000}}
        assert http.post(INFER, json=body).status_code == 504


def test_texts_may_be_bytes_after_the_json(http: httpx.Client) -> None:
    texts = ["Anna sees 7 cats.", "Ärger 🎉", ""]
    content = packed(*texts)
    binary_input = tensor([], shape=[3], parameters={"binary_data_size": len(content)})
    del binary_input["data"]
    outputs = [{"name": "translation", "parameters": {"binary_data": True}}, {"name": "source_language"}]
    header = orjson.dumps({"inputs": [binary_input], "outputs": outputs})
    answer = http.post(INFER, content=header + content, headers={LENGTH: str(len(header))})
    assert answer.status_code == 200, answer.text
    media_type = answer.headers["content-type"]
    assert media_type == "application/octet-stream"
    operation = http.get("/openapi.json").json()["paths"]["/v2/models/{name}/infer"]["post"]
    assert set(operation["responses"]["200"]["content"]) == {"application/json", media_type}
    size = int(answer.headers[LENGTH])
    described = orjson.loads(answer.content[:size])["outputs"]
    assert answer.content[size:] == content
    assert described == [
        {
            "name": "translation",
            "shape": [3],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(content)},
        },
        {"name": "source_language", "shape": [3], "datatype": "BYTES", "data": ["en"] * 3},
    ]


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"inputs": []}, 400, "inputs is empty"),
    ({"inputs": [tensor(["a"]), tensor(["a"])]}, 400, "inputs has .* items, the limit is 1"),
    ({"inputs": [7]}, 400, r"inputs\[0\] must be a JSON object"),
    ({"inputs": [tensor(["a"], name="x")]}, 400, r"inputs\[0\].name must be one of text"),
    ({"inputs": [tensor([1], datatype="FP32")]}, 400, r"inputs\[0\].datatype must be one of BYTES"),
    ({"inputs": [tensor(["a"], shape=[2])]}, 400, "1 elements, its shape says 2"),
    ({"inputs": [tensor(["a", "b"], shape=[1])]}, 400, "2 elements, its shape says 1"),
    ({"inputs": [tensor(["a"], shape=[0])]}, 400, r"shape\[0\] must be at least 1"),
    ({"inputs": [tensor(["a"], shape=[-1])]}, 400, r"shape\[0\] must be at least 1"),
    ({"inputs": [tensor(["a"], shape=[True])]}, 400, r"shape\[0\] must be a whole number"),
    ({"inputs": [tensor(["a"], shape=[1] * 9)]}, 400, "shape has .* items, the limit is 8"),
    ({"inputs": [tensor(["a"], shape=[1_000_000, 1_000_000])]}, 413, "1000000000000 texts, the limit is 20"),
    ({"inputs": [tensor([1])]}, 400, "must be an array of strings"),
    ({"inputs": [tensor([[["a"]]])]}, 400, "must be an array of strings"),
    ({"inputs": [tensor(["a"], data=None)]}, 400, "must be an array of strings"),
    ({"inputs": [tensor(["a"], data="a")]}, 400, "must be an array of strings"),
    ({"inputs": [tensor([["a"]])]}, 400, "nested as the shape says"),
    ({"inputs": [tensor([["a", "b"], "c"], shape=[3])]}, 400, "nested as the shape says"),
    ({"inputs": [tensor([["a", "b"]], shape=[2, 1])]}, 400, "nested as the shape says"),
    ({"inputs": [tensor(["x" * 201])]}, 413, "201 characters, the limit is 200"),
    ({"inputs": [tensor(["x" * 160, "x" * 141])]}, 413, "301 characters in all, the limit is 300"),
    ({"inputs": [tensor(["a"], parameters={"binary_data_size": 5})]}, 400, "has its data twice"),
    ({"inputs": [tensor(["a"])], "outputs": [{"name": "x"}]}, 400, "must be one of translation, source_lang"),
    ({"inputs": [tensor(["a"])], "outputs": {"name": "x"}}, 400, "outputs must be an array"),
    (
        {
            "inputs": [tensor(["a"])],
            "outputs": [{"name": "translation", "parameters": {"classification": 2}}],
        },
        400,
        r"outputs\[0\].parameters.classification is not offered here",
    ),
    (
        {"inputs": [tensor(["a"], parameters={"shared_memory_region": "r", "shared_memory_byte_size": 9})]},
        400,
        r"inputs\[0\].parameters.shared_memory_region is not offered here",
    ),
    (
        {"inputs": [tensor(["a"], parameters={"shared_memory_offset": 5})]},
        400,
        r"inputs\[0\].parameters.shared_memory_offset is not offered here",
    ),
    (
        {
            "inputs": [tensor(["a"])],
            "outputs": [{"name": "translation", "parameters": {"shared_memory_byte_size": 9}}],
        },
        400,
        r"outputs\[0\].parameters.shared_memory_byte_size is not offered here",
    ),
    ({"inputs": [tensor(["a"])], "parameters": {"voice": "low"}}, 400, "a field of parameters is not known"),
    ({"inputs": [tensor(["a"])], "parameters": {"target": "fr"}}, 400, "target must be one of de, en"),
    ({"inputs": [tensor(["a"])], "parameters": {"format": "pdf"}}, 400, "format must be one of text"),
    ({"inputs": [tensor(["a"])], "parameters": {"binary_data_output": 1}}, 400, "must be true or false"),
    (
        {"inputs": [tensor(["a"])], "parameters": {"source": "de", "target": "en"}},
        400,
        "German \\(de\\) to English \\(en\\) is not translated",
    ),
    ({"inputs": [tensor(["a"])], "id": 7}, 400, "id must be a string"),
    ({"inputs": [tensor(["a"])], "id": "x" * 257}, 400, "id has 257 characters, the limit is 256"),
]


@pytest.mark.parametrize(
    ("body", "status", "message"), REFUSED, ids=[str(index) for index in range(len(REFUSED))]
)
def test_what_is_refused(http: httpx.Client, body: dict[str, Any], status: int, message: str) -> None:
    answer = http.post(INFER, json=body)
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}
    assert re.search(message, answer.json()["error"])


# Bytes after the JSON, the binary_data_size that the JSON declares, and the error.
BINARY: list[tuple[bytes, int, str]] = [
    (packed("a")[:-1], 5, "binary_data_size is 5, and 4 bytes follow"),
    (packed("a") + b"x", 6, "bytes remain after the 1 elements"),
    (struct.pack("<I", 9) + b"a", 5, "element 0 is longer than the rest"),
    (b"\x01\x00", 2, "0 elements, its shape says 1"),
    (struct.pack("<I", 1) + b"\xff", 5, "element 0 is not UTF-8"),
]


@pytest.mark.parametrize(("content", "size", "message"), BINARY)
def test_invalid_bytes_after_the_json_are_refused(
    http: httpx.Client, content: bytes, size: int, message: str
) -> None:
    binary_input = {
        "name": "text",
        "shape": [1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": size},
    }
    header = orjson.dumps({"inputs": [binary_input]})
    answer = http.post(INFER, content=header + content, headers={LENGTH: str(len(header))})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert message in answer.json()["error"]


@pytest.mark.parametrize("length", ["-1", "x", "999999", "9" * 5000, "0" * 20 + "9" * 5000, "3", ""])
def test_an_invalid_length_of_the_json_is_refused(http: httpx.Client, length: str) -> None:
    body = orjson.dumps({"inputs": [tensor(["a"])]})
    answer = http.post(INFER, content=body, headers={LENGTH: length})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_bytes_after_the_json_need_a_binary_data_size(http: httpx.Client) -> None:
    header = orjson.dumps({"inputs": [tensor(["a"])]})
    answer = http.post(INFER, content=header + b"abc", headers={LENGTH: str(len(header))})
    assert answer.json() == {"error": "3 bytes follow the JSON, and no input has binary_data_size"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/echo/versions/2", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("POST", "/v2/models/echo/versions/2/infer", 404),
        ("GET", "/v2/models/other/ready", 404),
        ("GET", INFER, 405),
        ("POST", "/v2/repository/index", 404),
        ("GET", "/v2/models/echo/config", 404),
    ],
)
def test_unsupported_routes(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_invalid_bodies(http: httpx.Client) -> None:
    for content in (b"", b"[]", b'{"id": NaN}', b'{"inputs": "\xff"}'):
        answer = http.post(INFER, content=content, headers=HEADERS)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert http.post(INFER, content=b"x" * 2_000_000).status_code == 413
    assert http.post(INFER, content=b"x", headers={"content-encoding": "gzip"}).status_code == 415


def test_only_the_health_routes_need_no_key(locked_http: httpx.Client) -> None:
    body = {"inputs": [tensor(["Anna."])]}
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert locked_http.get(path).status_code == 200
    for path in ("/v2", "/v2/models/echo", "/v2/models/echo/ready"):
        assert locked_http.get(path).status_code == 401
    without = locked_http.post(INFER, json=body)
    assert (without.status_code, list(without.json())) == (401, ["error"])
    assert without.headers["www-authenticate"] == "Bearer"
    wrong = locked_http.post(INFER, json=body, headers={"authorization": "Bearer no"})
    assert wrong.status_code == 403
    assert locked_http.post(INFER, json=body, headers={"authorization": f"Bearer {KEY}"}).status_code == 200
