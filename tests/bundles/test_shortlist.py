"""A bundle with a shortlist: written by `transduce shortlist`, checked, searched by the engine, and served."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bundle import load_bundle
from app.decoding.options import DecodingOptions, Hypothesis
from app.errors import BundleError
from app.runtime.bundle_limits import limits_of
from app.runtime.ort_runner import LoadedRunner, RunnerConfig, load_variant
from app.shortlist_file import (
    SHORTLIST,
    ShortlistError,
    ShortlistTable,
    read_shortlists,
    write_shortlists,
)
from app.text.tokenizer import Tokenizer
from export.bundle_shortlist import write_with_shortlist
from export.shortlist_cli import add_shortlist_arguments
from tests.api.server_process import ServerProcess
from tests.bundles.damage import set_field, update_hashes
from tests.engine.core_driver import CoreDriver, hypotheses_of
from tests.export.tiny import VOCAB_SIZE, sentences
from transduce.cli import main

GREEDY = DecodingOptions(beam_size=1, max_target_length=12, shortlist=0)
BEAM = replace(GREEDY, beam_size=4)
TEXTS = ("The old house.", "The green bridge is near.", "Seven letters behind the large window.", "7 & 8")


@pytest.fixture(scope="module")
def bundle(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny bundle to which the command has added a shortlist of a few subwords."""
    folder = tmp_path_factory.mktemp("shortlist")
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in sentences()), "utf-8")
    shutil.copytree(tiny / "bundle", folder / "bundle")
    sizes = ["--best", "5", "--frequent", "10", "--min-log-probability", "-1000"]
    assert main(["shortlist", str(folder / "bundle"), "--data", str(pairs), *sizes]) == 0
    return folder / "bundle"


def table_of(bundle: Path) -> ShortlistTable:
    return read_shortlists(bundle / SHORTLIST)[0]


@pytest.mark.seconds
def test_each_source_subword_has_its_translations_and_copies(bundle: Path) -> None:
    tokenizer, table = Tokenizer(bundle / "source.spm"), table_of(bundle)
    assert load_bundle(bundle).manifest.shortlist is not None
    for source, target in (("the old bridge", "die alte Brücke"), ("seven windows", "sieben")):
        listed = set(table.shortlist(tokenizer.encode(source).ids).tolist())
        needed = {
            *tokenizer.encode(target).ids,
            *tokenizer.encode(source).ids,
            *tokenizer.encode("2026 - (x)").ids,
        }
        assert needed <= listed
        assert len(listed) < VOCAB_SIZE / 2


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    for vocab_size in (100, 70_000):
        offsets = np.minimum(np.arange(vocab_size + 1), 3).astype(np.uint32)
        table = ShortlistTable(
            np.arange(64, dtype=np.uint32), np.array([7, vocab_size - 1, 90], np.uint32), offsets
        )
        write_shortlists(tmp_path / SHORTLIST, [table, table])
        for found in read_shortlists(tmp_path / SHORTLIST):
            assert found.shortlist([0, 1, 50]).tolist() == [*range(64), vocab_size - 1]
            assert found.shortlist([2]).tolist() == [*range(64), 90]


@pytest.mark.parametrize(("vocab_size", "id_bytes"), [(65_536, 2), (65_537, 4)])
def test_an_id_has_two_bytes_if_the_vocabulary_allows_it(
    tmp_path: Path, vocab_size: int, id_bytes: int
) -> None:
    offsets = np.minimum(np.arange(vocab_size + 1), 1).astype(np.uint32)
    table = ShortlistTable(np.arange(64, dtype=np.uint32), np.array([vocab_size - 1], np.uint32), offsets)
    write_shortlists(tmp_path / SHORTLIST, [table])
    assert (tmp_path / SHORTLIST).stat().st_size == 24 + 65 * id_bytes + offsets.nbytes
    assert read_shortlists(tmp_path / SHORTLIST)[0].ids.tolist() == [vocab_size - 1]


def rewrite(bundle: Path, **fields: Any) -> None:
    """Write the bundle's table with other fields."""
    write_shortlists(bundle / SHORTLIST, [replace(table_of(bundle), **fields)])


def cut(bundle: Path) -> None:
    (bundle / SHORTLIST).write_bytes((bundle / SHORTLIST).read_bytes()[:-2])


def prolong(bundle: Path) -> None:
    (bundle / SHORTLIST).write_bytes((bundle / SHORTLIST).read_bytes() + b"12")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda bundle: (bundle / SHORTLIST).write_bytes(b""), "empty"),
    "truncated": (cut, "truncated"),
    "too long": (prolong, "2 bytes after"),
    "another file": (lambda bundle: (bundle / SHORTLIST).write_bytes(b"x" * 99), "does not begin"),
    "id out of range": (
        lambda bundle: rewrite(bundle, ids=table_of(bundle).ids * 0 + VOCAB_SIZE),
        "vocabulary",
    ),
    "few ids": (lambda bundle: rewrite(bundle, always=np.arange(9, dtype=np.uint32)), "fewer than 64"),
    "offsets": (lambda bundle: rewrite(bundle, offsets=table_of(bundle).offsets[::-1]), "offsets"),
    "another model": (
        lambda bundle: rewrite(
            bundle, offsets=np.append(table_of(bundle).offsets, len(table_of(bundle).ids))
        ),
        "401 subwords, and the model has 400",
    ),
    "no entry": (set_field("shortlist", None), "both or neither"),
    "no such pair": (set_field("shortlist.pairs", [1]), "from 0 to 0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shortlist_is_refused(damage: str, bundle: Path, tmp_path: Path) -> None:
    own = shutil.copytree(bundle, tmp_path / "bundle")
    apply, message = DAMAGE[damage]
    apply(own)
    update_hashes(own)
    with pytest.raises(BundleError, match=message):
        load_bundle(own)


def test_a_refused_output_is_noticed_before_the_learning(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    arguments = ["shortlist", str(bundle), "--data", str(tmp_path / "none.tsv"), "--output", str(tmp_path)]
    assert main(arguments) != 0
    assert "exists and is not a bundle" in capsys.readouterr().err


def test_an_output_inside_the_bundle_is_noticed_before_the_learning(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(bundle)
    for path, folder in product((bundle, tmp_path / "link"), repeat=2):
        arguments = ["shortlist", str(path), "--data", str(tmp_path / "none.tsv")]
        assert main([*arguments, "--output", str(folder / "more" / "copy")]) != 0
        assert "lies in the bundle" in capsys.readouterr().err
    assert not (bundle / "more").exists()


def test_tables_of_other_directions_are_kept(bundle: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(bundle, tmp_path / "own"))
    set_field("language_pairs", [{"source": "en", "target": target} for target in ("de", "fr")])(own)
    arguments = ["shortlist", str(own), "--data", str(bundle.parent / "pairs.tsv"), "--target", "fr"]
    arguments += ["--frequent", "10"]
    assert main([*arguments, "--best", "9", "--min-log-probability", "-2"]) == 0
    entry = load_bundle(own).manifest.shortlist
    assert entry is not None
    assert (entry.pairs, entry.min_log_probability) == ((0, 1), -2)
    kept, learned = read_shortlists(own / SHORTLIST)
    assert np.array_equal(kept.ids, table_of(bundle).ids)
    assert len(learned.ids) > len(kept.ids)
    assert main([*arguments, "--best", "5"]) == 0
    entry = load_bundle(own).manifest.shortlist
    assert entry is not None
    assert entry.min_log_probability == -2, "without the option, the bundle's own is kept"
    kept, learned = read_shortlists(own / SHORTLIST)
    assert np.array_equal(kept.ids, learned.ids), "a second run replaces the table of its own direction"


@pytest.mark.parametrize("value", ["0.5", "nan", "-inf", "low"])
def test_a_refused_log_probability_is_noticed_before_the_learning(
    value: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["shortlist", str(bundle), "--data", "none.tsv", f"--min-log-probability={value}"])
    assert f"'{value}' is not a number of at most 0" in capsys.readouterr().err


def test_the_least_log_probability_may_be_0() -> None:
    parser = argparse.ArgumentParser()
    add_shortlist_arguments(parser)
    args = parser.parse_args(["bundle", "--data", "x.tsv", "--min-log-probability", "0"])
    assert args.min_log_probability == 0


def test_missing_parents_are_made(bundle: Path, tmp_path: Path) -> None:
    write_with_shortlist(load_bundle(bundle), tmp_path / "new" / "er" / "bundle", {0: table_of(bundle)}, -1.0)
    assert load_bundle(tmp_path / "new" / "er" / "bundle").manifest.shortlist is not None


def test_an_empty_file_is_a_shortlist_error(tmp_path: Path) -> None:
    (tmp_path / SHORTLIST).write_bytes(b"")
    with pytest.raises(ShortlistError, match="empty"):
        read_shortlists(tmp_path / SHORTLIST)


def load(bundle: Path, min_log_probability: float | None = None) -> LoadedRunner:
    manifest = load_bundle(bundle).manifest
    limits = replace(limits_of(manifest, 48), min_log_probability=min_log_probability)
    config = RunnerConfig("int8", manifest.variants["int8"], limits, has_shortlist=True)
    return load_variant(bundle, config, device="cpu", kernels="native", num_threads=1)


def test_a_file_that_changes_after_its_check_is_an_error_of_the_bundle(bundle: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(bundle, tmp_path / "own"))
    manifest = load_bundle(own).manifest
    config = RunnerConfig("int8", manifest.variants["int8"], limits_of(manifest, 8), has_shortlist=True)
    for change in (lambda path: path.write_bytes(b""), Path.unlink):
        change(own / SHORTLIST)
        with pytest.raises(BundleError, match=r"own: shortlist\.bin cannot be used"):
            load_variant(own, config, device="cpu", kernels="native", num_threads=1)


def decode(runner: LoadedRunner, sources: list[list[int]], options: DecodingOptions) -> list[Hypothesis]:
    driver = CoreDriver(runner)
    submitted = [driver.submit(source, options) for source in sources]
    driver.run()
    return [hypotheses_of(sequence)[0] for sequence in submitted]


@pytest.fixture(scope="module")
def sources(bundle: Path) -> list[list[int]]:
    tokenizer = Tokenizer(bundle / "source.spm")
    texts = [pair.source.rsplit(" ", 1)[0] for pair in sentences()[:24]]
    return [list(tokenizer.encode(text).ids) for text in dict.fromkeys(texts)][:10]


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_sentence_gets_only_subwords_of_its_shortlist_and_the_same_in_a_batch(
    options: DecodingOptions, bundle: Path, sources: list[list[int]]
) -> None:
    runner, table = load(bundle), table_of(bundle)
    together = decode(runner, sources, options)
    assert together == [decode(runner, [source], options)[0] for source in sources]
    for source, hypothesis in zip(sources, together, strict=True):
        assert set(hypothesis.ids) <= set(table.shortlist(source).tolist())
    whole = decode(runner, sources, replace(options, shortlist=None))
    assert [one.ids for one in whole] != [one.ids for one in together]


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_bad_result_is_decoded_again_with_the_whole_vocabulary(
    options: DecodingOptions, bundle: Path, sources: list[list[int]]
) -> None:
    runner = load(bundle, min_log_probability=0.0)  # every result is below 0
    driver = CoreDriver(runner)
    submitted = [driver.submit(source, options) for source in sources]
    driver.run()
    expected = decode(runner, sources, replace(options, shortlist=None))
    assert [hypotheses_of(sequence)[0] for sequence in submitted] == expected
    assert sum(step.num_widened for report in driver.reports for step in report.steps) == len(sources)


def test_a_guided_search_takes_the_whole_vocabulary(bundle: Path, sources: list[list[int]]) -> None:
    runner = load(bundle)
    guided = replace(BEAM, no_repeat_ngram_size=2)
    assert decode(runner, sources, guided) == decode(runner, sources, replace(guided, shortlist=None))


def served(bundle: Path, **settings: object) -> tuple[list[tuple[str, list[float]]], float]:
    """The translations of TEXTS by a server with their scores, and how many sentences it decoded a second time.

    The second time has the whole vocabulary. A list gives other scores, because probabilities are normalised over it.
    """
    own: dict[str, object] = {
        "bundle": bundle,
        "precision": "int8",
        "num_threads": 1,
        "num_lanes": 2,
        **settings,
    }
    with ServerProcess(["transduce", "serve"], own) as server, server.ready().client() as client:
        body = {"text": list(TEXTS), "source": "en", "target": "de", "beam_size": 4, "max_target_length": 12}
        answer = client.post("/v1/translate", json=body).raise_for_status().json()
        num_widened = server.metric('transduce_engine_sentences_total{outcome="widened"}')
    scored = [(each["text"], [one["score"] for one in each["segments"]]) for each in answer["translations"]]
    return scored, num_widened


@pytest.mark.server
def test_a_server_uses_the_shortlist_unless_it_is_off(tiny: Path, bundle: Path, tmp_path: Path) -> None:
    whole, _ = served(tiny / "bundle")
    assert served(bundle, shortlist="off") == (whole, 0)
    listed, num_widened = served(bundle)
    assert listed != whole
    assert num_widened == 0
    strict = shutil.copytree(bundle, tmp_path / "bundle")
    set_field("shortlist.min_log_probability", 0.0)(strict)
    again, num_widened = served(strict)
    assert num_widened > 0
    assert again == whole
