"""A sample file of every format, with content that must not change."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from app.files import FileFormat
from tests.files.opendocuments import ODP, ODT
from tests.files.presentations import pptx

TXT = "First line.\r\n\r\n   Indented, with a tab\t\r\nlast \u00e9\u2028 line".encode()
SRT = (
    "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\nThe <i>old</i> house\r\nis empty.\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000 X1:1 X2:2\r\n{\\an8}- Who is there?\r\n- Nobody & nothing.\r\n\r\n\r\n"
    '3\r\n00:00:05,000 --> 00:00:06,000\r\n<font color="red">Stop\r\n\r\n4\r\n0:00:07,0 --> 0:00:08,0\r\n12:30\r\n'
).encode()
VTT = (
    b"WEBVTT - a title\nKind: captions\n\nNOTE\nnot for translation\n\nSTYLE\n::cue { color: red }\n\n"
    b"intro\n00:01.000 --> 00:02.000 align:start position:10%\n<v Ann Lee>Salt &amp; pepper,\nplease.</v>\n\n"
    b"01:00:03.000 --> 01:00:04.000\nOne <00:03.500><c.loud>two</c> three &lt;four&gt;\n"
)
HTML = (
    b'<!DOCTYPE html>\r\n<html lang=en><head><meta charset="iso-8859-1"><title>A \xe9t\xe9</title>\r\n'
    b"<style>p { color: red }</style><script>var a = '<p>no</p>'</script></head>\r\n<BODY class='x'>\r\n"
    b"<p>One <b>bold</b>  word &amp; a&nbsp;space.<br>Next<p>Unclosed <!-- note --> end\r\n"
    b"<pre>code stays</pre><ul><li>Item<li translate=no>Brand</ul></BODY></html>\r\n"
)
MARKDOWN = b"""---
title: Not translated
---
# The *first* title #

A paragraph of **two
  lines** with `code here`, a [link *inside*](https://example.org/a_b "tip"), ![a picture](p.png)
and an \\*escape\\*, a <b>tag</b> and an end.\x20\x20
Hard break.

> Quoted text
> over two lines
>
> 1. 1 item
>    - nested item

```python
print("stays")
```

    indented code

| Name | What *it* is |
|------|:------------:|
| one \\| two | three |
|  | `x` only |

Setext title
============

<div>
<p>Block of HTML</p>
</div>

- [ ] a task ~~gone~~ [ref][r]

[r]: https://example.org "Title stays"
"""
PO = b"""# Translators' comment
msgid ""
msgstr ""
"Project-Id-Version: x\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=n%10==1 ? 0 : n>1 ? 1 : 2;\\n"

#. extracted
#: src/a.c:12
#, c-format
msgctxt "menu"
msgid "Open %s now"
msgstr ""

msgid "Done already"
msgstr "Schon fertig"

#, fuzzy
#| msgid "Old"
msgid "New"
msgstr "Alt"

#, python-format
msgid "%(n)d file"
msgid_plural "%(n)d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid ""
"A first line.\\n"
"A \\"quoted\\" word and a \\\\ and a\\ttab.\\n"
msgstr ""

msgid "12:30"
msgstr ""

#~ msgid "obsolete"
#~ msgstr ""
"""
JSON = (
    b'\xef\xbb\xbf{"key text": "A value",\r\n  "n": 1.50e+3, "t":true , "z": null,\n\t"list": ["caf\\u00e9", '
    b'"a\\/b \\"q\\"",'
    b' "12", "<b>Bold</b> &amp; text", "", "\\ud800 lone"], "nested": {"a": "Hello, {{name}}!", "a": "again"}}\n\n'
)
XLIFF = b"""<?xml version="1.0" encoding="UTF-8"?>
<!-- kept -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:x="urn:x">
  <file original="manual.html" source-language="en" target-language="de" datatype="html">
    <header><note>The header</note></header>
    <body>
      <trans-unit id="1" x:key='a > b'>
        <source>Salt &amp; <g id="1" ctype="bold">red</g> pepper<x id="2"/>.</source>
        <note>Not translated</note>
      </trans-unit>
      <trans-unit id="2"><source><![CDATA[The <b>old</b> house]]></source><target/></trans-unit>
      <trans-unit id="3" approved="yes"><source>Done</source><target>Fertig</target></trans-unit>
      <group translate="no"><trans-unit id="4"><source>The brand</source></trans-unit></group>
      <trans-unit id="5">
        <source>One cat. Two cats.</source>
        <seg-source><mrk mtype="seg" mid="1">One cat.</mrk> <mrk mtype="seg" mid="2">Two cats.</mrk></seg-source>
      </trans-unit>
      <trans-unit id="6"><source>12:30</source></trans-unit>
    </body>
  </file>
</xliff>
"""
XLIFF_2 = b"""<?xml version="1.0" encoding="UTF-8"?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f1">
<unit id="u1"><originalData><data id="d1">%d</data><data id="d2">&lt;br/></data></originalData>
<segment id="s1" state="initial"><source>Ask <pc id="1">our <sc id="2"/>old</pc> cat<ec startRef="2"/> for <ph id="3"
 dataRef="d1"/> <sc id="4"/>red <mrk id="m1" translate="no">Acme</mrk> doors<ec startRef="4"/>.</source></segment>
<ignorable><source> </source></ignorable>
<segment id="s2"><source>Two<ph id="5" dataRef="d2"/>lines <cp hex="001A"/></source><target/></segment></unit>
</file></xliff>
"""

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
BOLD = "<w:rPr><w:b/></w:rPr>"
DOCUMENT = f"""<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document {_W} xmlns:r="r" xmlns:v="v"><w:body>
<w:p w:rsidR="1"><w:pPr><w:pStyle w:val="Title"/></w:pPr><w:r><w:t>A ti</w:t></w:r>\
<w:proofErr w:type="x"/><w:r w:rsidR="2"><w:rPr><w:lang w:val="en-GB"/></w:rPr><w:t>tle here</w:t></w:r></w:p>
<w:p><w:r>{BOLD}<w:t xml:space="preserve">Note: </w:t></w:r>\
<w:r><w:t>salt &amp; pepper</w:t></w:r>\
<w:r><w:footnoteReference w:id="2"/></w:r>\
<w:r><w:t xml:space="preserve"> are on the </w:t></w:r>\
<w:hyperlink r:id="rId4"><w:r><w:rPr><w:u/></w:rPr><w:t>old table</w:t></w:r></w:hyperlink>\
<w:bookmarkStart w:id="0"/><w:r><w:t>.</w:t><w:br/><w:t>New line.</w:t></w:r></w:p>
<w:p/><w:p><w:r><w:t>42</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>In a cell</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
<w:p><w:r><w:t xml:space="preserve">See </w:t></w:r>\
<w:r><w:fldChar w:fldCharType="begin"/></w:r>\
<w:r><w:instrText> REF a </w:instrText></w:r>\
<w:r><w:fldChar w:fldCharType="separate"/></w:r>\
<w:r><w:t>page two</w:t></w:r>\
<w:r><w:fldChar w:fldCharType="end"/></w:r>\
<w:r><w:t xml:space="preserve"> today.</w:t></w:r></w:p>
<w:p><w:r><w:pict><v:textbox>\
<w:txbxContent><w:p><w:r><w:t>Inside a box</w:t></w:r></w:p></w:txbxContent></v:textbox></w:pict></w:r>\
<w:r><w:t>Beside the box</w:t></w:r></w:p>
<w:sectPr/></w:body></w:document>"""
HEADER = f"<w:hdr {_W}><w:p><w:r><w:t>The header</w:t></w:r></w:p></w:hdr>"
_FOOTNOTE = "<w:p><w:r><w:t>A footnote.</w:t></w:r></w:p>"
FOOTNOTES = f'<w:footnotes {_W}><w:footnote w:id="2">{_FOOTNOTE}</w:footnote></w:footnotes>'


def docx(document: str = DOCUMENT, **others: bytes) -> bytes:
    """An archive as Word writes it. others: further entries by name, with `__` for a slash."""
    archive = BytesIO()
    with ZipFile(archive, "w", ZIP_DEFLATED) as made:
        made.writestr("[Content_Types].xml", "<Types/>")
        made.writestr("word/document.xml", document)
        made.writestr("word/header1.xml", HEADER)
        made.writestr("word/footnotes.xml", FOOTNOTES)
        made.writestr(ZipInfo("word/media/image1.png", (2001, 2, 3, 4, 5, 6)), b"\x89PNG" * 9, ZIP_STORED)
        for name, content in others.items():
            made.writestr(name.replace("__", "/"), content)
    return archive.getvalue()


SAMPLES = {
    FileFormat.TXT: TXT,
    FileFormat.SRT: SRT,
    FileFormat.VTT: VTT,
    FileFormat.HTML: HTML,
    FileFormat.MARKDOWN: MARKDOWN,
    FileFormat.PO: PO,
    FileFormat.JSON: JSON,
    FileFormat.XLIFF: XLIFF,
    FileFormat.DOCX: docx(),
    FileFormat.PPTX: pptx(),
    FileFormat.ODT: ODT,
    FileFormat.ODP: ODP,
}
