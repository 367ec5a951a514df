"""HTML is scanned by the standard with the simplifications of `html_scanner`, without loss and in linear time."""

from __future__ import annotations

import time

import pytest

from app.text.html_scanner import scan_html


def events(text: str) -> list[tuple[str, str, str]]:
    found = list(scan_html(text))
    assert "".join(text[event.start : event.end] for event in found) == text
    return [(event.kind, event.name, text[event.start : event.end]) for event in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b & c", [("text", "", "a < b & c")]),
        ("<A HREF=x>y</a >", [("open", "a", "<A HREF=x>"), ("text", "", "y"), ("close", "a", "</a >")]),
        ("<a b='>'>", [("open", "a", "<a b='>'>")]),
        ('<a b">">', [("open", "a", '<a b">'), ("text", "", '">')]),
        ("<br/><a b=c/>", [("empty", "br", "<br/>"), ("open", "a", "<a b=c/>")]),
        ("<a/b / >", [("open", "a", "<a/b / >")]),
        ("<!----><!--->x-->", [("comment", "", "<!---->"), ("comment", "", "<!--->"), ("text", "", "x-->")]),
        ("<!-- <b> --!>x", [("comment", "", "<!-- <b> --!>"), ("text", "", "x")]),
        ("<!DOCTYPE html>", [("declaration", "", "<!DOCTYPE html>")]),
        ("<?xml a?>", [("declaration", "", "<?xml a?>")]),
        ("<?php>echo ?>", [("declaration", "", "<?php>"), ("text", "", "echo ?>")]),
        ("<![CDATA[a>b]]>", [("declaration", "", "<![CDATA[a>b]]>")]),
        ("<!x></3></>", [("comment", "", "<!x>"), ("comment", "", "</3>"), ("comment", "", "</>")]),
        (
            "<script>if (a</b>c)</SCRIPT>",
            [("open", "script", "<script>"), ("text", "", "if (a</b>c)"), ("close", "script", "</SCRIPT>")],
        ),
        (
            "<style>a</\u017ftyle></style>",
            [("open", "style", "<style>"), ("text", "", "a</\u017ftyle>"), ("close", "style", "</style>")],
        ),
        (
            "<title>the <script> tag &amp; <b></TITLE >x",
            [
                ("open", "title", "<title>"),
                ("text", "", "the <script> tag &amp; <b>"),
                ("close", "title", "</TITLE >"),
                ("text", "", "x"),
            ],
        ),
        (
            "<textarea><!-- <textarea></textareas></textarea>x",
            [
                ("open", "textarea", "<textarea>"),
                ("text", "", "<!-- <textarea></textareas>"),
                ("close", "textarea", "</textarea>"),
                ("text", "", "x"),
            ],
        ),
        ("<title/>a<b>", [("empty", "title", "<title/>"), ("text", "", "a"), ("open", "b", "<b>")]),
        ("a<b c='x>y", [("text", "", "a"), ("unended", "", "<b c='x>y")]),
        ("<!-- x", [("unended", "", "<!-- x")]),
        ("<p", [("unended", "", "<p")]),
    ],
)
def test_events_of_markup_and_text(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert events(text) == expected


@pytest.mark.parametrize(
    "code",
    [
        "<?php echo $user->name; ?>",
        "<?= '<p>' ?>",
        "<%= tag('<br>') %>",
        "<#if a>b</#if>",
        "<#-- <p> -->",
        "{{ text | replace: '<br>', \" \" }}",
        "{% if a < b and c > '</p>' %}",
    ],
)
def test_template_code_is_text(code: str) -> None:
    text = f"One {code} two"
    assert events(f"{text}<b>{text}") == [("text", "", text), ("open", "b", "<b>"), ("text", "", text)]


@pytest.mark.parametrize(
    "tag",
    [
        "<p <%= attributes %>>",
        "<p <%= 'a' if b > 3 %> class=c>",
        "<p {% if a > 3 %}class='b'{% endif %}>",
        "<p class=<%= name %>>",
        "<p class=a{% if b > 3 %}c{% endif %}>",
        '<p class="<?php echo $a->b("c") > 3; ?>">',
        "<p class='{{ a['b'] > 3 }} {'>",
        "<p <?php post_class(); ?>>",
        "<p <#if a>class=b</#if>>",
        "<p title='{{ a' {>",
    ],
)
def test_template_code_does_not_end_its_tag(tag: str) -> None:
    assert events(f"{tag}One") == [("open", "p", tag), ("text", "", "One")]


def test_template_code_may_be_in_the_name_of_a_tag() -> None:
    tag = "<h<?= $level ?>>"
    assert events(f"{tag}One") == [("open", "h<?= $level ?>", tag), ("text", "", "One")]


@pytest.mark.parametrize("text", ["<code>{{</code> and <code>}}</code>", "<i>{%</i> and <i>%}</i>"])
def test_braces_in_two_elements_are_no_template_code(text: str) -> None:
    assert [kind for kind, _, _ in events(text)] == ["open", "text", "close", "text", "open", "text", "close"]


@pytest.mark.parametrize(
    "script",
    [
        "<!--\nwrite('<script src=a></script>');\nvar b = 'Good day';\n//-->",
        "<!-- <script></script> <SCRIPT ></SCRIPT > --> a <script>",
        "<!--><script>",
        "<!---><script>",
        "<!-- a <!--> <script> x",
        "<scripts> <!-- <!-- -->",
        "'</\u017fcript>'",
        "",
    ],
)
def test_a_script_ends_where_it_ends_in_a_browser(script: str) -> None:
    page = f"<script>{script}</script><p>End</p>"
    assert [part for kind, _, part in events(page) if kind == "text" and part != script] == ["End"]
    assert [kind for kind, name, _ in events(page) if name == "script"] == ["open", "close"]


@pytest.mark.parametrize("name", ["iframe", "noembed", "noframes", "style", "textarea", "title", "xmp"])
def test_raw_text_ends_at_its_own_end_tag_only(name: str) -> None:
    page = f"<{name}><!-- <script> </p><{name}></{name}><p>End</p>"
    found = [(kind, part) for kind, _, part in events(page)]
    assert found[1] == ("text", f"<!-- <script> </p><{name}>")
    assert found[-2:] == [("text", "End"), ("close", "</p>")]


def test_a_script_in_a_comment_of_a_script_may_stay_open() -> None:
    assert [kind for kind, _, _ in events("<script><!-- <script></script><p>End</p>")] == ["open", "text"]


def test_the_first_of_repeated_attributes_counts() -> None:
    (event,) = scan_html("<p CLASS='a notranslate' class=b translate=\"n&#111;\" id=x>")
    assert event.attributes == {"class": "a notranslate", "translate": "no"}


@pytest.mark.parametrize(
    "seed",
    [
        "<",
        "<a ",
        "<a b='",
        "<a b=c ",
        "<!--",
        "</",
        "<?",
        "<http:",
        "<![CDATA[",
        "<script></",
        "<title></",
        "<textarea>",
        "<b>&#1;",
        "<script><!--<script>",
        "<a <% >",
        "<a '<%' {{>",
        "<a b={% >",
        "{{ '<a",
        '{% "',
        "<#-- <",
        "<?php ",
        "</#a",
        "<a{{ '",
        "<a<%",
    ],
)
def test_unended_markup_takes_linear_time(seed: str) -> None:
    text = seed * (400_000 // len(seed))
    started = time.process_time()
    assert sum(event.end - event.start for event in scan_html(text)) == len(text)
    assert time.process_time() - started < 5
