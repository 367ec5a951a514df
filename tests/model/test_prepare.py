"""`transduce prepare`: normal forms, rules, duplicates, sampling, shards and the report."""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import prepare as prepare_module
from model.corpus import CorpusError, Pair, read_data
from model.pair_filter import MEANINGS, NOT_FOR_KEEP, Reason, Rules
from model.prepare import Preparation, excluded_hashes, prepare
from model.prepare_cli import KEEP_CHOICES, add_prepare_arguments
from model.prepare_report import MAX_EXAMPLE_CHARACTERS, NUM_EXAMPLES, Report
from model.seen_hashes import SeenHashes
from model.shards import Compression, ShardWriter
from tests.forked import run_transduce
from tests.model.sentences import pairs, write_tsv

RULES = Rules("en", "de")


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("The old house stands.", "Das alte Haus steht.", None),
        ("", "Haus", Reason.EMPTY),
        ("word " * 150, "Wort " * 150, Reason.LENGTH),
        ("House", "Ein Haus, das nicht mehr steht, wo es einst stand.", Reason.RATIO),
        ("OK", "In Ordnung", None),
        ("Dashboard", "Dashboard", Reason.COPY),
        ("Save as...", "SAVE AS", Reason.NEAR_COPY),
        ("Open the sync dashboard now", "Open the sync Dashboard jetzt", Reason.NEAR_COPY),
        ("Enable Windows Firewall", "Windows-Firewall aktivieren", None),
        ("1,200", "1.200", None),
        ("The house", "Старый дом", Reason.SCRIPT),
    ],
)
def test_the_reason_that_drops_a_pair(source: str, target: str, reason: Reason | None) -> None:
    assert RULES.reason_against(source, target) == reason


def test_numbers_are_compared_only_on_request() -> None:
    strict = Rules("en", "de", checks_numbers=True)
    assert RULES.reason_against("Room 12", "Zimmer 21a3") is None
    assert strict.reason_against("Room 12", "Zimmer 13") is Reason.NUMBERS
    assert strict.reason_against("1,250.50 metres", "1.250,50 Meter") is None


def test_an_ignored_reason_drops_nothing() -> None:
    rules = Rules("en", "de", ignored=frozenset({Reason.COPY}))
    assert rules.reason_against("Dashboard", "Dashboard") is Reason.NEAR_COPY
    rules = Rules("en", "de", ignored=frozenset({Reason.COPY, Reason.NEAR_COPY}))
    assert rules.reason_against("Dashboard", "Dashboard") is None


def test_every_reason_has_a_meaning_and_keep_accepts_all_but_some() -> None:
    assert set(MEANINGS) == set(Reason)
    assert set(map(Reason, KEEP_CHOICES)) == set(Reason) - NOT_FOR_KEEP


def test_scripts_of_other_languages() -> None:
    assert Rules("en", "ru").reason_against("The house", "Старый дом") is None
    assert Rules("en", "ru").reason_against("The house", "Das Haus") is Reason.SCRIPT
    assert Rules("en", "zh").reason_against("The old house", "老房子") is None
    assert Rules("en", "ja").reason_against("The old house", "古い家です") is None
    assert Rules("en", "ckb").reason_against("The old house", "خانووە کۆنەکە") is None, "the table lacks ckb"


@pytest.mark.parametrize(
    ("language", "text"),
    [("gu", "જૂનું ઘર"), ("kn", "ಹಳೆಯ ಮನೆ"), ("ml", "പഴയ വീട്"), ("or", "ପୁରୁଣା ଘର")],
)
def test_scripts_of_india(language: str, text: str) -> None:
    assert Rules("en", language).reason_against("The old house", text) is None
    assert Rules("en", language).reason_against("The old house", "Das alte Haus") is Reason.SCRIPT


def test_seen_hashes_equal_a_set() -> None:
    random_numbers = random.Random(4)
    seen, expected = SeenHashes(), set[int]()
    for _ in range(60):
        block = [
            random_numbers.randrange(500) + random_numbers.choice((0, 2**63))
            for _ in range(random_numbers.randrange(40))
        ]
        is_new = []
        for number in block:
            is_new.append(number not in expected)
            expected.add(number)
        assert seen.add(np.array(block, np.uint64)).tolist() == is_new
        assert len(seen) == len(expected)
    assert seen.num_bytes == 8 * len(expected)
    probes = np.arange(600, dtype=np.uint64)
    assert seen.contains(probes).tolist() == [number in expected for number in range(600)]


def run(all_pairs: list[Pair], **options: Any) -> tuple[list[Pair], Report]:
    report = Report()
    rules = options.pop("rules", Rules("en", "de", ignored=frozenset({Reason.LANGUAGE})))
    return list(prepare(all_pairs, Preparation(rules, **options), report)), report


def test_duplicates_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    all_pairs = [
        *pairs()[:40],
        *pairs()[:30],
        Pair("ANNA SEES THE RIVER TODAY", "anna sieht heute den fluss", "b"),
    ]
    random.Random(2).shuffle(all_pairs)
    expected, report = run(all_pairs)
    assert len(expected) == 40
    assert report.num_dropped_for(Reason.DUPLICATE) == 30
    assert report.num_dropped_for(Reason.NEAR_DUPLICATE) == 1
    monkeypatch.setattr(prepare_module, "BLOCK_PAIRS", 7)
    again, other = run(all_pairs)
    assert again == expected
    assert other.to_json()["domains"] == report.to_json()["domains"]


@pytest.mark.seconds
def test_sentences_of_other_languages_are_dropped() -> None:
    all_pairs = [
        Pair("The children are playing in the garden.", "Die Kinder spielen im Garten.", "a"),
        Pair("The weather will be nice again tomorrow.", "The sky is going to be clear by then.", "a"),
        Pair("Le temps sera de nouveau beau demain matin.", "Das Wetter wird morgen früh wieder schön.", "a"),
        Pair("Buenos Aires", "Hauptstadt", "a"),
    ]
    kept, report = run(all_pairs, rules=RULES)
    assert kept == [all_pairs[0], all_pairs[3]]
    assert report.num_dropped_for(Reason.LANGUAGE) == 2
    assert not report.notes
    _, unchecked = run(all_pairs, rules=Rules("en", "tlh"))
    assert unchecked.notes == [
        "the detector does not know tlh: its column is not checked for other languages"
    ]


@pytest.mark.seconds
def test_text_that_was_decoded_wrongly_is_dropped_before_it_is_normalised() -> None:
    all_pairs = [Pair("The road is long.", "Die Stra\u00c3\u009fe ist lang.", "a"), *pairs()[:3]]
    kept, report = run(all_pairs)
    assert kept == all_pairs[1:]
    assert report.num_dropped_for(Reason.BROKEN) == 1
    assert len(run(all_pairs, rules=Rules("en", "de", ignored=frozenset({Reason.BROKEN})))[0]) == 4


@pytest.mark.seconds
def test_a_language_with_a_code_of_its_own_in_the_detector_is_not_another_language() -> None:
    pair = Pair(
        "They say that it will rain tomorrow, so we stay here.", "佢哋話聽日會落雨,所以我哋唔去行山喇。", "a"
    )
    assert run([pair], rules=Rules("en", "yue"))[0] == [pair]


def test_weights_sample_a_domain_and_the_seed_decides_which_pairs() -> None:
    all_pairs = [Pair(p.source, p.target, ("often", "rare", "never")[i % 3]) for i, p in enumerate(pairs())]
    weights = {"often": 2.5, "rare": 0.25, "never": 0.0}
    kept, report = run(all_pairs, weights=weights, seed=3)
    counts = Counter(pair.domain for pair in kept)
    assert 2.3 < counts["often"] / 86 < 2.7
    assert 0.1 < counts["rare"] / 85 < 0.4
    assert counts["never"] == 0
    assert report.written == counts
    assert report.num_dropped_for(Reason.DOMAIN) == 85
    assert run(all_pairs, weights=weights, seed=3)[0] == kept
    assert run(all_pairs, weights=weights, seed=4)[0] != kept
    # Whether a weight keeps a pair does not depend on earlier pairs.
    assert [p for p in kept if p in all_pairs[90:]] == run(all_pairs[90:], weights=weights, seed=3)[0]
    with pytest.raises(CorpusError, match="no pair has the domain offten; the pairs have never, often, rare"):
        run(all_pairs, weights={"offten": 2.0})


def test_if_there_is_no_pair_the_error_names_no_domain() -> None:
    with pytest.raises(CorpusError, match=r"^no pair is left$"):
        run([], weights={"often": 2.0})


@pytest.mark.parametrize("other", ["Anna sees the river today.", "ANNA sees the river today!"])
def test_a_pair_that_sampling_drops_from_one_domain_stays_in_another(other: str) -> None:
    """This holds even if the two pairs differ in case and punctuation, and whichever pair is read first."""
    rare = [Pair(pair.source, pair.target, "rare") for pair in pairs()[:40]]
    often = [Pair(pair.source, pair.target, "often") for pair in pairs()[:40]]
    often[0] = Pair(other, often[0].target, "often")
    for all_pairs in ([*rare, *often], [*often, *rare]):
        for seed in range(1, 6):
            kept, report = run(all_pairs, weights={"rare": 0.1}, seed=seed)
            assert {pair.target for pair in kept} == {pair.target for pair in often}
            assert len(kept) == len(often)
            assert report.written == Counter(pair.domain for pair in kept)
            assert report.num_dropped == len(rare)
            assert report.num_dropped_for(Reason.SAMPLING) >= 25


def test_near_duplicates_are_left_out_together() -> None:
    """So their number does not change how many pairs of a domain are written."""
    all_pairs = [
        Pair(f"{pair.source}{mark}", pair.target, "rare") for pair in pairs() for mark in ("", "!", "?")
    ]
    kept, report = run(all_pairs, weights={"rare": 0.25})
    assert 0.15 < len(kept) / len(pairs()) < 0.35
    assert report.num_dropped_for(Reason.NEAR_DUPLICATE) == 2 * len(kept)


def test_numbers_of_lines_are_not_taken_for_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.corpus.MAX_DOMAINS", 9)
    numbered = [Pair(pair.source, pair.target, str(number)) for number, pair in enumerate(pairs(), 1)]
    assert len(run(numbered[:9])[0]) == 9
    with pytest.raises(CorpusError, match="more than 9 domains, such as '1', '2': is the first of three"):
        run(numbered)


def test_pairs_of_test_sets_are_excluded(tmp_path: Path) -> None:
    test_set = tmp_path / "test.tsv"
    test_set.write_text(
        "domain\tANNA sees the river today\t-\nKein Satz hier.\tniemand sieht heute 42 Katzen!\n", "utf-8"
    )
    all_pairs = pairs()
    kept, report = run(all_pairs, excluded=excluded_hashes([test_set]))
    dropped = [pair for pair in all_pairs if pair not in kept]
    assert [pair.source for pair in dropped] == ["Anna sees the river today.", "nobody sees 42 cats today."]
    assert report.num_dropped_for(Reason.EXCLUDED) == 2
    test_set.write_text("a\tb\tc\td\n", "utf-8")
    with pytest.raises(CorpusError, match="line 1: 4 columns"):
        excluded_hashes([test_set])


def test_a_sentence_of_a_test_set_without_letters_excludes_no_pair(tmp_path: Path) -> None:
    (tmp_path / "test.tsv").write_text("-\t...\n", "utf-8")
    pair = Pair("!!!", "***", "a")
    assert run([pair], excluded=excluded_hashes([tmp_path / "test.tsv"]))[0] == [pair]


def test_the_report_has_the_beginnings_of_the_first_pairs_of_a_reason() -> None:
    long = [Pair(f"{number} word" * 200, "Wort", "a") for number in range(NUM_EXAMPLES + 2)]
    _, report = run([*long, *pairs()[:1]])
    examples = report.to_json()["examples"]["length"]
    assert examples == [["a", pair.source[:MAX_EXAMPLE_CHARACTERS], "Wort"] for pair in long[:NUM_EXAMPLES]]


def test_a_domain_called_all_has_a_row_of_its_own() -> None:
    named = [Pair(pair.source, pair.target, ("all", "home")[n % 2]) for n, pair in enumerate(pairs()[:5])]
    _, report = run(named)
    rows = [line.split() for line in report.table().splitlines()[-3:]]
    assert rows == [["all", "3", "0.0%", "3"], ["home", "2", "0.0%", "2"], ["all", "5", "0.0%", "5"]]


def test_an_empty_folder_behind_a_link_is_filled_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with ShardWriter(tmp_path / "link", pairs_per_shard=2) as writer:
        writer.write(pairs()[:1])
    assert (tmp_path / "link").is_symlink()
    assert list(read_data(str(tmp_path / "empty"))) == pairs()[:1]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["link", "link/new"])
def test_a_link_that_leads_to_itself_is_no_output(name: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "link")
    with pytest.raises(
        CorpusError, match=f"{name} cannot be resolved: the symbolic link .* leads to itself$"
    ):
        ShardWriter(tmp_path / name, pairs_per_shard=2)


@pytest.mark.parametrize("compression", ["gz", "xz"])
def test_a_full_disk_leaves_no_file(compression: Compression, tmp_path: Path) -> None:
    """The limit on the sizes of files makes writes fail, as a full disk does."""
    rng = random.Random(1)
    writer = ShardWriter(tmp_path / "new", pairs_per_shard=1_000_000, compression=compression)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(OSError), writer:  # noqa: PT011 - its message is the system's
            writer.write(Pair(f"{rng.getrandbits(400)}", "x", "d") for _ in range(2_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [".", ".."])
def test_the_current_folder_and_its_parent_are_no_output(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(CorpusError, match=f"^{re.escape(name)} cannot be replaced; name a new folder$"):
        ShardWriter(Path(name), pairs_per_shard=2)


def command(data: Path, output: Path, *more: object) -> tuple[object, ...]:
    return "prepare", "--data", data, "--source", "en", "--target", "de", "--output", output, *more


@pytest.mark.server
def test_the_command_writes_shards_and_a_report(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "home.tsv", [*pairs(), *pairs()[:4], Pair("Dashboard", "Dashboard", "ui")])
    options = ("--shard-pairs", 100, "--keep", "near-duplicate", "--keep", "language")
    for name, compression in (("one", "gz"), ("two", "gz"), ("three", "xz")):
        done = run_transduce(*command(data, tmp_path / name, *options, "--compression", compression))
        assert done.returncode == 0, done.stderr
    one = sorted((tmp_path / "one").iterdir())
    assert [path.name for path in one] == [
        *(f"part-{number:05}.tsv.gz" for number in range(3)),
        "report.json",
    ]
    for path in one:
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert list(read_data(str(tmp_path / "one"))) == pairs()
    assert list(read_data(str(tmp_path / "three"))) == pairs()
    report = json.loads(one[-1].read_text("utf-8"))
    assert (report["pairs_read"], report["pairs_dropped"], report["pairs_written"]) == (261, 5, 256)
    assert report["dropped"] == {"duplicate": 4, "copy": 1}
    assert report["domains"]["ui"] == {"read": 1, "written": 0, "dropped": {"copy": 1}}
    assert report["examples"]["copy"] == [["ui", "Dashboard", "Dashboard"]]
    assert report["shards"] == [path.name for path in one[:-1]]
    assert done.stderr.startswith("prepare: 261 pairs, ")
    assert "5 dropped" in done.stderr.splitlines()[0]
    assert "duplicate      4   1.5%  an earlier pair is the same" in done.stderr
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("number", ["nan", "-1", "inf", "many"])
@pytest.mark.parametrize("option", ["--max-ratio", "--max-copied"])
def test_a_limit_out_of_range_is_a_usage_error(
    option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_prepare_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([*map(str, command(Path("data"), Path("new"))[1:]), f"{option}={number}"])
    assert f"argument {option}: '{number}' is not a " in capsys.readouterr().err


@pytest.mark.server
def test_an_error_is_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "home.tsv", pairs()[:4])
    (tmp_path / "bad.tsv").write_text("a\tb\n1\t2\t3\t4\n", "utf-8")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        (command(data, tmp_path / "full"), "is not an empty folder"),
        (command(tmp_path / "bad.tsv", tmp_path / "new"), "bad.tsv, line 2: 4 columns"),
        (command(tmp_path / "empty", tmp_path / "new"), "empty holds no TSV file"),
        (
            command(data, tmp_path / "new", "--domain", "hme=2"),
            "no pair has the domain hme; the pairs have home",
        ),
        (command(data, tmp_path / "new", "--domain", "home=0"), "no pair is left"),
        (command(data, tmp_path / "new", "--exclude", tmp_path / "none"), "none does not exist"),
    ):
        failed = run_transduce(*arguments)
        assert failed.returncode == 1
        assert failed.stderr.startswith("transduce prepare: ")
        assert message in failed.stderr
        assert len(failed.stderr.splitlines()) == 1
        assert not (tmp_path / "new").exists()
        assert not list(tmp_path.glob(".*"))
