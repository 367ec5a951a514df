"""XLIFF 2.0 and 2.1: segments, their states, and codes that refer to each other and to their data."""

from __future__ import annotations

import re

import pytest

from app.files import FileFormat
from app.files.reading import read_file
from tests.files.xliff_files import V2, codes_of, reversed_file, targets, units_of

UNIT = '<unit id="u1">{}<segment id="s1"><source>{}</source></segment></unit>'
DATA = (
    '<originalData><data id="d1">&lt;b></data><data id="d2">&lt;/b></data><data id="d3">%s</data>'
    '<data id="d4">&lt;br/></data><data id="d5">&lt;img src="a"/></data></originalData>'
)


def test_the_segments_of_a_unit() -> None:
    data = V2.format(
        """<notes><note id="n1">A note</note></notes>
      <unit id="u1" name="a">
        <segment id="s1" state="initial" subState="x:new">
          <source>the old house</source>
        </segment>
        <ignorable><source> and this </source></ignorable>
        <segment id="s2"><source>the tree</source><target order="1"/></segment>
        <segment id="s3" state="translated"><source>the cat</source><target>die Katze</target></segment>
        <segment id="s4" state="final"><source>the dog</source></segment>
        <segment id="s5" state="reviewed"><source>the fish</source><target></target></segment>
        <segment id="s6" state="initial"><source>the sea</source><target>the sea</target></segment>
        <segment id="s7"><source>the hill</source><target>the hill</target></segment>
      </unit>"""
    )
    assert units_of(data) == ["the old house", "the tree", "the sea"]
    written = reversed_file(data)
    assert targets(written) == ["house old the", "tree the", "die Katze", "", "sea the", "the hill"]
    assert (
        '<segment id="s1" state="translated">\n          <source>the old house</source>\n'
        "          <target>house old the</target>\n        </segment>"
    ) in written
    expected = (
        '<segment id="s2" state="translated"><source>the tree</source><target order="1">tree the</target>'
    )
    assert expected in written
    assert written.count("<target") == 6


@pytest.mark.parametrize(
    ("source", "unit"),
    [
        ('one <pc id="1" dataRefStart="d1">big</pc> cat', 'one <g id="1">big</g> cat'),
        ('one <ph id="1" dataRef="d3"/> cat', 'one <x id="1" translate="no"/> cat'),
        ('one big<ph id="1" dataRef="d4"/>cat', 'one big<br id="1"/>cat'),
        ('one <ph id="1" dataRef="d5"/> cat', 'one <x id="1"/> cat'),
        ('one <ph id="1" disp="{{n}}" equiv="INTERPOLATION"/> cat', 'one <x id="1" translate="no"/> cat'),
        ('one big<ph id="1" type="fmt" subType="xlf:lb"/>cat', 'one big<br id="1"/>cat'),
        ('one <ph id="1" type="ui" subType="xlf:var"/> cat', 'one <x id="1" translate="no"/> cat'),
        ('one <ph id="1" disp="%(n)s"/> cat', 'one <x id="1" translate="no"/> cat'),
        ('one <ph id="1"/> cat', 'one <x id="1"/> cat'),
        ('one <ph id="1" dataRef="d1"/>big<ph id="2" dataRef="d2"/> cat', 'one <g id="1">big</g> cat'),
        ('one <sc id="1"/>big<ec startRef="1"/> cat', 'one <g id="1">big</g> cat'),
        ('one <sc id="1"/>big<ec id="2" isolated="yes"/> cat', 'one <x id="1"/>big<x id="3"/> cat'),
        (
            'one <sc id="1"/>big <sc id="2"/>old<ec startRef="1"/> red<ec startRef="2"/> cat',
            'one <g id="1">big <x id="3"/>old</g> red<x id="7"/> cat',
        ),
        (
            'one <sc id="1"/>big <pc id="2">old<ec startRef="1"/> red</pc> cat',
            'one <x id="1"/>big <g id="3">old<x id="5"/> red</g> cat',
        ),
        ('one <mrk id="1" type="term">big</mrk> cat', 'one <g id="1">big</g> cat'),
        ('one <mrk id="1" translate="no">big <pc id="2">red</pc></mrk> cat', 'one <x id="1" translate="no"/> cat'),
        ('one <sm id="1" type="term"/>big<em startRef="1"/> cat', 'one <g id="1">big</g> cat'),
        ('one <sm id="1" translate="no"/>big <ph/><em startRef="1"/> cat', 'one <x id="1" translate="no"/> cat'),
        ('one <cp hex="001A"/> cat', 'one <x id="1"/> cat'),
        ('one <pc id="1"/> cat', 'one <x id="1"/> cat'),
        ('one <f:y xmlns:f="urn:f">big</f:y> cat', 'one <x id="1"/> cat'),
        (
            'one <pc id="1" canReorder="firstNo">big</pc> <ph id="2" canReorder="no"/> cat',
            'one <x id="1"/>big<x id="3"/> <x id="5"/> cat',
        ),
    ],
)  # fmt: skip
def test_inline_codes(source: str, unit: str) -> None:
    data = V2.format(UNIT.format(DATA, source))
    assert units_of(data) == [unit]
    written = reversed_file(data)
    assert codes_of(written, "target") == codes_of(written, "source")


def test_codes_that_keep_their_order() -> None:
    source = (
        'red <pc id="1" canReorder="firstNo">big</pc> <ph id="2" canReorder="no"/> cat <pc id="3">here</pc>'
    )
    written = reversed_file(V2.format(UNIT.format("", source)))
    codes = re.findall(r'<(?:pc|ph) id="(\d)"', written[written.index("<target") :])
    assert codes == ["1", "2", "3"]


@pytest.mark.parametrize(
    "source",
    [
        'one <sc id="2"/>old <sc id="1"/>big<ec startRef="2"/> red<ec startRef="1"/> cat',
        'one <sc id="1"/>big <pc id="2">old<ec startRef="1"/> red</pc> cat',
    ],
)
def test_the_end_of_an_overlapping_pair_stays_after_its_start(source: str) -> None:
    written = reversed_file(V2.format(UNIT.format("", source)))
    target = written[written.index("<target") :]
    assert target.index('<sc id="1"/>') < target.index('<ec startRef="1"/>')


@pytest.mark.parametrize(
    "units",
    [
        '<unit id="1" translate="no"><segment><source>The house</source></segment></unit>',
        '<group id="g" translate="no"><unit id="1"><segment><source>The house</source></segment></unit></group>',
        '<unit id="1"><segment><source><mrk id="m" translate="no">The house</mrk></source></segment></unit>',
        """<unit id="1"><segment><source><sm id="m" translate="no"/>The house</source></segment>\
<segment><source>The tree<em startRef="m"/></source></segment></unit>""",
        """<unit id="1"><mtc:matches xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"><mtc:match ref="#m">\
<source>The house</source><target>Das Haus</target></mtc:match></mtc:matches></unit>""",
    ],
)
def test_what_is_not_translated(units: str) -> None:
    assert units_of(V2.format(units)) == []


def test_a_file_that_is_not_translated() -> None:
    unit = '<unit id="{}"{}><segment><source>The house</source></segment></unit>'
    data = V2.format(unit.format(1, "") + unit.format(2, ' translate="yes"'))
    data = data.replace('<file id="f1">', '<file id="f1" translate="no">')
    assert units_of(data) == ["The house"]
    assert '<unit id="2" translate="yes"><segment state="translated">' in reversed_file(data)


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_the_target_language_is_required(version: str) -> None:
    data = V2.replace('"2.0"', f'"{version}"').format(UNIT.format("", "the house"))
    written = reversed_file(data, "pt-BR")
    assert f'<xliff version="{version}" srcLang="en" xmlns=' in written
    assert 'document:2.0" trgLang="pt-BR">' in written
    file = read_file(data.encode(), FileFormat.XLIFF, target="pt-BR")
    assert file.write([unit.text for unit in file.units]) == data.encode()
