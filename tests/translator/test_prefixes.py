"""The contents of placeholders in a target prefix become the symbols that the model copies."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import InvalidRequest
from app.text.glossary import Glossary, Term
from app.text.parsed_text import ParseOptions, TextFormat, parse_text
from app.text.segments import Fallback
from app.text.tokenizer import PLACEHOLDER_SYMBOLS, Encoded, Tokenizer
from app.translator.jobs import SegmentJob
from app.translator.languages import ResolvedLanguage
from app.translator.prefixes import as_model_text
from tests.model.sentences import write_tokenizer
from tests.translator.scripted import ScriptedTranslator

A, B = PLACEHOLDER_SYMBOLS[:2]
HTML = {"text_format": TextFormat.HTML}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("prefixes") / "tokenizer.spm"))


def forced(script: ScriptedTranslator, tokenizer: Tokenizer) -> str:
    """The prefix of the last sentence, as the model writes it."""
    _, options = script.engine.submitted[-1]
    return tokenizer.offsets(options.target_prefix)[0]


@pytest.mark.parametrize(
    ("source", "prefix", "expected", "changes"),
    [
        ("Anna sees {name} again.", "Anna sees {name}", f"Anna sees {A}", {}),
        ("Anna sees %d trees.", "Anna sees %d", f"Anna sees {A}", {}),
        ("Anna sees the %sth tree.", "Anna sees %ste", f"Anna sees {A}te", {}),
        ("Anna sees https://a.org/b again.", "https://a.org/b again", f"{A} again", {}),
        ("Anna greets a@b.org again.", "a@b.org", A, {}),
        ("Anna sees {a} and {b}.", "{b} and {a}", f"{B} and {A}", {}),
        ("Anna sees {a} and {a}.", "{a} and {a} and", f"{A} and {B} and", {}),
        ("Anna sees {a}{b} again.", "{a}{b} again", f"{A} again", {}),
        ("Anna sees {a} and {b}.", "{b}{a}", f"{B} {A}", {}),
        ("Anna sees {a} \U0001f600 again.", "{a}\U0001f600", f"{A} {B}", {}),
        ("Anna sees https://a.org and https://a.org/b.", "https://a.org/b", B, {}),
        ("Anna sees <code>tree</code> again.", "the trees, tree", f"the trees, {A}", HTML),
        ("Anna sees <code>a &lt; b</code> again.", "a < b", A, HTML),
        ("Anna sees <code></code> again.", "Anna sees", "Anna sees", HTML),
        ("Anna sees {name} again.", "Anna sees", "Anna sees", {}),
        ("Anna sees the tree.", "the {name}", "the {name}", {}),
        ("Anna\u00a0sees the tree.", "Anna\u00a0sees", "Anna sees", {}),
        ("Anna sees\u00a0{name}.", "Anna sees\u00a0{name} and", f"Anna sees {A} and", {}),
        ("Anna sees the\u00a0tree.", "the\u00a0trees", "the\u00a0trees", {}),
        ("Anna sees {a}the tree{b} again.", "{a}the tree{b} and", "the tree and", {}),
        ("Anna sees %d{b}the tree{c}.", "%d{b}the", f"{A}the", {}),
        ("{a&amp;b}Anna{c} sees {d}", "{a&b}Anna{c} and {d}", f"Anna and {A}", HTML),
    ],
)
def test_each_content_becomes_its_symbol_once(
    tokenizer: Tokenizer, source: str, prefix: str, expected: str, changes: dict[str, Any]
) -> None:
    script = ScriptedTranslator(tokenizer, lambda source: source, has_alignment=True)
    script(source, target_prefixes=(prefix,), **changes)
    known = tokenizer.offsets(tokenizer.encode_target(expected, PLACEHOLDER_SYMBOLS)[:-1])[0]
    assert forced(script, tokenizer) == known


def test_a_url_needs_no_space_beside_letters_of_a_script_without_spaces() -> None:
    parsed = parse_text("See www.a.org now.", ParseOptions("en", "zh-Hans"))
    (segment,) = parsed.segments(lambda _: True)
    job = SegmentJob(parsed, ResolvedLanguage(None, "en", 1.0), segment, "")
    (span,) = segment.placeholders
    encoded = Encoded((), (span,))
    assert as_model_text("\u8bf7www.a.org\u770b", job, encoded) == f"\u8bf7{span}\u770b"
    assert as_model_text("www.a.orgs", job, encoded) == "www.a.orgs"


def test_a_minus_sign_is_forced_as_the_hyphen_that_the_model_writes() -> None:
    parsed = parse_text("It is \u22125 today.", ParseOptions("en", "de"))
    (segment,) = parsed.segments(lambda _: True)
    job = SegmentJob(parsed, ResolvedLanguage(None, "en", 1.0), segment, "")
    assert as_model_text("Es sind \u22125", job, Encoded((), ())) == "Es sind -5"
    assert as_model_text("Es sind \u22126", job, Encoded((), ())) == "Es sind \u22126"


# A Korean term may have a particle after it, and Japanese and Thai have no spaces: there the term is replaced.
@pytest.mark.parametrize(
    ("language", "term", "prefix", "expected"),
    [
        ("ar", "قلم", "القلم قلم", f"القلم {A}"),
        ("he", "עט", "מעט עט", f"מעט {A}"),
        ("hi", "कमल", "कमला कमल", f"कमला {A}"),
        ("hi", "कम", "अकम कम", f"अकम {A}"),
        ("fr", "caf", "cafe\u0301 caf", f"cafe\u0301 {A}"),
        ("fr", "cafe", "cafe\u0301 cafe", f"cafe\u0301 {A}"),
        ("ko", "사과", "사과를", f"{A}를"),
        ("ja", "東京", "は東京に", f"は{A}に"),
        ("th", "แมว", "ฉันชอบแมวดำ", f"ฉันชอบ{A}ดำ"),
    ],
)
def test_a_term_within_a_longer_word_stays(language: str, term: str, prefix: str, expected: str) -> None:
    options = ParseOptions("en", language, glossary=Glossary([Term("cat", term)], "en"))
    parsed = parse_text("The cat.", options)
    segment = parsed.with_term_placeholders(next(iter(parsed.segments(lambda _: True))))
    job = SegmentJob(parsed, ResolvedLanguage(None, "en", 1.0), segment, "")
    (span,) = segment.placeholders
    assert as_model_text(prefix, job, Encoded((), (span,))) == expected.replace(A, span)


def test_a_whole_translation_as_the_prefix_stays(tokenizer: Tokenizer) -> None:
    """The scripted model writes the prefix and nothing else."""
    prefix = "Anna sees {name} and https://a.org/b and a@b.org."
    script = ScriptedTranslator(tokenizer, lambda _: forced(script, tokenizer) or "Anna.", has_alignment=True)
    translation = script("Anna draws {name} and https://a.org/b and a@b.org.", target_prefixes=(prefix,))
    assert translation.text == prefix
    assert translation.segments[0].fallbacks == ()


def test_a_retry_with_a_term_placeholder_has_the_placeholder_in_the_prefix(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "Anna draws.", has_alignment=True)
    script("Anna draws the cat.", terms=(Term("cat", "Kater"),), target_prefixes=("the Kater",))
    assert script.sources[:2] == ["Anna draws the cat.", f"Anna draws the {A}."]
    assert forced(script, tokenizer) == f"the {A}"


def test_parts_around_placeholders_never_repeat_a_placeholder_of_the_prefix(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: f"Anna draws {A}.")
    translation = script("Anna draws {a} and {b}.", target_prefixes=("Anna draws {a}",))
    assert translation.text == "Anna draws {a} {b}."
    assert len(script.sources) == 1


@pytest.mark.parametrize(
    ("has_alignment", "expected"),
    [(True, "Anna sees {name} the tree today {id}."), (False, "Anna sees the tree today {name} {id}.")],
)
def test_a_lost_placeholder_is_behind_the_prefix(
    tokenizer: Tokenizer, expected: str, *, has_alignment: bool
) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "Anna sees the tree today.", has_alignment=has_alignment)
    source = "{name} Anna sees the tree {id} today."
    translation = script(source, target_prefixes=("Anna sees",), token_scores=True)
    assert translation.text == expected
    tokens = translation.segments[0].hypotheses[0].tokens
    shown = "".join(expected[slice(*token.target)] for token in tokens)
    assert shown.replace(" ", "") == "Annaseesthetreetoday."


def test_a_prefix_with_a_full_stop_is_before_the_placeholder_of_the_next_part(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, lambda _: "Anna sees.")
    translation = script("Anna sees {name}", target_prefixes=("Anna sees.",))
    assert translation.text == "Anna sees. {name}"
    assert len(script.sources) == 2


def test_a_no_break_space_in_the_prefix_keeps_the_parts_around_a_lost_placeholder(
    tokenizer: Tokenizer,
) -> None:
    """The scripted model returns only the beginning of a source with a placeholder."""
    script = ScriptedTranslator(tokenizer, lambda source: "Anna sees" if A in source else source)
    for space in " \u00a0":
        translation = script(
            f"Anna{space}sees {{name}} and nobody sees it.", target_prefixes=(f"Anna{space}sees",)
        )
        assert translation.text == f"Anna{space}sees {{name}} and nobody sees it."
        assert translation.segments[0].fallbacks == (Fallback.PLACEHOLDER_SPLIT,)


@pytest.mark.parametrize(
    ("prefix", "code"), [("Anna \x01sees", "U+0001"), ("Anna\nsees", "U+000A"), ("\ufffe", "U+FFFE")]
)
def test_a_prefix_with_a_control_character_is_refused(tokenizer: Tokenizer, prefix: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ScriptedTranslator(tokenizer, str)("Anna sees the tree.", target_prefixes=(prefix,))
    assert refused.value.field == "target_prefix"
    assert refused.value.message == f"target_prefix has a control character ({code})"


def test_a_prefix_may_have_a_character_that_the_sentence_has(tokenizer: Tokenizer) -> None:
    script = ScriptedTranslator(tokenizer, str)
    script("Anna sees \uffff again.", target_prefixes=("Anna sees \uffff",))
    assert forced(script, tokenizer) == f"Anna sees {A}"
