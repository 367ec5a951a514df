"""No target finds a fault in saved failures and random inputs. A target's time grows linearly. `tests.fuzz` fuzzes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.files import FileError, FileFormat, TranslatableFile, Unit
from app.files.reading import read_file
from tests.files.samples import SAMPLES
from tests.fuzz import targets
from tests.fuzz.examples import changed, examples, joined
from tests.fuzz.targets import LIMIT_S, MAX_BYTES, TARGETS, Target, TooSlow, check_file, is_xml
from tests.house_rules.project import ROOT
from tests.text.growth import check_near_linear

CRASHES = Path(__file__).with_name("crashes")
SAVED = sorted(path for path in CRASHES.glob("*/*") if path.is_file())
GROWN_BYTES = 16_000


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Tokens in any order, and seeds with some bytes replaced by tokens."""
    tokens = joined(target.tokens, max_size=30)
    choice = st.binary(min_size=1, max_size=1)
    seeds = st.sampled_from(list(target.seeds()))
    damaged = seeds.flatmap(lambda seed: changed(seed, target.tokens)).map(lambda data: data[:MAX_BYTES])
    return st.builds(bytes.__add__, choice, tokens) | tokens | damaged


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}/{path.name[:14]}")
def test_a_saved_failure_is_mended(path: Path) -> None:
    TARGETS[path.parent.name].check_in_time(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_is_checked_as_a_whole(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert max(map(len, seeds)) <= MAX_BYTES
    for seed in seeds:
        TARGETS[name].check(seed)


@dataclass(frozen=True)
class BrokenFile:
    """A file whose `write` has a fault as soon as a text differs."""

    file: TranslatableFile
    fault: str

    @property
    def units(self) -> Sequence[Unit]:
        return self.file.units

    def write(self, translations: Sequence[str]) -> bytes:
        texts = [unit.text for unit in self.units]
        if self.fault == "garbage" and translations != texts:
            return b"\xff\xfegarbage"
        return self.file.write([*translations[:1], *texts[1:]] if self.fault == "first only" else texts)


@pytest.mark.parametrize("file_format", FileFormat)
@pytest.mark.parametrize("fault", ["no translation", "first only", "garbage"])
def test_a_broken_writer_is_a_fault(
    file_format: FileFormat, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_broken(*arguments: Any) -> BrokenFile:
        return BrokenFile(read_file(*arguments), fault)

    monkeypatch.setattr(targets, "read_file", read_broken)
    with pytest.raises((AssertionError, FileError)):
        check_file(file_format)(SAMPLES[file_format])


@pytest.mark.parametrize("encoding", ["x", "utf-7", "big5", "zlib"])
def test_xml_of_an_encoding_that_cannot_be_read_is_no_xml(encoding: str) -> None:
    assert not is_xml(f'<?xml version="1.0" encoding="{encoding}"?><a/>')


@pytest.mark.parametrize("name", TARGETS)
def test_random_inputs_show_no_fault(name: str) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=examples(12, per_s=20),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(inputs(target))
    def check(data: bytes) -> None:
        target.check_in_time(data)

    check()


def test_time_is_near_linear() -> None:
    """The time of a random target grows near-linearly with the number of repeats of a few tokens in its input."""

    @settings(
        max_examples=examples(6, per_s=1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.sampled_from(sorted(TARGETS)), st.data())
    def check(name: str, data: st.DataObject) -> None:
        target = TARGETS[name]
        tokens = st.lists(st.sampled_from(target.tokens), min_size=1, max_size=4)
        first, repeated, last = ("".join(data.draw(tokens)).encode() for _ in range(3))
        choice = data.draw(st.binary(min_size=1, max_size=1))

        def work(size: int) -> None:
            target.check(choice + first + repeated * (size // len(repeated)) + last)

        check_near_linear(work, GROWN_BYTES)

    check()


def compute(_data: bytes) -> None:
    """Compute for a little more than the limit."""
    until = time.thread_time() + 1.1 * LIMIT_S
    while time.thread_time() < until:
        pass


@pytest.mark.seconds
def test_a_slow_input_is_a_fault() -> None:
    with pytest.raises(TooSlow):
        Target(compute, list, ()).check_in_time(b"")


@pytest.mark.server
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")
def test_the_command_fuzzes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "glossary", "--seconds", "1"]
    folders = ["--corpus", str(tmp_path / "corpus"), "--crashes", str(tmp_path / "crashes")]
    done = subprocess.run([*command, *folders], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "number_of_executed_units" in done.stderr
    assert len(list((tmp_path / "corpus" / "glossary").iterdir())) > len(TARGETS["glossary"].seeds())
    assert not list((tmp_path / "crashes" / "glossary").iterdir())
