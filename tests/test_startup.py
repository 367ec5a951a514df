"""What a failed golden check reports, and what becomes of a load whose result nothing awaits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.decoding.options import FinishReason, Hypothesis
from app.engine.sequence import SequenceResult
from app.errors import BundleError, EngineFailure, NotReady
from app.startup import LoadedModel, check_golden, in_daemon_thread
from app.text.tokenizer import Tokenizer
from tests.api.echo import Behaviour, echo_model
from tests.model.sentences import write_tokenizer

HANG_TIMEOUT_S = 10.0


def translator_with(model: LoadedModel, submit: Callable[..., asyncio.Future[Any]]) -> Any:
    """A translator whose engine has this `submit`."""
    return SimpleNamespace(
        encoder=SimpleNamespace(start_id=lambda _pair: 0),
        encode=lambda _source, _pair: SimpleNamespace(ids=()),
        engine=SimpleNamespace(limits=model.limits, submit=submit),
    )


def test_a_golden_check_reports_the_failure_that_stopped_the_engine(tmp_path: Path) -> None:
    model = echo_model(Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm")), Behaviour(), num_rows=16)
    errors: list[Exception] = [NotReady("the engine has died"), EngineFailure("the forward failed")]

    async def scenario() -> None:
        def submit(*_arguments: object, **_options: object) -> asyncio.Future[Any]:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(errors.pop(0))
            return future

        translator = translator_with(model, submit)
        await check_golden(replace(model, golden=model.golden * 2), translator, min_share=1.0)

    with pytest.raises(BundleError, match="2 of 2 golden sentences cannot be decoded: the forward failed"):
        asyncio.run(scenario())


def test_a_golden_check_without_a_match_suggests_another_vocabulary(tmp_path: Path) -> None:
    model = echo_model(Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm")), Behaviour(), num_rows=16)
    found = Hypothesis((9, 9), -1.0, -1.0, FinishReason.STOP, (-0.5,) * 3)

    async def scenario() -> None:
        def submit(*_arguments: object, **_options: object) -> asyncio.Future[Any]:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_result(SequenceResult([found], 0.0, 0.0, 0.0, 3))
            return future

        translator = translator_with(model, submit)
        await check_golden(model, translator, min_share=0.5)

    with pytest.raises(
        BundleError, match=r"0 of 1 golden .* at export, or source\.spm is not its vocabulary"
    ):
        asyncio.run(scenario())


@pytest.mark.parametrize("is_loop_closed", [False, True])
def test_a_load_that_nothing_awaits_is_released(is_loop_closed: bool) -> None:
    may_end, is_released = threading.Event(), threading.Event()
    released: list[str] = []

    def load() -> str:
        assert may_end.wait(HANG_TIMEOUT_S)
        return "model"

    def release(model: str) -> None:
        released.append(model)
        is_released.set()

    async def scenario() -> None:
        future = in_daemon_thread(load, on_unused=release)
        if not is_loop_closed:
            future.cancel()
            may_end.set()
            assert await asyncio.to_thread(is_released.wait, HANG_TIMEOUT_S)

    asyncio.run(scenario())
    may_end.set()
    assert is_released.wait(HANG_TIMEOUT_S)
    assert released == ["model"]
