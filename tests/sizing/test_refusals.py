"""A server that refuses to be measured."""

from __future__ import annotations

import httpx
import pytest

from transduce.cli import main


@pytest.mark.parametrize(("status", "hint"), [(401, " (set TRANSDUCE_API_KEY)"), (503, "")])
def test_a_refusal_is_one_line(
    status: int, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get(url: str, **_options: object) -> httpx.Response:
        return httpx.Response(status, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    assert main(["size", "http://127.0.0.1:9", "--rate", "5"]) == 1
    error = capsys.readouterr().err
    assert error == f"transduce size: http://127.0.0.1:9/metrics answers {status}{hint}\n"
