"""The golden sentences of models of one and of several language pairs."""

from __future__ import annotations

from export.golden import BEAM_SIZES, GoldenSource, golden_cases


def sources(num_pairs: int) -> list[GoldenSource]:
    return [GoldenSource(f"{pair}-{place}", pair, (4, 2)) for pair in range(num_pairs) for place in range(12)]


def test_one_pair_has_each_sentence_with_each_beam_size() -> None:
    cases = golden_cases(sources(1))
    assert len(set(cases)) == len(cases) == 12 * len(BEAM_SIZES)


def test_several_pairs_have_each_sentence_once_and_each_beam_size_as_often() -> None:
    cases = golden_cases(sources(4))
    assert [source for source, _ in cases] == sources(4)
    for pair in range(4):
        sizes = [beam_size for source, beam_size in cases if source.pair == pair]
        assert all(sizes.count(beam_size) == 12 / len(BEAM_SIZES) for beam_size in BEAM_SIZES)
    uneven = golden_cases(sources(2)[1:])  # the first pair lacks a sentence
    assert uneven[11] == (GoldenSource("1-0", 1, (4, 2)), 4)
    first_sizes = [cases[12 * pair][1] for pair in range(4)]
    assert first_sizes == [1, 4, 1, 4]
