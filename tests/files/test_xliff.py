"""XLIFF 1.2 as tools write it: which trans-units get a target, where it is, and what stays."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from app.files import FileError, FileFormat, FileLimits
from app.files.reading import read_file
from tests.files.xliff_files import MACHINE, V1, codes_of, reversed_file, targets, units_of

ANGULAR = V1.format(
    """<trans-unit id="8136548302122759730" datatype="html">
        <source>Hello <x id="INTERPOLATION" equiv-text="{{ name }}"/>, read <x id="START_LINK" ctype="x-a" \
equiv-text="&lt;a href=&quot;/faq&quot;>"/>our page<x id="CLOSE_LINK" ctype="x-a" equiv-text="&lt;/a>"/> now</source>
        <context-group purpose="location"><context context-type="sourcefile">app.html</context></context-group>
        <note priority="1" from="description">A greeting</note>
      </trans-unit>
      <trans-unit id="2" datatype="html">
        <source>
          A long text
          of two lines<x id="LINE_BREAK" ctype="lb" equiv-text="&lt;br/>"/>and another
        </source>
      </trans-unit>
      <trans-unit id="3" datatype="html">
        <source>{VAR_PLURAL, plural, =0 {just now} other {<x id="INTERPOLATION"/> minutes ago}}</source>
      </trans-unit>"""
)


def test_the_messages_of_angular() -> None:
    assert units_of(ANGULAR) == [
        'Hello <x id="1" translate="no"/>, read <g id="3">our page</g> now',
        '\n          A long text of two lines<br id="1"/>and another\n        ',
        '{VAR_PLURAL, plural, =0 {just now} other {<x id="1" translate="no"/> minutes ago}}',
    ]
    written = reversed_file(ANGULAR)
    start = '<x id="START_LINK" ctype="x-a" equiv-text="&lt;a href=&quot;/faq&quot;>"/>'
    end = '<x id="CLOSE_LINK" ctype="x-a" equiv-text="&lt;/a>"/>'
    word = '<x id="INTERPOLATION" equiv-text="{{ name }}"/>'
    assert (
        f"<target {MACHINE}>now {start}page our{end} read, {word} Hello</target>\n        <context-group"
        in written
    )
    assert '\n          lines two of text long A<x id="LINE_BREAK" ctype="lb"' in written
    assert written.count("<target") == 2  # that of the plural is equal to its source


def test_the_export_of_xcode() -> None:
    """Each file has its own language. Line breaks count, and conversions of printf are numbered in another order."""
    unit = '<trans-unit id="{0}" xml:space="preserve"><source>{0}</source>{1}<note>No comment</note></trans-unit>'
    one = unit.format("%@ invited %lld friends", "") + unit.format("First line&#10;Second line", "")
    two = unit.format("%#@items@ are left", "") + unit.format("OK", "<target>Gut</target>")
    file = '<file original="{}" source-language="en" datatype="plaintext"{}><body>{}</body></file>'
    data = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">'
        + file.format("en.lproj/Localizable.strings", "", one)
        + file.format("Info.plist", ' target-language="de"', two)
        + "</xliff>"
    )
    written = reversed_file(data, "de")
    assert targets(written) == [
        "friends %2$lld invited %1$@",
        "line First\nline Second",
        "left are %#@items@",
        "Gut",
    ]
    assert "line First&#10;line Second</target><note>" in written
    assert written.count('target-language="de"') == 2
    assert 'datatype="plaintext" target-language="de"><body>' in written


def test_the_export_of_weblate() -> None:
    """Its texts have escaped tags, and its empty targets have states."""
    data = V1.format(
        """<trans-unit id="a" xml:space="preserve" approved="no">
        <source>Press &lt;b&gt;the button&lt;/b&gt; &amp;amp; wait</source>
        <target state="needs-translation"/>
      </trans-unit>
      <trans-unit id="b" approved="yes"><source>The door</source><target state="final"></target></trans-unit>
      <trans-unit id="c"><source>The house</source><target state="signed-off"/></trans-unit>
      <trans-unit id="d"><source>The tree</source><target state="translated">Der Baum</target></trans-unit>
      <trans-unit id="e"><source>The cold water</source><target state="new">The cold water</target></trans-unit>
      <trans-unit id="f"><source>The cat</source><target state="new">Die Katze</target></trans-unit>
      <trans-unit id="g"><source>The dog</source><target>The dog</target></trans-unit>
      <trans-unit id="h" restype="x-gettext-domain-header"><source>Project-Id: x</source><target/></trans-unit>"""
    )
    assert units_of(data) == ["Press <b>the button</b> &amp; wait", "The cold water"]
    written = reversed_file(data)
    assert f"<target {MACHINE}>wait &amp;amp; &lt;b&gt;button the&lt;/b&gt; Press</target>" in written
    assert f"<target {MACHINE}>water cold The</target>" in written
    assert written.count("<target") == data.count("<target")


OKAPI = """<trans-unit id="tu1" resname="r">
  <source xml:lang="en">The <bpt id="1">&lt;b&gt;</bpt>old <ph id="2" ctype="image">&lt;img alt="\
<sub>A tree</sub>"/></ph>house<ept id="1">&lt;/b&gt;</ept> has <g id="3" ctype="x-u"><mrk mtype="protected">Acme</mrk>\
 today</g><it id="4" pos="open">&lt;i&gt;</it></source>
  <alt-trans><source>The old</source><target>Das alte</target></alt-trans>
</trans-unit>"""


def test_codes_move_with_their_words() -> None:
    data = V1.format(OKAPI)
    assert units_of(data) == [
        'The <g id="1">old <x id="3"/>house</g> has <g id="7"><x id="8" translate="no"/> today</g><x id="11"/>'
    ]
    written = reversed_file(data)
    assert targets(written)[0] == 'today Acme has <b><img alt="A tree"/>house old</b> The<i>'
    assert codes_of(written, "target") == codes_of(written, "source")
    assert len(codes_of(written, "target")) == 7
    assert (
        written.replace(written[written.index("\n  <target") : written.index("\n  <alt-trans")], "") == data
    )


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        ('one <x id="1" equiv-text="{{ n }}"/> cat', 'one <x id="1" translate="no"/> cat'),
        ('one <x id="1" ctype="lb"/> cat', 'one <br id="1"/> cat'),
        ('one <x id="START_TAG_DIV_1"/>big<x id="CLOSE_TAG_DIV"/> cat', 'one <g id="1">big</g> cat'),
        ('one <bx id="1" rid="7"/>big<ex id="2" rid="7"/> cat', 'one <g id="1">big</g> cat'),
        ('one <ph id="1">&lt;img></ph> cat', 'one <x id="1"/> cat'),
        ('one <ph id="1">&lt;B></ph>big<ph id="2">&lt;/b></ph> cat', 'one <g id="1">big</g> cat'),
        ('one <ph id="1">&lt;b/></ph>big<ph id="2">&lt;/b></ph> cat', 'one <x id="1"/>big<x id="3"/> cat'),
        ('one <ph id="1">\\n</ph>cat', 'one <br id="1"/>cat'),
        ('one <ph id="1">\\i1</ph>cat', 'one <x id="1"/>cat'),
        # In the text without codes, `%%s` is a percent sign and a letter.
        ('100 %<x id="1"/>%s of %d', '100 %<x id="1"/>%s of %d'),
    ],
)
def test_what_a_code_stands_for(source: str, unit: str) -> None:
    assert units_of(V1.format(f'<trans-unit id="1"><source>{source}</source></trans-unit>')) == [unit]


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ('from <ph id="1">%s</ph> to <ph id="2">%d</ph>', None),
        (
            'from <ph id="1">%2$s</ph> to <ph id="2">%1$d</ph>',
            '<ph id="2">%1$d</ph> to <ph id="1">%2$s</ph> from',
        ),
        ('from <ph id="1">%s</ph> to me', 'me to <ph id="1">%s</ph> from'),
        ('from <x id="1"/> %s to %d', '<x id="1"/> %2$d to %1$s from'),
        ('%d from <ph id="1">%s</ph> %d', None),
        ('%d from <ph id="1">%s</ph>', None),
        ('%(a)s from <ph id="1">{b}</ph>', '<ph id="1">{b}</ph> from %(a)s'),
    ],
)
def test_arguments_of_printf(source: str, written: str | None) -> None:
    data = V1.format(f'<trans-unit id="1"><source>{source}</source></trans-unit>')
    if written is None:
        assert "<target" not in reversed_file(data)
    else:
        assert f"{written}</target>" in reversed_file(data)


TRADOS = """<trans-unit id="t"><source>One cat. 12 Two dogs.</source>\
<seg-source><g id="1"><mrk mtype="seg" mid="1">One <x id="5"/>cat</mrk> <mrk mtype="seg" mid="2">12</mrk>\
 <mrk mtype="seg" mid="3">Two dogs</mrk></g></seg-source>{}\
<sdl:seg-defs xmlns:sdl="urn:sdl"><sdl:seg id="1"/></sdl:seg-defs></trans-unit>"""


@pytest.mark.parametrize("target", ["", "<target/>", '<target><g id="1"></g></target>'])
def test_a_source_in_segments_gets_a_target_in_segments(target: str) -> None:
    if "<g" in target:  # a code is content
        assert units_of(V1.format(TRADOS.format(target))) == []
        return
    written = reversed_file(V1.format(TRADOS.format(target)))
    expected = (
        f'</seg-source><target {MACHINE}><g id="1"><mrk mtype="seg" mid="1"><x id="5"/>cat One</mrk>'
        ' <mrk mtype="seg" mid="2">12</mrk> <mrk mtype="seg" mid="3">dogs Two</mrk></g></target><sdl:seg-defs'
    )
    assert expected in written


def test_a_target_has_a_line_like_that_of_its_segments() -> None:
    segments = '<seg-source><mrk mtype="seg" mid="1">the house</mrk></seg-source>'
    data = V1.format(f'<trans-unit id="1">\n  <source>the house</source>\n    {segments}\n</trans-unit>')
    expected = (
        f'{segments}\n    <target {MACHINE}><mrk mtype="seg" mid="1">house the</mrk></target>\n</trans-unit>'
    )
    assert expected in reversed_file(data)


def test_segments_without_a_translation_are_filled_between_the_others() -> None:
    target = '<target state="translated"><mrk mid="1" mtype="seg"/> <mrk mtype="seg" mid="3">Zwei Hunde.</mrk></target>'
    written = reversed_file(V1.format(TRADOS.format(target)))
    expected = '<mrk mid="1" mtype="seg"><x id="5"/>cat One</mrk> <mrk mtype="seg" mid="3">Zwei Hunde.</mrk></target>'
    assert f"<target {MACHINE}>{expected}" in written


@pytest.mark.parametrize(
    "unit",
    [
        '<trans-unit id="1" translate="no"><source>The house</source></trans-unit>',
        '<group translate="no"><group><trans-unit id="1"><source>The house</source></trans-unit></group></group>',
        '<trans-unit id="1" approved="yes"><source>The house</source></trans-unit>',
        '<trans-unit id="1"><source>12:30</source></trans-unit>',
        '<trans-unit id="1"><source><mrk mtype="protected">The house</mrk></source></trans-unit>',
        '<trans-unit id="1"><source>The house</source><target><x id="1"/></target></trans-unit>',
        '<bin-unit id="1"><bin-source/><trans-unit id="2"><source>The house</source></trans-unit></bin-unit>',
        '<trans-unit id="1"><note>No source</note></trans-unit>',
        '<x:trans-unit xmlns:x="urn:x" id="1"><x:source>The house</x:source></x:trans-unit>',
    ],
)
def test_what_is_not_translated(unit: str) -> None:
    assert units_of(V1.format(unit)) == []


def test_a_unit_may_be_translated_in_a_group_that_is_not() -> None:
    unit = '<trans-unit id="1" translate="yes"><source>The house</source></trans-unit>'
    assert units_of(V1.format(f'<group translate="no">{unit}</group>')) == ["The house"]


def test_a_prefix_for_all_names() -> None:
    data = (
        '<xlf:xliff xmlns:xlf="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><xlf:file><xlf:body>'
        '<xlf:trans-unit id="1"><xlf:source>the <xlf:g id="1">old house</xlf:g></xlf:source></xlf:trans-unit>'
        "</xlf:body></xlf:file></xlf:xliff>"
    )
    assert units_of(data) == ['the <g id="1">old house</g>']
    assert (
        f'</xlf:source><xlf:target {MACHINE}><xlf:g id="1">house old</xlf:g> the</xlf:target></xlf:trans-unit>'
        in reversed_file(data)
    )
    assert units_of(data.replace("xlf:trans-unit", "trans-unit")) == []


@pytest.mark.parametrize(
    ("source", "unit", "written"),
    [
        ("salt &amp; water &#8212; &gt; oil", "salt & water \u2014 > oil", "oil &gt; \u2014 water &amp; salt"),
        ("<![CDATA[a <b>red house</b>]]>", "a <b>red house</b>", "<![CDATA[<b>house red</b> a]]>"),
        ("a <!-- note -->red<?pi x?> house", "a red house", "house red a"),
        ("a <![CDATA[<i>red</i>]]> house", "a <i>red</i> house", "house &lt;i&gt;red&lt;/i&gt; a"),
        ("red house&#13;&#10;old tree", "red house\r\nold tree", "house red&#13;&#10;tree old"),
    ],
)  # fmt: skip
def test_references_and_cdata(source: str, unit: str, written: str) -> None:
    data = V1.format(f'<trans-unit id="1"><source>{source}</source></trans-unit>')
    assert units_of(data) == [unit]
    assert f">{written}</target>" in reversed_file(data)


def test_the_line_ends_of_the_file() -> None:
    data = V1.format(
        '<trans-unit id="1" xml:space="preserve">\n<source>red house\nold tree</source></trans-unit>'
    )
    data = data.replace("\n", "\r\n")
    assert units_of(data) == ["red house\nold tree"]
    assert f"</source>\r\n<target {MACHINE}>house red\r\ntree old</target>" in reversed_file(data)


@pytest.mark.parametrize(
    ("attribute", "text", "expected"),
    [
        ("", "the old\n  house", "the old house"),
        ("", "the old\nhouse", "the old\nhouse"),
        ("", "the old\n  house\ntree", "the old\n  house\ntree"),
        ("", "\n  the old\n  house\n  ", "\n  the old house\n  "),
        ('xml:space="preserve"', "the old\n  house", "the old\n  house"),
        ('xml:space="default"', "the old\n  house", "the old house"),
    ],
)
def test_a_line_break_before_an_indented_line_is_a_space(attribute: str, text: str, expected: str) -> None:
    assert units_of(V1.format(f'<trans-unit id="1" {attribute}><source>{text}</source></trans-unit>')) == [
        expected
    ]
    on_source = f'<trans-unit id="1"><source {attribute}>{text}</source></trans-unit>'
    assert units_of(V1.format(on_source)) == [expected]
    assert f"<target {attribute} {MACHINE}>".replace("  ", " ") in reversed_file(V1.format(on_source))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1", "windows-1252", "us-ascii"])
def test_encodings(encoding: str) -> None:
    name = encoding.removesuffix("-sig")
    data = V1.replace("UTF-8", name).format(
        '<trans-unit id="1"><source>caf\xe9 red</source></trans-unit>'
        '<trans-unit id="2"><source><![CDATA[old house]]></source></trans-unit>'
    )
    raw = data.replace("\xe9", "&#233;").encode(encoding)
    file = read_file(raw, FileFormat.XLIFF)
    assert [unit.text for unit in file.units] == ["caf\xe9 red", "old house"]
    assert file.write([unit.text for unit in file.units]) == raw
    written = file.write(["rotes Caf\xe9", "\u0142 & <"])
    assert [each.text for each in ElementTree.fromstring(written).findall(".//{*}target")] == [
        "rotes Caf\xe9",
        "\u0142 & <",
    ]
    assert written.startswith(raw[:60])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            '<xliff version="1.1"/>',
            "line 1: XLIFF version 1.1 is not supported; supported are 1.2, 2.0 and 2.1",
        ),
        ('\n<xliff version="2.2"/>', "line 2: XLIFF version 2.2 is not supported"),
        ("<xliff/>", "line 1: XLIFF without a known version is not supported"),
        ('<xliff version="my secret"/>', "line 1: XLIFF without a known version is not supported"),
        ("<tmx/>", "line 1: the root element is not xliff"),
        ('<xliff version="1.2">\n<file></xliff>', "line 2: malformed XML: mismatched tag"),
        ("", "line 1: malformed XML: no element found"),
        (
            '<!DOCTYPE xliff [<!ENTITY a "b">]><xliff version="1.2"/>',
            "XML with a document type is not supported",
        ),
        ('<?xml version="1.0" encoding="moon"?><xliff version="1.2"/>', "an encoding that is not supported"),
        ("<a>" * 600, "elements are nested more than 500 deep"),
    ],
)
def test_what_is_refused(data: str, message: str) -> None:
    with pytest.raises(FileError) as raised:
        read_file(data.encode(), FileFormat.XLIFF)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (FileLimits(max_units=39), "limit of 39 texts"),
        (FileLimits(max_characters=39), "limit of 39 characters"),
        (FileLimits(max_elements=50), "limit of 50 XML elements"),
        (FileLimits(max_part_bytes=500), "limit of 500 bytes"),
    ],
)
def test_a_file_above_a_limit_is_refused(limits: FileLimits, message: str) -> None:
    data = V1.format('<trans-unit id="1"><source>a</source></trans-unit>' * 40).encode()
    assert len(read_file(data, FileFormat.XLIFF, FileLimits(max_units=40, max_characters=40)).units) == 40
    with pytest.raises(FileError, match=message):
        read_file(data, FileFormat.XLIFF, limits)


@pytest.mark.parametrize("character", ["\x0b", "\ud800"])
def test_a_character_that_xml_cannot_have_is_an_error(character: str) -> None:
    data = V1.format('<trans-unit id="1"><source>a</source></trans-unit>')
    with pytest.raises(FileError, match="character that XML cannot contain"):
        read_file(data.encode(), FileFormat.XLIFF).write([character])
