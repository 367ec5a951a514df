"""A load that fails leaves no worker and no engine behind. A model that starts or ends leaves no cached sentence."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.api.service import Service
from app.eager_models import EagerModels
from app.errors import BundleError, SettingsError
from app.model_starter import ModelStarter
from app.observability.metrics import Metrics
from app.settings import Settings
from app.startup import LoadedModel, LoadedModels, lazy_detector
from app.stores.glossaries import GlossaryStore
from app.text.detection import LanguageDetector, LazyDetector
from app.text.tokenizer import Tokenizer
from app.translator import TranslationRequest
from app.translator.text_threads import TextThreads
from tests.api.echo import GOLDEN, Behaviour, echo_model
from tests.engine.fake_runner import FakeRunner
from tests.model.sentences import write_tokenizer


def new_starter(text_threads: TextThreads, settings: Settings | None = None) -> ModelStarter:
    return ModelStarter(
        settings or Settings(),
        Service(Metrics(), GlossaryStore(None)),
        text_threads=text_threads,
        on_death=lambda _engine: None,
    )


def test_the_workers_of_a_model_that_the_engine_refuses_are_closed() -> None:
    closed: list[int] = []
    workers = [
        SimpleNamespace(limits=FakeRunner().limits, close=lambda number=number: closed.append(number))
        for number in range(2)
    ]
    model: Any = SimpleNamespace(workers=workers, start_worker=None)

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            service = Service(Metrics(), GlossaryStore(None))
            starter = ModelStarter(
                Settings(max_encode_tokens=1),
                service,
                text_threads=text_threads,
                on_death=lambda _engine: None,
            )
            with pytest.raises(SettingsError, match="max_encode_tokens"):
                await starter.start(model, None, cache_bytes=0)

    asyncio.run(scenario())
    assert closed == [0, 1]


def test_if_the_detector_cannot_be_loaded_the_new_engines_are_closed(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
    is_broken = True

    def load() -> LanguageDetector:
        if is_broken:
            raise OSError("no such file")
        return LanguageDetector(("en", "de"))

    def detector() -> LazyDetector:
        lazy = LazyDetector(load)
        lazy.start_loading()  # on a thread; an error is raised when the detector is awaited
        return lazy

    def model(*_arguments: object) -> Any:
        return replace(echo_model(tokenizer, Behaviour(), num_rows=16), path=tmp_path)

    loader: Any = SimpleNamespace(
        load_all=lambda _settings: LoadedModels([model()], detector()), load_one=model
    )

    async def scenario() -> None:
        nonlocal is_broken
        with TextThreads(1) as text_threads:
            service = Service(Metrics(), GlossaryStore(None))
            starter = ModelStarter(
                Settings(), service, text_threads=text_threads, on_death=lambda _engine: None
            )
            source = EagerModels(Settings(), loader, starter)
            with pytest.raises(OSError, match="no such file"):
                await source.load_all(None)
            assert not starter._engines
            is_broken = False
            old = await source.load_all(None)
            assert len(starter._engines) == 1
            is_broken = True
            source._detector.current = detector()
            with pytest.raises(OSError, match="no such file"):
                await source.load_one(old, next(iter(old)), is_forced=True)
            assert [*starter._engines] == [source.running(next(iter(old))).engine]
            await starter.close()

    asyncio.run(scenario())


def test_a_failed_reload_of_a_model_with_another_language_keeps_the_detector(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
    behaviour = Behaviour()

    def model(*_arguments: object) -> Any:
        return replace(echo_model(tokenizer, behaviour, num_rows=16), path=tmp_path)

    def load_all(_settings: Settings) -> LoadedModels:
        return LoadedModels([model()], lazy_detector({"en", "de"}))

    loader: Any = SimpleNamespace(load_all=load_all, load_one=model)

    async def scenario() -> None:
        nonlocal behaviour
        with TextThreads(1) as text_threads:
            service = Service(Metrics(), GlossaryStore(None))
            starter = ModelStarter(
                Settings(), service, text_threads=text_threads, on_death=lambda _engine: None
            )
            source = EagerModels(Settings(), loader, starter)
            old = await source.load_all(None)
            detector = source._detector.current
            french = Behaviour(pairs=(("en", "fr"),))
            behaviour = replace(french, golden_target="the river")
            with pytest.raises(BundleError, match="golden sentences match"):
                await source.load_one(old, next(iter(old)), is_forced=True)
            assert source._detector.current is detector
            behaviour = french
            await source.load_one(old, next(iter(old)), is_forced=True)
            assert source._detector.current is not detector
            await starter.close()

    asyncio.run(scenario())


def test_the_workers_of_a_bundle_that_holds_another_model_now_are_closed(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
    closed: list[str] = []
    worker: Any = SimpleNamespace(close=lambda: closed.append("other"))

    def model(name: str) -> LoadedModel:
        return replace(echo_model(tokenizer, Behaviour(name=name), num_rows=16), path=tmp_path)

    loader: Any = SimpleNamespace(
        load_all=lambda _settings: LoadedModels([model("echo")]),
        load_one=lambda *_arguments: replace(model("other"), workers=[worker]),
    )

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            starter = new_starter(text_threads)
            source = EagerModels(Settings(), loader, starter)
            old = await source.load_all(None)
            with pytest.raises(BundleError, match="it holds the model other now, not echo"):
                await source.load_one(old, next(iter(old)), is_forced=True)
            await starter.close()

    asyncio.run(scenario())
    assert closed == ["other"]


def test_the_engine_of_a_model_that_fails_its_golden_check_is_closed(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
    model = echo_model(tokenizer, Behaviour(golden_target="the river"), num_rows=16)

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            starter = new_starter(text_threads)
            with pytest.raises(BundleError, match="0 of 1 golden sentences match"):
                await starter.start(model, None, cache_bytes=0)
            assert not starter._engines

    asyncio.run(scenario())


def test_a_model_that_must_match_all_golden_sentences_may_match_just_these(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            starter = new_starter(text_threads, Settings(golden_min_share=1.0))
            await starter.start(echo_model(tokenizer, Behaviour(), num_rows=16), None, cache_bytes=0)
            assert len(starter._engines) == 1
            await starter.close()

    asyncio.run(scenario())


def test_the_cache_has_no_sentence_of_a_warm_up_or_of_a_stopped_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer(write_tokenizer(tmp_path / "tokenizer.spm"))
    request = TranslationRequest(
        texts=(GOLDEN,), source="en", target="de", request_id="1", caller="", deadline=time.monotonic() + 60
    )

    async def scenario() -> None:
        with TextThreads(1) as text_threads:
            starter = new_starter(text_threads)
            model = echo_model(tokenizer, Behaviour(), num_rows=16)
            translator = await starter.start(model, None, cache_bytes=1 << 20)
            assert starter.cache_stats().num_entries == 0
            await translator.translate(request)
            before = starter.cache_stats()
            assert before.num_entries == 1
            await starter.stop([translator])
            after = starter.cache_stats()
            assert (after.num_entries, after.num_bytes, after.num_misses) == (0, 0, before.num_misses)

    asyncio.run(scenario())
