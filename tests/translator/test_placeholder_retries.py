"""Changed numbers and missing terms are decoded again as placeholders. The attempt with the fewest faults is kept."""

from __future__ import annotations

import pytest

from app.decoding.option_changes import OptionChanges
from app.text.glossary import Term
from app.text.tokenizer import Tokenizer
from app.translator import retry
from app.translator.jobs import Attempt, Faults, SegmentJob
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import ScriptedTranslator

TERMS = (Term("cat", "Kater"), Term("tree", "Baum"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("retries") / "tokenizer.spm"))


def test_only_the_changed_number_is_a_placeholder(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source.replace("2 ", "24 "))
    assert script("Anna draws 2 cats and 44 trees.").text == "Anna draws 2 cats and 44 trees."
    assert script.sources[1:] == ["Anna draws \ue000 cats and 44 trees."]


def test_all_numbers_are_placeholders_if_another_number_changes_in_the_retry(tokenizer: Tokenizer) -> None:
    def translate(source: str) -> str:
        return source.replace("44", "22") if "\ue000" in source else source.replace("2 ", "24 ")

    script = ScriptedTranslator(tokenizer, translate)
    assert script("Anna draws 2 cats and 44 trees.").text == "Anna draws 2 cats and 44 trees."
    assert script.sources[2:] == ["Anna draws \ue000 cats and \ue001 trees."]


def test_the_faults_of_an_attempt_are_counted_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are three attempts, and each has faults."""
    counted: list[Attempt] = []

    def faults_of(job: SegmentJob, attempt: Attempt) -> Faults:
        counted.append(attempt)
        return real_faults_of(job, attempt)

    real_faults_of = retry._number_faults
    monkeypatch.setattr(retry, "_number_faults", faults_of)
    script = ScriptedTranslator(tokenizer, lambda source: source.replace("2 ", "24 ") + " 5")
    script("Anna draws 2 cats and 44 trees.")
    assert len(counted) == len(script.sources) == 3


def test_swapped_placeholders_are_a_fault(tokenizer: Tokenizer) -> None:
    """The first retry has placeholders for the two changed numbers, the second for all three."""

    def translate(source: str) -> str:
        if "\ue002" in source:
            return source
        if "\ue001" in source:
            return "Anna draws \ue001 cats and \ue000 trees and 4 cats."
        return "Anna draws 24 cats and 22 trees and 4 cats."

    script = ScriptedTranslator(tokenizer, translate)
    text = "Anna draws 2 cats and 44 trees and 4 cats."
    assert script(text).text == text
    assert len(script.sources) == 3


def test_lost_numbers_and_unknown_placeholders_leave_no_gap(tokenizer: Tokenizer) -> None:
    def translate(source: str) -> str:
        return "Anna \ue003 draws \ue004 cats \ue005 ." if "\ue000" in source else "Anna draws."

    text = ScriptedTranslator(tokenizer, translate, has_alignment=True)(
        "Anna draws 2 cats and 44 trees."
    ).text
    assert "  " not in text
    assert " ." not in text
    assert text.count("2") == text.count("44") == 1
    assert text.endswith(".")


def test_the_first_translation_is_kept_if_placeholders_lose_more(tokenizer: Tokenizer) -> None:
    """The first translation adds a number. The translation with placeholders repeats and changes numbers."""

    def translate(source: str) -> str:
        return "4 4 4." if "\ue000" in source else "Anna draws 2 cats and 44 trees and 4"

    translation = ScriptedTranslator(tokenizer, translate)("Anna draws 2 cats and 44 trees.")
    assert translation.text == "Anna draws 2 cats and 44 trees and 4"
    assert translation.segments[0].changed_numbers.added == ("4",)


# In the last case the retry loses its placeholder, and the parts around the placeholder are too short to decode.
@pytest.mark.parametrize(
    ("source", "terms", "num_decodings"),
    [
        ("Anna sees the Wolkenkratzer.", (Term("Wolkenkratzer", "Haus"),), 1),
        ("Anna draws 123456789 cats.", (), 1),
        ("Anna draws 2 cats and the old tree.", (), 2),
    ],
)
def test_a_retry_that_is_too_short_for_the_requested_lengths_is_left_out(
    tokenizer: Tokenizer, source: str, terms: tuple[Term, ...], num_decodings: int
) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "Anna draws it.")
    shortest = len(tokenizer.encode(source).ids) - 3
    options = OptionChanges.of(min_target_length=shortest, max_target_ratio=1.0)
    translation = script(source, terms=terms, options=options, extra_target_length=None)
    assert len(script.sources) == num_decodings, script.sources
    assert translation.text.startswith("Anna draws")


def test_all_hypotheses_are_kept_if_the_retry_with_terms_is_too_short_for_the_requested_lengths(
    tokenizer: Tokenizer,
) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "Anna draws it.\nAnna sees it.")
    source = "Anna sees the bakery near the old house."
    shortest = len(tokenizer.encode(source).ids) - 3
    options = OptionChanges.of(
        beam_size=2, num_hypotheses=2, min_target_length=shortest, max_target_ratio=1.0
    )
    terms = (Term("bakery near the old house", "Laden"),)
    translation = script(source, terms=terms, options=options, extra_target_length=None)
    assert len(script.sources) == 1
    assert translation.hypotheses == ("Anna draws it.", "Anna sees it.")


def test_marks_in_numbers_follow_the_target_language(tokenizer: Tokenizer) -> None:
    echo = ScriptedTranslator(tokenizer, lambda source: source)
    assert echo("Anna has 1,200 cats of 3.5 kilos.").text == "Anna has 1.200 cats of 3,5 kilos."
    changing = ScriptedTranslator(tokenizer, lambda source: source.replace("1,200", "1,300"))
    assert changing("Anna has 1,200 cats.").text == "Anna has 1.200 cats."


def test_only_the_missing_term_is_a_placeholder(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source.replace("tree", "Baum"))
    translation = script("Anna draws the cat and the tree.", terms=TERMS)
    assert translation.text == "Anna draws the Kater and the Baum."
    assert script.sources[1:] == ["Anna draws the \ue000 and the tree."]


def test_a_term_after_the_closing_mark_is_moved_before_it(tokenizer: Tokenizer) -> None:
    def translate(source: str) -> str:
        return "Anna draws. \ue000 \ue001" if "\ue001" in source else "Anna draws."

    for has_alignment in (True, False):
        script = ScriptedTranslator(tokenizer, translate, has_alignment=has_alignment)
        text = script("Anna draws the cat and the tree.", terms=TERMS).text
        assert text.endswith(".")
        assert "Kater" in text
        assert "Baum" in text
