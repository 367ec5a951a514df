"""Word translations learnt from generated parallel text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.corpus import CorpusError, Pair
from model.lexicon import (
    LEXICON,
    MAX_WORDS,
    MIN_PAIR_COUNT,
    MIN_PAIR_PROBABILITY,
    Entry,
    LoneWords,
    Words,
    learn_lexicon,
    read_lexicon,
    translation_table,
    translations,
    word_pairs,
    write_lexicon,
)
from tests.forked import run_transduce
from tests.model.sentences import pairs, write_tsv


def test_words_find_their_translations() -> None:
    found = {entry.source: entry.target for entry in learn_lexicon(pairs())}
    assert found["cats"] == "Katzen"
    assert found["garden"] == "Garten"
    assert found["today"] == "heute"
    assert found["forgets"] == "vergisst"
    assert found["Anna"] == "Anna"


def test_probabilities_are_those_of_the_formula() -> None:
    """The probabilities equal those of IBM Model 1's EM in plain loops over words."""
    sentences = [([1, 2], [1, 2]), ([1, 3], [1, 3]), ([3], [3]), ([2, 3, 2], [2, 3])]
    table = translation_table(sentences)
    t = dict.fromkeys({(e, f) for es, fs in sentences for f in fs for e in [0, *es]}, 1.0)
    for _ in range(5):
        counts = dict.fromkeys(t, 0.0)
        for es, fs in sentences:
            for f in fs:
                total = sum(t[e, f] for e in [0, *es])
                for e in [0, *es]:
                    counts[e, f] += t[e, f] / total
        totals = {e: sum(c for (other, _), c in counts.items() if other == e) for e, _ in counts}
        t = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    found = {(e, f): p for e, f, p in zip(table.e.tolist(), table.f.tolist(), table.p.tolist(), strict=True)}
    assert found.keys() == t.keys()
    for key, p in t.items():
        assert found[key] == pytest.approx(p)
    sums = np.bincount(table.e, table.p)
    assert sums[sums > 0] == pytest.approx(1.0)


def test_a_lexicon_can_be_written_and_read(tmp_path: Path) -> None:
    entries = learn_lexicon(pairs())
    path = tmp_path / "deep" / "lexicon.tsv"
    assert write_lexicon(path, entries) == len(entries)
    again = read_lexicon(path)
    assert [(e.source, e.target, e.count) for e in again] == [(e.source, e.target, e.count) for e in entries]
    path.write_text("one\ttwo\n", "utf-8")
    with pytest.raises(CorpusError, match=r"line 1: source, target, count and probability are needed"):
        read_lexicon(path)


def test_translations_by_either_side() -> None:
    """Word pairs have no rare or unlikely entry (home), and no word that is its own translation (dashboards)."""
    entries = [Entry("house", "Haus", 9, 0.8), Entry("home", "Haus", 3, 0.3), Entry("good", "gut", 7, 0.4)]
    assert translations(entries) == {"house": "haus", "home": "haus", "good": "gut"}
    assert translations(entries, is_reversed=True) == {"haus": "house", "gut": "good"}
    entries.append(Entry("dashboards", "Dashboards", 34, 0.62))
    made = {(pair.source, pair.target) for pair in word_pairs(entries, LoneWords())}
    assert made == {("house", "Haus"), ("House", "Haus"), ("good", "gut"), ("Good", "Gut")}


def test_no_sentence_is_an_error() -> None:
    with pytest.raises(CorpusError, match="between 1 and 24 words"):
        learn_lexicon([Pair("1 2 3", "4 5", "d")])


def test_only_rare_words_are_an_error() -> None:
    with pytest.raises(CorpusError, match="no pair has words on both sides that occur at least 4 times"):
        learn_lexicon([Pair("the house", f"Haus {letter}", "d") for letter in "abc"])


def test_a_word_counts_from_four_occurrences_on_and_has_its_form_inside_sentences() -> None:
    words = Words([["Das", "Haus"], ["Das", "rote", "Haus"], ["Das", "Haus"], ["hier", "das", "Haus"]])
    assert words.names == ["", "das", "haus"]
    assert [words.form(index) for index in (1, 2)] == ["das", "Haus"]


def test_a_translation_that_is_probable_in_one_direction_only_is_no_entry() -> None:
    """Each of ten words has the same translation, which has each of them with a probability of a tenth."""
    many = [Pair(letter * 3, "Ding", "d") for letter in "abcdefghij" for _ in range(4)]
    assert learn_lexicon(many) == []
    assert [entry.source for entry in learn_lexicon(many[:4])] == ["aaa"]


def test_a_sentence_of_exactly_the_maximum_number_of_words_is_read() -> None:
    longest, longer = "Haus " * MAX_WORDS, "Haus " * (MAX_WORDS + 1)
    assert [entry.source for entry in learn_lexicon([Pair(longest, longest, "d")])] == ["Haus"]
    for source, target in ((longest, longer), (longer, longest)):
        with pytest.raises(CorpusError, match="between 1 and 24 words"):
            learn_lexicon([Pair(source, target, "d")])


def test_entries_are_sorted_by_count_and_then_by_word() -> None:
    repeated = [Pair("tree", "Baum", "d"), Pair("cats", "Katzen", "d")] * 4 + [Pair("well", "gut", "d")] * 5
    assert [entry.source for entry in learn_lexicon(repeated)] == ["well", "cats", "tree"]


def test_an_entry_with_the_least_count_and_probability_is_a_training_pair() -> None:
    entry = Entry("tree", "Baum", MIN_PAIR_COUNT, MIN_PAIR_PROBABILITY)
    assert list(word_pairs([entry], LoneWords())) == [
        Pair("tree", "Baum", LEXICON),
        Pair("Tree", "Baum", LEXICON),
    ]


def test_an_entry_whose_word_stands_alone_in_the_data_is_no_training_pair() -> None:
    """The data says "Danke." is "Thank you.", so "thank" is not its translation. "thank you" is no lone word."""
    thank, tree, house = (
        Entry("thank", "danke", 9, 0.5),
        Entry("tree", "Baum", 9, 0.5),
        Entry("house", "Haus", 9, 0.5),
    )
    lone_words = LoneWords()
    pairs_left = word_pairs([thank, tree, house], lone_words)
    for pair in (Pair("Thank you.", " Danke.\n", "d"), Pair("TREE", "ein Baum", "d"), Pair("2", "-", "d")):
        lone_words.note(pair)
    assert [pair.source for pair in pairs_left] == ["house", "House"]


@pytest.mark.slow
@pytest.mark.training
def test_a_lexicon_is_learnt_and_trained_with(tmp_path: Path, tokenizer_path: Path) -> None:
    data, lexicon = write_tsv(tmp_path / "train.tsv", pairs()), tmp_path / "lexicon.tsv"
    learnt = run_transduce("lexicon", "--data", data, "--output", lexicon)
    assert learnt.returncode == 0, learnt.stderr
    assert f"{lexicon}: {len(learn_lexicon(pairs()))} words" in learnt.stderr
    options = ("--data", data, "--dev", data, "--tokenizer", tokenizer_path, "--run", tmp_path / "run")
    flags = (
        "--preset",
        "tiny",
        "--max-length",
        64,
        "--max-steps",
        1,
        "--threads",
        1,
        "--domain",
        "lexicon=2",
    )
    trained = run_transduce("train", *options, *flags, "--lexicon", lexicon)
    assert trained.returncode == 0, trained.stderr
    made = list(word_pairs(read_lexicon(lexicon), LoneWords()))
    assert f"data: {len(pairs()) + len(made)} pairs" in trained.stderr
    lone, left_out = Pair(made[0].source, "etwas", "home"), Pair(made[2].source, "etwas", "left-out")
    write_tsv(data, [*pairs(), lone, left_out])
    again = run_transduce(
        "train", *options, *flags, "--domain", "left-out=0", "--lexicon", lexicon, "--resume"
    )
    assert f"data: {len(pairs()) + 1 + len(made) - 2} pairs" in again.stderr
