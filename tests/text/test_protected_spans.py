"""Protected spans are found whole, and prose is not protected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.protected_spans import merged, protected_spans
from app.text.segmentation import Span
from tests.text.growth import check_near_linear

PROTECTED = [
    "{{name}}", "{{ user.name | default('a b') }}", "{% if ready %}", "{# note #}", "${home}", "%{count}", "#{title}",
    "{0}", "{}", "{name}", "{user.name}", "{0:.2f}", "{price!r}",
    "{count, plural, one {# item} other {# items of {owner}}}", "{when, date, short}", "{n, number}",
    "%s", "%d", "%5d", "%-10s", "%.2f", "%ld", "%zu", "%@", "%%", "%1$s", "%2$-5d", "%-d", "%(name)s", "%(total).2f",
    "%.*s", "%*d", "%-*.*f", "%1$*2$d", "%'d", "%'10.2f", "%I64d", "%<PRIu64>", "%5<PRIxMAX>", "%2$<PRIu64>",
    "<0>", "</12>", "<1/>", "<https://example.org>", "<a@example.org>",
    '<x id="1"/>', "<b>", "</b>", "<br/>", '<a href="https://example.org/?a=1&b=2" title=\'x\'>', "<ns:tag>",
    "https://example.org/a_(b)?c=d&e=%20#f", "http://[2001:db8::1]:80/x", "ftp://example.org", "www.example.org/x",
    "mailto:anna@example.org", "https://b\u00fccher.example/stra\u00dfe", "https://example.org/{id}/edit",
    "https://\u4f8b\u3048.jp/\u4f8b", "www.\u4f8b.example", "https://example.\u4e2d\u56fd/a",
    "anna.b+c@mail.example.org", "a@b.de", "jos\u00e9@example.org", "jose\u0301@example.org", "\u00e9mile@example.org",
    "a@b\u00fccher.example", "a@\u043f\u043e\u0447\u0442\u0430.example", "a@1\u4f8b2.example",
    '[gallery ids="1,2,3" size="large"]', "[audio src='a.mp3'/]", "[embed width=123 src=/a/b ]", "[/caption]",
    '[contact-form-7 id="1" title="Contact form 1"]', "[/vc_row]",
    "<?php echo $a->b; ?>", "<?= $n > 3 ? 'a' : 'b' ?>", "<#if user.name??>", "</#list>", '<@footer lang="en"/>',
    "{!! $item->title !!}",
    "<% if x %>", "<%= name %>", "<%# a\nnote %>", "<%- a > b || c < d -%>", "<%%>",
    "*|FNAME|*", "*|IF:AGE >= 21|*", "*|DATE:d/m/y|*", "%%FirstName%%", "%%sub.first_name%%", "%%view-url%%",
    "%count%", "%user.name%", "%first-name%", "%TEMP%", "$USER$", "$order_id$", "$USER@2$", "$x$",
    "%#@items@", "%2$#@num_files@",
    "--all", "-a, --all", "-s SIZE, --size=SIZE", "--no-cache", "--color[=WHEN]", "--noEmit", "--out=a/b.txt",
    "-v/--version",
    "2024-01-02T10:00:00Z", "2024-01-02T10:00", "2024-01-02T10:00:00.125+01:00", "2024-01-02T10:00:00-0500",
    "123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000",
    "#ff0000", "#FF0000", "#1a2b3c4d", "#123456",
    "info@xn--e1afmkfd.xn--p1ai", "INFO@XN--E1AFMKFD.XN--P1AI", "a@b.xn--vermgensberater-ctb",
]  # fmt: skip
PROSE = [
    "100% sure", "50 % off", "5% discount", "20%de", "a % b", "3 < 4 and 5 > 4", "see {the note below}", "{ a b }",
    # After a number, `-a` is more likely a suffix, as in Hungarian, than a flag that has no effect without a width.
    "20%-a magyar", "3%-e", "20 %-a", "20\u00a0%-a", "100%-d",
    "5 %.*", "5%.5ex", "5 %.5ex", "20%* of", "10%*x", "50%'s", "100%'i", "the %'s use", "the '%' sign", "5 %. Do",
    "50 %I", "a %<b",
    "anna at example.org", "12:30", "e.g. this", "and/or", "C++", "{unclosed", "closed}", "$5",
    "He said [sic] so", "[1]", "[Note: one]", "[x = 3]", "[see a=b here]", "[]",
    "<# a>", "<@ a>", "<? a", "<?php a", "<#-- a", "{! a !}", "[/]", "[/ no]", "a [b] c", "[the a=b",
    "*| a", "2 *|x|", "||*", "<% open",
    "yes--no", "He came --and left-- again", "Anna -- the --only -- one", "'It is late.' --said Anna.--", "--",
    "-- a dash", "--Anna", "-5", "-a", "-a, -b", "a-b--c", "<!--note-->", "It is late.--and then",
    "2024-01-02", "2024-01-02 10:00", "12024-01-02T10:00", "2024-01-02T10:00Zoe", "1234-5678", "0123-4567-89ab-cdef",
    "$5 and $6", "5$ or 6$", "US$ and A$", "between $5 and 10$", "$a b$", "$$", "$$x$$",
    "50%of 60%", "%bold b%", "100%sure%",
    "#facade", "#decade", "#fff", "&#123456;", "a#123456", "#123456th",
    "www", "http is a protocol", "that@", "one, two",
]  # fmt: skip


@pytest.mark.parametrize("placeholder", PROTECTED)
@pytest.mark.parametrize(
    "frame", ["{}", "We saw {} there.", "({}), and", "\u201c{}\u201d", "Go to {}.", "{}: yes"]
)
def test_a_protected_span_is_found_whole(placeholder: str, frame: str) -> None:
    before, after = frame.split("{}")
    text = before + placeholder + after
    assert [span.of(text) for span in protected_spans(text)] == [placeholder]


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_not_protected(text: str) -> None:
    assert protected_spans(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%.2fs, %5.1fMB, %3$.3fkg, %.2fseconds", ["%.2fs", "%5.1fMB", "%3$.3fkg", "%.2f"]),
        ("See https://example.org/a.", ["https://example.org/a"]),
        ("See (https://example.org/a_(b)).", ["https://example.org/a_(b)"]),
        ("Is it https://example.org?!", ["https://example.org"]),
        ("\u8acb\u770bhttps://example.org/a\u3002\u8b1d", ["https://example.org/a"]),
        ("{a}{b} %s%d", ["{a}", "{b}", "%s", "%d"]),
        ("%dpx and %sfold", ["%d", "%s"]),
        ("  -a, --all     show all", ["-a, --all"]),
        ("-s SIZE, --size SIZE", ["-s SIZE, --size"]),
        ("Use --size=<n> or --as-.", ["--size=", "<n>", "--as"]),
        ('"#facade" and #facade', ["#facade"]),
        # A browser percent-encodes the path of a URL that a user copies. So these letters are the words after the URL.
        ("\u8bbf\u95eehttps://example.com\u83b7\u53d6\u3002", ["https://example.com"]),
        ("\u8bbf\u95eehttps://example.com/a?b=c\u83b7\u53d6", ["https://example.com/a?b=c"]),
        ("\u8be6\u89c1www.example.com\u6211\u4eec", ["www.example.com"]),
        ("https://example.jp/\u3092\u3054\u89a7", ["https://example.jp/"]),
        (
            "https://example.kr\uc744 https://example.th\u0e44\u0e14\u0e49",
            ["https://example.kr", "https://example.th"],
        ),
        ("mailto:a@example.org\u83b7\u53d6", ["mailto:a@example.org"]),
        (
            "https://ru.example.org/\u041c\u043e\u0441\u043a\u0432\u0430",
            ["https://ru.example.org/\u041c\u043e\u0441\u043a\u0432\u0430"],
        ),
        ("\u8acb\u806f\u7d61support@example.org\u7372\u53d6", ["support@example.org"]),
        ("\u3067support@example.org\u307e\u3067", ["support@example.org"]),
        ("\uba54\uc77csupport@example.org\uc73c\ub85c", ["support@example.org"]),
        ("\u5230a@example.org\u6216\u8bbf\u95eewww.example.org", ["a@example.org", "www.example.org"]),
        ("a@example.org\u00e9", []),
        ("{{a}} {unclosed {b}", ["{{a}}", "{b}"]),
        ("{please call {name}}", ["{name}"]),
        ("{{name} is here}", ["{name}"]),
        ("{{a} and {b}}", ["{a}", "{b}"]),
        ("{{ {a} b }} {{{a b}}}", ["{{ {a} b }}", "{{{a b}}}"]),
        ("[b]bold[/b] [sic]", ["[b]", "[/b]"]),
        ("[row][col width='1/2']Text[/col][/row]", ["[row]", "[col width='1/2']", "[/col]", "[/row]"]),
        ('[a [b c="d"] e="f"]', ['[b c="d"]']),
        ("<% a <% b %> c %>", ["<% b %>"]),
        ("One <#-- a > b <i> - c --> two", ["<#-- a > b <i> - c -->"]),
        ("<?php a <?php b ?> c ?>", ["<?php b ?>"]),
        ("*|A|* and *|B|*", ["*|A|*", "*|B|*"]),
        ("%%A%% and %%B%%%%C%%", ["%%A%%", "%%B%%", "%%C%%"]),
        ("%s%, %ab% %cd%", ["%s", "%ab%", "%cd%"]),
        ("$A$ $B$, $C$here$D$", ["$A$", "$B$", "$C$", "$D$"]),
        ("100%-5d", ["%-5d"]),  # with a width, a directive is more likely
        ("100%% of %d%%", ["%%", "%d", "%%"]),
        ("<i>%s</i>", ["<i>", "%s", "</i>"]),
        ('<a href="{link}">', ['<a href="{link}">']),
    ],
)
def test_where_protected_spans_end(text: str, expected: list[str]) -> None:
    assert [span.of(text) for span in protected_spans(text)] == expected


@pytest.mark.parametrize(
    "mark",
    [
        "\u060c", "\u061b", "\u061f", "\u06d4", "\u0964", "\u17d4", "\u104b", "\u1362", "\u0589",
        "\u2026", "\u203a", "\u00bb", "\u2014", "\u203a.",
    ],
)  # fmt: skip
def test_a_url_ends_before_the_punctuation_of_its_sentence(mark: str) -> None:
    url = "https://example.org/a"
    assert [span.of(url + mark) for span in protected_spans(url + mark)] == [url]


def test_punctuation_inside_a_url_belongs_to_it() -> None:
    url = "https://example.org/a\u2026b\u060cc"
    assert [span.of(url) for span in protected_spans(url)] == [url]


@given(
    st.lists(
        st.sampled_from([*PROTECTED, *PROSE, "{", "}", "%", "<", ">", "@", " ", "\n", "word"]), max_size=20
    )
)
def test_spans_are_in_order_and_apart(parts: list[str]) -> None:
    text = "".join(parts)
    end = 0
    for span in protected_spans(text):
        assert end <= span.start < span.end <= len(text)
        end = span.end


@given(st.lists(st.sampled_from(PROTECTED), max_size=12))
def test_all_protected_spans_between_words_are_found(parts: list[str]) -> None:
    text = " word ".join(parts)
    assert [span.of(text) for span in protected_spans(text)] == parts


def test_spans_that_share_a_character_are_merged() -> None:
    spans = [Span(5, 7), Span(0, 2), Span(1, 4), Span(4, 5)]
    assert list(merged(spans)) == [Span(0, 4), Span(4, 5), Span(5, 7)]


@pytest.mark.seconds
@pytest.mark.parametrize(
    "unit",
    ["{", "}", "{{", "{}", "{a", "{a,b,", "%(", "%(a", "%1", "%1$", "<a ", "<a", "http://", "http://(", "www.", "a@",
     "a.", "a@a.", "@a-", "-a@b", "a-", "mailto:", "{%", "(", "https://a)", "%'",
     "[a ", "[a b=", "[a b=c ", "[/", "[/a", "[a]", "[/a]", '[a b="', "<%", "<% ", "%>", "*|", "*|a", "|*", "%%", "%%a",
     "--", "--a", " --a", "-a --", "-a A", "-A_", " --a=", "#", "#a", "#1", "1-", "-1234", "12345678-1234-",
     "2024-01-02T",
     "%*", "%1$*1$", "%0<PRI", "$", "$a", "%aa", "https://a.", "www.\u4f8b", "www.a\u4f8b", "<?php ",
     "<?=", "<#-- ", "<#--", "<#a ", "</@a", "{!!", "!!}"],
)  # fmt: skip
def test_time_is_linear(unit: str) -> None:
    """The text has a colon, because `protected_spans` returns at once if a text has no sign of a protected span."""
    check_near_linear(lambda size: protected_spans(":" + unit * (size // len(unit))), 100_000)


@pytest.mark.seconds
@pytest.mark.parametrize("start", ["[a b=c", "<%", "*|A", "%%a"])
@pytest.mark.parametrize("unit", [" b=c", "b", " ", "%", "|", "<", " b='c'", "="])
def test_time_is_linear_in_the_length_of_a_template_tag(start: str, unit: str) -> None:
    check_near_linear(lambda size: protected_spans(start + unit * (size // len(unit))), 100_000)


@pytest.mark.parametrize("unit", ["1.", "a.", "\u4f8b.", "1\u4f8b.", "-a"])
def test_time_is_linear_in_the_length_of_a_domain(unit: str) -> None:
    check_near_linear(lambda size: protected_spans("a@b.xn-" + unit * (size // len(unit))), 100_000)
