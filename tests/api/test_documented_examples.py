"""A server with the bundled model answers every example of docs/http-api.md as the page says.

A decimal number may differ by 5 %, or by 0.05 if that is more. Kernels and processors round differently.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.api.server_process import ROOT

DOCUMENT = (ROOT / "docs" / "http-api.md").read_text("utf-8")
HOST = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Example:
    """A curl command of the page. answer: the response that the page shows after it; None if it shows none."""

    path: str
    headers: dict[str, str]
    content: str | None
    answer: Any


def fences() -> list[tuple[str, str]]:
    """Language and content of every code block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)


def examples() -> Iterator[Example]:
    blocks = fences()
    for (language, content), (following, answer) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "" and content.startswith("curl "):
            words = shlex.split(content)
            options = list(itertools.pairwise(words))
            (url,) = (word for word in words if word.startswith(HOST))
            yield Example(
                path=url.removeprefix(HOST),
                headers=dict(value.split(": ", 1) for option, value in options if option == "-H"),
                content=next((value for option, value in options if option == "-d"), None),
                answer=json.loads(answer) if following == "json" else None,
            )


EXAMPLES = list(examples())


def test_every_block_is_an_example_and_every_answer_has_a_command() -> None:
    num_answers = sum(example.answer is not None for example in EXAMPLES)
    assert len(fences()) == len(EXAMPLES) + num_answers
    paths = {example.path for example in EXAMPLES}
    assert paths == {"/v1/translate", "/v1/translate/stream", "/v1/score", "/v1/detect", "/v1/models"}
    assert num_answers >= 8


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.path} {example.content}"[:60])
def test_the_server_answers_an_example_as_the_page_says(bundled: httpx.Client, example: Example) -> None:
    content = None if example.content is None else example.content.encode()
    found = bundled.request(
        "POST" if content else "GET", example.path, content=content, headers=example.headers
    )
    is_refused = example.answer is not None and "error" in example.answer
    assert found.status_code == (422 if is_refused else 200), found.text
    if example.answer is not None:
        assert differences(example.answer, found.json()) == []


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """The differences of two responses. The request id always differs."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [
            line
            for key in expected
            if key != "request_id"
            for line in differences(expected[key], found[key], f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = zip(expected, found, strict=True)
        return [line for index, pair in enumerate(pairs) for line in differences(*pair, f"{path}[{index}]")]
    is_near = (
        isinstance(expected, float)
        and isinstance(found, float)
        and abs(expected - found) < 0.05 * max(1, abs(expected))
    )
    return [] if is_near or (type(expected) is type(found) and expected == found) else [f"{path}: {found!r}"]


def test_different_answers_are_detected() -> None:
    answer = {"text": "Ja.", "spans": [{"start": 0, "end": 3}], "score": -1.0, "request_id": "a"}
    assert differences(answer, {**answer, "score": -1.02, "request_id": "b"}) == []
    changes: tuple[dict[str, Any], ...] = (
        {"text": "Ja"},
        {"spans": [{"start": 0, "end": 4}]},
        {"spans": []},
        {"score": -1.2},
        {"x": 1},
    )
    for change in changes:
        assert len(differences(answer, {**answer, **change})) == 1
