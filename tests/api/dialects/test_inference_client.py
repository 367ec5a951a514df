"""The unmodified Triton client, which uses the Open Inference Protocol, over a socket to the bundled model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as protocol  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

MODEL = "en-de-small"
TEXTS = ["The house is small.", "Good night!", "5 € 🎉"]


@pytest.fixture
def client(bundled: httpx.Client) -> Iterator[Any]:
    url = bundled.base_url
    client = protocol.InferenceServerClient(f"{url.host}:{url.port}")
    yield client
    client.close()


def inputs(*, is_binary: bool) -> list[Any]:
    tensor = protocol.InferInput("text", [len(TEXTS)], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in TEXTS], dtype=np.object_), is_binary)
    return [tensor]


def output_texts(result: Any, name: str) -> list[str]:
    found = result.as_numpy(name)
    return [each.decode() if isinstance(each, bytes) else each for each in found.tolist()]


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["name"] == "transduce"
    metadata = client.get_model_metadata(MODEL)
    (version,) = metadata["versions"]
    assert client.get_model_metadata(MODEL, version) == metadata
    assert client.is_model_ready(MODEL, version)


@pytest.mark.parametrize("requests_bytes", [True, False])
@pytest.mark.parametrize("sends_bytes", [True, False])
def test_texts(client: Any, sends_bytes: bool, requests_bytes: bool) -> None:
    outputs = [
        protocol.InferRequestedOutput(name, binary_data=requests_bytes)
        for name in ("translation", "source_language")
    ]
    sent, languages = inputs(is_binary=sends_bytes), {"source": "en", "target": "de"}
    result = client.infer(MODEL, sent, outputs=outputs, request_id="7", parameters=languages)
    house, night, kept = output_texts(result, "translation")
    assert ["Haus" in house, "Nacht" in night, kept] == [True, True, TEXTS[2]]
    assert output_texts(result, "source_language") == ["en"] * 3
    assert result.get_response()["id"] == "7"


def test_without_outputs_and_with_parameters(client: Any) -> None:
    """If a call names no outputs, the client requests binary outputs. The unit of `timeout` is the microsecond."""
    parameters = {"source": "auto", "target": "de"}
    result = client.infer(MODEL, inputs(is_binary=True), parameters=parameters, priority=1, timeout=5_000_000)
    assert "Haus" in output_texts(result, "translation")[0]


def test_errors(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="this model or version is not served") as caught:
        client.infer("other", inputs(is_binary=False))
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="target must be one of"):
        client.infer(MODEL, inputs(is_binary=True), parameters={"source": "en", "target": "fr"})


def test_shared_memory_and_classification_are_refused(client: Any) -> None:
    sent, output = inputs(is_binary=True), protocol.InferRequestedOutput("translation")
    output.set_shared_memory("region", 100)
    for each in (output, protocol.InferRequestedOutput("translation", class_count=2)):
        with pytest.raises(InferenceServerException, match="is not offered here"):
            client.infer(MODEL, sent, outputs=[each])
