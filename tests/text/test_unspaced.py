"""Texts in scripts without spaces between words: each letter is a word, and placeholders get no space."""

from __future__ import annotations

import pytest

from app.text.alignment import Alignment, words
from app.text.glossary import Glossary, Term, missing_terms
from app.text.parsed_text import ParseOptions, Splitting, TextFormat, parse_text
from app.text.segmentation import Span, best_cut
from app.text.segments import Fallback, SegmentTranslation
from tests.text.growth import check_near_linear
from tests.text.markup_samples import aligned


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我喜欢iPhone手机。", ["我", "喜", "欢", "iPhone", "手", "机", "。"]),
        ("有3.5个，第２", ["有", "3.5", "个", "，", "第", "２"]),
        ("東京のサーバー", ["東", "京", "の", "サー", "バー"]),
        ("ฉันชอบแมว", ["ฉั", "น", "ช", "อ", "บ", "แม", "ว"]),
        ("ນ້ຳ", ["ນ້ຳ"]),
        ("ស្រី", ["ស្រី"]),
        ("มี๑๒คน", ["มี", "๑๒", "ค", "น"]),
        ("'苹果's'", ["'", "苹", "果", "'", "s", "'"]),
        ("it'果", ["it", "'", "果"]),
        ("사과를 먹다", ["사과를", "먹다"]),
        ("ខ្ញុំ\u200bស្រី", ["ខ្ញុំ", "ស្រី"]),
    ],
)
def test_each_letter_is_a_word(text: str, expected: list[str]) -> None:
    assert [word.of(text) for word in words(text)] == expected


@pytest.mark.parametrize(
    ("language", "term", "text"),
    [
        ("zh", "苹果", "我喜欢苹果手机"),
        ("ja", "東京", "私は東京に住んでいます。"),
        ("ja", "サーバー", "新サーバーです"),
        ("th", "แมว", "ฉันชอบแมว"),
        ("km", "ស្រី", "ខ្ញុំស្រី"),
        ("lo", "ນ້ຳ", "ມີນ້ຳ"),
        ("my", "မြန်မာ", "ကမြန်မာစာ"),
    ],
)
def test_a_term_is_found_between_other_letters(language: str, term: str, text: str) -> None:
    assert [hit.surface for hit in Glossary([Term(term, "x")], language).hits(text)] == [term]
    hits = list(Glossary([Term("word", term)], "en").hits("a word"))
    assert missing_terms(hits, text, language) == []
    assert missing_terms(hits, text.replace(term, ""), language) == hits


def test_a_term_does_not_match_a_part_of_a_letter() -> None:
    assert list(Glossary([Term("サーバ", "x"), Term("シ", "x")], "ja").hits("サーバー、シャツ")) == []


def test_terms_in_long_chinese_text_take_near_linear_time() -> None:
    glossary = Glossary([Term("喜欢苹", "x"), Term("苹果", "y")], "zh")
    check_near_linear(lambda size: list(glossary.hits("我喜欢果苹果" * size)), 8000)


def test_tags_enclose_a_part_of_a_chinese_sentence() -> None:
    options = ParseOptions("en", "zh", TextFormat.HTML)
    parsed_text = parse_text("I like <b>apples</b>.", options)
    (segment,) = parsed_text.segments(lambda _source: True)
    source, target = tuple(words(segment.source)), (Span(0, 1), Span(1, 3), Span(3, 5), Span(5, 6))
    weights = aligned("a b c d", "a b c d", [(index, index) for index in range(4)]).weights
    translation = SegmentTranslation("我喜欢苹果。", Alignment(source, target, weights))
    assert parsed_text.render(segment, translation) == "我喜欢<b>苹果</b>。"


def rendered(source: str, translation: SegmentTranslation, languages: tuple[str, str]) -> str:
    parsed_text = parse_text(source, ParseOptions(*languages, splitting=Splitting.LINES))
    (segment,) = parsed_text.segments(lambda _source: True)
    return parsed_text.render(segment, translation)


@pytest.mark.parametrize(
    ("source", "languages", "text", "expected"),
    [
        ("Hello {name}.", ("en", "zh"), "你好。", "你好{name}。"),
        ("“Hello {name}.”", ("en", "ja"), "「こんにちは。」", "「こんにちは{name}。」"),
        ("Hello {name}", ("en", "th"), "สวัสดี", "สวัสดี{name}"),
        ("Hello. {name}", ("en", "zh"), "你好。", "你好。{name}"),
        ("{a} and {b}", ("en", "zh"), "和", "和{a} {b}"),
        ("Hello {name}.", ("en", "ko"), "안녕.", "안녕 {name}."),
        ("Hello, {name}.", ("en", "hi"), "नमस्ते।", "नमस्ते {name}।"),
        ("Are you {name}?", ("en", "ar"), "هل أنت؟", "هل أنت {name}؟"),
        ("Is it {name}?", ("en", "ur"), "یہ ہے۔", "یہ ہے {name}۔"),
        ("Hello {name}.", ("en", "hy"), "Բարեւ։", "Բարեւ {name}։"),
        ("Hello {name}.", ("en", "am"), "ሰላም።", "ሰላም {name}።"),
        ("Say so {name}.", ("en", "de"), "Sag {x}", "Sag {x} {name}"),
    ],
)
def test_where_a_lost_placeholder_is_inserted_in_a_translation(
    source: str, languages: tuple[str, str], text: str, expected: str
) -> None:
    assert rendered(source, SegmentTranslation(text), languages) == expected


def test_a_stray_placeholder_after_a_full_stop_of_another_script_goes_before_it() -> None:
    parsed_text = parse_text("Hello {name}.", ParseOptions("en", "hi"))
    (segment,) = parsed_text.segments(lambda _source: True)
    stray = SegmentTranslation(f"नमस्ते। {segment.placeholders[0]}")
    finished = parsed_text.finish([segment], [stray])
    assert finished.text == "नमस्ते {name}।"
    assert finished.segments[0].fallbacks == (Fallback.PLACEHOLDER_AT_END,)


def test_a_placeholder_between_chinese_letters_is_separated_from_english_words() -> None:
    parsed_text = parse_text("你好{name}先生来了。", ParseOptions("zh", "en"))
    (segment,) = parsed_text.segments(lambda _source: True)
    pairs = [(0, 0), (0, 1), (1, 3), (1, 4), (2, 5), (2, 6), (3, 7)]
    translation = SegmentTranslation("Hello Mr came.", aligned(segment.source, "Hello Mr came.", pairs))
    assert parsed_text.render(segment, translation) == "Hello {name} Mr came."


def test_a_sentence_is_not_cut_between_the_letters_of_a_cluster() -> None:
    text = "เขาไปโรงเรียนแล้วเขากลับมา"
    for end in range(6, len(text)):
        cut = best_cut(text, Span(0, end))
        assert text[cut - 1] not in "เแโใไ"
        assert text[cut] not in "ะาำ"
