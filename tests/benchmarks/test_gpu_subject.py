"""What the GPU benchmark measures, and what its README installs."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from packaging.requirements import Requirement

from app.bundle import Bundle, load_bundle
from app.language_pairs import LanguagePair
from app.runtime.ort_runner import load_runner
from app.text.tokenizer import PLACEHOLDER_SYMBOLS
from benchmarks.gpu.__main__ import run_part
from benchmarks.gpu.subject import (
    GpuBenchmarkOptions,
    SkipError,
    Text,
    encode,
    make_random_bundle,
    natural_lengths,
    translate,
)
from benchmarks.machine import ROOT
from tests.api.processes import have_ended, wait_until
from tests.model.sentences import write_tokenizer
from tests.native_kernels import NEEDS_NATIVE

# Dependencies that the GPU machine has, and those that the server imports only if a request or a setting needs them.
INSTALLED = {"numpy", "sentencepiece", "httpx"}
LAZY = {"redis", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"}
# A subword that every bundle has.
TAG = PLACEHOLDER_SYMBOLS[0]


@pytest.fixture
def options(tiny: Path, tmp_path: Path) -> GpuBenchmarkOptions:
    return GpuBenchmarkOptions(
        device="cpu",
        bundle=tiny / "bundle",
        data=None,
        work=tmp_path,
        is_quick=True,
        memory_s=1.0,
        golden_min_share=0.8,
    )


def test_lengths_are_natural_and_the_same_in_every_run() -> None:
    sources, targets = natural_lengths(400)
    again = natural_lengths(400)
    np.testing.assert_array_equal((sources, targets), again)
    assert len(set(sources.tolist())) > 30
    assert 20 < sources.mean() < 30
    assert sources.min() > 1, "a source has a subword before its end token"
    assert 1 < (targets / sources).max() <= 1.4
    assert 0.5 < (targets / sources).min() < 1


def changed(bundle: Bundle, **changes: Any) -> Bundle:
    """The bundle with changed fields of its manifest."""
    return Bundle(bundle.path, bundle.manifest.model_copy(update=changes), ())


def test_sources_have_the_ids_that_the_server_makes(tiny: Path) -> None:
    bundle, text = load_bundle(tiny / "bundle"), Text(["The old bridge."], None)
    tokenizer, (plain,), _ = encode(bundle, text)
    assert plain[-1] == tokenizer.eos_id
    unended = changed(bundle, ends_source=False)
    assert encode(unended, text)[1] == [plain[:-1]]
    pairs = (LanguagePair(source="en", target="de", source_prefix=TAG),)
    tag_id = tokenizer.id_of(TAG)
    assert encode(changed(bundle, language_pairs=pairs), text)[1] == [[tag_id, *plain]]
    tagged_last = changed(bundle, language_pairs=pairs, tag_follows_source=True)
    assert encode(tagged_last, text)[1] == [[*plain, tag_id]]


def test_translations_have_the_vocabulary_of_the_target(tiny: Path, tmp_path: Path) -> None:
    bundle = load_bundle(tiny / "bundle")
    shutil.copy(bundle.file("source.spm"), tmp_path)
    write_tokenizer(tmp_path / "target.spm", vocab_size=380)
    tokenizer, *_ = encode(Bundle(tmp_path, bundle.manifest, ()), Text(["The old bridge."], None))
    assert tokenizer.vocab_size == 380


def test_a_bundle_with_start_tokens_of_its_languages_is_skipped(tiny: Path) -> None:
    pairs = (LanguagePair(source="en", target="de", target_start="__de__"),)
    bundle = changed(load_bundle(tiny / "bundle"), language_pairs=pairs)
    with pytest.raises(SkipError, match="own start token"):
        encode(bundle, Text(["The old bridge."], None))


def test_a_part_that_takes_too_long_ends_with_its_server(
    options: GpuBenchmarkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_file = options.work / "process"
    part = options.work / "part"
    part.write_text(f"#!/bin/sh\nsleep 600 & echo $! > {id_file}.new\nmv {id_file}.new {id_file}\nwait\n")
    part.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(part))
    found = run_part(options, "http", [], 2.0)
    assert found == {"status": "failed", "reason": "took more than 2 s"}
    child = int(id_file.read_text())
    wait_until(lambda: have_ended([each for each in psutil.process_iter() if each.pid == child]))


def test_a_random_bundle_is_written_again_after_a_killed_part(options: GpuBenchmarkOptions) -> None:
    (options.work / "random" / "fp16").mkdir(parents=True)
    written = make_random_bundle(options)
    assert make_random_bundle(options).manifest == written.manifest


@pytest.mark.native
@NEEDS_NATIVE
def test_every_decoder_step_of_a_call_counts(tiny: Path) -> None:
    bundle = load_bundle(tiny / "bundle")
    runner = load_runner(bundle, precision="int8", device="cpu", num_rows=2, num_threads=1, kernels="native")
    assert runner.limits.max_steps > 1
    found = translate(runner, [[7, 9, runner.limits.eos_id]], beam_size=1)
    assert found.num_steps == found.num_target_tokens + 1, "a step for each subword and for the end token"


def test_the_readme_downloads_what_the_server_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {Requirement(line).name for line in project["dependencies"]} - INSTALLED - LAZY
    readme = (ROOT / "benchmarks" / "gpu" / "README.md").read_text("utf-8")
    (command,) = re.findall(r"-d small(.*?)\n   pip", readme, re.DOTALL)
    assert needed - set(re.split(r"[\s\\]+|==", command)) == set()
