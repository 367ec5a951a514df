"""`transduce serve` with a decoder of SSRUs, over sockets."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from app.runtime.kernels import is_native_usable
from app.text.tokenizer import Tokenizer
from model.checkpoint import load_model
from model.config import BOS_ID
from tests.api.server_process import ServerProcess
from tests.e2e.conftest import SERVE_BY_FORK
from tests.export.tiny import sentences

PAIRS = sentences()[:16]


@pytest.fixture(scope="module", params=["standard", "native"] if is_native_usable() else ["standard"])
def server(tiny_ssru: Path, request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server with fewer rows than the concurrent requests below need."""
    settings = {"bundle": tiny_ssru / "bundle", "precision": "fp32", "kernels": request.param}
    settings |= {"num_threads": 1, "num_rows": 16, "sentence_cache_bytes": 0}
    with ServerProcess(SERVE_BY_FORK, settings) as process:
        yield process.ready()


def post(server: ServerProcess, path: str, **fields: object) -> Any:
    with server.client() as client:
        answer: httpx.Response = client.post(path, json={"source": "en", "target": "de", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_concurrent_searches_do_not_change_a_translation(server: ServerProcess) -> None:
    """Greedy searches, beams and guided searches run in one batch. Sentences get rows that others freed."""
    options: list[dict[str, object]] = [
        {"beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 3, "num_hypotheses": 3},
        {"beam_size": 2, "alignment": True, "target_prefix": "Die alte"},
    ]
    requests = [
        {"text": pair.source, "max_target_length": 12 + number % 9, **options[number % len(options)]}
        for number, pair in enumerate(PAIRS)
    ]

    def texts_of(request: dict[str, object]) -> Any:
        (translation,) = post(server, "/v1/translate", **request)["translations"]
        found = [translation["text"]]
        for segment in translation["segments"]:
            found += [one["text"] for one in segment.get("hypotheses", ())]
        return found

    alone = [texts_of(request) for request in requests]
    num_steps = server.metric("transduce_decode_steps_total")
    with ThreadPoolExecutor(len(requests)) as pool:
        together = [*pool.map(texts_of, requests)]
    assert together == alone
    assert server.metric("transduce_decode_steps_total") > num_steps
    # If the translations did not differ, the comparison would show nothing.
    assert len({texts[0] for texts in alone}) > len(PAIRS) // 2


def test_scores_are_those_of_teacher_forcing_in_pytorch(server: ServerProcess, tiny_ssru: Path) -> None:
    model, tokenizer = load_model(tiny_ssru / "checkpoint"), Tokenizer(tiny_ssru / "bundle" / "target.spm")
    for pair in PAIRS[:6]:
        (found,) = post(server, "/v1/score", text=pair.source, translation=pair.target)["scores"]
        source, target = tokenizer.encode(pair.source).ids, tokenizer.encode(pair.target).ids
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([[BOS_ID, *target[:-1]]]))
        expected = logits.log_softmax(-1)[0].gather(1, torch.tensor(target)[:, None]).sum().item()
        assert found["log_probability"] == pytest.approx(expected, rel=1e-4)
