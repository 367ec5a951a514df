"""Reading, filtering, encoding and batching parallel text."""

from __future__ import annotations

import gzip
import lzma
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.text.tokenizer import Tokenizer
from model.batches import MIN_EPOCH_PAIRS, Batches, Position, balanced_weights
from model.cli import weighted
from model.corpus import (
    Corpus,
    CorpusError,
    Filter,
    Pair,
    encode_corpus,
    read_data,
    sample_pairs,
)
from model.data_arguments import pairs_of
from model.prepare import excluded_hashes
from model.variants import STRANGE, shared_tokens, with_placeholders, with_strange_ends
from tests.model.sentences import pairs, write_tsv

PLAIN = Filter(strange_share=0.0)


def test_plain_gz_xz_and_parallel_files_give_the_same_pairs(tmp_path: Path) -> None:
    plain = write_tsv(tmp_path / "home.tsv", pairs()[:20])
    (tmp_path / "home.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "home.tsv.xz").write_bytes(lzma.compress(plain.read_bytes()))
    (tmp_path / "home.en").write_text("".join(f"{pair.source}\n" for pair in pairs()[:20]), "utf-8")
    (tmp_path / "home.de").write_text("".join(f"{pair.target}\n" for pair in pairs()[:20]), "utf-8")
    expected = pairs()[:20]
    for name in ("home.tsv", "home.tsv.gz", "home.tsv.xz"):
        assert list(read_data(str(tmp_path / name))) == expected
    assert list(read_data(f"{tmp_path / 'home.en'}:{tmp_path / 'home.de'}")) == expected


def test_pairs_of_a_file_with_two_columns_have_the_files_name_as_domain(tmp_path: Path) -> None:
    (tmp_path / "news.tsv").write_text("a\tb\n", "utf-8")
    assert list(read_data(str(tmp_path / "news.tsv"))) == [Pair("a", "b", "news")]


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "odd.tsv").write_bytes("one\u2028two\x0bthree\tx\ry\n".encode())
    assert list(read_data(str(tmp_path / "odd.tsv"))) == [Pair("one\u2028two\x0bthree", "x\ry", "odd")]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_carriage_returns_before_line_ends_and_the_first_byte_order_mark_are_not_text(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    suffix = {gzip.compress: ".gz", lzma.compress: ".xz"}.get(compress, "")
    table, source, target = (tmp_path / f"w.{name}{suffix}" for name in ("tsv", "en", "de"))
    table.write_bytes(compress("\ufeffw\ta\tb\r\r\nw\t\ufeffc\td\r\n".encode()))
    source.write_bytes(compress("\ufeffa\r\n\ufeffc\r\n".encode()))
    target.write_bytes(compress(b"b\r\r\nd"))
    expected = [Pair("a", "b\r", "w"), Pair("\ufeffc", "d", "w")]
    assert list(read_data(str(table))) == expected
    assert list(read_data(f"{source}:{target}")) == expected


@pytest.mark.parametrize("content", ["only one column\n", "a\tb\tc\td\n"])
def test_a_line_with_a_wrong_number_of_columns_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.tsv").write_text("a\tb\n" + content, "utf-8")
    with pytest.raises(CorpusError, match=r"line 2: \d columns"):
        list(read_data(str(tmp_path / "bad.tsv")))


def test_parallel_files_of_different_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n", "utf-8")
    (tmp_path / "b").write_text("1\n", "utf-8")
    with pytest.raises(CorpusError, match="ends before line 2"):
        list(read_data(f"{tmp_path / 'a'}:{tmp_path / 'b'}"))
    with pytest.raises(CorpusError, match="does not exist"):
        list(read_data(str(tmp_path / "none.tsv")))


def test_a_file_that_cannot_be_read_is_named_before_any_file_is_read(tmp_path: Path) -> None:
    good = write_tsv(tmp_path / "good.tsv", pairs()[:2])
    os.mkfifo(tmp_path / "pipe")
    for name in ("a.tsv.zst", "a.tsv.bz2"):
        (tmp_path / name).touch()
    for name, problem in (
        ("none.tsv", "none.tsv does not exist"),
        ("pipe", "pipe is not a regular file"),
        ("a.tsv.zst", "a.tsv.zst: only .gz and .xz are read compressed"),
        ("a.tsv.bz2", "a.tsv.bz2: only .gz and .xz are read compressed"),
    ):
        with pytest.raises(CorpusError, match=f"{re.escape(problem)}$"):
            pairs_of([str(good), str(tmp_path / name)])
    with pytest.raises(CorpusError, match=r"is a folder; name its files$"):
        excluded_hashes([tmp_path])


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_a_line_that_is_not_utf8_is_named(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    suffix = {gzip.compress: ".gz", lzma.compress: ".xz"}.get(compress, "")
    path = tmp_path / f"bad.tsv{suffix}"
    path.write_bytes(compress(b"one\teins\n" * 60 + b"Stra\xdfe\tstreet\n" + b"two\tzwei\n" * 60))
    with pytest.raises(CorpusError, match=re.escape(f"{path}, line 61: not UTF-8 (")):
        list(read_data(str(path)))


def test_a_file_of_only_a_byte_order_mark_has_no_line(tmp_path: Path) -> None:
    (tmp_path / "mark.tsv").write_bytes(b"\xef\xbb\xbf")
    assert list(read_data(str(tmp_path / "mark.tsv"))) == []


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_compressed_file_of_no_bytes_is_broken(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"a.tsv{suffix}").touch()
    with pytest.raises(CorpusError, match=f"a.tsv{suffix}, after line 0: the compressed file is broken"):
        list(read_data(str(tmp_path / f"a.tsv{suffix}")))
    (tmp_path / "a.tsv").touch()
    assert list(read_data(str(tmp_path / "a.tsv"))) == []


def test_a_sample_has_pairs_of_all_parts_of_the_text() -> None:
    text = [Pair(str(number), str(number), "d") for number in range(1000)]
    sample = sample_pairs(text, 100)
    assert len(set(sample)) == 100
    by_part = Counter(int(pair.source) // 100 for pair in sample)
    assert all(2 <= by_part[part] <= 20 for part in range(10))
    assert sample_pairs(text[:100], 100) == text[:100]


def test_line_numbers_in_the_first_of_three_columns_are_refused_as_domains(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.corpus.MAX_DOMAINS", 9)
    numbered = [Pair(pair.source, pair.target, str(number)) for number, pair in enumerate(pairs(), 1)]
    assert len(encode_corpus(numbered[:9], tokenizer, keep=PLAIN)) == 9
    with pytest.raises(CorpusError, match="more than 9 domains, such as '1', '2': is the first of three"):
        encode_corpus(numbered, tokenizer, keep=PLAIN)


def test_the_filter_drops_and_counts(tokenizer: Tokenizer) -> None:
    chosen = [
        Pair("Anna sees the river.", "Anna sieht den Fluss.", "home"),
        Pair("", "Anna", "home"),
        Pair("Anna " * 200, "Anna " * 200, "home"),
        Pair("Anna", "der Bäcker sieht heute den alten Baum im Garten " * 3, "home"),
        Pair("Anna", "Anna", "chat"),
        Pair(
            " ".join(
                "\U0001f600\U0001f601\U0001f602\U0001f603\U0001f604\U0001f605\U0001f606\U0001f607\U0001f608"
            ),
            "x",
            "home",
        ),
    ]
    corpus = encode_corpus(chosen, tokenizer, keep=Filter(strange_share=0.0, excluded=frozenset({"chat"})))
    assert len(corpus) == 1
    assert corpus.source(0).tolist() == list(tokenizer.encode(chosen[0].source).ids)
    assert corpus.target(0).tolist() == list(tokenizer.encode(chosen[0].target).ids)
    assert dict(corpus.dropped) == {
        "empty": 1, "too long": 1, "lengths differ too much": 1, "excluded domain": 1, "unknown characters": 1,
    }  # fmt: skip
    assert corpus.lost_domains == ("chat",), "a pair of home is left"
    with pytest.raises(CorpusError, match=r"^no pair is left \(left out: 1 empty\)$"):
        encode_corpus([Pair("", "", "home")], tokenizer, keep=PLAIN)


LEXICON = {"river": "fluss", "tree": "baum", "sees": "sieht", "cats": "katzen"}


@pytest.mark.parametrize("lexicon", [{}, LEXICON], ids=["shared words", "lexicon"])
def test_the_same_unknown_characters_are_added_to_source_and_target(lexicon: dict[str, str]) -> None:
    random_numbers = random.Random(3)
    max_marks = 0
    for pair in pairs():
        varied = with_placeholders(pair.source, pair.target, random_numbers, lexicon)
        if varied == (pair.source, pair.target):
            varied = with_strange_ends(pair.source, pair.target, random_numbers)
        source, target = varied
        marks = [mark for mark in STRANGE if mark in source]
        assert marks
        assert all(source.count(mark) == target.count(mark) == 1 for mark in marks)
        max_marks = max(max_marks, len(marks))
    assert max_marks >= (3 if lexicon else 2)


def test_pairs_that_get_unknown_characters_do_not_count_toward_the_share_of_typed_pairs() -> None:
    """Both shares are of all pairs, so together they are the share of pairs that are varied."""
    keep, pair = (
        Filter(strange_share=0.5, typed_share=0.5),
        Pair("The tree is old.", "Der Baum ist alt.", "home"),
    )
    varied = [keep.vary(pair, random.Random(seed), {}) for seed in range(20)]
    assert pair not in varied
    num_strange = sum(not set(STRANGE).isdisjoint(one.source) for one in varied)
    assert 0 < num_strange < len(varied)


def test_a_token_is_shared_only_if_it_has_exactly_one_counterpart() -> None:
    source, target = (
        "The river: 3.5 km from the old tree, and the cats.",
        "3.5 km der Fluss, Baum, Katzen Katzen.",
    )
    assert set(shared_tokens(source, target, LEXICON)) == {
        ("river", "Fluss"),
        ("tree", "Baum"),
        ("3.5", "3.5"),
        ("km", "km"),
    }
    assert not shared_tokens("the car, an automobile", "das Auto", {"car": "auto", "automobile": "auto"})


@pytest.mark.parametrize("seed", range(20))
def test_a_placeholder_stands_for_the_same_word_on_both_sides(seed: int) -> None:
    source, target = "The 42 cats: from the old tree, to the river.", "Fluss und Baum, 42 Katzen."
    words = {"42": "42", "cats": "Katzen", "tree": "Baum", "river": "Fluss"}
    varied_source, varied_target = with_placeholders(source, target, random.Random(seed), LEXICON)
    tokens = [token.strip(":,.") for token in source.split()]
    marks = [token.strip(":,.") for token in varied_source.split()]
    placeholders = {mark: token for mark, token in zip(marks, tokens, strict=True) if mark != token}
    assert placeholders
    assert set(placeholders) == set(STRANGE[: len(placeholders)])
    for mark, token in placeholders.items():
        varied_source = varied_source.replace(mark, token)
        varied_target = varied_target.replace(mark, words[token])
    assert (varied_source, varied_target) == (source, target)


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((6, 20), None),
        ((20, 21), "too long"),
        ((4, 16), None),
        ((4, 17), "lengths differ too much"),
        ((17, 4), "lengths differ too much"),
    ],
)
def test_a_pair_at_a_limit_of_the_filter_is_kept(lengths: tuple[int, int], reason: str | None) -> None:
    keep = Filter(max_length=20, max_ratio=2.0)
    assert keep.reason_against([5] * lengths[0], [5] * lengths[1]) == reason


def batches_of(tokenizer: Tokenizer, **options: Any) -> Batches:
    corpus = encode_corpus(pairs(), tokenizer, keep=PLAIN)
    return Batches(corpus, **{"max_tokens": 120, "seed": 5, **options})


def test_an_epoch_holds_each_pair_once_within_the_budget(tokenizer: Tokenizer) -> None:
    batches = batches_of(tokenizer)
    epoch = batches.epoch(0)
    assert sorted(np.concatenate(epoch).tolist()) == list(range(256))
    for indices in epoch:
        batch = batches.collate(indices)
        assert max(batch.source.numel(), batch.target.numel()) <= 120
    assert len(epoch) < 256 / 4
    with pytest.raises(ValueError, match="no pair has the domain sea"):
        batches_of(tokenizer, weights={"sea": 2.0})


def test_a_batch_may_have_exactly_the_maximum_number_of_subwords() -> None:
    """Each of four pairs has three subwords on both sides."""
    starts = np.arange(0, 25, 3, dtype=np.int64)
    corpus = Corpus(np.full(24, 4, np.int32), starts, np.zeros(4, np.int16), ("home",))
    assert [len(indices) for indices in Batches(corpus, max_tokens=6, seed=1).epoch(0)] == [2, 2]
    assert [len(indices) for indices in Batches(corpus, max_tokens=5, seed=1).epoch(0)] == [1, 1, 1, 1]


def test_targets_are_labels_shifted_right(tokenizer: Tokenizer) -> None:
    batches = batches_of(tokenizer)
    batch = batches.collate(np.array([0, 9, 200]))
    for row, index in enumerate((0, 9, 200)):
        ids = batches.corpus.target(index).tolist()
        assert batch.labels[row].tolist()[: len(ids)] == ids
        assert batch.target[row].tolist()[: len(ids)] == [tokenizer.bos_id, *ids[:-1]]
        assert not batch.labels[row, len(ids) :].any()
        assert not batch.target[row, len(ids) :].any()
    assert batch.num_target_tokens == sum(len(batches.corpus.target(index)) for index in (0, 9, 200))


def test_a_temperature_raises_the_shares_of_small_domains(tokenizer: Tokenizer) -> None:
    """The share of a domain with n pairs is in proportion to its weight times n^(1/T). T: the temperature."""
    counts = np.array([10_000, 100, 1])
    assert balanced_weights(counts, 1.0).tolist() == [1, 1, 1]
    shares = counts * balanced_weights(counts, 2.0)
    assert shares.tolist() == pytest.approx([10_000, 1000, 100])

    mixed = [Pair(p.source, p.target, "small" if i % 16 == 0 else "large") for i, p in enumerate(pairs())]
    corpus = encode_corpus(mixed, tokenizer, keep=PLAIN)
    batches = Batches(corpus, max_tokens=200, seed=1, weights={"small": 0.5}, temperature=2.0)
    chosen = np.concatenate([i for epoch in range(40) for i in batches.epoch(epoch)])
    num_large, num_small = np.bincount(corpus.domains[chosen], minlength=2)[
        [corpus.domain_names.index(name) for name in ("large", "small")]
    ]
    assert num_small / num_large == pytest.approx(0.5 / np.sqrt(15), rel=0.05)


def test_a_weight_is_the_number_of_times_that_an_epoch_holds_a_pair(tokenizer: Tokenizer) -> None:
    mixed = [Pair(p.source, p.target, "often" if i % 2 else "rare") for i, p in enumerate(pairs())]
    corpus = encode_corpus(mixed, tokenizer, keep=PLAIN)
    batches = Batches(corpus, max_tokens=200, seed=1, weights={"often": 2.5, "rare": 0.25})
    seen = np.bincount(
        np.concatenate([i for epoch in range(40) for i in batches.epoch(epoch)]), minlength=256
    )
    by_domain = {
        name: seen[corpus.domains == number].mean() / 40 for number, name in enumerate(corpus.domain_names)
    }
    assert by_domain["often"] == pytest.approx(2.5, rel=0.03)
    assert by_domain["rare"] == pytest.approx(0.25, rel=0.1)


def test_an_epoch_may_have_no_pair_and_then_no_batch(tokenizer: Tokenizer) -> None:
    corpus = encode_corpus(pairs()[:2], tokenizer, keep=PLAIN)
    batches = Batches(corpus, max_tokens=200, seed=1, weights={"home": 0.2})
    epochs = [batches.epoch(number) for number in range(20)]
    assert any(not epoch for epoch in epochs)
    filled = [number for number, epoch in enumerate(epochs) for _ in epoch]
    stream = batches.since(Position())
    assert [next(stream)[1].epoch for _ in filled] == [number + 1 for number in filled]
    with pytest.raises(ValueError, match="an epoch has 0 pairs on average: give the domains larger weights"):
        Batches(corpus, max_tokens=200, seed=1, weights={"home": 0.0})
    Batches(corpus, max_tokens=200, seed=1, weights={"home": MIN_EPOCH_PAIRS / 2})


def test_the_order_depends_on_seed_and_epoch_and_resumes_at_the_same_batch(tokenizer: Tokenizer) -> None:
    batches = batches_of(tokenizer)
    stream = batches.since(Position())
    seen = [next(stream) for _ in range(2 * len(batches.epoch(0)) + 3)]
    assert seen[-1][1].epoch == 2
    again = batches_of(tokenizer).since(seen[10][1])
    for batch, position in seen[11:]:
        other, other_position = next(again)
        assert other_position == position
        assert other.source.equal(batch.source)
        assert other.labels.equal(batch.labels)
    first, other_seed = batches.epoch(0), batches_of(tokenizer, seed=6).epoch(0)
    assert [b.tolist() for b in first] != [b.tolist() for b in batches.epoch(1)]
    assert [b.tolist() for b in first] != [b.tolist() for b in other_seed]


def test_the_tokenizer_reads_each_domain_as_often_as_its_weight_says() -> None:
    mixed = [Pair(str(i), "", domain) for i in range(8) for domain in ("often", "rare", "never", "once")]
    found = list(weighted(mixed, {"often": 2.5, "rare": 0.25, "never": 0.0}))
    assert Counter(pair.domain for pair in found) == {"often": 20, "rare": 2, "once": 8}
    assert [pair.source for pair in found if pair.domain == "rare"] == ["3", "7"]
    assert list(weighted([], {"often": 2.5})) == []
    with pytest.raises(
        CorpusError, match="no pair has the domain rear; the pairs have never, often, once, rare"
    ):
        list(weighted(mixed, {"never": 0.0, "rear": 0.0}))
