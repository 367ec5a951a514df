"""The list of texts that newcomers type, and the rules that judge the answers to them."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.first_words import ScoredAnswer, main, tallies
from benchmarks.first_words_score import (
    FILE,
    MIN_CHRF,
    PARAGRAPH,
    Entry,
    are_equal,
    contains,
    expand,
    judge,
    lowest_chrf,
    missing_pieces,
    read_entries,
)
from benchmarks.machine import ROOT
from tests.api.server_process import ServerProcess
from tests.model.sentences import write_tokenizer

ENTRIES = read_entries()
TRAINING = ROOT / "training" / "en-de"
WRITTEN = ("phrases", "sentences", "vocabulary")
KINDS = {
    "greeting", "word", "button", "heading", "list", "question", "small talk", "price", "date", "time", "contact",
    "name", "quantity", "quote", "chat", "exclamation", "thanks", "travel", "restaurant", "work", "error", "paragraph",
}  # fmt: skip
# The maximum number of acceptable answers of an entry.
MAX_COMBINATIONS = 10_000


def entry_of(acceptable: str, *, kind: str = "question", must: tuple[tuple[str, ...], ...] = ()) -> Entry:
    return Entry("x001", "en-de", kind, "source", tuple(acceptable.split(" || ")), must)


def test_there_are_150_entries_of_every_direction_with_distinct_ids() -> None:
    assert Counter(entry.direction for entry in ENTRIES) == {"en-de": 150, "de-en": 150}
    numbers = range(1, 151)
    assert [entry.id for entry in ENTRIES] == [
        f"{letter}{number:03}" for letter in "ed" for number in numbers
    ]


def test_every_kind_is_there_in_both_directions() -> None:
    for direction in ("en-de", "de-en"):
        assert {entry.kind for entry in ENTRIES if entry.direction == direction} == KINDS


@pytest.mark.seconds
def test_no_source_is_among_the_pairs_written_for_training() -> None:
    """Case and punctuation do not count. Other training data is not searched."""

    def plain(text: str) -> str:
        return re.sub(r"[^\w ]", "", text.casefold()).strip()

    numbers = subprocess.run(
        [sys.executable, TRAINING / "number_phrases.py"],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    written = [
        line for name in WRITTEN for line in (TRAINING / f"{name}.tsv").read_text("utf-8").splitlines()
    ]
    pairs = [line.split("\t") for line in [*written, *numbers.stdout.splitlines()]]
    assert {pair[0] for pair in pairs} == {*WRITTEN, "numbers"}
    assert all(len(pair) == 3 and all(pair) for pair in pairs)
    trained = {plain(side) for _, *sides in pairs for side in sides}
    assert [entry.source for entry in ENTRIES if plain(entry.source) in trained] == []


def test_no_source_occurs_twice() -> None:
    sources = Counter((entry.direction, entry.source) for entry in ENTRIES)
    assert [source for source, number in sources.items() if number > 1] == []


def test_single_words_come_in_three_casings() -> None:
    words = [entry.source for entry in ENTRIES if entry.kind == "word"]
    groups = [words[start : start + 3] for start in range(0, len(words), 3)]
    assert len(groups) == 14
    for group in groups:
        assert group == [group[0].lower(), group[0].capitalize(), group[0].upper()]


def test_the_file_has_normalised_text_and_no_stray_spaces() -> None:
    content = FILE.read_bytes().decode("utf-8")
    assert content == unicodedata.normalize("NFC", content)
    assert "\r" not in content
    assert content.endswith("\n")
    assert not re.search(r" [\t\n]|\t ", content)


def all_answers(entry: Entry) -> list[str]:
    """All acceptable answers of an entry. For a paragraph, all acceptable sentences."""
    return list(itertools.chain(*entry.sentences) if entry.kind == PARAGRAPH else entry.acceptable)


def test_acceptable_answers_are_well_formed() -> None:
    malformed = re.compile(r"[\[\]|]|  | [,.!?;]|^\s|\s$")
    assert [
        (entry.id, found) for entry in ENTRIES for found in all_answers(entry) if malformed.search(found)
    ] == []
    assert max(len(all_answers(entry)) for entry in ENTRIES) <= MAX_COMBINATIONS


def test_choices_have_alternatives_that_differ() -> None:
    for entry in ENTRIES:
        for choice in re.findall(r"\[([^\[\]]*)\]", " ".join(entry.patterns)):
            alternatives = choice.split("|")
            assert len(set(alternatives)) == len(alternatives) > 1, entry.id


def test_acceptable_answers_contain_the_required_pieces() -> None:
    for entry in ENTRIES:
        assert judge(entry, entry.example).is_acceptable, entry.id
        if entry.kind == PARAGRAPH:
            for forms in entry.must:
                in_each = (all(has_any_of(each, forms) for each in variants) for variants in entry.sentences)
                assert any(in_each), (entry.id, forms)
        elif entry.must:
            assert [answer for answer in entry.acceptable if missing_pieces(entry, answer)] == [], entry.id


def has_any_of(sentence: str, forms: tuple[str, ...]) -> bool:
    return any(contains(sentence, form) for form in forms)


def test_an_answer_that_drops_a_number_is_detected() -> None:
    with_numbers = [entry for entry in ENTRIES if re.search(r"\d", entry.source)]
    assert len(with_numbers) >= 50
    for entry in with_numbers:
        assert judge(entry, re.sub(r"\d", "", entry.source)).drops_number, entry.id


def test_addresses_and_urls_must_be_copied() -> None:
    for entry in ENTRIES:
        for address in re.findall(r"\S+@\S+\.[a-z]+|https?://\S+\w", entry.source):
            assert (address,) in entry.must, entry.id


def test_a_pattern_stands_for_all_its_combinations() -> None:
    assert expand("[a|b] c[ d|]") == ["a c d", "a c", "b c d", "b c"]
    assert expand("plain") == ["plain"]


@pytest.mark.parametrize(
    ("answer", "acceptable"),
    [
        ("Guten  Morgen ", "Guten Morgen"),
        ("Guten Morgen.", "Guten Morgen"),
        ("Guten Morgen", "Guten Morgen!"),
        ("Guten Morgen...", "Guten Morgen!"),
        ("Wie geht’s?", "Wie geht's"),
        ("„Ja“, sagte er.", '"Ja", sagte er.'),
        ("»Ja«, sagte er", '"Ja", sagte er.'),
        ("a\u0308", "ä"),
        ("12\u00a0km", "12 km"),
        ("Milch.\nEier", "Milch\nEier"),
    ],
)
def test_differences_that_do_not_count(answer: str, acceptable: str) -> None:
    assert are_equal(answer, acceptable)


@pytest.mark.parametrize(
    ("answer", "acceptable"),
    [
        ("guten Morgen", "Guten Morgen"),
        ("Guten Morgen?", "Guten Morgen."),
        ("Guten, Morgen", "Guten Morgen"),
        ("1.200 km", "1,200 km"),
        ("Milch Eier", "Milch\nEier"),
        ("", "Ja"),
        ("Ja Ja", "Ja"),
    ],
)
def test_differences_that_count(answer: str, acceptable: str) -> None:
    assert not are_equal(answer, acceptable)


@pytest.mark.parametrize(
    ("answer", "is_missing"),
    [
        ("3,5 kg", False),
        ("(3,5)", False),
        ("3.5 kg", False),
        ("13,5 kg", True),
        ("3,50 kg", True),
        ("3,5.1", True),
        ("3 kg", True),
    ],
)
def test_a_number_is_found_only_as_a_whole(answer: str, is_missing: bool) -> None:
    verdict = judge(entry_of("3,5 kg", must=(("3,5", "3.5"),)), answer)
    assert verdict.drops_number is is_missing
    assert verdict.missing == (("3,5",) if is_missing else ())


@pytest.mark.parametrize(
    ("text", "form", "is_there"),
    [
        ("ten people", "ten", True),
        ("often", "ten", False),
        ("tenth", "ten", False),
        ("12th of March", "12", True),
        ("8:00", "8", True),
        ("at 24.12.", "24.12", True),
        ("“Yes”", '"', True),
    ],
)
def test_a_word_is_found_only_as_a_whole(text: str, form: str, is_there: bool) -> None:
    assert contains(text, form) is is_there


def test_a_missing_name_does_not_count_as_a_number() -> None:
    verdict = judge(entry_of("Ich bin Anna", must=(("Anna",),)), "Ich bin es")
    assert verdict.missing == ("Anna",)
    assert not verdict.drops_number


def test_an_empty_answer_is_empty_and_not_acceptable() -> None:
    verdict = judge(entry_of("Ja"), " \n")
    assert verdict.is_empty
    assert not verdict.is_acceptable


def test_a_paragraph_needs_its_pieces_and_every_sentence() -> None:
    text = "Gestern kamen 12 Gäste in unser kleines Haus am See. Wir haben bis spät am Abend [zusammen |]gesungen."
    entry = entry_of(f"Sie kamen um 12 Uhr. Das war alles. || {text}", kind=PARAGRAPH, must=(("12",),))
    answer = "Gestern kamen 12 Gäste in unser kleines Häuschen am See. Wir haben bis spät am Abend gesungen."
    assert judge(entry, answer).is_acceptable
    assert judge(entry, "Sie kamen um 12 Uhr. " + answer.partition(". ")[2]).is_acceptable
    for worse in (
        answer.replace("12", "zwölf"),
        answer.replace("bis spät am Abend", "den Spaten aufgehoben und"),
        answer.partition(". ")[0],
        f"{answer} Schön!",
    ):
        assert not judge(entry, worse).is_acceptable
    assert lowest_chrf(entry, answer) >= MIN_CHRF


def test_a_line_without_all_columns_is_named(tmp_path: Path) -> None:
    header = FILE.read_text("utf-8").splitlines()[0]
    path = tmp_path / "words.tsv"
    path.write_text(f"{header}\ne001\ten-de\tgreeting\tHello\n", "utf-8")
    with pytest.raises(ValueError, match=r"words\.tsv, line 2: 6 fields"):
        read_entries(path)
    path.write_text("id\tsource\n", "utf-8")
    with pytest.raises(ValueError, match=r"words\.tsv, line 1: the columns"):
        read_entries(path)


def test_the_counts_are_by_direction_and_by_kind() -> None:
    yes, number = entry_of("Ja", kind="word"), entry_of("3 kg", kind="quantity", must=(("3",),))
    answers = [(yes, "Ja."), (yes, ""), (number, "kg")]
    groups = tallies(ScoredAnswer(entry, answer, judge(entry, answer)) for entry, answer in answers)
    assert list(groups) == ["all", "en-de", "word", "quantity"]
    assert (groups["all"].num_entries, groups["all"].num_acceptable) == (3, 1)
    assert (groups["all"].num_empty, groups["all"].num_dropping_a_number) == (1, 1)
    assert groups["word"].share == 0.5


@pytest.mark.server
def test_a_server_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All entries of one direction, over HTTP. The server answers each text with itself."""
    path = tmp_path / "result.json"
    tokenizer = write_tokenizer(tmp_path / "tokenizer.spm")
    with ServerProcess(["tests.api.echo_server", str(tokenizer)]) as server:
        assert main(["--url", server.ready().url, "--json", str(path)]) == 0
    result = json.loads(path.read_text("utf-8"))
    total = result["groups"]["all"]
    assert total["num_entries"] == result["num_entries_of_other_pairs"] == 150
    assert 0 < total["num_acceptable"] < 150, "some entries accept their own source"
    assert total["num_entries"] - total["num_acceptable"] == len(result["failures"])
    assert f"| all | {total['num_entries']} |" in capsys.readouterr().out
